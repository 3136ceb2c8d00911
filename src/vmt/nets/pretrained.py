"""Networks that start from weights of elsewhere: those of torchvision, those in a file, and their frozen statistics."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vmt.errors import InputError, parsing, perhaps
from vmt.nets.adapter import keeps_statistics
from vmt.nets.networks import Staged
from vmt.nets.norm import BatchNorm

TORCHVISION = "torchvision:"
PACKAGES = {"timm": "timm", "torchvision": "torchvision.models"}
# Training programs keep the weights of a network under one of these names in their checkpoints.
WRAPPERS = ("state_dict", "model", "model_state_dict", "state_dict_ema")
# nn.DataParallel and torch.compile put these before every name.
PREFIXES = ("module.", "_orig_mod.")


def networks_of(package: str) -> Any:
    """The module with the networks of timm or of torchvision."""
    try:
        return import_module(PACKAGES[package])
    except ImportError as error:
        raise InputError(
            f"networks of {package} need the package {package}, which cannot be imported ({error}): pip install "
            f"{package}, or choose another network."
        ) from error


def with_network(package: str, name: str) -> Any:
    """The same module, if it lists a network of that name: other names could make timm download what they name."""
    found = networks_of(package)
    if not (found.is_model(name) if package == "timm" else name in found.list_models()):
        raise InputError(f"{package} has no network {name!r}{perhaps(name, found.list_models())}: correct the name.")
    return found


def torchvision_module(name: str, shape: tuple[int, ...], pretrained: bool) -> nn.Module:
    """A network of torchvision, with its best weights if ``pretrained``; it reads pictures of three channels."""
    models = with_network("torchvision", name)
    if len(shape) != 3 or shape[0] != 3:
        raise InputError(f"torchvision's {name} reads pictures of 3 channels, but a sample has shape {shape}.")
    module: nn.Module = models.get_model(name, weights="DEFAULT" if pretrained else None)
    return module


def load_weights(module: nn.Module, path: str | Path, head: str | None = None) -> None:
    """Load the weights in a file into a module, in place.

    A file that ends in ``.safetensors`` is read as such, and any other with ``torch.load(…, weights_only=True)``, which
    runs no code. The last dense layer, ``head``, may be missing or may have another number of classes; it then keeps
    its initial weights. Any other difference is refused.
    """
    saved, own = read_weights(Path(path)), module.state_dict()
    of_head = set() if head is None else {name for name in own if name.startswith(f"{head}.")}
    fits = {name for name, tensor in saved.items() if name in own and own[name].shape == tensor.shape}
    missing = [name for name in own if name not in saved and name not in of_head]
    unexpected = [name for name in saved if name not in own]
    other = [name for name in saved if name in own and name not in fits and name not in of_head]
    faults = [
        f"{what} {names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for what, names in (("lacks", missing), ("has another shape of", other), ("also has", unexpected))
        if names
    ]
    if faults:
        raise InputError(
            f"the weights in {path} do not fit the network: the file {'; it '.join(faults)}. Give the weights of this "
            "network, or another --net."
        )
    module.load_state_dict({name: saved[name] for name in fits}, strict=False)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors in a file by name, without the wrappings of training programs."""
    if not path.is_file():
        raise InputError(f"there are no weights at {path}: correct --weights.")
    with parsing(path, "a file of weights", "give a .safetensors file, or a checkpoint that holds tensors alone"):
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        content = torch.load(path, weights_only=True, map_location="cpu")
        for wrapper in WRAPPERS:
            if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
                content = content[wrapper]
        if not isinstance(content, Mapping) or not content:
            raise TypeError("no weights by name")
        for prefix in PREFIXES:
            if all(str(name).startswith(prefix) for name in content):
                content = {str(name).removeprefix(prefix): tensor for name, tensor in content.items()}
        if not all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()):
            raise TypeError("not only tensors by name")
        return dict(content)


def freeze_statistics(network: Staged) -> None:
    """Make every batch norm before the logits use its running statistics in training, and never change them."""
    for stage in (network.stages[tap] for tap in network.taps if tap != "logits"):
        for layer in stage.modules():
            if keeps_statistics(layer):
                raise InputError(
                    f"the statistics of a {type(layer).__name__} cannot be frozen: use BatchNorm1d, BatchNorm2d or "
                    "BatchNorm3d with running statistics, or set freeze_statistics=False (--no-freeze-statistics)."
                )
            if isinstance(layer, BatchNorm):
                layer.frozen = True
