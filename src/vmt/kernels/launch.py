"""Launching a kernel while the one before it still runs, where the chip can.

A launch takes a microsecond or two, as long as many of a step's kernels. On Hopper and later a kernel can be put in
place early and wait inside for the end of the one before (programmatic dependent launch). Every kernel so launched
begins with that wait, so nothing that it reads or writes is touched too soon.
"""

import warnings
from functools import lru_cache
from importlib.util import find_spec

import torch

FIRST_WITH_EARLY_LAUNCHES = (9, 0)
# Kernels count values in 32 bits, and a grid has at most this many programs in its second and third direction.
MOST_VALUES = 2**31 - 1
MOST_PROGRAMS = 65_535


def can_launch(device: torch.device, values: int = 0) -> bool:
    """Whether our kernels can work on the largest of their tensors, with so many values, on its device. Triton launches
    on the device that is the current one, wherever the tensors are."""
    if values > MOST_VALUES:
        return False
    return device.type != "cuda" or (device.index == torch.cuda.current_device() and kernels_run(str(device)))


@lru_cache(maxsize=8)
def kernels_run(device: str) -> bool:
    """Whether Triton can build and run a kernel for a device. It may be installed without the C compiler that it needs,
    or not know the chip."""
    from vmt.kernels.triton_kernels import BLOCK, random_bits

    zero, out = (torch.zeros(n, dtype=torch.int64, device=device) for n in (1, BLOCK))
    try:
        random_bits[(1,)](zero, out, zero, BLOCK, FROZEN=False, BLOCK=BLOCK, **early(torch.device(device)))
    except Exception as error:  # compilers raise anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        warnings.warn(
            f"Triton runs no kernels on {device}, so PyTorch's own are used, which are slower: {reason}", stacklevel=2
        )
        return False
    return True


@lru_cache(maxsize=8)
def launches_early(device: str) -> bool:
    """Never on a CPU, where an interpreter runs the kernels."""
    if torch.device(device).type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= FIRST_WITH_EARLY_LAUNCHES


def early(device: torch.device) -> dict[str, bool]:
    """How to launch a kernel of ours on a device: early, and told so, or neither."""
    yes = launches_early(str(device))
    return {"EARLY": True, "launch_pdl": True} if yes else {"EARLY": False}


@lru_cache(maxsize=1)
def have_triton() -> bool:
    return find_spec("triton") is not None
