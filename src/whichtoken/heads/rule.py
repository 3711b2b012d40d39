"""HeadRule: when an attention head counts as syntactic or positional."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class HeadRule:
    """Settings of `heads.build`; the defaults are the paper's, except `min_count`, which the paper does not have.

    A head is syntactic for a relation if, from the first sub-word of a dependent, it points to the head word with a
    share that exceeds that of the relation's most frequent relative position by more than `syntactic`; a relation must
    occur `min_count` times. A head is positional if more than the share `positional` of all tokens point to one
    relative position; the token itself counts as one only with `count_self`, as in the authors' code.
    """

    syntactic: float = field(default=0.1, metadata={"least": 0})
    positional: float = field(default=0.8, metadata={"least": 0})
    relations: tuple[str, ...] = ("nsubj", "obj", "amod", "advmod")
    min_count: int = field(default=20, metadata={"least": 1})
    count_self: bool = False
