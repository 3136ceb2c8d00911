"""A network written down: enough to build it again on another machine, without running anything that was saved."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from vmt.errors import InputError
from vmt.nets.cnn import cnn
from vmt.nets.mlp import mlp
from vmt.nets.own import TIMM, build_own, build_timm, builder, factory_name, has_timm
from vmt.nets.staged import Staged
from vmt.wording import perhaps

Builder = Callable[..., Staged]
# Stands for a function that was given as itself, not by its name.
OWN_MODULE = "module"

# What a name stands for: the function that builds it, and what it is built with.
NETS: dict[str, tuple[Builder, dict[str, Any]]] = {
    "small": (cnn, {"widths": (64, 64, 64)}),
    "large": (cnn, {"widths": (96, 192, 192)}),
    # Thin and shallow, for 16×16 images on a CPU. The paper's dropout 0.5 and noise 1 starve so few channels.
    "tiny": (cnn, {"widths": (24, 24, 24), "depth": 2, "dropout": 0.2, "noise": 0.3}),
    "mlp": (mlp, {}),
}


@dataclass(frozen=True)
class NetSpec:
    """A named network for samples of one shape and a number of classes, with what differs from its defaults."""

    name: str
    shape: tuple[int, ...]
    classes: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def factory(self) -> str | None:
        """The function that builds it, as ``package.module:function``, if it is one of the user's."""
        return factory_name(self.name)

    def build(self) -> Staged:
        if self.factory is not None:
            return build_own(self.factory, self.shape, self.classes, self.options)
        hint = perhaps(self.name, NETS)
        if self.name.startswith(TIMM) or (self.name not in NETS and not hint and has_timm(self.name)):
            return build_timm(self.name.removeprefix(TIMM), self.shape, self.classes, self.options)
        if self.name not in NETS:
            raise InputError(
                f"there is no network {self.name!r}{hint}: choose one of {', '.join(NETS)}, package.module:function "
                "of your own, or timm:name."
            )
        build, defaults = NETS[self.name]
        options = {**defaults, **self.options}
        try:
            return build(self.shape, self.classes, **options)
        except TypeError as error:
            raise InputError(
                f"the network {self.name!r} cannot be built with {dict(self.options)}: {error}."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "classes": self.classes, "options": dict(self.options)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "NetSpec":
        # What was saved brings its own weights, so that none are fetched for it.
        saved = {k: v for k, v in values["options"].items() if k != "pretrained"}
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
        return cls(values["name"], tuple(values["shape"]), values["classes"], options)


def network_of(
    net: str | Callable[..., Any], shape: tuple[int, ...], classes: int, options: Mapping[str, Any] | None
) -> tuple[NetSpec, Callable[[], Staged]]:
    """The network that a user names or has a function for: how it is written down, and what builds it."""
    if isinstance(net, nn.Module):
        raise InputError(f"net is a {type(net).__name__}: pass a function that builds it, net=lambda: ….")
    if not isinstance(net, str) and not callable(net):
        raise InputError(f"net is {net!r}: pass a name, or a function that builds a network.")
    if not isinstance(options, Mapping | None):
        raise InputError(f"net_options is {options!r}: pass a dict of arguments.")
    try:
        json.dumps(options)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"net_options cannot be kept in the model's file ({error}): give numbers and texts, and a function that "
            "knows the rest."
        ) from error
    spec = NetSpec(net if isinstance(net, str) else OWN_MODULE, shape, classes, options or {})
    return spec, spec.build if isinstance(net, str) else builder(net, shape, classes, spec.options)
