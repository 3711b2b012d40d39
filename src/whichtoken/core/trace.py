"""What a method can read of a model: named tensors of one pass, and a probe for further evaluations."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.errors import UndeclaredSite
from whichtoken.heads.mask import HeadMask
from whichtoken.lrp import RuleSet
from whichtoken.references.library import ReferenceLibrary
from whichtoken.trust import Confidence

Level = Literal["token", "word", "sentence"]  # parts of a text; an image has patches, which are its tokens


class Site(StrEnum):
    """A place in the network, with one tensor per layer (embeddings: one in total)."""

    EMBEDDINGS = "embeddings"  # input of the first block, positions and norm included: batch token dim
    HIDDEN = "hidden"  # input of each block (the first: EMBEDDINGS), then the last output: batch token dim
    ATTENTION = "attention"  # probabilities of each block: batch head query key
    VALUE = "value"  # what attention averages: batch head token dim
    CONTEXT = "context"  # output of attention, before the heads are merged: batch head token dim
    PROJECTION = "projection"  # weights that merge the heads, the same for all inputs: head dim_of_head dim
    ATTENDED = "attended"  # residual stream after attention (and its norm, if one follows): batch token dim
    NORM = "norm"  # the factor that norm applies, gain / deviation: batch token dim; no tensors if none follows
    FORWARDED = "forwarded"  # what the feed-forward part adds, before its residual and any norm: batch token dim
    PIXELS = "pixels"  # relevance only, summed over channels: batch row column; no tensor for texts


@dataclass(frozen=True)
class View:
    """A kind of pass through the model; methods that need the same view share a pass."""

    hide_special: bool = False  # no token may attend to a special token (special tokens still attend)
    hide_separators: bool = False  # the same for separators alone, such as [SEP]

    @property
    def hides(self) -> bool:
        return self.hide_special or self.hide_separators


class Ask(StrEnum):
    """What a method requests from its probe after the pass, which determines its cost and what it may know."""

    REFERENCES = "references"  # a reference library
    DELETIONS = "deletions"  # probabilities of shortened texts
    ANSWERS = "answers"  # outputs of inputs with parts removed, in any way that the task offers
    PASSES = "passes"  # further passes, with gradients
    REMOVALS = "removals"  # probabilities of texts without some tokens, the others at their old positions
    HEADS = "heads"  # a head mask


@dataclass(frozen=True)
class Needs:
    """The sites whose values and gradients a method reads, and what it requests from its probe."""

    values: frozenset[Site] = frozenset()
    grads: frozenset[Site] = frozenset()
    view: View = View()
    asks: frozenset[Ask] = frozenset()
    relevance: frozenset[tuple[RuleSet, Site]] = frozenset()  # each rule set needs one more pass

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            self.values | other.values,
            self.grads | other.grads,
            self.view,
            self.asks | other.asks,
            self.relevance | other.relevance,
        )


def needs(
    values: str = "",
    grads: str = "",
    hide_special: bool = False,
    asks: str = "",
    relevance: tuple[RuleSet, str] | None = None,
    hide_separators: bool = False,
) -> Needs:
    """Build `Needs` from names separated by spaces: `needs("hidden attention", "hidden")`."""
    sites = [frozenset(Site(name) for name in names.split()) for names in (values, grads)]
    relevances = frozenset() if relevance is None else frozenset((relevance[0], Site(n)) for n in relevance[1].split())
    view = View(hide_special, hide_separators)
    return Needs(sites[0], sites[1], view, frozenset(Ask(name) for name in asks.split()), relevances)


@dataclass(frozen=True)
class Trace:
    """One pass over one batch.

    Values, gradients and relevance are exactly 0 at padding, and attention gradients are 0 where the model cannot
    attend, so sums need no mask; counts do.
    """

    ids: Int[Tensor, "batch token"]
    mask: Bool[Tensor, "batch token"]  # False at padding
    special: Bool[Tensor, "batch token"]  # tokens that the tokenizer added
    readout: Float[Tensor, "batch token"]  # weights of the positions that the head reads; they sum to 1
    logits: Float[Tensor, "batch *label"]  # for questions: batch 2 token; for labelled tokens: batch token label
    target: Float[Tensor, " batch"]  # the explained scalar
    label: Int[Tensor, " batch"]  # the class that is explained; for a contrast, the first
    values: Mapping[Site, tuple[Tensor, ...]] = field(repr=False)
    grads: Mapping[Site, tuple[Tensor, ...]] = field(repr=False)
    relevances: Mapping[tuple[RuleSet, Site], tuple[Tensor, ...]] = field(repr=False, default_factory=dict)
    span: Int[Tensor, "batch 2"] | None = None  # of an answer, or of labelled words: first and last token
    grid: tuple[int, int] | None = None  # for images: rows and columns of patches, which are the last tokens

    @property
    def answering(self) -> bool:
        """True for questions and labelled words, where the read-out positions are tokens of the text."""
        return self.span is not None

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return self.mask.sum(-1)

    def value(self, site: Site) -> tuple[Tensor, ...]:
        return _read(self.values, site, "values")

    def grad(self, site: Site) -> tuple[Tensor, ...]:
        return _read(self.grads, site, "grads")

    def relevance(self, rules: RuleSet, site: Site) -> tuple[Tensor, ...]:
        by_site = {key[1]: tensors for key, tensors in self.relevances.items() if key[0] == rules}
        return _read(by_site, site, f"relevance under {rules.name}")

    def restrict(self, needs: Needs) -> "Trace":
        """Return the same pass with only the declared sites accessible."""
        return replace(
            self,
            values={site: tensors for site, tensors in self.values.items() if site in needs.values},
            grads={site: tensors for site, tensors in self.grads.items() if site in needs.grads},
            relevances={key: tensors for key, tensors in self.relevances.items() if key in needs.relevance},
        )


def _read(tensors: Mapping[Site, tuple[Tensor, ...]], site: Site, kind: str) -> tuple[Tensor, ...]:
    if site not in tensors:
        declared = ", ".join(sorted(tensors)) or "nothing"
        raise UndeclaredSite(f"the method reads {kind} of {site!s} but declares {declared}; add it to `needs`")
    return tensors[site]


@runtime_checkable
class Probe(Protocol):
    """A method's only access to the model after the pass, for further evaluations of the same batch."""

    @property
    def memory(self) -> dict[str, Any]:
        """What a method, by its label, keeps for the next part of the same answers: evaluations are known there."""
        ...

    def keep(self, patterns: Bool[Tensor, "batch n token"]) -> Float[Tensor, "batch n"]:
        """Return the target probability when all tokens except the marked and the special ones are deleted."""
        ...

    def distinct(self, patterns: Bool[Tensor, "batch n token"]) -> Int[Tensor, " batch"]:
        """Return how many distinct sequences these patterns leave; `keep` evaluates no more than that."""
        ...

    def keep_in_place(self, patterns: Bool[Tensor, "batch n token"]) -> Float[Tensor, "batch n"]:
        """Like `keep`, but the remaining tokens stay at their old positions; the read-out token always remains."""
        ...

    def units(self, level: Level) -> Int[Tensor, "batch token"]:
        """Return which part of its input each token belongs to, counted from 0; -1 at tokens that cannot be removed."""
        ...

    def outputs(self, kept: Bool[Tensor, "batch n token"], how: str | None) -> Float[Tensor, "batch n"]:
        """Return the probability, or value, when all tokens that are not kept are removed; `how`: None is the task's
        own way, else the name of a removal. Tokens that cannot be removed always remain.
        """
        ...

    def log_odds(self, kept: Bool[Tensor, "batch n token"], how: str | None) -> Float[Tensor, "batch n"]:
        """Return the same as log-odds, in float64: a scale on which the effects of parts roughly add up."""
        ...

    def spell(self, row: int, tokens: Sequence[int]) -> str | None:
        """Return the text of some tokens of an input; None for patches of an image."""
        ...

    def heads(self, given: HeadMask | None) -> HeadMask:
        """Return a head mask that fits the model: the one given, or (None) the subject's own."""
        ...

    def references(self, given: ReferenceLibrary | Sequence[Any] | None) -> ReferenceLibrary:
        """Return a library that fits the model: the one given, one built from texts, or (None) the subject's own."""
        ...

    def blank(self, filler: Literal["pad", "mask"]) -> Float[Tensor, "batch token dim"]:
        """Return the batch's embeddings with every word replaced by the tokenizer's padding or mask token."""
        ...

    def trace(self, embeddings: Float[Tensor, "batch token dim"] | None, needs: Needs) -> Trace:
        """Run a further pass for the same target, on other embeddings or (None) on the same ones."""
        ...

    def differentiate(self, points: Iterable[Float[Tensor, "batch token dim"]]) -> "Iterator[Derivative]":
        """Yield the target and its gradient at each of these embeddings; several go through the model together."""
        ...


