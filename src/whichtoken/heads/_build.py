"""Making head masks: where each head of a model points in the sentences of a parsed corpus.

Attentions are looked at batch by batch and never kept; what stays of a sentence is one pointer for each head and token,
and of a corpus only counts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from whichtoken.atomic_write import check_writable
from whichtoken.core.objectives import anything
from whichtoken.core.trace import Site, needs
from whichtoken.data.examples import count_examples
from whichtoken.errors import BadInput, BadSetting, NotFinite
from whichtoken.heads.conllu import read_conllu
from whichtoken.heads.count import HeadCounts, align, kept
from whichtoken.heads.mask import HeadMask
from whichtoken.heads.rule import HeadRule
from whichtoken.heads.sentence import Sentence
from whichtoken.heads.store import read, save
from whichtoken.models.capture import capture
from whichtoken.models.encoding import Document, batches, window_row
from whichtoken.models.subject import Subject
from whichtoken.settings import make_settings

SENTENCES_AT_ONCE = 512  # that are sorted by length together
PAIRS_PER_BATCH = 2**25  # layers x heads x queries x keys of attention: 128 MB in float32
TIE = 1e-6  # attention that is lower by this share at most is as high: rounding may not choose


def build(
    subject: Subject,
    sentences: Iterable[Sentence] | str | Path,
    *,
    corpus: str | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> HeadMask:
    """Which heads follow syntactic relations, and which look at a fixed position, in a parsed corpus.

    `sentences`: from `read_conllu` or `parse_texts`, or the path of a CoNLL-U file. `corpus`: its name, for the record.
    `out`: the JSON file to write. `settings`: those of `whichtoken.heads.HeadRule`.
    """
    if not isinstance(subject, Subject):
        raise BadSetting("subject", type(subject).__name__, "a Subject: wt.load(name), or wt.Subject(model, processor)")
    rule = make_settings(HeadRule, "heads.build", {}, None, settings)
    if out is not None:
        check_writable(out)
    if isinstance(sentences, str | Path):
        corpus, sentences = corpus or Path(sentences).name, read_conllu(sentences)
    if not isinstance(sentences, Iterable):
        raise BadInput(f"sentences is a {type(sentences).__name__}; expected a CoNLL-U file, or parsed sentences")
    subject = subject.twinned()
    counted = _Counted(HeadCounts(rule, subject.n_layers, subject.n_heads))
    with tqdm(total=count_examples(sentences), desc="reading heads", unit=" sentences", disable=None) as bar:
        for chunk in _chunks(iter(sentences)):
            _count(subject, chunk, counted)
            bar.update(len(chunk))
    tally = counted.tally
    if not tally.counted["sentences"]:
        raise BadInput("there is no sentence to read heads from; give a CoNLL-U file, or sentences with words")
    mask = HeadMask(
        model=subject.title,
        fingerprint=subject.fingerprint(),
        origin="measured",
        rule=rule,
        syntactic=tally.syntactic(),
        positional=tally.positional(),
        added=((False,) * subject.n_heads,) * subject.n_layers,
        statistics=tally.statistics(corpus or "sentences", counted.n_cut, counted.n_empty),
    )
    if out is not None:
        save(mask, out)
    return mask


def load(path: str | Path, subject: Subject | None = None) -> HeadMask:
    """Read a stored mask; LibraryMismatch if it was made for another model than `subject`."""
    if subject is not None and not isinstance(subject, Subject):
        raise BadSetting("subject", type(subject).__name__, "a Subject, or None to load a mask of any model")
    mask = read(path)
    if subject is not None:
        subject.check_heads(mask)
    return mask


@dataclass
class _Counted:
    tally: HeadCounts
    n_cut: int = 0
    n_empty: int = 0


def _chunks(sentences: Iterator[Sentence]) -> Iterator[list[Sentence]]:
    while chunk := list(islice(sentences, SENTENCES_AT_ONCE)):
        for item in chunk:
            if not isinstance(item, Sentence):
                raise BadInput(f"{item!r:.40} is no parsed sentence; use wt.heads.read_conllu or wt.heads.parse_texts")
        yield chunk


def _count(subject: Subject, sentences: Sequence[Sentence], counted: _Counted) -> None:
    documents = _documents(subject, sentences)
    read = [(sentence, d) for sentence, d in zip(sentences, documents, strict=True) if d is not None]
    counted.n_empty += len(sentences) - len(read)
    counted.n_cut += sum(document.n_cut > 0 for _, document in read)
    lengths = [len(document.windows[0]) for _, document in read]
    for group in batches(lengths, lambda rows, longest: _fits(subject, rows, longest)):
        found = _pointers(subject, [read[i][1] for i in group])
        for i, pointers in zip(group, found, strict=True):
            sentence, document = read[i]
            words = kept(align(sentence, document.spans), document.windows[0])
            counted.tally.add(sentence, words, pointers[:, :, : lengths[i]].astype(np.int64))


def _documents(subject: Subject, sentences: Sequence[Sentence]) -> list[Document | None]:
    """Cut to what the model reads; None for a sentence without tokens."""
    try:
        return list(subject.encode([(sentence.text,) for sentence in sentences]))
    except BadInput:  # of one of them, which only asking for each alone can tell
        return [None] if len(sentences) == 1 else [d for one in sentences for d in _documents(subject, [one])]


def _fits(subject: Subject, rows: int, longest: int) -> bool:
    pairs = rows * longest**2 * subject.n_layers * subject.n_heads
    return pairs <= PAIRS_PER_BATCH and subject.fits(rows, longest)


def _pointers(subject: Subject, documents: Sequence[Document]) -> np.ndarray[Any, Any]:
    """batch layer head query: for each token where each head looks. Padding is 0 in a trace, so it never wins."""
    batch = subject.batch([window_row(document, document.windows[0]) for document in documents])
    trace = capture(subject, batch, anything, needs("attention"))
    found = torch.stack([strongest(layer) for layer in trace.value(Site.ATTENTION)], 1)
    return found.cpu().numpy()


def strongest(attention: Float[Tensor, "batch head query key"]) -> Int[Tensor, "batch head query"]:
    """The key with most attention, the first of those that are equal but for rounding."""
    highest = attention.amax(-1, keepdim=True)
    if not highest.isfinite().all():
        raise NotFinite("the model gives NaN or infinite attention for a sentence of the corpus")
    return (attention >= highest * (1 - TIE)).to(torch.uint8).argmax(-1)
