"""The device that work runs on: its name, its arithmetic, its threads, and torch settings of the caller that do not count."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from vmt.errors import InputError


@contextmanager
def single_precision() -> Iterator[None]:
    """New tensors and layers are of float32 inside, whatever ``torch.set_default_dtype`` was told outside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def own_settings() -> Iterator[None]:
    """Neither ``torch.autocast`` nor ``torch.set_default_device`` of the caller counts inside."""
    elsewhere = torch.get_default_device().type != "cpu"
    with (
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
        # Only where it is needed: every call of torch takes a little longer with it.
        torch.device("cpu") if elsewhere else nullcontext(),
    ):
        yield


def bfloat16_helps(device: torch.device) -> tuple[bool, str]:
    """Whether to run networks in bfloat16 on a device by default, and a sentence that says why."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            supported = torch.cuda.is_bf16_supported(including_emulation=False)
        if supported:
            return True, "bfloat16: the tensor cores of this GPU take it."
        return False, "float32: this GPU has no bfloat16 arithmetic."
    if device.type == "cpu":
        if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
            return True, "bfloat16: this CPU has instructions for it."
        return False, "float32: this CPU has no bfloat16 instructions, and without them bfloat16 is slower."
    return False, f"float32: bfloat16 is not used by default on {device.type}."


def torch_device(name: str) -> torch.device:
    """The device that a name stands for, refused with a sentence when it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} is unknown: use auto, cpu, cuda or cuda:N.") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not supported: use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise InputError(f"device {name!r} is not there: torch sees {found} CUDA devices; use --device cpu.")
    return device


def usable_cores() -> int:
    """How many workers can run at the same time."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
