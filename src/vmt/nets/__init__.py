"""Networks: the paper's CNNs, an MLP for vectors, and an adapter for any module."""

from vmt.nets.adapter import from_module
from vmt.nets.cnn import cnn
from vmt.nets.mlp import discriminator, mlp
from vmt.nets.staged import Staged

__all__ = ["Staged", "cnn", "discriminator", "from_module", "mlp"]
