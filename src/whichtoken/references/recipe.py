"""Recipe: which texts of a corpus become references, and what is stored of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Rule = Literal["gamma", "lowest", "random", "same-class"]
Layers = Literal["inputs", "outputs", "all"]
Dtype = Literal["float16", "float32", "float64"]
Compression = Literal["none", "int8"]


@dataclass(frozen=True)
class Recipe:
    """Settings of `references.build`; p is the probability of the class that the references are for.

    `rule`: "gamma", texts with p < gamma, filled up with the lowest p if the corpus has fewer than `n`; "lowest", the
    lowest p of the scanned texts; and two controls: "random", any texts, and "same-class", the highest p. With more
    than two classes, the best texts of each source class take turns.
    `scan`: "full", until every class has `n` references under gamma, balanced over their source classes, or ten times
    as far as it took to find `n` (under "lowest": the whole corpus, because the lowest are only known at its end);
    "all", the whole corpus; a number of texts; "first-full", until one class has had more than `n` candidates, as in
    the authors' code. `seed` shuffles the corpus; None keeps its order.
    `correct_only` skips texts that the model misclassifies, where labels are known.
    `layers`: block inputs, block outputs or both, as the method reads them; its presets differ in this, and both are
    only one hidden state more. `mask_special` masks special tokens in the forward pass that computes the references.
    `compress`: "int8" halves the size of float16.
    For questions, any pairs are stored, in scan order; p < gamma, at the position of the explained answer, is applied
    at explanation time, and the rules "lowest" and "random" then use every reference that extends to that position.
    """

    rule: Rule = "gamma"
    n: int = field(default=30, metadata={"least": 1})
    gamma: float = field(default=1e-3, metadata={"least": 0})
    min_tokens: int = field(default=10, metadata={"least": 1})  # special tokens included
    correct_only: bool = True
    scan: Literal["full", "all", "first-full"] | int = field(default="full", metadata={"least": 1})
    seed: int | None = field(default=0, metadata={"least": 0})
    layers: Layers = "all"
    mask_special: bool = False
    dtype: Dtype = "float16"
    compress: Compression = "none"
    keep_text: bool = False


# As in the authors' code: the first texts of the corpus, in order, 50 for each class.
PRESETS: Mapping[str, Mapping[str, object]] = {
    "repo": {"rule": "lowest", "n": 50, "scan": "first-full", "seed": None, "dtype": "float32"},
}
