"""Building head masks from where each head of a model points in the sentences of a parsed corpus.

Attention is processed batch by batch and never stored: each sentence is reduced to one pointer for each head and token,
and the corpus to counts.
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
from whichtoken.core.picks import anything
from whichtoken.core.trace import Site, needs
from whichtoken.data.examples import count_examples
from whichtoken.errors import BadInput, NotFinite, name_type
from whichtoken.heads.conllu import read_conllu
from whichtoken.heads.count import HeadCounts, align, restrict_to_window
from whichtoken.heads.mask import HeadMask
from whichtoken.heads.rule import HeadRule
from whichtoken.heads.sentence import Sentence
from whichtoken.heads.store import read, save
from whichtoken.models.capture import capture
from whichtoken.models.encoding import Document, batches, window_row
from whichtoken.models.memory import return_freed_memory
from whichtoken.models.opening import AnySubject, as_subject
from whichtoken.models.subject import Subject
from whichtoken.settings import make_settings

SENTENCES_AT_ONCE = 512  # sorted by length together
PAIRS_PER_BATCH = 2**25  # layers x heads x queries x keys of attention: 128 MB in float32
TIE = 1e-6  # relative difference up to which attention weights count as equal, against rounding


def build(
    subject: AnySubject,
    sentences: Iterable[Sentence] | str | Path,
    *,
    corpus: str | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> HeadMask:
    """Find the heads that follow syntactic relations or attend to a fixed position in a parsed corpus.

    `sentences`: from `read_conllu` or `parse_texts`, or the path of a CoNLL-U file. `corpus`: its name in
    the statistics. `out`: the JSON file to write. `settings`: those of `whichtoken.heads.HeadRule`.
    """
    opened = as_subject(subject).with_twin()
    rule = make_settings(HeadRule, "heads.build", {}, None, settings)
    if out is not None:
        check_writable(out)
    if isinstance(sentences, str | Path):
        corpus, sentences = corpus or Path(sentences).name, read_conllu(sentences)
    if not isinstance(sentences, Iterable):
        raise BadInput(f"sentences is {name_type(sentences)}; expected a CoNLL-U file, or parsed sentences")
    counted = _Counted(HeadCounts(rule, opened.n_layers, opened.n_heads))
    with tqdm(total=count_examples(sentences), desc="reading heads", unit=" sentences", disable=None) as bar:
        for chunk in _chunks(iter(sentences)):
            _count(opened, chunk, counted)
            return_freed_memory()
            bar.update(len(chunk))
    tally = counted.tally
    if not tally.counted["sentences"]:
        raise BadInput("there is no sentence to analyse; give a CoNLL-U file, or sentences with words")
    identity = opened.identity()
    mask = HeadMask(
        model=opened.title,
        fingerprint=identity.revision,
        processor=identity.processor,
        origin="measured",
        rule=rule,
        syntactic=tally.syntactic(),
        positional=tally.positional(),
        added=((False,) * opened.n_heads,) * opened.n_layers,
        statistics=tally.statistics(corpus or "sentences", counted.n_cut, counted.n_empty),
    )
    if out is not None:
        save(mask, out)
    return mask


def load(path: str | Path, subject: AnySubject | None = None) -> HeadMask:
    """Read a stored mask; LibraryMismatch if it was built for a model other than `subject`."""
    opened = None if subject is None else as_subject(subject)
    mask = read(path)
    if opened is not None:
        opened.check_heads(mask)
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
                raise BadInput(
                    f"{item!r:.40} is not a parsed sentence; use wt.heads.read_conllu or wt.heads.parse_texts"
                )
        yield chunk


def _count(subject: Subject, sentences: Sequence[Sentence], counted: _Counted) -> None:
    documents = _encode_sentences(subject, sentences)
    usable = [
        (sentence, document) for sentence, document in zip(sentences, documents, strict=True) if document is not None
    ]
    counted.n_empty += len(sentences) - len(usable)
    counted.n_cut += sum(document.n_cut > 0 for _, document in usable)
    lengths = [len(document.windows[0]) for _, document in usable]
    for group in batches(lengths, lambda rows, longest: _fits(subject, rows, longest)):
        batch = _pointers(subject, [usable[i][1] for i in group])
        for i, pointers in zip(group, batch, strict=True):
            sentence, document = usable[i]
            words = restrict_to_window(align(sentence, document.spans), document.windows[0])
            counted.tally.add(sentence, words, pointers[:, :, : lengths[i]].astype(np.int64))


def _encode_sentences(subject: Subject, sentences: Sequence[Sentence]) -> list[Document | None]:
    """Return one document per sentence, truncated to the model's limit; None for a sentence without tokens."""
    try:
        return list(subject.encode([(sentence.text,) for sentence in sentences]))
    except BadInput:  # one sentence is empty; encoding them one by one tells which
        return [None] if len(sentences) == 1 else [d for item in sentences for d in _encode_sentences(subject, [item])]


def _fits(subject: Subject, rows: int, longest: int) -> bool:
    pairs = rows * longest**2 * subject.n_layers * subject.n_heads
    return pairs <= PAIRS_PER_BATCH and subject.fits(rows, longest)


def _pointers(subject: Subject, documents: Sequence[Document]) -> np.ndarray[Any, Any]:
    """Return the key with the highest attention: batch layer head query. Padding has attention 0, so it never wins."""
    batch = subject.batch([window_row(document, document.windows[0]) for document in documents])
    trace = capture(subject, batch, anything, needs("attention"))
    keys = torch.stack([strongest_keys(layer) for layer in trace.value(Site.ATTENTION)], 1)
    return keys.cpu().numpy()


def strongest_keys(attention: Float[Tensor, "batch head query key"]) -> Int[Tensor, "batch head query"]:
    """Return the key with the highest attention; of those that differ only by rounding, the first."""
    highest = attention.amax(-1, keepdim=True)
    if not highest.isfinite().all():
        raise NotFinite("the model returns NaN or infinite attention for a sentence of the corpus")
    return (attention >= highest * (1 - TIE)).to(torch.uint8).argmax(-1)
