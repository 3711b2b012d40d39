"""What a method may see of a model: named tensors of one pass, and a probe for further questions."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.errors import UndeclaredSite
from whichtoken.heads.mask import HeadMask
from whichtoken.lrp import RuleSet
from whichtoken.references.library import ReferenceLibrary


class Site(StrEnum):
    """A place in the network. Each holds one tensor per layer (embeddings: one)."""

    EMBEDDINGS = "embeddings"  # what the first block reads, positions and norm included: batch token dim
    HIDDEN = "hidden"  # input of each block (the first: EMBEDDINGS), then the last output: batch token dim
    ATTENTION = "attention"  # probabilities of each block: batch head query key
    VALUE = "value"  # what attention mixes: batch head token dim
    CONTEXT = "context"  # what it mixed it to, before heads are put together: batch head token dim
    PROJECTION = "projection"  # the weights that put heads together, the same for all texts: head dim_of_head dim
    ATTENDED = "attended"  # the stream after attention and its residual (and norm, if one follows): batch token dim
    NORM = "norm"  # what that norm multiplies with, gain / deviation: batch token dim; no tensors if none follows
    FORWARDED = "forwarded"  # what the feed-forward part adds, before its residual and any norm: batch token dim
    PIXELS = "pixels"  # relevance only, channels added up: batch row column; no tensor for texts


@dataclass(frozen=True)
class View:
    """Which pass over the model; methods that need the same view share one."""

    hide_special: bool = False  # no token may attend to a special token (specials still attend)


class Ask(StrEnum):
    """What a method asks of its probe after the pass: what it costs, and what it knows."""

    REFERENCES = "references"  # a reference library
    DELETIONS = "deletions"  # probabilities of shortened texts
    PASSES = "passes"  # further passes, with gradients
    REMOVALS = "removals"  # probabilities of texts with tokens taken out, the others at their old positions
    HEADS = "heads"  # a choice of attention heads


@dataclass(frozen=True)
class Needs:
    """The sites whose values and gradients a method will read, and what it will ask of its probe."""

    values: frozenset[Site] = frozenset()
    grads: frozenset[Site] = frozenset()
    view: View = View()
    asks: frozenset[Ask] = frozenset()
    relevance: frozenset[tuple[RuleSet, Site]] = frozenset()  # each rule set costs one more pass

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
) -> Needs:
    """`needs("hidden attention", "hidden")`: by name, separated by spaces."""
    sites = [frozenset(Site(name) for name in names.split()) for names in (values, grads)]
    under = frozenset() if relevance is None else frozenset((relevance[0], Site(n)) for n in relevance[1].split())
    return Needs(sites[0], sites[1], View(hide_special), frozenset(Ask(name) for name in asks.split()), under)


@dataclass(frozen=True)
class Trace:
    """One pass over one batch.

    Values, gradients and relevance are exactly 0 at padding, and attention gradients are 0 where the model cannot
    attend, so sums need no mask; counts do.
    """

    ids: Int[Tensor, "batch token"]
    mask: Bool[Tensor, "batch token"]  # False at padding
    special: Bool[Tensor, "batch token"]  # tokens that the tokenizer added
    readout: Float[Tensor, "batch token"]  # which positions the classifier reads; sums to 1
    logits: Float[Tensor, "batch *label"]  # of questions: batch 2 token
    target: Float[Tensor, " batch"]  # the explained scalar
    label: Int[Tensor, " batch"]  # the class that it speaks for
    values: Mapping[Site, tuple[Tensor, ...]] = field(repr=False)
    grads: Mapping[Site, tuple[Tensor, ...]] = field(repr=False)
    relevances: Mapping[tuple[RuleSet, Site], tuple[Tensor, ...]] = field(repr=False, default_factory=dict)
    span: Int[Tensor, "batch 2"] | None = None  # of questions: first and last token of the answer
    grid: tuple[int, int] | None = None  # of an image's patches, its last tokens: rows, columns

    @property
    def answering(self) -> bool:
        """A question was asked: the read-out position is a token of the answer."""
        return self.span is not None

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return self.mask.sum(-1)

    def value(self, site: Site) -> tuple[Tensor, ...]:
        return _read(self.values, site, "values")

    def grad(self, site: Site) -> tuple[Tensor, ...]:
        return _read(self.grads, site, "grads")

    def relevance(self, rules: RuleSet, site: Site) -> tuple[Tensor, ...]:
        under = {of: tensors for (set_of, of), tensors in self.relevances.items() if set_of == rules}
        return _read(under, site, f"relevance under {rules.name}")

    def restrict(self, needs: Needs) -> "Trace":
        """The same pass with only the declared sites in reach."""
        return replace(
            self,
            values={site: tensors for site, tensors in self.values.items() if site in needs.values},
            grads={site: tensors for site, tensors in self.grads.items() if site in needs.grads},
            relevances={key: tensors for key, tensors in self.relevances.items() if key in needs.relevance},
        )


def _read(tensors: Mapping[Site, tuple[Tensor, ...]], site: Site, kind: str) -> tuple[Tensor, ...]:
    if site not in tensors:
        declared = ", ".join(sorted(tensors)) or "nothing"
        raise UndeclaredSite(f"read {kind} of {site!s}, declared {declared}; add it to the method's `needs`")
    return tensors[site]


@runtime_checkable
class Probe(Protocol):
    """The only way for a method to ask the model more questions about the batch it is given."""

    def keep(self, patterns: Bool[Tensor, "batch n token"]) -> Float[Tensor, "batch n"]:
        """Target probability when only the marked tokens (and all specials) remain; the rest is deleted."""
        ...

    def distinct(self, patterns: Bool[Tensor, "batch n token"]) -> Int[Tensor, " batch"]:
        """How many different sequences these patterns leave: what `keep` evaluates at most."""
        ...

    def keep_in_place(self, patterns: Bool[Tensor, "batch n token"]) -> Float[Tensor, "batch n"]:
        """As `keep`, but the tokens that remain (the read-out one always does) keep their positions."""
        ...

    def heads(self, given: HeadMask | None) -> HeadMask:
        """A choice of heads that fits the model: the one given, or (None) the subject's own."""
        ...

    def references(self, given: ReferenceLibrary | Sequence[Any] | None) -> ReferenceLibrary:
        """A library that fits the model: the one given, one made of the given texts, or (None) the subject's own."""
        ...

    def blank(self, filler: Literal["pad", "mask"]) -> Float[Tensor, "batch token dim"]:
        """Embeddings of the batch with every word replaced by the tokenizer's padding or mask token."""
        ...

    def trace(self, embeddings: Float[Tensor, "batch token dim"] | None, needs: Needs) -> Trace:
        """A further pass, on other embeddings or (None) on the same, same target."""
        ...


