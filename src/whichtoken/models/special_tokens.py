"""Special tokens that a user typed, such as [SEP]: reading them as control tokens, or as ordinary text."""

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tokenizers import AddedToken, Tokenizer, models

from whichtoken.errors import BadSetting
from whichtoken.words import Span

# As control tokens, which is what the model's own pipeline does, or as text.
SpecialTokens = Literal["control", "text"]
PRIVATE = range(0xF0000, 0xFFFFE)  # characters that mean nothing: marks are made of those that no text has


@dataclass(frozen=True)
class TextReader:
    """The tokenizer that reads some texts. If it is to read special tokens in them as text, it is one that does not
    know these, but a mark of the same length for each, so that a chat template can still write some.
    """

    tokenizer: Any
    names: Mapping[int, str]  # of special tokens, by id
    unknown: int | None  # the id of unknown tokens
    marks: Mapping[str, str] = field(default_factory=dict)  # by special token; none, if they are control tokens
    real: Mapping[int, tuple[int, str]] = field(default_factory=dict)  # ids and names of tokens with other ids here

    def mark_outside(self, text: str, contents: Sequence[Span]) -> str:
        """Return a text in which marks replace the special tokens outside of some spans, which are in order."""
        if not self.marks:
            return text
        pattern = re.compile("|".join(map(re.escape, sorted(self.marks, key=len, reverse=True))))
        parts, at = list[str](), 0
        for start, end in (*contents, (len(text), len(text))):
            parts += [pattern.sub(lambda found: self.marks[found[0]], text[at:start]), text[start:end]]
            at = end
        return "".join(parts)


def check_special_tokens(chosen: Any, *, reads_text: bool = True) -> None:
    if chosen not in get_args(SpecialTokens):
        raise BadSetting("special_tokens", chosen, "'control', as the model's own pipeline reads them, or 'text'")
    if chosen != "control" and not reads_text:
        raise BadSetting("special_tokens", chosen, "'control': a model that reads images reads no text")


def make_reader(tokenizer: Any, texts: Iterable[str], special_tokens: SpecialTokens) -> TextReader:
    """Return what reads these texts: the tokenizer itself, unless it would have to read special tokens as text."""
    original = tokenizer.backend_tokenizer
    added = original.get_added_tokens_decoder()
    names = {number: token.content for number, token in added.items() if token.special}
    whole = "" if special_tokens == "control" else "\0".join(texts)
    if not any(name in whole for name in names.values()):
        return TextReader(tokenizer, names, tokenizer.unk_token_id)
    unused = (character for number in PRIVATE if (character := chr(number)) not in whole)
    marks = {name: character * len(name) for name, character in zip(names.values(), unused, strict=False)}
    backend = Tokenizer(_rename_pieces(original, marks))
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (held := getattr(original, part)) is not None:
            setattr(backend, part, held)
    backend.add_tokens([_rename(added[number], marks) for number in sorted(added)])
    shown = {mark: name for name, mark in marks.items()}
    called = {i: shown.get(token.content, token.content) for i, token in backend.get_added_tokens_decoder().items()}
    real = {i: (original.token_to_id(name), name) for i, name in called.items()}
    hiding = copy.copy(tokenizer)
    hiding._tokenizer = backend
    return TextReader(hiding, names, tokenizer.unk_token_id, marks, real)


def _rename(token: Any, marks: Mapping[str, str]) -> Any:
    flags = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
    return AddedToken(marks.get(token.content, token.content), **flags)


def _rename_pieces(original: Any, marks: Mapping[str, str]) -> Any:
    """Return the tokenizer's model; a unigram model, which finds any piece of its vocabulary, without special ones."""
    if not isinstance(original.model, models.Unigram):
        return original.model
    described = json.loads(original.to_str())["model"]
    pieces = [(marks.get(piece, piece), score) for piece, score in described["vocab"]]
    return models.Unigram(pieces, described["unk_id"], described["byte_fallback"])
