"""Everything that vmt changes inside torch's compiler, Inductor. No other module patches torch.

Two patches correct Inductor, and hold only while a step is compiled (:func:`corrected_inductor`):

* :func:`reads_before_writes`: a value that is read before an update is the value from before the update.
* :func:`waits_before_memory`: a kernel that is launched early waits before it touches memory.

Each says why it is needed, which versions of torch it is for, and what happens where it does not apply. For each,
``tests/engine/test_torch_patches.py`` has a test that says so when torch no longer needs it.

Other parts of vmt *use* private or experimental parts of torch, and change nothing there:

* :mod:`vmt.engine.compile`: ``make_fx`` traces the step, ``torch._guards.TracingContext``, ``FakeTensorMode`` and
  ``ShapeEnv`` describe its tensors, and ``torch._inductor.compile`` compiles the graph.
* :mod:`vmt.engine.capture`: ``CUDAGraph(keep_graph=True)``, ``raw_cuda_graph`` and ``graphsafe_set_state``.
* :mod:`vmt.step` and :mod:`vmt.nets.norm`: ``torch._foreach_*``.

If one of these fails, :mod:`vmt.engine.engine` runs the step without compiling or capturing it and says why.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch._inductor
import torch.compiler.config
from torch._inductor import lowering
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.ir import TensorBox
from torch._inductor.virtualized import V
from torch.utils._pytree import tree_leaves

KNOWN_VERSIONS = ("2.11", "2.12", "2.13")
"""The versions of torch that the patches are known to fit."""


@contextmanager
def corrected_inductor(launch_early: bool) -> Iterator[None]:
    """Compile a step correctly inside; ``launch_early`` says whether the device can launch kernels early."""
    settings = {
        "triton.enable_pdl": False,  # unless the patch below makes it safe
        # Reordering loops for fusion fails an assertion of Inductor if there is a foreach kernel.
        "loop_ordering_after_fusion": False,
    }
    with (
        torch._inductor.config.patch(settings),
        reads_before_writes(),
        waits_before_memory() if launch_early else nullcontext(),
    ):
        yield


# --- Reads before writes ---


@contextmanager
def reads_before_writes() -> Iterator[None]:
    """Inside, Inductor computes what still has to read a list of tensors before it changes them in place.

    Why: Inductor delays a computation until its result is used. Before it changes a single tensor in place, it first
    computes what still has to read the old value. On a GPU, it does so too late before an operation on a list of
    tensors, such as ``torch._foreach_add_``: a loss that is only logged was computed with the weights *after* Adam's
    step.

    Versions: known to be needed in 2.11 to 2.13. In another version the patch is applied as well: it only makes
    Inductor compute a value earlier.

    Where it does not apply: it raises, and the step runs without being compiled, which is slower.
    """
    if not can_order_reads():
        raise NotImplementedError(
            f"torch {torch.__version__} handles operations on lists of tensors in a way that vmt does not know"
        )
    in_place = lowering.inplace_foreach_ops
    patched = {operation: after_reads(lowering.lowerings[operation]) for operation in in_place}
    with cached_as("reads first"), entries_replaced(lowering.lowerings, patched):
        yield


def can_order_reads() -> bool:
    """Whether Inductor has what the patch of reads and writes relies on."""
    return hasattr(lowering, "inplace_foreach_ops") and hasattr(lowering, "lowerings")


def after_reads(lower: Callable[..., Any]) -> Callable[..., Any]:
    """The lowering of an operation on a list of tensors, once what later operations need of them is computed."""

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


# --- Waits ---


@contextmanager
def waits_before_memory() -> Iterator[None]:
    """Inside, Inductor's kernels are launched early, and each waits for the one before it before it touches memory.

    Why: with ``triton.enable_pdl``, a kernel is launched while the one before it still runs
    (:mod:`vmt.kernels.launch`). Inductor lets a kernel read and write before it waits wherever it sees no need for what
    the one before has written, and it overlooks buffers that the one before changes in place, and seeds. A kernel
    that reads nothing does not wait at all, so that it can end before the one before it does, and the next begins too
    soon. The result is a wrong number now and then, or an illegal memory access, above all on a shared GPU.

    Versions: 2.11 to 2.13 alone, because a kernel that the patch misses would be wrong.

    Where it does not apply: Inductor's kernels are not launched early, which is about 5 % slower, and a warning says
    so.
    """
    if not can_add_waits():
        warn_of_late_launches()
        yield
        return
    finish = TritonKernel._filter_pdl

    def filtered(kernel: TritonKernel, code: Any) -> None:
        finish(kernel, code)
        code._lines = waiting_first(code._lines)

    with (
        torch._inductor.config.patch({"triton.enable_pdl": True}),
        cached_as("waiting first"),
        attribute_replaced(TritonKernel, "_filter_pdl", filtered),
    ):
        yield


def can_add_waits() -> bool:
    """Whether Inductor writes the waits of a kernel in the way that the patch relies on."""
    return is_known_torch() and hasattr(TritonKernel, "_filter_pdl") and hasattr(TritonKernel, "GDC_WAIT")


def is_known_torch() -> bool:
    return ".".join(torch.__version__.split(".")[:2]) in KNOWN_VERSIONS


@lru_cache(maxsize=1)
def warn_of_late_launches() -> None:
    """Warn once per process."""
    warnings.warn(
        f"vmt does not know the kernels that torch {torch.__version__} generates, so it does not launch them early. "
        f"Training is correct but a little slower; torch {KNOWN_VERSIONS[-1]} is known.",
        stacklevel=2,
    )


def waiting_first(lines: list[Any]) -> list[Any]:
    """A kernel's body with one wait, at its beginning. Some lines of a body are not yet text."""
    wait = TritonKernel.GDC_WAIT
    return [wait, *(line for line in lines if not (isinstance(line, str) and wait in line))]


# --- Tools for patching ---


@contextmanager
def attribute_replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute of a module or class inside."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def entries_replaced(mapping: MutableMapping[Any, Any], values: Mapping[Any, Any]) -> Iterator[None]:
    """Set some entries of a mapping inside."""
    before = {key: mapping[key] for key in values}
    mapping.update(values)
    try:
        yield
    finally:
        mapping.update(before)


@contextmanager
def cached_as(tag: str) -> Iterator[None]:
    """Give graphs that are compiled inside their own cache keys: graphs compiled without the patch are different."""
    tags = f"{torch.compiler.config.cache_key_tag} {tag}"
    with torch.compiler.config.patch(cache_key_tag=tags):  # type: ignore[attr-defined]
        yield
