"""Which token of an answer a foil is contrasted with: a foil is what a language model could have said instead."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from whichtoken.errors import BadInput
from whichtoken.models import Subject
from whichtoken.tasks import prompts
from whichtoken.tasks.prompts import AnswerText, PromptDocument

Ids = tuple[int, ...]


def place_foil(
    subject: Subject, document: PromptDocument, answer: AnswerText, foil: str, number: int
) -> tuple[int, int]:
    """Return the token of the answer that a foil is contrasted with, and the foil's token there.

    A foil that begins like the answer is another answer, contrasted at the first token that differs. Any other foil is
    taken for an alternative to one word: among the answers in which it replaces one, the model's most probable counts.
    """
    bare = foil.lstrip()
    plain, spaced = (_tokenize_foil(subject, document, text, number) for text in (bare, f" {bare}"))
    whole = spaced if _has_space(answer, 0) else plain
    place = _find_difference(whole, answer.ids)
    if place is None:
        shown = answer.text[:40]
        raise BadInput(f": the foil {foil!r:.40} is what the answer {shown!r} says; give another", index=number)
    if prompts.text_of(answer, range(place)).strip():  # not only a space, which may be a token
        return place, whole[place]
    words = _find_words(answer)
    same_kind = [word for word in words if _is_word(prompts.text_of(answer, range(*word))) == _is_word(bare)]
    edits = [
        answer.ids[:start] + (spaced if _has_space(answer, start) else plain) + answer.ids[end:]
        for start, end in same_kind or words
    ]
    found = _choose_edit(subject.with_twin(), document, answer, edits)
    if found is None:
        raise BadInput(f": the foil {foil!r:.40} replaces no word of the answer; give another", index=number)
    return found


def _tokenize_foil(subject: Subject, document: PromptDocument, foil: str, number: int) -> Ids:
    """Return the tokens of a foil that follows the prompt; if it would join the prompt's last word, on its own."""
    prompt = replace(document.prompt, continuation=foil)
    try:
        return prompts.read_continuation(subject, replace(document, prompt=prompt), number).ids
    except BadInput:
        return subject.encode_prompt(foil, number, [(0, len(foil))]).ids


def _choose_edit(
    twin: Subject, document: PromptDocument, answer: AnswerText, edits: Iterable[Ids]
) -> tuple[int, int] | None:
    """Return where the most probable of the edited answers differs first, and its token there.

    An answer is at most as probable as its beginning, and one pass over the original answer gives the probability of
    each edited answer up to its first difference. So only a few of them are evaluated.
    """
    logs = _predict(twin, document, answer)
    own = [float(logs[k, token]) for k, token in enumerate(answer.ids)]
    bounded = []
    for edited in edits:
        place = _find_difference(edited, answer.ids)
        if place is not None:
            bounded.append((sum(own[:place]) + float(logs[place, edited[place]]), place, edited))
    best, found = -torch.inf, None
    for bound, place, edited in sorted(bounded, key=lambda entry: -entry[0]):
        if found is not None and bound <= best:
            break
        fitting = replace(answer, ids=edited[: twin.limit - document.n_tokens])
        logs = _predict(twin, document, fitting)
        total = sum(float(logs[k, token]) for k, token in enumerate(fitting.ids))
        if found is None or total > best:
            best, found = total, (place, edited[place])
    return found


def _predict(twin: Subject, document: PromptDocument, answer: AnswerText) -> Float[Tensor, "place vocabulary"]:
    """Return the log-probabilities of what the model could say at each place of an answer."""
    logits = twin.logits(twin.batch([prompts.join_row(document, answer)]))[0]
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def _find_difference(ids: Sequence[int], others: Sequence[int]) -> int | None:
    return next((k for k, (one, other) in enumerate(zip(ids, others, strict=False)) if one != other), None)


def _find_words(answer: AnswerText) -> list[tuple[int, int]]:
    """Return the first token of each word, and the one after its last; punctuation marks are words of their own.

    In scripts without upper and lower case, which often have no spaces, every token is a word.
    """
    words = list[tuple[int, int]]()
    for token, span in enumerate(answer.spans):
        if span is None:
            continue
        if words and words[-1][1] == token and (span[0] == span[1] or _joins(answer.text, span[0])):
            words[-1] = words[-1][0], token + 1
        else:
            words.append((token, token + 1))
    return words


def _joins(text: str, at: int) -> bool:
    """Return whether the characters before and after a border belong to one word."""
    return 0 < at < len(text) and all(c.isdecimal() or c.lower() != c.upper() for c in text[at - 1 : at + 1])


def _has_space(answer: AnswerText, token: int) -> bool:
    return prompts.text_of(answer, [token])[:1].isspace()


def _is_word(text: str) -> bool:
    return text.lstrip()[:1].isalnum()
