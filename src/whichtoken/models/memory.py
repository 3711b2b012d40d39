"""How much memory a pass needs, and passes over long inputs that keep little of their graph.

For a long input, the graph of a backward pass is too large to keep: relevance needs the attention matrices of every
block. Where a method only reads what lies between blocks, each block is recomputed when the backward pass reaches it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from whichtoken.core.trace import Ask, Needs, Site
from whichtoken.lrp import ReappliedRules
from whichtoken.models.subject import Subject

BETWEEN_BLOCKS = frozenset({Site.EMBEDDINGS, Site.HIDDEN})
LARGE = 2**30  # bytes of a graph that is not kept if it need not be
MATRICES = 6  # attention matrices of one block that are in memory at once, forward or backward


def estimate_graph(subject: Subject, rows: int, tokens: int, fused: bool) -> int:
    """Return the size in bytes of the graph of a pass. `fused`: attention matrices are not computed."""
    config = subject.model.config
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    of_token = 12 * config.hidden_size + 4 * inner
    matrices = 0 if fused else 2 * config.num_attention_heads * tokens
    return int(subject.n_layers * rows * tokens * (of_token + matrices) * subject.model.dtype.itemsize)


def estimate_bytes(subject: Subject, needs: Needs, tokens: int) -> int:
    """Return about how many bytes a method's passes over one row need, besides the model."""
    config = subject.model.config
    matrices = config.num_attention_heads * tokens**2 * subject.model.dtype.itemsize
    # Values and gradients are one set each; the graph that gradients need holds another.
    sets = (Site.ATTENTION in needs.values) + 2 * (Site.ATTENTION in needs.grads)
    unfused = bool(sets or needs.relevance or needs.view.hides) or subject.own_attention == "eager"
    sites = needs.values | needs.grads | {site for _, site in needs.relevance}
    differentiated = bool(needs.grads or needs.relevance or Ask.PASSES in needs.asks)
    graph = estimate_graph(subject, 1, tokens, not unfused) if differentiated else 0
    if sites <= BETWEEN_BLOCKS:
        graph = min(graph, max(LARGE, graph // subject.n_layers))
    between = subject.n_layers * tokens * config.hidden_size * subject.model.dtype.itemsize
    return int(sets * subject.n_layers * matrices + MATRICES * matrices * unfused + graph + between)


@contextmanager
def forget_inside(subject: Subject) -> Iterator[None]:
    """Let the blocks of a twin forget what they compute in a forward pass; backward, they compute it again."""
    with ExitStack() as stack:
        for block in subject.blocks:
            # On the module itself, so that hooks on the block run once, in the forward pass.
            block.forward = partial(
                checkpoint,
                block.forward,
                use_reentrant=False,
                preserve_rng_state=False,
                context_fn=lambda: (nullcontext(), ReappliedRules()),
            )
            stack.callback(delattr, block, "forward")
        yield


@contextmanager
def compute_again() -> Iterator[None]:
    """Compute blocks whole, and not only up to the last tensor that is needed, so that the hooks after it fire, too."""
    with set_checkpoint_early_stop(False):
        yield
