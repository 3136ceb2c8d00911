"""The package's networks by name. The command line lists them without importing PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass
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
    # Those of other papers (vmt.nets.published).
    **{name: (name, {}) for name in ("dann_mnist", "dann_svhn", "drcn", "self_ensembling")},
}
# These are fitted or put together from trained ones (vmt.nets.composed), so that no run can ask for them.
KERNEL, AVERAGE = "kernel", "average"
COMPOSED = (KERNEL, AVERAGE)
# The networks that an average may have.
AVERAGED = (*NETS, KERNEL)


@dataclass(frozen=True)
class NetSettings:
    """Options that every network takes, beside those of its own. None leaves the network's default."""

    pretrained: bool | None = None
    """Start from pretrained weights: for timm:name, torchvision:name, or a function with a parameter pretrained."""

    weights: str | None = None
    """Start from the weights in this file: .safetensors, or a checkpoint of PyTorch that holds tensors alone."""

    logit_norm: bool | None = None
    """Batch norm on the logits, as in the paper; on by default, but not with pretrained weights."""

    bottleneck: int | None = None
    """Width of a dense layer with batch norm before the logits; 256 with pretrained weights, and 0 leaves it out."""

    freeze_statistics: bool | None = None
    """Keep the batch-norm statistics of the initial weights before the logits; on if these are pretrained."""


BOTTLENECK = 256


def with_defaults(net: object, options: Mapping[str, Any], ready: bool = False) -> dict[str, Any]:
    """The options of a network with those that follow from others.

    Pretrained weights, also those of a function that returns a ``ready`` network, have no batch norm on their logits,
    which would press every batch towards equal classes. They keep their statistics, with which the weights work best.
    So that each domain is normalised by itself somewhere, a bottleneck with batch norm comes before the logits. The
    networks of this package are complete without the two.

    >>> with_defaults("timm:resnet18", {"pretrained": True, "bottleneck": 64})
    {'logit_norm': False, 'bottleneck': 64, 'freeze_statistics': True, 'pretrained': True}
    """
    if not (ready or starts_trained(options)):
        return dict(options)
    own = {} if net in NETS else {"bottleneck": BOTTLENECK, "freeze_statistics": True}
    return {"logit_norm": False, **own, **options}


def starts_trained(options: Mapping[str, Any]) -> bool:
    """Whether the options of a network ask for weights that were trained elsewhere."""
    return bool(options.get("pretrained") or options.get("weights"))
