"""The device that a run uses, its precision and its threads, and torch's global settings while vmt runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import torch

from vmt.errors import InputError, bytes_in

# Values in a batch below which one CPU thread is enough: 64 grey images of 28×28 have 50,176.
SMALL_BATCH = 60_000


@contextmanager
def single_precision() -> Iterator[None]:
    """Create tensors and layers in float32 inside, whatever the caller set with ``torch.set_default_dtype``."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def default_torch_settings() -> Iterator[None]:
    """Ignore the caller's ``torch.autocast`` and ``torch.set_default_device`` inside."""
    other_device = torch.get_default_device().type != "cpu"
    with (
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
        # Only if needed, because it makes every call of torch a little slower.
        torch.device("cpu") if other_device else nullcontext(),
    ):
        yield


def bfloat16_helps(device: torch.device) -> tuple[bool, str]:
    """Whether networks run in bfloat16 on a device by default, and a sentence that says why."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            supported = torch.cuda.is_bf16_supported(including_emulation=False)
        if supported:
            return True, "bfloat16: this GPU has tensor cores for it."
        return False, "float32: this GPU has no bfloat16 arithmetic."
    if device.type == "cpu":
        if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
            return True, "bfloat16: this CPU has instructions for it."
        return False, "float32: this CPU has no bfloat16 instructions, and without them bfloat16 is slower."
    return False, f"float32: bfloat16 is not used by default on {device.type}."


def chosen_precision(asked: str, device: torch.device, images: bool) -> tuple[bool, str]:
    """Whether to run the networks of a run in bfloat16, and a sentence that says why."""
    if asked != "auto":
        return asked == "bfloat16", f"{asked}: as requested."
    if not images:
        return False, "float32: networks for vectors are small."
    return bfloat16_helps(device)


@contextmanager
def cpu_threads(asked: int, batch_values: int) -> Iterator[None]:
    """Compute on ``asked`` CPU threads; 0 chooses by the number of values in a batch of one domain.

    The choice depends on nothing else, because sums on another number of threads round differently and a resumed run
    must not differ. For batches of small images, two threads gain a tenth on an idle machine and lose two thirds on a
    busy one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(min(asked, usable_cores()) or (1 if batch_values < SMALL_BATCH else before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def torch_device(name: str) -> torch.device:
    """The device of that name; raises an :class:`InputError` if this machine does not have it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} does not exist: use auto, cpu, cuda or cuda:N.") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not supported: use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise InputError(
            f"device {name!r} does not exist, because torch finds {found} CUDA devices: use 'cpu' or 'auto'."
        )
    return device


# Samples in the memory of the host may take this share of what is free, because parts of them are copied on the way;
# those on a GPU may take this share of its free memory, because networks need the rest.
HOST_SHARE, GPU_SHARE = 0.25, 0.5


def memory_for_samples(asked: str, device: torch.device) -> int:
    """How many bytes samples may take on a device: as asked, or with ``auto`` a share of what is free."""
    if asked != "auto":
        return bytes_in(asked, "memory")
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * GPU_SHARE)
    return int(free_memory() * HOST_SHARE)


def free_memory() -> int:
    """The memory of the host that is free for this process, by the system and by the limits of its container."""
    free = [2**33]  # where nothing is known
    with suppress(OSError, ValueError, IndexError):
        (line,) = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")]
        free = [int(line.split()[1]) * 1024]
    with suppress(OSError, ValueError):  # no limit is written as max
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        free.append(limit - used)
    return max(0, min(free))


def usable_cores() -> int:
    """The number of CPU cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on every system
        return os.cpu_count() or 1
