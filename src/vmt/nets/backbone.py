"""Frozen networks that turn pictures into features, and what the weights of a network expect of pictures.

A name is ``timm:NAME`` or ``torchvision:NAME``, with the pretrained weights of that package, or
``package.module:function``, a function that returns a ready ``nn.Module``. The module brings what its weights expect
as the attributes ``size``, ``mean``, ``std``, ``interpolation`` and ``crop``, or as timm's ``pretrained_cfg``.
"""

import hashlib
import inspect
import json
import math
import operator
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vmt.data.framing import PictureFormat, format_from
from vmt.data.preprocess import Preprocess, image_preprocess
from vmt.device import cpu_threads, default_torch_settings, single_precision, torch_device, usable_cores
from vmt.errors import InputError
from vmt.nets.adapter import Encoder, Vectors, taken_out
from vmt.nets.factory import (
    OWN_MODULE,
    TIMM,
    check_precision,
    factory_name,
    head_of,
    import_function,
    reason,
)
from vmt.nets.pretrained import TORCHVISION, networks_of, torchvision_module, with_network
from vmt.nets.registry import NETS, starts_trained

# Pictures at a time. On a CPU, the memory for larger batches costs more than they gain: EfficientNet-Lite0 takes 54 ms
# for a picture of 224×224 in batches of 32, and 24 ms in batches of 4, on one thread.
GPU_BATCH, CPU_BATCH = 64, 4
MOST_PIXELS = 2**22  # of a picture that a saved backbone reads; more is a sign of a damaged file
# Without an answer of the network's, the whole shorter side of a picture is seen, and its aspect ratio is kept.
USUAL = PictureFormat(interpolation="bilinear", crop=1.0)
VECTORS = Vectors()
ATTRIBUTES = ("size", "mean", "std", "interpolation", "crop")


