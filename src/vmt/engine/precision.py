"""The arithmetic of a network: single precision whatever the caller has set, and where bfloat16 makes
it faster."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


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
