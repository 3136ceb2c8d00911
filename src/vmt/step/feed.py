"""Batches of streams that are not on the device: read ahead of the step, and put where the step expects them.

The indices of a batch are a pure function of (seed, step, name), so the host knows them before the device draws them.
A thread reads the samples of the next steps into pinned memory and copies them to the device on a stream of its own,
while the current step runs. Before a step, its batches are copied to inputs at fixed addresses, which a captured graph
can read. The step itself draws the same indices for the labels, and computes what it computes on resident samples.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vmt.data.domains import Domain
from vmt.data.stored import StoredSamples
from vmt.device import usable_cores
from vmt.errors import InputError
from vmt.methods.nouns import Phase
from vmt.step.draws import SeededDraws
from vmt.step.plan import batches_of, name_of_indices

SLOTS = 3
"""Batches of this many steps are in memory at once: those of the step that takes its own, and of the next two."""

Request = tuple[str, str]
"""The name of the draw of a batch's indices, and the stream of the batch."""


def requests_of(phase: Phase) -> Iterator[Request]:
    """Every batch that a step of a phase reads; updates may read the same one."""
    for update in phase.updates:
        batches = sorted(batches_of(update), key=lambda batch: batch.name)
        for repeat in range(update.repeats):
            for batch in batches:
                yield name_of_indices(update, repeat, batch), batch.stream


def read_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """Read samples with these numbers (n,) into ``out`` (n, …), from the disk or from the memory of the host."""
    if isinstance(x, StoredSamples):
        x.read_into(rows, out)
    else:
        torch.index_select(x, 0, rows, out=out)


@dataclass
class Slot:
    """The memory for the batches of one step on their way to the device."""

    host: dict[str, Tensor] = field(default_factory=dict)  # pinned, for a GPU
    staged: dict[str, Tensor] = field(default_factory=dict)  # on the GPU
    copied: torch.cuda.Event | None = None  # the samples are on the GPU
    taken: torch.cuda.Event | None = None  # they are in the inputs, so this memory is free


class Feed:
    """Reads the batches of some streams ahead of the steps that use them."""

    def __init__(
        self, streams: Mapping[str, Domain], batch_size: Mapping[str, int], draws: SeededDraws, device: torch.device
    ) -> None:
        self.streams, self.batch_size, self.device = streams, batch_size, device
        self.draws = draws.at(torch.zeros((), dtype=torch.int64))
        self.inputs: dict[str, Tensor] = {}  # by the name of the draw; (N, …), at a fixed address
        self.slots = [Slot() for _ in range(SLOTS)]
        self.waiting: dict[tuple[tuple[Request, ...], int], Future[Slot]] = {}
        self.thread = ThreadPoolExecutor(1, "vmt-feed")
        self.on_gpu = device.type == "cuda"
        # On a CPU, the cores have other work.
        self.readers = ThreadPoolExecutor(min(4, usable_cores()), "vmt-read") if self.on_gpu else None
        self.known: tuple[Phase, tuple[Request, ...]] | None = None
        self.stream = torch.cuda.Stream(device) if self.on_gpu else None  # type: ignore[no-untyped-call]

    def feeds(self, stream: str) -> bool:
        return stream in self.streams

    def batch(self, name: str) -> Tensor:
        """The stored samples (N, …) of the batch with these indices, in the current step."""
        if name not in self.inputs:
            raise InputError(
                f"the batch {name!r} is read by a node that does not list it in reads, so it cannot be streamed: list "
                "it, or give more --memory."
            )
        return self.inputs[name]

    def prepare(self, phase: Phase, step: int) -> None:
        """Make the inputs of a phase and fill them. Afterwards nothing happens on the GPU until :meth:`load`.

        So a step can be captured: while it is, no other thread may use the GPU.
        """
        wait(self.waiting.values())
        self.waiting.clear()
        requests = self._requests(phase)
        for name, stream in requests:
            x = self.streams[stream].x
            shape = (self.batch_size[stream], *x.shape[1:])
            if name not in self.inputs:
                self.inputs[name] = torch.zeros(shape, dtype=x.dtype, device=self.device)
                for slot in self.slots:
                    slot.host[name] = torch.zeros(shape, dtype=x.dtype, pin_memory=self.on_gpu)
                    if self.on_gpu:
                        slot.staged[name] = torch.zeros(shape, dtype=x.dtype, device=self.device)
        self._wait_for_gpu()  # the new memory may still be in use by earlier work on the current stream
        self._take(self.thread.submit(self._read, requests, step, self.slots[0]).result(), requests)
        self._wait_for_gpu()

    def load(self, phase: Phase, step: int) -> None:
        """Put the batches of a step into the inputs, and start to read those of the next steps."""
        requests = self._requests(phase)
        if (requests, step) not in self.waiting:  # the first step, and a step after a jump
            wait(self.waiting.values())
            self.waiting.clear()
        for ahead in range(SLOTS - 1):
            self._start(requests, step + ahead)
        self._take(self.waiting.pop((requests, step)).result(), requests)
        self._start(requests, step + SLOTS - 1)

    def _wait_for_gpu(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def _requests(self, phase: Phase) -> tuple[Request, ...]:
        if self.known is None or self.known[0] is not phase:
            self.known = phase, tuple(dict.fromkeys(each for each in requests_of(phase) if each[1] in self.streams))
        return self.known[1]

    def _start(self, requests: tuple[Request, ...], step: int) -> None:
        if (requests, step) not in self.waiting:
            slot = self.slots[step % SLOTS]
            self.waiting[requests, step] = self.thread.submit(self._read, requests, step, slot)

    def _read(self, requests: tuple[Request, ...], step: int, slot: Slot) -> Slot:
        """Read the batches of a step into the memory of a slot; on a GPU, copy them there. Runs in the thread."""
        if slot.taken is not None:
            slot.taken.synchronize()
        self.draws.step.fill_(step)
        xs = [self.streams[stream].x for _, stream in requests]
        hosts = [slot.host[name] for name, _ in requests]
        rows = [self.draws.choice(name, len(x), len(h)) for (name, _), x, h in zip(requests, xs, hosts, strict=True)]
        for _ in (self.readers.map if self.readers is not None else map)(read_rows, xs, rows, hosts):
            pass  # an error in a thread is raised here
        if self.stream is not None:
            with torch.cuda.stream(self.stream):
                for name, _ in requests:
                    slot.staged[name].copy_(slot.host[name], non_blocking=True)
                slot.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
                slot.copied.record(self.stream)
        return slot

    def _take(self, slot: Slot, requests: tuple[Request, ...]) -> None:
        """Copy what a slot holds to the inputs, in the order of the work on the current stream."""
        with torch.cuda.device(self.device) if self.on_gpu else nullcontext():
            if slot.copied is not None:
                torch.cuda.current_stream().wait_event(slot.copied)
            for name, _ in requests:
                self.inputs[name].copy_(slot.staged[name] if self.on_gpu else slot.host[name])
            if self.on_gpu:
                slot.taken = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
                slot.taken.record()
