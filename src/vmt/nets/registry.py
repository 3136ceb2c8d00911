"""The package's networks by name. The command line lists them without importing PyTorch."""

from typing import Any

# The function of vmt.nets.networks that builds each network, and the options that it is called with.
CNN, MLP = "cnn", "mlp"
SMALL: dict[str, Any] = {"widths": (64, 64, 64)}
# Thin and shallow, for 16×16 images on a CPU. The paper's dropout 0.5 and noise 1 are too much for it.
TINY: dict[str, Any] = {"widths": (24, 24, 24), "depth": 2, "dropout": 0.2, "noise": 0.3}
NETS: dict[str, tuple[str, dict[str, Any]]] = {
    "small": (CNN, SMALL),
    "large": (CNN, {"widths": (96, 192, 192)}),
    "tiny": (CNN, TINY),
    "mlp": (MLP, {}),
    # Without batch statistics, for domains whose classes have other shares.
    "small_group_norm": (CNN, {**SMALL, "norm": "group", "logit_norm": False}),
    "tiny_group_norm": (CNN, {**TINY, "norm": "group", "logit_norm": False}),
    "mlp_layer_norm": (MLP, {"norm": "layer", "logit_norm": False}),
}