@dataclass(frozen=True)
class Scores:
    """What a method returns: raw signed scores, and per example what else there is to say about them.

    `layers`: where the scores are a sum over layers, its terms. `pixels`: where there are scores finer than patches.
    """

    tokens: Float[Tensor, "batch token"]
    details: tuple[Mapping[str, object], ...] = ()
    layers: Float[Tensor, "batch layer token"] | None = None
    pixels: Float[Tensor, "batch row column"] | None = None


@runtime_checkable
class Method(Protocol):
    """A frozen dataclass of settings whose call is a pure function of a trace."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    name: ClassVar[str] = ""  # `register` sets these three
    paper: ClassVar[str] = ""
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {}

    @property
    def needs(self) -> Needs: ...

    @property
    def tuned_on_deletion(self) -> bool:
        """It looked at the deletion curve that it may later be judged by."""
        return Ask.DELETIONS in self.needs.asks

    def __call__(self, trace: Trace, probe: Probe) -> Scores: ...

    @property
    def settings(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def label(self) -> str:
        """`name`, `name@preset`, or `name(setting=value)`: what differs from the defaults."""
        default = {f.name: f.default for f in fields(self)}
        if self.settings == default:
            return self.name
        for preset, changes in self.presets.items():
            if self.settings == {**default, **changes}:
                return f"{self.name}@{preset}"
        changed = [f"{key}={written(value)}" for key, value in self.settings.items() if value != default[key]]
        return f"{self.name}({', '.join(changed)})"


def passes(methods: Iterable[Method]) -> dict[View, Needs]:
    """One pass for each view, with the union of what its methods need; the plain view always, and first."""
    found = {View(): Needs()}
    for wanted in (method.needs for method in methods):
        found[wanted.view] = found.get(wanted.view, Needs(view=wanted.view)) | wanted
    return found


def written(value: object) -> object:
    """A setting as it stands in labels and records: what is no plain value is named, not written out."""
    if isinstance(value, ReferenceLibrary | HeadMask):
        return str(value)
    if isinstance(value, list | tuple):
        if all(isinstance(item, int | float) for item in value):
            return list(value)  # as it will be read back from JSON
        return f"{len(value)} texts {hashlib.sha256(repr(list(value)).encode()).hexdigest()[:8]}"
    return value
