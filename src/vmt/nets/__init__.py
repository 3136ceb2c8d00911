"""Networks: the paper's CNNs, an MLP for vectors, and an adapter for any module."""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.nets.adapter import from_module
    from vmt.nets.networks import Staged, cnn, discriminator, mlp

__all__ = ["Staged", "cnn", "discriminator", "from_module", "mlp"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "from_module": "vmt.nets.adapter",
        **dict.fromkeys(("cnn", "discriminator", "mlp"), "vmt.nets.networks"),
        "Staged": "vmt.nets.networks",
    },
)
