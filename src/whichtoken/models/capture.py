"""Run a twin of the model once forward and once backward, and return the declared tensors as a trace.

Relevance takes another forward and backward pass for each rule set. Several picks of the same rows (the tokens of
an answer) share the forward passes; each has backward passes of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from whichtoken.core.picks import Picks
from whichtoken.core.trace import Needs, Site, Trace, View
from whichtoken.errors import UsageError
from whichtoken.lrp import RuleSet, suspend_rules
from whichtoken.models.encoding import Batch
from whichtoken.models.passes import Choose, FinishedPass, PassRequest, run_backward, run_forward, run_pass
from whichtoken.models.subject import Subject

_Site = tuple[RuleSet | None, frozenset[Site]]  # rules, and where relevance (None: gradients) is requested


def capture(
    subject: Subject,
    batch: Batch,
    choose: Choose,
    needs: Needs,
    embeddings: Float[Tensor, "batch token dim"] | None = None,
) -> Trace:
    """Run the model once, and once more for each rule set. `embeddings`, if given, replace the input of the first
    block.
    """
    _check_pixels(needs, embeddings)
    subject = subject.with_twin()
    request = PassRequest(subject, batch, choose, _hidden_keys(subject, batch, needs.view), embeddings)
    runs: list[FinishedPass] = []
    for rules, sites in _plan(needs):
        runs.append(run_pass(request, frozenset() if runs else needs.values, sites, rules))
        request = replace(request, choose=lambda logits: runs[0].picks)
    return _make_trace(batch, needs, runs)


def capture_each(
    subject: Subject, batch: Batch, choose: Callable[[Tensor], Sequence[Picks]], needs: Needs
) -> Iterator[Trace]:
    """Yield the trace of each of several picks. Each has a backward pass of its own, on the graph of one forward
    pass, and of one more for each rule set, which are kept until the last.
    """
    subject = subject.with_twin()
    request = PassRequest(
        subject, batch, lambda logits: choose(logits)[0], _hidden_keys(subject, batch, needs.view), None
    )
    plan = _plan(needs)
    forwards = [
        run_forward(request, sites if number else sites | needs.values, rules, bool(sites))
        for number, (rules, sites) in enumerate(plan)
    ]
    first = forwards[0]
    logits, chosen = first.logits.detach(), choose(first.logits.detach())
    values = {site: first.tidy.values(site, list(first.tensors[site])) for site in needs.values}
    for number, picks in enumerate(chosen):
        again = number + 1 < len(chosen)
        yield _make_trace(  # of which nothing is kept here, so that two are never in memory together
            batch,
            needs,
            [
                FinishedPass(logits, picks, values, run_backward(made, picks, sites, again))
                for made, (_, sites) in zip(forwards, plan, strict=True)
            ],
        )


def _plan(needs: Needs) -> list[_Site]:
    """Return the passes: a plain one, unless only relevance is requested, and one for each rule set.

    Rules do not change the forward pass, so values and the picks can come from any of them, and come from the
    first.
    """
    under = {
        rules: frozenset(s for r, s in needs.relevance if r == rules) for rules, _ in sorted(needs.relevance, key=str)
    }
    plain: list[_Site] = [(None, needs.grads)] if needs.grads or not under else []
    return [*plain, *under.items()]


def _make_trace(batch: Batch, needs: Needs, runs: Sequence[FinishedPass]) -> Trace:
    picks, logits = runs[0].picks, runs[0].logits
    by_rules: Mapping[RuleSet | None, FinishedPass] = {
        rules: run for (rules, _), run in zip(_plan(needs), runs, strict=True)
    }
    plain = by_rules.get(None)
    return Trace(
        ids=batch.ids,
        mask=batch.mask,
        special=batch.special,
        readout=picks.readout(batch).to(logits.dtype),
        logits=logits,
        target=picks.scalar(logits),
        label=picks.label(),
        span=picks.span(),
        values=runs[0].values,
        grads={} if plain is None else plain.grads,
        relevances={(rules, site): by_rules[rules].grads[site] for rules, site in needs.relevance},
        grid=batch.grid,
    )


class _Embedded(Exception):
    """Ends a pass as soon as its embeddings are known."""


def embed(subject: Subject, batch: Batch) -> Float[Tensor, "batch token dim"]:
    """Return the input of the first block, 0 at padding, without running any block."""
    embedded: list[Tensor] = []

    def stop(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        embedded.append(output)
        raise _Embedded

    twin = subject.with_twin()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(suspend_rules())
        stack.enter_context(twin.embeddings.register_forward_hook(stop))
        stack.enter_context(suppress(_Embedded))
        twin.forward(batch)
    return embedded[0].masked_fill(~batch.mask[:, :, None], 0)


def _hidden_keys(subject: Subject, batch: Batch, view: View) -> Bool[Tensor, "batch token"] | None:
    if view.hide_special:
        return batch.special
    separator = getattr(subject.tokenizer, "sep_token_id", None)
    return batch.special & (batch.ids == separator) if view.hide_separators and separator is not None else None


def _check_pixels(needs: Needs, embeddings: Tensor | None) -> None:
    under = sorted(rules.name for rules, site in needs.relevance if site is Site.PIXELS and rules.carries == "gradient")
    if under or Site.PIXELS in needs.values | needs.grads:
        form = f"under {under[0]}, which carries a gradient" if under else "as a value or a gradient"
        raise UsageError(f"{Site.PIXELS} were requested {form}; they can only be read as relevance under c21 and orig")
    if embeddings is not None and any(site is Site.PIXELS for _, site in needs.relevance):
        raise UsageError("relevance of pixels was requested together with replaced embeddings; leave out one of them")