@dataclass(frozen=True)
class Derivative:
    """The explained scalar at some embeddings of the batch, and its gradient there, which is 0 at padding."""

    target: Float[Tensor, " batch"]
    gradient: Float[Tensor, "batch token dim"]


@dataclass(frozen=True)
class Scores:
    """What a method returns: raw signed scores, and details about each example.

    `layers`: the terms, if the scores are a sum over layers. `pixels`: scores finer than patches, if there are any.
    `confidence`: of each example, if the method knows how sure it is.
    """

    tokens: Float[Tensor, "batch token"]
    details: tuple[Mapping[str, object], ...] = ()
    layers: Float[Tensor, "batch layer token"] | None = None
    pixels: Float[Tensor, "batch row column"] | None = None
    confidence: tuple[Confidence | None, ...] = ()


@runtime_checkable
class Method(Protocol):
    """A frozen dataclass of settings whose call is a pure function of a trace."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    name: ClassVar[str] = ""  # `register` sets these three
    paper: ClassVar[str] = ""
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    sums_layers: ClassVar[bool] = False  # with its default settings, its scores are a sum over layers

    @property
    def needs(self) -> Needs: ...

    @property
    def tuned_on_deletion(self) -> bool:
        """True if it uses outputs of inputs with parts removed as metrics remove them."""
        return bool(self.needs.asks & {Ask.DELETIONS, Ask.ANSWERS})

    @property
    def n_passes(self) -> int:
        """Return how many passes with a gradient it needs besides the one that methods share."""
        return len({rules for rules, _ in self.needs.relevance})

    @property
    def removals(self) -> tuple[str | None, ...]:
        """Return the names of the removals that it asks by; None is the task's own."""
        return (self.settings.get("perturbation"),)

    def adapt(self, can_run: "Callable[[Method], bool]") -> "Method":
        """Return the method for a model, of which `can_run` says whether it can run others that this one uses."""
        return self

    def __call__(self, trace: Trace, probe: Probe) -> Scores: ...

    @property
    def settings(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def label(self) -> str:
        """Return `name`, `name@preset`, or `name(setting=value)` with the settings that differ from the defaults."""
        default = {f.name: f.default for f in fields(self)}
        if self.settings == default:
            return self.name
        for preset, changes in self.presets.items():
            if self.settings == {**default, **changes}:
                return f"{self.name}@{preset}"
        changed = [f"{key}={describe_setting(value)}" for key, value in self.settings.items() if value != default[key]]
        return f"{self.name}({', '.join(changed)})"


def plan_passes(methods: Iterable[Method]) -> dict[View, Needs]:
    """Return one pass per view, with the union of its methods' needs; the plain view is always included, and first."""
    union = {View(): Needs()}
    for needs in (method.needs for method in methods):
        union[needs.view] = union.get(needs.view, Needs(view=needs.view)) | needs
    return union


def describe_setting(value: object) -> object:
    """Return a setting as stored in labels and records: plain values as they are, other objects by a short name."""
    if isinstance(value, ReferenceLibrary | HeadMask):
        return str(value)
    if isinstance(value, list | tuple):
        if all(isinstance(item, int | float) for item in value):
            return list(value)  # as it will be read back from JSON
        return f"{len(value)} texts {hashlib.sha256(repr(list(value)).encode()).hexdigest()[:8]}"
    return value