@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen network that turns pictures into vectors, with the preprocessing that its weights expect."""

    name: str
    """``timm:NAME``, ``torchvision:NAME`` or ``package.module:function``; ``module`` for a function without a name."""
    module: nn.Module
    preprocess: Preprocess
    width: int
    """The number of features."""
    code: str = field(default="", repr=False)
    """A digest of the file that defines the function, because the same weights may be used in another way."""

    def __call__(self, x: Tensor) -> Tensor:
        """The features (N, F) of pictures as the network sees them (N, C, H, W)."""
        vectors: Tensor = VECTORS(self.module(x))
        return vectors

    def features(self, x: NDArray[np.uint8] | Tensor) -> NDArray[np.float32]:
        """The features (N, F) of stored pictures (N, C, H, W), on the CPU."""
        stored = torch.from_numpy(x) if isinstance(x, np.ndarray) else x
        device = next(self.module.parameters(), torch.zeros(0)).device

        def of_part(part: Tensor) -> Tensor:
            with default_torch_settings(), torch.inference_mode():
                return self(self.preprocess(self.preprocess.fit(part).to(device))).float().cpu()

        with single_precision():
            if device.type == "cpu":
                # One core for each part: threads that share a part wait for each other, and would round differently.
                with cpu_threads(1, 0), ThreadPoolExecutor(min(8, usable_cores())) as pool:
                    parts = list(pool.map(of_part, torch.split(stored, CPU_BATCH)))
            else:
                parts = [of_part(part) for part in torch.split(stored, GPU_BATCH)]
        found: NDArray[np.float32] = torch.cat(parts).numpy()
        if not np.isfinite(found).all():
            raise InputError(f"the network {self.name} gives features that are not finite: check its weights.")
        return found

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the network's name, code, weights and preprocessing."""
        described = [self.name, self.code, type(self.module).__qualname__, self.preprocess.to_dict()]
        digest = hashlib.blake2b(json.dumps(described).encode(), digest_size=20)
        for name, tensor in sorted(self.module.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """What a model file records: nothing that runs code."""
        return {"name": self.name, "preprocess": self.preprocess.to_dict(), "width": self.width}


def backbone_function(name: str) -> str | None:
    """``package.module:function``, if the name stands for a function."""
    return None if name.startswith(TORCHVISION) else factory_name(name)


def same_backbone(one: str, other: str) -> bool:
    """Whether two names stand for the same network, however a function is written."""
    own = backbone_function(one)
    return one == other or (own is not None and own == backbone_function(other))


def make_backbone(
    features: str | Callable[..., nn.Module],
    asked: PictureFormat | None = None,
    device: str = "auto",
    pretrained: bool = True,
) -> Backbone:
    """The frozen network that a user names; ``asked`` replaces what its weights expect of pictures.

    >>> from torch import nn
    >>> from vmt.data.framing import PictureFormat
    >>> make_backbone(lambda: nn.Conv2d(3, 8, 3), PictureFormat((16, 16)), device="cpu").width
    8
    """
    if isinstance(features, nn.Module):
        raise InputError(
            f"features is a {type(features).__name__}: pass a function that returns it, features=lambda: …."
        )
    # Initial weights that are drawn and replaced must not change the caller's random numbers.
    with default_torch_settings(), single_precision(), torch.random.fork_rng(devices=[]):
        name, module, code = _module(features, pretrained)
        check_precision(module, name)
        format = (asked or PictureFormat()).or_else(format_of(module)).or_else(USUAL)
        if format.size is None:
            raise InputError(
                f"the network of {name} does not say how large its pictures are: give it an attribute size, or "
                "--image-size."
            )
        preprocess = image_preprocess(format.size, 3, format)
        module = module.eval().requires_grad_(False).to(torch_device(device))
        backbone = Backbone(name, module, preprocess, 1, code)
        out = _tried(backbone, np.zeros((2, 3, *format.size), np.uint8))
    if out.ndim != 2 or len(out) != 2:
        raise InputError(
            f"the network of {name} gives {out.shape} for 2 pictures: return a vector, or maps, for each of them."
        )
    return replace(backbone, width=out.shape[1])


def _tried(backbone: Backbone, samples: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The features of some pictures, after the network was put into the memory layout that is fastest.

    As for a network that is trained: most convolutions are fastest with channels_last weights, but not every network
    can run with them.
    """
    for layout in (torch.channels_last, torch.contiguous_format):
        try:
            backbone.module.to(memory_format=layout)  # type: ignore[call-overload]
            return backbone.features(samples)
        except InputError:
            raise
        except Exception as error:
            why = error
    size = samples.shape[2:]
    raise InputError(f"the network of {backbone.name} cannot read pictures of {size}: {reason(why)}.") from why


@dataclass(frozen=True)
class SavedBackbone:
    """What a model file records of the backbone of a model."""

    name: str
    preprocess: Preprocess
    width: int

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "SavedBackbone":
        made = cls(values["name"], Preprocess.from_dict(values["preprocess"]), operator.index(values["width"]))
        size = made.preprocess.size
        if not isinstance(made.name, str) or size is None or math.prod(size) > MOST_PIXELS or made.width < 1:
            raise ValueError(f"a backbone {made.name!r} for pictures of {size}")
        return made

    def load(self, state: Mapping[str, Tensor], features: Any, what: str | Path, device: str) -> Backbone:
        """The backbone with the weights in the file; a function is called only if the user names it."""
        if isinstance(features, Backbone):
            return features
        check_trusted_backbone(self.name, features, what)
        made = make_backbone(features or self.name, self.preprocess.format, device, pretrained=False)
        try:
            made.module.load_state_dict(dict(state))
        except (RuntimeError, TypeError) as error:
            raise InputError(
                f"the weights in {what} do not fit the network of {made.name} that computes its features: name the "
                "function that the model was trained with (--features)."
            ) from error
        return replace(made, name=self.name, preprocess=self.preprocess)


def check_trusted_backbone(name: str, given: Any, what: str | Path) -> None:
    """Refuse to import a function that only a file names, or another network than that of the file."""
    if given is not None and not isinstance(given, str):
        return
    if given is None and name == OWN_MODULE:
        raise InputError(
            f"{what} reads features of a network of your own: pass the function that returns it, features=function."
        )
    own = backbone_function(name)
    if given is None and own is not None:
        raise InputError(
            f"{what} reads features of a network that {own} returns, and importing that function runs its code: if you "
            f"trust it, add --features {own} (in Python: features={own!r})."
        )
    if given is not None and not same_backbone(given, name):
        raise InputError(f"{what} reads features of {name}, not of {given}: correct --features, or leave it out.")


def format_of(module: Any) -> PictureFormat:
    """What the weights of a network expect of pictures, from its attributes or timm's ``pretrained_cfg``.

    >>> from types import SimpleNamespace
    >>> format_of(SimpleNamespace(size=224, mean=(0.5,), std=(0.5,))).size
    (224, 224)
    """
    cfg = getattr(module, "pretrained_cfg", None)
    values = {name: value for name in ATTRIBUTES if _is_plain(value := getattr(module, name, None))}
    if isinstance(cfg, Mapping):
        shape, crop = cfg.get("input_size"), cfg.get("crop_pct")
        values = {
            "size": None if shape is None else list(shape)[-2:],
            "mean": cfg.get("mean"),
            "std": cfg.get("std"),
            "interpolation": cfg.get("interpolation"),
            "crop": 1.0 if crop is None else crop,
        } | values
    if values.get("interpolation") not in (None, "bilinear", "bicubic"):
        values["interpolation"] = "bicubic"  # timm has others, which are rare
    return format_from(**values)


def expected_format(net: str | Callable[..., Any] | None, options: Mapping[str, Any]) -> PictureFormat | None:
    """What the weights that a network to train starts from expect of pictures; None if they are random or do not say.

    A function has this as attributes, ``mean`` and ``std`` at least, and is then taken to return pretrained weights.
    """
    if not isinstance(net, str):
        described: Any = net
    elif (own := factory_name(net)) is not None:
        described = import_function(own)
    elif not starts_trained(options) or net in NETS:
        return None
    elif net.startswith(TORCHVISION):
        described = SimpleNamespace(**_torchvision_format(net.removeprefix(TORCHVISION)))
    else:
        networks_of("timm")  # which is refused with a sentence if it is not installed
        config = import_module("timm.models").get_pretrained_cfg(net.removeprefix(TIMM))
        described = SimpleNamespace(pretrained_cfg=None if config is None else config.to_dict())
    found = format_of(described)
    return None if found.mean is None else found.or_else(USUAL)


def _is_plain(value: Any) -> bool:
    """Whether an attribute of a module can be meant as a number or a text; a module may also have a layer ``mean``."""
    parts = value if isinstance(value, list | tuple) else [value]
    return value is not None and all(isinstance(part, str | int | float) for part in parts)


def _module(features: str | Callable[..., nn.Module], pretrained: bool) -> tuple[str, nn.Module, str]:
    """The name, the module and a digest of the code of a network."""
    if not isinstance(features, str):
        if not callable(features):
            raise InputError(f"features is {features!r}: pass a name, or a function that returns a network.")
        return OWN_MODULE, _called(features, "features"), _code_of(features)
    if features.startswith(TIMM):
        return features, _timm_features(features.removeprefix(TIMM), pretrained), ""
    if features.startswith(TORCHVISION):
        return features, _torchvision_features(features.removeprefix(TORCHVISION), pretrained), ""
    own = factory_name(features)
    if own is None:
        raise InputError(
            f"there is no network {features!r} for features: give timm:NAME, torchvision:NAME or "
            "package.module:function."
        )
    function = import_function(own, "--features")
    return own, _called(function, own), _code_of(function)


def _called(function: Callable[..., Any], name: str) -> nn.Module:
    try:
        module = function()
    except Exception as error:
        raise InputError(f"the function {name} failed: {reason(error)}.") from error
    if not isinstance(module, nn.Module):
        raise InputError(f"{name} returned a {type(module).__name__}: return an nn.Module.")
    return module


def _code_of(function: Callable[..., Any]) -> str:
    try:
        path = inspect.getsourcefile(function)
        return "" if path is None else hashlib.blake2b(Path(path).read_bytes(), digest_size=20).hexdigest()
    except (TypeError, OSError):  # a function that is not in a file
        return ""


def _timm_features(name: str, pretrained: bool) -> nn.Module:
    package = with_network("timm", name)
    try:
        module: nn.Module = package.create_model(name, pretrained=pretrained, num_classes=0)
    except Exception as error:
        raise InputError(f"timm cannot build {name} with its weights: {reason(error)}.") from error
    return module


def _torchvision_features(name: str, pretrained: bool) -> nn.Module:
    expected = _torchvision_format(name)
    size = expected["size"]
    try:
        module = torchvision_module(name, (3, size, size), pretrained)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"torchvision cannot build {name} with its weights: {reason(error)}.") from error
    # The module without its last dense layer, whose input are the features.
    encoder = Encoder(module.eval())
    taken_out(encoder, head_of(module, name, (3, size, size)))
    for attribute, value in expected.items():
        setattr(encoder, attribute, value)
    return encoder


def _torchvision_format(name: str) -> dict[str, Any]:
    """What torchvision's best weights of a network expect of pictures."""
    as_trained = with_network("torchvision", name).get_model_weights(name).DEFAULT.transforms()
    size = as_trained.crop_size[0]
    expected = {"size": size, "crop": size / as_trained.resize_size[0], "interpolation": as_trained.interpolation.value}
    return {**expected, "mean": list(as_trained.mean), "std": list(as_trained.std)}
