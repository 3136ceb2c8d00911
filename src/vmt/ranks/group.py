"""What the ranks of a run compute together: mean gradients, shared outputs and common decisions."""

import atexit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from vmt.errors import InputError
from vmt.ranks.launch import Launch, launched
from vmt.ranks.watch import Watch

T = TypeVar("T")
CONTROL, NCCL, GRADIENTS = "control", "nccl", "gradients"
_groups: dict[str, dist.ProcessGroup] = {}
"""The groups of this process: one on the CPU, and the one that averages gradients on the device."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """This process among the ranks of a run. Every rank calls the same methods in the same order.

    Without a group nothing is exchanged, and every method returns what it is given.
    """

    rank: int = 0
    count: int = 1
    has_group: bool = False
    is_captured: bool = True
    """Whether a CUDA graph can contain the exchange of gradients, as NCCL's can."""
    watch: Watch | None = field(default=None, repr=False)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The mean of each tensor over all ranks, with one all-reduce for all of them together."""
        if not self.has_group or not tensors:
            return list(tensors)
        stored = [as_stored(tensor) for tensor in tensors]
        flat = torch.cat([tensor.reshape(-1) for tensor in stored])
        means = torch.split(torch.ops.vmt.mean_over_ranks(flat, GRADIENTS), [tensor.numel() for tensor in tensors])
        return [as_shaped(m.view_as(s).to(t.dtype), t) for m, s, t in zip(means, stored, tensors, strict=True)]

    def mean_metrics(self, metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The means over all ranks of metrics that are on the CPU."""
        if not self.has_group or not metrics:
            return dict(metrics)
        flat = mean_over_ranks(torch.cat([tensor.reshape(-1) for tensor in metrics.values()]), CONTROL)
        means = torch.split(flat, [tensor.numel() for tensor in metrics.values()])
        return {name: mean.view_as(metrics[name]) for name, mean in zip(metrics, means, strict=True)}

    def rows(self, tensor: Tensor) -> Tensor:
        """The same tensor of each rank as a row: (…) → (ranks, …), on the CPU."""
        every = [torch.empty_like(tensor, device="cpu") for _ in range(self.count)]
        dist.all_gather(every, tensor.cpu(), group=_groups[CONTROL])
        return torch.stack(every)

    def for_samples(self, count: int) -> "Ranks":
        """The ranks that share the work on this many samples; with fewer samples than ranks, each does all of it."""
        return self if count >= self.count else ALONE

    def share(self, count: int) -> slice:
        """The samples out of ``count`` that this rank computes the outputs of."""
        return slice(self.rank * count // self.count, (self.rank + 1) * count // self.count)

    def complete_(self, outputs: Iterable[Tensor]) -> None:
        """Fill in, in place, what the other ranks have computed; here only the share of this rank may not be zero."""
        if self.has_group:
            for output in outputs:
                dist.all_reduce(output, group=_groups[GRADIENTS])

    def from_first(self, make: Callable[[], T]) -> T:
        """What ``make`` returns on rank 0, for all ranks."""
        if not self.has_group:
            return make()
        made = [make() if self.is_first else None]
        dist.broadcast_object_list(made, src=0, group=_groups[CONTROL])
        return made[0]  # type: ignore[return-value]

    def copy_first_(self, tensors: Iterable[Tensor]) -> None:
        """Copy tensors of rank 0, in place."""
        if self.has_group:
            for tensor in tensors:
                own = tensor.cpu().contiguous()
                dist.broadcast(own, src=0, group=_groups[CONTROL])
                tensor.copy_(own)

    def agree(self, stop: bool, steps: int) -> tuple[bool, int]:
        """Whether any rank wants to stop, and the smallest number of steps."""
        if not self.has_group:
            return stop, steps
        least = torch.tensor([not stop, steps])
        dist.all_reduce(least, dist.ReduceOp.MIN, group=_groups[CONTROL])
        return not least[0], int(least[1])


ALONE = Ranks()


def as_stored(tensor: Tensor) -> Tensor:
    """A view of a tensor in the order in which its values are stored: channels last for many convolutions."""
    return tensor if tensor.is_contiguous() or tensor.dim() != 4 else tensor.movedim(1, -1)


def as_shaped(stored: Tensor, like: Tensor) -> Tensor:
    return stored if like.is_contiguous() or like.dim() != 4 else stored.movedim(-1, 1)


def mean_over_ranks(flat: Tensor, group: str) -> Tensor:
    """The mean of a vector over all ranks."""
    total = flat.clone()
    dist.all_reduce(total, group=_groups[group])
    return total.div_(_groups[group].size())


# As an operator, which a compiler leaves as it is. torch.library.custom_op would import the whole compiler when called.
LIBRARY = torch.library.Library("vmt", "FRAGMENT")  # type: ignore[no-untyped-call]
LIBRARY.define("mean_over_ranks(Tensor flat, str group) -> Tensor")  # type: ignore[no-untyped-call]
LIBRARY.impl("mean_over_ranks", mean_over_ranks, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
torch.library.register_fake("vmt::mean_over_ranks", lambda flat, group: torch.empty_like(flat), lib=LIBRARY)


_joined: list[Ranks] = []
"""The ranks of the run in progress."""


@contextmanager
def join_ranks(device: str = "auto") -> Iterator[Ranks]:
    """The ranks of a run on a device named as in :class:`vmt.train.Config`; alone without torchrun.

    Inside another ``join_ranks`` the ranks are the same. An error on one rank ends the others.
    """
    here = launched()
    if here is None or _joined:
        yield _joined[-1] if _joined else ALONE
        return
    ranks = connect(here, device)
    watch = ranks.watch
    assert watch is not None
    _joined.append(ranks)
    try:
        yield ranks
        watch.leave(lambda: dist.barrier(group=_groups[CONTROL]))
    except BaseException as error:
        if is_of_exchange(error):
            watch.wait_after_an_error()
        watch.fail(error, isinstance(error, InputError))
        raise
    finally:
        _joined.clear()


def connect(here: Launch, device: str) -> Ranks:
    """Connect this process to the others."""
    if not dist.is_available():
        raise InputError("this build of PyTorch has no torch.distributed: start the run without torchrun.")
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if on_gpu and ":" in device and here.local_count > 1:
        raise InputError(
            f"device {device!r} is one GPU for {here.local_count} ranks: leave it out, and each rank takes its own GPU."
        )
    if on_gpu and ":" not in device:
        torch.cuda.set_device(here.local_rank % torch.cuda.device_count())
    if not dist.is_initialized():
        _groups.clear()  # of an earlier connection, which the caller has ended
        # torchrun keeps one store for all its restarts, with the addresses of processes that have ended.
        store = PrefixStore(f"vmt/{here.restarts}", next(rendezvous("env://"))[0])
        dist.init_process_group("gloo", store=store, rank=here.rank, world_size=here.count)
        _groups[CONTROL] = dist.distributed_c10d._get_default_group()
        atexit.register(disconnect)
    if CONTROL not in _groups:  # the caller has made a group, perhaps of another kind, and destroys it
        _groups[CONTROL] = dist.new_group(backend="gloo")
        atexit.register(_groups.clear)
    own_gpu = torch.tensor(int(on_gpu and torch.cuda.device_count() >= here.local_count))
    dist.all_reduce(own_gpu, dist.ReduceOp.MIN, group=_groups[CONTROL])
    if own_gpu and dist.is_nccl_available():
        if NCCL not in _groups:
            _groups[NCCL] = dist.new_group(backend="nccl")
        _groups[GRADIENTS] = _groups[NCCL]
    else:
        _groups[GRADIENTS] = _groups[CONTROL]
    watch = Watch(here)
    ranks = Ranks(here.rank, here.count, True, _groups[GRADIENTS] is not _groups[CONTROL], watch)
    watch.open(lambda port: ranks.from_first(lambda: port or 0))
    return ranks


def is_of_exchange(error: BaseException) -> bool:
    """Whether an error comes from the exchange between ranks, where the loss of a rank often shows first."""
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (isinstance(error, dist.DistError) or "gloo" in text or "nccl" in text)


def disconnect() -> None:
    """Leave the groups at the end of the process.

    A group that is still referenced here outlives destroy_process_group, and its threads the interpreter: a thread that
    then drops a tensor ends the process with std::terminate.
    """
    _groups.clear()
    if dist.is_initialized():  # not if the caller has destroyed it
        dist.destroy_process_group()
