"""Turn texts into model inputs: tokenizing, the rules for long texts, and padded batches."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal
from weakref import WeakSet

import torch
from jaxtyping import Bool, Float, Int
from tokenizers import Tokenizer
from torch import Tensor

from whichtoken.boundary import describe_failure
from whichtoken.core.rows import Image, Row
from whichtoken.errors import BadInput, show
from whichtoken.models.cancelling import check_cancelled
from whichtoken.models.special_tokens import SpecialTokens, TextReader, make_reader
from whichtoken.words import Span

BUSY = 256  # tokens that keep the processor busy
MANY = 8  # groups for each core
LongTexts = Literal["truncate", "window", "error"]

# Tokenizers that failed on a text: they read texts one by one from then on, so that the text to blame is known, and the
# others of its batch are not read again for each such text.
_fragile = WeakSet[Any]()


@dataclass(frozen=True)
class Document:
    """One input, tokenized without truncation. The model reads `windows`: positions in the token fields."""

    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    types: tuple[int, ...]
    spans: tuple[Span | None, ...]
    sequences: tuple[int | None, ...]  # None at special tokens
    word_ids: tuple[int | None, ...]
    unknown: tuple[bool, ...]  # content tokens that the tokenizer does not know
    control: tuple[bool, ...]  # special tokens that are in the texts
    windows: tuple[tuple[int, ...], ...]
    n_cut: int


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right, or images, whose tokens have no ids."""

    ids: Int[Tensor, "batch token"]
    mask: Bool[Tensor, "batch token"]
    types: Int[Tensor, "batch token"]
    special: Bool[Tensor, "batch token"]
    pixels: Float[Tensor, "batch channel row column"] | None = None
    grid: tuple[int, int] | None = None  # rows and columns of patches, the last tokens of an image
    # For language models: where each token of the answer, the last tokens of a row, is predicted. Answers of other rows
    # may be longer; the places beyond a row's own answer are any.
    read: Int[Tensor, "batch place"] | None = None
    tail: Int[Tensor, " batch"] | None = None  # the number of tokens of each row's answer

    def between(self, first: int, end: int) -> "Batch":
        """Return the rows from `first` up to, but not including, `end`."""
        if (first, end) == (0, len(self.ids)):
            return self
        ids, mask, types, special = (x[first:end] for x in (self.ids, self.mask, self.types, self.special))
        pixels, read, tail = (None if x is None else x[first:end] for x in (self.pixels, self.read, self.tail))
        return Batch(ids, mask, types, special, pixels, self.grid, read, tail)

    def repeat(self, n: int) -> "Batch":
        """Repeat all rows n times, one batch after another."""
        ids, mask, types, special = (x.repeat(n, 1) for x in (self.ids, self.mask, self.types, self.special))
        pixels = None if self.pixels is None else self.pixels.repeat(n, 1, 1, 1)
        read, tail = (None if x is None else x.repeat(n, *[1] * (x.dim() - 1)) for x in (self.read, self.tail))
        return Batch(ids, mask, types, special, pixels, self.grid, read, tail)

    def repeat_row(self, row: int, tokens: Int[Tensor, "n token"]) -> "Batch":
        """Repeat one row, each time with these of its tokens. Images stay whole: a hook removes their patches."""
        ids, mask, types, special = (x[row][tokens] for x in (self.ids, self.mask, self.types, self.special))
        pixels = None if self.pixels is None else self.pixels[row : row + 1].expand(len(tokens), -1, -1, -1)
        tail = None if self.tail is None else self.tail[row].expand(len(tokens))
        read = None if tail is None else places_before([tokens.shape[1]] * len(tokens), tail.tolist(), ids.device)
        return Batch(ids, mask, types, special, pixels, None, read, tail)


def tokenize(
    tokenizer: Any,
    texts: Sequence[tuple[str, ...]],
    fit: "Fit",
    first: int = 0,
    special_tokens: SpecialTokens = "control",
) -> list[Document]:
    """Tokenize without truncation; `fit` then chooses the windows. `first` is the index of the first text in error
    messages.
    """
    reader = make_reader(tokenizer, (text for item in texts for text in item), special_tokens)
    documents: dict[int, Document] = {}
    for count in (1, 2):
        numbers = [number for number, item in enumerate(texts) if len(item) == count]
        if numbers:
            encodings = _encode(reader.tokenizer, {first + number: texts[number] for number in numbers})
            for number, encoding in zip(numbers, encodings, strict=True):
                documents[number] = _make_document(first + number, texts[number], encoding, fit, reader)
    return [documents[number] for number in range(len(texts))]


