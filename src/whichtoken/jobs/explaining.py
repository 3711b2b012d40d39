"""Explain one part of a corpus: a pure function of its block of rows, written as one shard."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from whichtoken._explain import explain_each
from whichtoken.boundary import describe_failure
from whichtoken.core.trace import Method
from whichtoken.data.sources import BadRow
from whichtoken.errors import LibraryMismatch, ShardFailed, WhichTokenError
from whichtoken.identity import Identity
from whichtoken.jobs.files import BlockRow, block_files, parse_block, read_block_table
from whichtoken.jobs.shards import FailedRow, ShardStamp, describe_result, make_table, shard_files, write_shard
from whichtoken.jobs.work import DoPart, Engine, Range, Receipt
from whichtoken.models import LongTexts, Subject, load
from whichtoken.models.memory import is_out_of_memory
from whichtoken.models.special_tokens import SpecialTokens
from whichtoken.records import Attribution, Reading

AT_ONCE = 256  # rows whose results are Python objects at a time
FEW = 8  # if at least this many rows were tried and every one failed, the model is to blame, not the rows
DEVICE_ERROR: type[Exception] = getattr(torch, "AcceleratorError", torch.OutOfMemoryError)  # torch 2.8 and later
# Errors that are not about a row: of this library, which names bad rows itself, of the disk, of the installation, and
# of a device that may be unusable from then on. Nor is a lack of memory.
NOT_OF_ROWS = (WhichTokenError, OSError, ImportError, DEVICE_ERROR)


@dataclass(frozen=True)
class ModelChoice:
    """Which model each worker loads, and how; the arguments of `wt.load`."""

    name: str | None = None
    revision: str | None = None
    dtype: str = "float32"
    device: str | None = None
    references: str | None = None  # a folder that every worker can read
    heads: str | None = None
    trust_remote_code: bool = False
    reading: Reading | None = None
    batch_size: int | None = None
    special_tokens: SpecialTokens = "control"

    def open(self) -> Subject:
        return load(
            self.name,
            revision=self.revision,
            dtype=self.dtype,
            device=self.device,
            references=self.references,
            heads=self.heads,
            trust_remote_code=self.trust_remote_code,
            reading=self.reading,
            batch_size=self.batch_size,
            special_tokens=self.special_tokens,
        )

    def open_for_planning(self, engine: Engine) -> Subject:
        """Load the model in the job's own process; on its CPU if workers elsewhere have the device."""
        return (self if engine.name == "local" else replace(self, device=None)).open()

    def for_workers(self, engine: Engine) -> "ModelChoice":
        """Return the choice with absolute paths, for workers in another folder, and on the GPUs reserved for them."""
        name, references, heads = (
            str(Path(value).expanduser().absolute())
            if value is not None and Path(value).expanduser().exists()
            else value
            for value in (self.name, self.references, self.heads)
        )
        device = self.device or ("cuda" if engine.gpus_per_worker else None)
        return replace(self, name=name, references=references, heads=heads, device=device)

    def open_alone(self, identity: Identity) -> Subject:
        """Load the model in a worker; LibraryMismatch if it is not the one that the job was planned with."""
        if self.device in (None, "cpu"):
            torch.set_num_threads(1)  # so that a part does not depend on the number of CPUs
        subject = self.open()
        if subject.identity() != identity:
            raise LibraryMismatch(
                f"{subject.title} has changed since the job was planned, or workers find another model under this "
                "name; put it back, or start the job again in another folder"
            )
        return subject


