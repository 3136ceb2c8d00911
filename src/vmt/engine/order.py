"""What is read before an update is computed before it.

Inductor computes small things late, where they are used. Before a buffer changes in place, whatever still reads it is
to be computed first; for lists of tensors (``_foreach_add_``, as an optimiser uses it) Inductor (2.11 to 2.13) forgets
that on a GPU, and a loss that is only logged is then computed with biases that have moved already.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch.compiler.config
from torch._inductor import lowering
from torch._inductor.ir import StorageBox
from torch._inductor.virtualized import V

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
    """An operation on a list of tensors that it changes, once their pending readers are computed."""

    def lowered(changed: list[Any], *args: Any, **kwargs: Any) -> Any:
        for box in changed:
            if isinstance(box.data, StorageBox) and box.data.is_input_buffer():
                V.graph.mark_buffer_mutated(box.get_name())
        return lower(changed, *args, **kwargs)

    return lowered