def _encode(tokenizer: Any, texts: Mapping[int, tuple[str, ...]], **options: Any) -> list[Any]:
    """Return the encodings of texts, or of pairs, by their index; BadInput for one on which the tokenizer fails."""
    private, (first, item) = _copy_tokenizer(tokenizer), next(iter(texts.items()))
    kept = {"truncation": False, "padding": False, "verbose": False, **options}
    if len(texts) > 1 and tokenizer not in _fragile:
        try:
            with _blamed_on(item, first):
                return list(private(*map(list, zip(*texts.values(), strict=True)), **kept).encodings)
        except BadInput:  # one of the texts is to blame, but not necessarily the first
            _fragile.add(tokenizer)
    encodings = []
    for number, item in texts.items():
        if tokenizer in _fragile:
            check_cancelled()  # a panic takes a tenth of a second, and there may be no pass between many of them
        with _blamed_on(item if len(item) > 1 else item[0], number):
            encodings += private(*([text] for text in item), **kept).encodings
    return encodings


def decode(tokenizer: Any, ids: Sequence[int], index: int | None = None, **options: Any) -> str:
    """Return the text of some tokens. `index`: of their input, for messages."""
    with _blamed_on(ids, index):
        return str(tokenizer.decode(list(ids), **options))


@contextmanager
def _blamed_on(content: object, index: int | None) -> Iterator[None]:
    """Raise BadInput for whatever the tokenizer raises in this block: its Rust code panics on some texts, and a panic
    is a BaseException. Rust also prints the panic to the standard error of the process, which only Rust can prevent.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as failure:
        reason = f"the tokenizer fails on {show(content, 40)}: {describe_failure(failure)}; change or remove it"
        raise BadInput(reason if index is None else f": {reason}", index=index) from failure


def _copy_tokenizer(tokenizer: Any) -> Any:
    """Return a copy with a truncation and padding of its own, since every call of a tokenizer sets them, and other
    threads may use the user's tokenizer meanwhile. The copy shares the vocabulary, so it takes less than a millisecond.
    """
    original = tokenizer.backend_tokenizer
    backend = Tokenizer(original.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (held := getattr(original, part)) is not None:
            setattr(backend, part, held)
    added = original.get_added_tokens_decoder()
    backend.add_tokens([added[number] for number in sorted(added)])
    if backend.get_added_tokens_decoder() != added:  # their ids leave gaps, which tokens that are added cannot have
        backend = copy.deepcopy(original)
    private = copy.copy(tokenizer)
    private._tokenizer = backend
    return private


def tokenize_prompt(
    tokenizer: Any,
    text: str,
    number: int,
    contents: Sequence[Span] | None = None,
    special_tokens: SpecialTokens = "control",
) -> Document:
    """Tokenize a prompt without truncation. `contents`: of a chat, where the messages are in the text; its template
    wrote the rest, with the special tokens. Without it, the tokenizer adds them.

    Special tokens that the tokenizer adds at the end are left out, because the answer continues the prompt.
    """
    reader = make_reader(tokenizer, [text], special_tokens)
    marked = text if contents is None else reader.mark_outside(text, contents)
    (encoding,) = _encode(reader.tokenizer, {number: (marked,)}, add_special_tokens=contents is None)
    document = _make_document(number, (text,), encoding, _read_whole, reader)
    length = 1 + max(i for i, sequence in enumerate(document.sequences) if sequence is not None)
    names = ("tokens", "ids", "types", "spans", "sequences", "word_ids", "unknown", "control")
    cut = {name: getattr(document, name)[:length] for name in names}
    return replace(document, windows=(tuple(range(length)),), n_cut=0, **cut)


def _read_whole(number: int, sequences: Sequence[int | None]) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(len(sequences))),)


def _make_document(
    number: int, texts: tuple[str, ...], encoding: Any, fit: "Fit | Callable[..., Any]", reader: TextReader
) -> Document:
    sequences = tuple(encoding.sequence_ids)
    for sequence in range(len(texts)):
        if sequence not in sequences:
            text = texts[sequence]
            raise BadInput(f": the tokenizer finds no token in {text!r:.40}; remove it", index=number)
    windows = fit(number, sequences)
    covered = {position for window in windows for position in window}
    found = list(zip(encoding.ids, encoding.tokens, strict=True))
    real = [own if s is None else reader.real.get(own[0], own) for s, own in zip(sequences, found, strict=True)]
    spans = tuple(None if s is None else tuple(span) for s, span in zip(sequences, encoding.offsets, strict=True))
    control = tuple(
        s is not None and i in reader.names and reader.names[i] == texts[s][slice(*span)].strip()
        for s, span, (i, _) in zip(sequences, encoding.offsets, real, strict=True)
    )
    typed = [name for (i, name), is_control in zip(found, control, strict=True) if is_control and i not in reader.real]
    if reader.marks and typed:
        raise BadInput(
            f": the tokenizer has no other reading of {typed[0]!r:.40}; remove it, or leave out special_tokens='text'",
            index=number,
        )
    return Document(
        texts=texts,
        tokens=tuple(name for _, name in real),
        ids=tuple(i for i, _ in real),
        types=tuple(encoding.type_ids),
        spans=spans,
        sequences=sequences,
        word_ids=tuple(None if s is None else w for s, w in zip(sequences, encoding.word_ids, strict=True)),
        unknown=tuple(s is not None and i == reader.unknown for s, (i, _) in zip(sequences, real, strict=True)),
        control=control,
        windows=windows,
        n_cut=len(sequences) - len(covered),
    )


@dataclass(frozen=True)
class Fit:
    """The rule for texts longer than the model's limit."""

    limit: int  # tokens, including special tokens
    long: LongTexts
    from_left: bool = False  # truncate at the start of a text
    only: int | None = None  # index of the only text that may be cut (for questions, the context)

    def __call__(self, number: int, sequences: Sequence[int | None]) -> tuple[tuple[int, ...], ...]:
        special = [i for i, sequence in enumerate(sequences) if sequence is None]
        numbers = sorted({sequence for sequence in sequences if sequence is not None})
        texts = [[i for i, sequence in enumerate(sequences) if sequence == text] for text in numbers]
        counts, room = [len(text) for text in texts], self.limit - len(special)
        if sum(counts) <= room:
            return (tuple(range(len(sequences))),)
        too_long = f"has {len(sequences)} tokens, the model takes {self.limit}"
        if room < len(counts):
            raise BadInput(f"{too_long}, and its {len(special)} special tokens leave no room for words", index=number)
        if self.long == "error":
            raise BadInput(f"{too_long}; shorten it, or use long='truncate' or 'window'", index=number)
        longer = counts.index(max(counts)) if self.only is None else self.only
        width = room - (sum(counts) - counts[longer])
        if self.only is not None and width < 1:
            raise BadInput(
                f"{too_long}, and its question leaves no room for the context; shorten the question", index=number
            )
        if self.long == "truncate":
            left = _longest_first(counts, room) if self.only is None else [counts[0], width]
            kept = [text[len(text) - n :] if self.from_left else text[:n] for text, n in zip(texts, left, strict=True)]
            return (tuple(sorted([*special, *(i for part in kept for i in part)])),)
        if width < 1:
            raise BadInput(
                f"{too_long}, and the shorter of its texts leaves no room; use long='truncate'", index=number
            )
        others = [*special, *(i for text in texts if text is not texts[longer] for i in text)]
        last = counts[longer] - width
        starts = [*range(0, last, max(1, width // 2)), last]  # about two windows cover each token, except at the ends
        return tuple(tuple(sorted([*others, *texts[longer][start : start + width]])) for start in starts)


def _longest_first(counts: Sequence[int], room: int) -> list[int]:
    """Return how many tokens each text keeps if the longer one is cut first, the default of tokenizers."""
    if len(counts) == 1:
        return [room]
    shorter = min(*counts, room // 2)
    return [shorter, room - shorter] if counts[0] <= counts[1] else [room - shorter, shorter]


def window_row(document: Document, window: Sequence[int]) -> Row:
    return Row(
        ids=tuple(document.ids[i] for i in window),
        types=tuple(document.types[i] for i in window),
        special=tuple(document.sequences[i] is None for i in window),
    )


def pad_rows(rows: Sequence[Row], pad_id: int, device: torch.device, dtype: torch.dtype) -> Batch:
    """Pad rows to one batch. `dtype` is that of the pixels; images in one batch have the same size."""
    longest = max(map(len, rows))

    def pad(values: Iterable[Sequence[int]], filler: int) -> Tensor:
        return torch.tensor([[*v, *[filler] * (longest - len(v))] for v in values], device=device)

    images = [row.image for row in rows if row.image is not None]
    tails = [row.tail for row in rows]
    return Batch(
        ids=pad((row.ids for row in rows), pad_id),
        mask=pad(([1] * len(row) for row in rows), 0).bool(),
        types=pad((row.types for row in rows), 0),
        special=pad((row.special for row in rows), 0).bool(),
        pixels=torch.stack([image.pixels for image in images]).to(device, dtype) if images else None,
        grid=images[0].grid if images else None,
        read=places_before([len(row) for row in rows], tails, device) if any(tails) else None,
        tail=torch.tensor(tails, device=device) if any(tails) else None,
    )


def places_before(lengths: Sequence[int], tails: Sequence[int], device: torch.device) -> Int[Tensor, "batch place"]:
    """Return the positions before the last tokens of each row, as many as the longest answer has tokens."""
    first = torch.tensor([length - tail - 1 for length, tail in zip(lengths, tails, strict=True)], device=device)
    places = first[:, None] + torch.arange(max(tails), device=device)
    return places.clamp(max=max(lengths) - 1)


def extract_row(batch: Batch, row: int) -> Row:
    """Return one row without its padding."""
    real = batch.mask[row]
    ids, types, special = (values[row][real].tolist() for values in (batch.ids, batch.types, batch.special))
    image = None if batch.pixels is None or batch.grid is None else Image(batch.pixels[row], batch.grid)
    return Row(tuple(ids), tuple(types), tuple(special), image, 0 if batch.tail is None else int(batch.tail[row]))


def batches(lengths: Sequence[int], fits: Callable[[int, int], bool]) -> Iterator[list[int]]:
    """Yield indices in groups of similar length for which `fits(rows, longest)` holds, at least one row each.

    A group that already keeps the processor busy takes no longer rows, because padding costs as much as any token.
    """
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        shortest = lengths[group[0]] if group else 0
        too_long = len(group) * shortest >= BUSY and lengths[index] > 1.1 * shortest
        if group and (too_long or not fits(len(group) + 1, lengths[index])):
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def even_batches(lengths: Sequence[int], at_once: int, fits: Callable[[int, int], bool]) -> Iterator[list[int]]:
    """Yield indices in groups of about the same number of tokens, at most about `at_once`, for rows whose padding costs
    nothing. Rows of similar length are still together, because attention pads them: at most to twice their tokens.
    """
    total, group, n_tokens = sum(lengths), list[int](), 0
    share = total / max(1, -(-total // at_once))
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        longest, rows = lengths[index], len(group) + 1
        is_full = n_tokens + longest / 2 > share or not fits(rows, longest)
        if group and (is_full or rows * longest > 2 * (n_tokens + longest)):
            yield group
            group, n_tokens = [], 0
        group.append(index)
        n_tokens += longest
    if group:
        yield group


def share_among_cores(groups: Iterable[list[int]], lengths: Sequence[int], n_cores: int) -> Iterator[list[int]]:
    """Yield groups of indices, of which the largest are halved until their number is a multiple of `n_cores`.

    Where there are many groups, all cores are busy until near the end anyway, and larger groups are faster.
    """
    made = list(groups)
    while len(made) % n_cores and len(made) < MANY * n_cores:
        largest = max(made, key=lambda group: (len(group) > 1, sum(lengths[i] for i in group)))
        if len(largest) == 1:
            break
        made.remove(largest)
        made += [largest[: len(largest) // 2], largest[len(largest) // 2 :]]
    yield from made