@dataclass(frozen=True)
class ExplainWork:
    """How a corpus is explained."""

    model: ModelChoice
    identity: Identity
    methods: Mapping[str, Method]
    folder: str  # of the job, which every worker can read and write
    hashes: Mapping[Range, str]  # of the blocks
    stamp: ShardStamp
    target: Any = None
    long: LongTexts | None = None
    label_is_given: bool = False

    def read(self, first: int, last: int) -> Any:
        return read_block_table(block_files(Path(self.folder)).path(first, last))

    def open(self) -> DoPart:
        return partial(self.explain_part, self.model.open_alone(self.identity))

    def explain_part(self, subject: Subject, table: Any, part: Range) -> Receipt:
        """Explain the rows of a block and write their shard."""
        path = shard_files(Path(self.folder)).path(*part)
        block = parse_block(table, self.hashes[part], block_files(Path(self.folder)).path(*part))
        reasons = {row.row: row.problem for row in block if row.problem is not None}
        by_row = {row.row: row for row in block}
        usable = [row for row in block if row.problem is None]
        # By length, so that batches have little padding.
        usable.sort(key=lambda row: (sum(map(len, row.texts)), row.row))
        results = self._explain(subject, usable, reasons)
        tokens: dict[int, int] = {}
        table = make_table(self._describe(by_row, results, tokens), self.stamp.keep)
        failures = [fail(by_row[row], reason) for row, reason in reasons.items()]
        info = write_shard(path, table, failures, self.stamp, sum(tokens.values()))
        return Receipt(*part, info.n_results, len(info.failures), info.n_tokens)

    def _explain(
        self, subject: Subject, rows: Sequence[BlockRow], reasons: dict[int, str]
    ) -> Iterator[dict[str, Attribution]]:
        """Yield the results of the rows; `reasons` gets why others have none."""

        def skip(example: Any, error: WhichTokenError) -> None:
            reasons[example.row] = BadRow(example.row, example.where, error).reason

        def explain(some: Sequence[BlockRow]) -> list[dict[str, Attribution]]:
            examples = [row.example(self.label_is_given) for row in some]
            methods = list(self.methods.values())
            return list(explain_each(subject, examples, methods, self.target, self.long, on_bad_input=skip))

        unknown: dict[int, Exception] = {}
        for first in range(0, len(rows), AT_ONCE):
            yield from isolate_failures(explain, rows[first : first + AT_ONCE], unknown)
            tried = [row.row for row in rows[: first + AT_ONCE] if row.row not in reasons]
            if len(tried) >= FEW and unknown.keys() >= set(tried):
                error = unknown[tried[0]]
                raise ShardFailed(f"the model fails for every row: {describe_failure(error)}") from error
        reasons.update((row, f"the model fails: {describe_failure(error)}") for row, error in unknown.items())

    def _describe(
        self, by_row: Mapping[int, BlockRow], results: Iterable[Mapping[str, Attribution]], tokens: dict[int, int]
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a shard; `tokens` gets how many tokens of each row the model read."""
        counts = Counter[int]()
        for result in results:
            first = next(iter(result.values()))
            assert first.source is not None, "every example of a block has a row"
            known = by_row[first.source.row or 0]
            place = {"row": known.row, "file": known.file, "line": known.line, "id": known.id}
            tokens[known.row] = len(first.tokens)
            for key, record in result.items():
                yield place | describe_result(record, counts[known.row], key, self.stamp)
            counts[known.row] += 1


def isolate_failures(
    explain: Callable[[Sequence[BlockRow]], list[dict[str, Attribution]]],
    rows: Sequence[BlockRow],
    unknown: dict[int, Exception],
) -> Iterator[dict[str, Attribution]]:
    """Yield the results of the rows. If the model raises an error that names no row, its rows are found by halving,
    and `unknown` gets their errors.
    """
    try:
        results = explain(rows)
    except NOT_OF_ROWS:
        raise
    except Exception as error:  # of any kind: the model's code is not ours
        if is_out_of_memory(error):
            raise
        if len(rows) == 1:
            unknown[rows[0].row] = error
            return
        middle = len(rows) // 2
        yield from isolate_failures(explain, rows[:middle], unknown)
        yield from isolate_failures(explain, rows[middle:], unknown)
    else:
        yield from results


def fail(row: BlockRow, reason: str) -> FailedRow:
    return FailedRow(row.row, row.file, row.line, row.id, reason)
