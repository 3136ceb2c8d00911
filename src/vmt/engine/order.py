"""What is read before an update is computed before it.

Inductor computes small things late, where they are used. Before a buffer changes in place, whatever still waits to read
it is to be computed first; for lists of tensors (``_foreach_add_``, as an optimiser uses it) Inductor (2.11 to 2.13)
does that too late on a GPU, and a loss that is only logged is then computed with biases that have moved already.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch.compiler.config
from torch._inductor import lowering
from torch._inductor.ir import TensorBox
from torch._inductor.virtualized import V
from torch.utils._pytree import tree_leaves

Lower = Callable[..., Any]


@contextmanager
def reads_before_writes() -> Iterator[None]:
    """Within this context; without effect where Inductor has no such operations."""
    in_place = getattr(lowering, "inplace_foreach_ops", ())
    # Graphs that were kept without this are not these.
    tag = f"{torch.compiler.config.cache_key_tag} reads first"
    with (
        torch.compiler.config.patch(cache_key_tag=tag),  # type: ignore[attr-defined]
        patch.dict(lowering.lowerings, {op: after_reads(lowering.lowerings[op]) for op in in_place}),
    ):
        yield


def after_reads(lower: Lower) -> Lower:
    """An operation on a list of tensors that it changes, once what later operations need of them is computed."""

    def lowered(changed: list[TensorBox], *args: Any, **kwargs: Any) -> Any:
        names = set().union(*(box.get_read_names() for box in changed))
        # What only this operation still needs is computed within it.
        used_up = V.graph.user_to_last_uses.get(V.graph.current_node, ())
        kept = [value for node, value in V.graph.env.items() if node not in used_up]
        for box in tree_leaves(kept):
            if isinstance(box, TensorBox) and names & set(box.get_read_names()):
                box.realize()
        return lower(changed, *args, **kwargs)

    return lowered
