"""The package's networks by name. The command line lists them without importing PyTorch."""

from typing import Any

# The function of vmt.nets.networks that builds each network, and the options that it is called with.
CNN, MLP = "cnn", "mlp"
NETS: dict[str, tuple[str, dict[str, Any]]] = {
    "small": (CNN, {"widths": (64, 64, 64)}),
    "large": (CNN, {"widths": (96, 192, 192)}),
    # Thin and shallow, for 16×16 images on a CPU. The paper's dropout 0.5 and noise 1 are too much for it.
    "tiny": (CNN, {"widths": (24, 24, 24), "depth": 2, "dropout": 0.2, "noise": 0.3}),
    "mlp": (MLP, {}),
}
