"""Measure corpus jobs on this machine: throughput of both engines with 1 and 2 workers, and memory over the run.

    python benchmarks/corpus.py --data 'texts/*.tsv' --rows 2000 --engines local:1,local:2,ray:1,ray:2

Each engine explains the same rows into a folder of its own, and all folders must end with the same shards. Rates are
counted from the first part of the last worker to the last part, so that loading the model does not count. CPU seconds
are those of all processes of the job in the same time; they depend less on what else runs on the machine.
"""

import argparse
import hashlib
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psutil

from whichtoken.jobs import CorpusFiles, Engine, ExplainOptions, explain_corpus, read_manifest
from whichtoken.jobs.progress import JobProgress

MEBIBYTE = 2**20


@dataclass
class Watch:
    """Samples memory and CPU time of this process and all below it, and notes when parts are finished."""

    memory: list[float] = field(default_factory=list)
    finished: list[tuple[float, int, int, float]] = field(default_factory=list)  # time, rows, tokens, CPU so far
    cpu: dict[tuple[int, float], float] = field(default_factory=dict)  # by process and its start
    end: threading.Event = field(default_factory=threading.Event)

    def note(self, progress: JobProgress) -> None:
        self.finished.append((time.monotonic(), progress.done, progress.tokens, sum(list(self.cpu.values()))))

    def sample(self) -> None:
        own = psutil.Process(os.getpid())
        while not self.end.wait(2.0):  # more often, and watching would count
            total = 0
            for process in [own, *own.children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                    times = process.cpu_times()
                    self.cpu[process.pid, process.create_time()] = times.user + times.system
                except psutil.Error:  # it ended meanwhile
                    continue
            self.memory.append(total / MEBIBYTE)

    def third(self, number: int) -> float:
        """The most memory in a third of the run."""
        size = max(1, len(self.memory) // 3)
        return max(self.memory[number * size : (number + 1) * size] or self.memory)


def write_rows(files: CorpusFiles, n_rows: int, path: Path) -> None:
    """Copy rows drawn at random from all files, so that short and long texts are mixed."""
    from whichtoken.jobs.files import read_corpus

    rows = [row for row in read_corpus(files) if row.problem is None]
    drawn = Random(0).sample(rows, min(n_rows, len(rows)))
    lines = [f"{' '.join(row.texts[0].split())}\t{row.label}\n" for row in drawn]
    path.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")


def run(name: str, workers: int, data: Path, out: Path, method: str, rows_per_part: int) -> Watch:
    watch = Watch()
    sampler = threading.Thread(target=watch.sample, daemon=True)
    sampler.start()
    files = CorpusFiles((str(data),), ("text",), "label")
    explain_corpus(
        files,
        out,
        None,
        method,
        ExplainOptions(rows_per_part=rows_per_part),
        Engine(name, workers, show=watch.note, say=print),
    )
    watch.end.set()
    sampler.join()
    return watch


def time_blocks(data: Path, folder: Path, rows_per_part: int) -> str:
    """How fast the driver reads rows and writes blocks, the only step that workers do not share."""
    from whichtoken.jobs.files import write_blocks

    files = CorpusFiles((str(data),), ("text",), "label")
    write_blocks(files, folder, rows_per_part)  # the first time, packages are imported
    start = time.process_time()
    index = write_blocks(files, folder, rows_per_part)
    return f"the driver reads {index.n_rows / (time.process_time() - start):,.0f} rows per CPU second into blocks"


def shards_hash(out: Path) -> str:
    return hashlib.sha256(repr(read_manifest(out).shards).encode()).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--engines", default="local:1,local:2,ray:1,ray:2")
    parser.add_argument("--method", default="attcat")
    parser.add_argument("--rows-per-part", type=int, default=128)
    parser.add_argument("--out", help="keep the folder of the last engine here")
    options = parser.parse_args()
    head = (
        "engine   workers   rows/s  tokens/s  CPU s per 1,000 rows  per million tokens  bytes/token  "
        "MiB in thirds of the run    load  shards"
    )
    with TemporaryDirectory(prefix="whichtoken-") as folder:
        data = Path(folder, "rows.tsv")
        write_rows(CorpusFiles(tuple(options.data), ("text",), "label"), options.rows, data)
        print(time_blocks(data, Path(folder, "blocks"), options.rows_per_part), flush=True)
        print(head)
        engines = options.engines.split(",") if options.engines else []
        for number, (name, workers) in enumerate(engine.split(":") for engine in engines):
            last = options.out and number == len(engines) - 1
            out = Path(options.out if last else f"{folder}/{name}-{workers}")
            watch = run(name, int(workers), data, out, options.method, options.rows_per_part)
            # The first part of each worker is slow: its model is loaded.
            (start, rows, tokens, used), (end, all_rows, all_tokens, all_used) = (
                watch.finished[int(workers) - 1],
                watch.finished[-1],
            )
            seconds = max(end - start, 1e-9)
            cpu = (all_used - used) / (all_rows - rows) * 1000
            per_million = (all_used - used) / (all_tokens - tokens) * 1e6
            size = sum(path.stat().st_size for path in (out / "shards").iterdir()) / all_tokens
            memory = ", ".join(f"{watch.third(third):,.0f}" for third in range(3))
            print(
                f"{name:8} {workers:>7} {(all_rows - rows) / seconds:8.1f} {(all_tokens - tokens) / seconds:9,.0f} "
                f"{cpu:21.1f} {per_million:19,.0f} {size:12.1f}  {memory:26} "
                f"{os.getloadavg()[0]:5.1f}  {shards_hash(out)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
