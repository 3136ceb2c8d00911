"""Check in Triton's interpreter that kernels access only the tensors that they are given.

On a GPU, a kernel that reads or writes a little beyond a tensor mostly goes unnoticed, because that memory is mapped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

# The bytes between any two tensors, so that no tensor lies just beyond another. The gap is never touched, so that it
# takes address space but no memory.
GAP = 1 << 26


@dataclass(frozen=True)
class Extent:
    """The bytes of the argument ``of``, from its first value to its last."""

    of: str
    first: int
    end: int


@dataclass
class Seen:
    """What was checked: the number of launches of each kernel, and of accesses."""

    launches: dict[str, int] = field(default_factory=dict)
    accesses: int = 0


class Launch:
    """One launch: copies of its tensors far from each other, and where they lie."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.extents: list[Extent] = []

    def moved(self, of: str, argument: Any) -> Any:
        """An argument whose tensors are copied to where nothing else is near."""
        if isinstance(argument, tuple):
            return tuple(self.moved(f"{of}[{i}]", each) for i, each in enumerate(argument))
        if not isinstance(argument, Tensor):
            return argument
        storage = argument.untyped_storage()
        if storage.data_ptr() not in self.storages:
            self.storages[storage.data_ptr()] = far_copy(storage)
        copy = argument.new_empty(0)
        copy.set_(self.storages[storage.data_ptr()], argument.storage_offset(), argument.size(), argument.stride())  # type: ignore[call-overload]
        self.extents.append(Extent(of, *extent(copy)))
        return copy

    def check(self, what: str, addresses: np.ndarray, size: int) -> None:
        """Raise an error unless each value of ``size`` bytes is inside a tensor."""
        inside = np.zeros(addresses.shape, dtype=bool)
        for extent in self.extents:
            inside |= (addresses >= extent.first) & (addresses + np.uint64(size) <= extent.end)
        if not inside.all():
            at = int(addresses[~inside][0])
            near = min(self.extents, key=lambda extent: max(extent.first - at, at + size - extent.end))
            far = f"{at + size - near.end} bytes beyond" if at >= near.first else f"{near.first - at} bytes before"
            many = int((~inside).sum())
            raise IndexError(f"{self.kernel} {what} {far} {near.of}; {many} of {inside.size} values are outside")


def far_copy(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A copy in the middle of a gap."""
    n = storage.nbytes()
    if n == 0:
        return storage
    start = GAP + -(-n // 64) * 64
    memory = np.empty(start + GAP, dtype=np.uint8)
    copy = torch.frombuffer(memory, dtype=torch.uint8, count=n, offset=GAP).untyped_storage()
    copy.copy_(storage)
    return copy


def extent(tensor: Tensor) -> tuple[int, int]:
    """The first byte of a tensor, and the one after its last; strides are never negative."""
    first = tensor.data_ptr()
    if not tensor.numel():
        return first, first
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (last + 1) * tensor.element_size()


@contextmanager
def nothing_beyond() -> Iterator[Seen]:
    """Inside, a kernel that reads or writes beyond its tensors fails, and uninitialised memory is NaN.

    Uninitialised integers are the largest number.
    """
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle

    seen = Seen()
    launch = Launch("no kernel")

    def arguments(executor: GridExecutor, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], Any]:
        nonlocal launch
        launch = Launch(executor.fn.__name__)
        seen.launches[launch.kernel] = seen.launches.get(launch.kernel, 0) + 1
        by_place = [launch.moved(name, each) for name, each in zip(executor.arg_names, given, strict=False)]
        return by_place, {name: launch.moved(name, each) for name, each in named.items()}

    def checked(what: str, method: str, at: int, mask: int | None) -> None:
        """Check a method of the interpreter: its argument ``at`` has addresses, and ``mask`` selects from them."""
        plain = getattr(InterpreterBuilder, method)

        def access(builder: InterpreterBuilder, *args: Any, **named: Any) -> Any:
            pointers: TensorHandle = args[at]
            size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
            addresses = np.atleast_1d(pointers.data)
            if mask is not None:
                addresses = addresses[np.broadcast_to(args[mask].data, addresses.shape)]
            seen.accesses += addresses.size
            launch.check(what, addresses, size)
            return plain(builder, *args, **named)

        patch.setattr(InterpreterBuilder, method, access)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GridExecutor, "_init_args_hst", arguments)
        checked("reads", "create_masked_load", at=0, mask=1)
        checked("writes", "create_masked_store", at=0, mask=2)
        checked("changes", "create_atomic_cas", at=0, mask=None)
        checked("changes", "create_atomic_rmw", at=1, mask=3)
        with uninitialised_is_nan():
            yield seen


@contextmanager
def uninitialised_is_nan() -> Iterator[None]:
    """``torch.empty`` and the like give NaN inside."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.utils.deterministic.fill_uninitialized_memory = fills
