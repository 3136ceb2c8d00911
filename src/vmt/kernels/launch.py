"""Whether vmt's Triton kernels can be launched on a device, and whether they are launched early.

A launch takes a microsecond or two, as long as many of a step's kernels. On Hopper and later chips a kernel can be put
in place while the one before it still runs, and wait for its end (programmatic dependent launch). Every kernel that is
launched so begins with that wait, so that it reads and writes nothing too soon.
"""

import warnings
from functools import lru_cache
from importlib.util import find_spec

import torch

from vmt.errors import first_line

FIRST_WITH_EARLY_LAUNCHES = (9, 0)
# Kernels count values in 32 bits, and a grid has at most this many programs in its second and third dimension.
MOST_VALUES = 2**31 - 1
MOST_PROGRAMS = 65_535


@lru_cache(maxsize=1)
def have_triton() -> bool:
    return find_spec("triton") is not None


def can_launch(device: torch.device, values: int = 0) -> bool:
    """Whether vmt's kernels can work on tensors of up to this many values on this device.

    Triton launches kernels on the current device, wherever the tensors are.
    """
    if values > MOST_VALUES:
        return False
    return device.type != "cuda" or (device.index == torch.cuda.current_device() and kernels_run(str(device)))


@lru_cache(maxsize=8)
def kernels_run(device: str) -> bool:
    """Whether Triton can build and run a kernel for a device.

    Triton may be installed without the C compiler that it needs, or not support the chip.
    """
    from vmt.kernels.triton_kernels import BLOCK, random_bits

    zero, out = (torch.zeros(n, dtype=torch.int64, device=device) for n in (1, BLOCK))
    try:
        random_bits[(1,)](zero, out, zero, BLOCK, FROZEN=False, BLOCK=BLOCK, **early(torch.device(device)))
    except Exception as error:  # compilers may raise any exception
        warnings.warn(
            f"Triton cannot run kernels on {device}, so PyTorch's slower kernels are used: {first_line(error)[:200]}",
            stacklevel=2,
        )
        return False
    return True


def early(device: torch.device) -> dict[str, bool]:
    """The options for launching a kernel of vmt on a device: early, if the device can."""
    return {"EARLY": True, "launch_pdl": True} if launches_early(str(device)) else {"EARLY": False}


@lru_cache(maxsize=8)
def launches_early(device: str) -> bool:
    """Whether kernels are launched early on a device. They are not on a CPU, where an interpreter runs them."""
    if torch.device(device).type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= FIRST_WITH_EARLY_LAUNCHES
