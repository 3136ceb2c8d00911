"""Networks by name: what must be recorded to build a network again, and how it is built.

A name is one of the package's networks (:mod:`vmt.nets.registry`), a user's function ``package.module:function``, or a
network of timm or torchvision, ``timm:name`` or ``torchvision:name``. A saved model holds its :class:`NetSpec`, so that
it can be loaded on another machine without running code that was saved with it.
"""

import inspect
import json
import math
import operator
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vmt.errors import InputError, first_line, perhaps, whole
from vmt.nets import networks, published
from vmt.nets.adapter import from_module, last_dense
from vmt.nets.composed import composed
from vmt.nets.networks import Staged
from vmt.nets.pretrained import (
    TORCHVISION,
    freeze_statistics,
    load_weights,
    networks_of,
    torchvision_module,
    with_network,
)
from vmt.nets.registry import AVERAGED, COMPOSED, NETS, NetSettings, with_defaults

# The options that every network takes.
SETTINGS = frozenset(field.name for field in fields(NetSettings))
PREFIX, TIMM = "module:", "timm:"
# The options that timm's networks take. A model file from elsewhere holds options, too, and others can make timm open
# a file of weights or download one (checkpoint_path, pretrained_cfg …).
TIMM_OPTIONS = frozenset(
    {
        *("pretrained", "drop_rate", "drop_path_rate", "attn_drop_rate", "proj_drop_rate"),
        *("global_pool", "img_size", "output_stride", "act_layer", "norm_layer"),
    }
)
# The name of a network whose function was given as an object and not by name.
OWN_MODULE = "module"
MOST_VALUES = 2**26  # in a sample of a saved model; more is a sign of a damaged file


def network_of(
    net: str | Callable[..., Any], shape: tuple[int, ...], classes: int, options: Mapping[str, Any] | None
) -> tuple["NetSpec", Callable[[], Staged]]:
    """The network that a user gives by name or as a function: its spec, and a function that builds it."""
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
            f"net_options cannot be saved with the model ({error}): pass numbers and strings, and a function that has "
            "the rest."
        ) from error
    spec = NetSpec(net if isinstance(net, str) else OWN_MODULE, shape, classes, options or {})
    return spec, spec.build if isinstance(net, str) else builder(net, shape, classes, spec.options)


@dataclass(frozen=True)
class NetSpec:
    """A named network for samples of one shape and a number of classes, with the options that are not its defaults."""

    name: str
    shape: tuple[int, ...]
    classes: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def factory(self) -> str | None:
        """The user's function that builds the network, as ``package.module:function``; None for any other network."""
        return factory_name(self.name)

    def build(self) -> Staged:
        if self.factory is not None:
            return built(import_function(self.factory), self.factory, self.shape, self.classes, self.options)
        if self.name in COMPOSED:
            return composed(self.name, self.shape, self.classes, self.options, self.member)
        if self.name.startswith(TORCHVISION):
            return build_torchvision(self.name.removeprefix(TORCHVISION), self.shape, self.classes, self.options)
        hint = perhaps(self.name, NETS)
        if self.name.startswith(TIMM) or (self.name not in NETS and not hint and has_timm(self.name)):
            return build_timm(self.name.removeprefix(TIMM), self.shape, self.classes, self.options)
        if self.name not in NETS:
            raise InputError(
                f"there is no network {self.name!r}{hint}: choose one of {', '.join(NETS)}, your own "
                "package.module:function, timm:name or torchvision:name."
            )
        function, defaults = NETS[self.name]
        build: Callable[..., Staged] = getattr(networks if hasattr(networks, function) else published, function)
        if self.options.get("pretrained"):
            raise InputError(f"the network {self.name!r} has no pretrained weights: use timm:name or torchvision:name.")
        own = {name: value for name, value in self.options.items() if name == "logit_norm" or name not in SETTINGS}
        try:
            network = build(self.shape, self.classes, **{**defaults, **own})
        except TypeError as error:
            why = first_line(error)  # torch lists every way to call a function
            raise InputError(f"the network {self.name!r} cannot be built with {dict(self.options)}: {why}.") from error
        return with_start_weights(network, self.options) if self.options.keys() & SETTINGS else network

    def member(self, values: Mapping[str, Any]) -> Staged:
        """A network of an average, which is one of this package's: a file must not import other code."""
        spec = NetSpec.from_dict(values)
        if spec.name not in AVERAGED:
            raise InputError(f"the network {spec.name!r} cannot be part of an average.")
        if (spec.shape, spec.classes) != (self.shape, self.classes):
            raise InputError("the networks of an average must read the same samples and have the same classes.")
        return spec.build()

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "classes": self.classes, "options": dict(self.options)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "NetSpec":
        # A saved model has its own weights, so none are downloaded for it or read from a file that it names.
        saved = {k: v for k, v in values["options"].items() if k not in ("pretrained", "weights")}
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
        shape = tuple(map(operator.index, values["shape"]))
        if len(shape) not in (1, 3) or min(shape) < 1 or math.prod(shape) > MOST_VALUES:
            raise ValueError(f"samples of shape {shape}")
        if not isinstance(values["name"], str):
            raise TypeError(f"a network called {values['name']!r}")
        return cls(values["name"], shape, operator.index(values["classes"]), options)


# --- Networks that a user's function builds ---


def factory_name(net: str) -> str | None:
    """``package.module:function`` from any way to write it; None for a name that does not stand for a function."""
    if net.startswith((TIMM, TORCHVISION)) or ":" not in net:
        return None
    name = net.removeprefix(PREFIX)
    module, _, function = name.partition(":") if ":" in name else name.rpartition(".")
    if not module or not function.isidentifier():
        raise InputError(f"the network {net!r} does not name a function: write package.module:function.")
    return f"{module}:{function}"


def import_function(name: str, flag: str = "--net") -> Callable[..., Any]:
    """The function of that name, from an installed package or the current folder; ``flag`` is the one that names it."""
    path, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as python -m does, and permanently, because a module may import others later
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise InputError(f"the module {path} cannot be imported: {reason(error)}.") from error
        raise InputError(
            f"there is no module {error.name!r}, neither in the current folder nor installed: correct {flag} {name}."
        ) from error
    except Exception as error:
        raise InputError(f"the module {path} cannot be imported: {reason(error)}.") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        hint = perhaps(attribute, (key for key, value in vars(module).items() if callable(value)))
        raise InputError(f"the module {path} has no function {attribute!r}{hint}: correct {flag} {name}.")
    found: Callable[..., Any] = function
    return found


def builder(
    function: Callable[..., Any], shape: tuple[int, ...], classes: int, options: Mapping[str, Any]
) -> Callable[[], Staged]:
    """A function that builds a staged network with a user's function, which may return any module."""
    return lambda: built(function, "net", shape, classes, options)


def built(
    function: Callable[..., Any], name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]
) -> Staged:
    """The staged network that a user's function builds; ``name`` is the function's name in messages."""
    module, ours = returned(function, name, shape, classes, options)
    return staged(module, name, shape, classes, ours)


def returned(
    function: Callable[..., Any], name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """What a user's function returns, and the options that it has no parameters for."""
    ours, own = {}, dict(options)
    for option in SETTINGS & own.keys():
        if not arguments_accepted_by(function, {option: None}):
            ours[option] = own.pop(option)
    if ours.get("pretrained"):
        raise InputError(
            f"the function {name} has no parameter pretrained: leave --pretrained out if it returns a ready network, "
            "or give it the parameter."
        )
    try:
        return function(**arguments_accepted_by(function, {"classes": classes, "shape": shape}), **own), ours
    except Exception as error:
        raise InputError(f"the function {name} failed: {reason(error)}.") from error


def options_with_defaults(
    net: str | Callable[..., Any] | None,
    options: Mapping[str, Any],
    ready: bool,
    shape: tuple[int, ...],
    classes: int,
) -> dict[str, Any]:
    """:func:`vmt.nets.registry.with_defaults`, without a bottleneck for a function that returns named stages.

    The function is called to see what it returns, unless the options say what to do.
    """
    found = with_defaults(net, options, ready)
    name = factory_name(net) if isinstance(net, str) else None
    if "bottleneck" in options or "bottleneck" not in found or (isinstance(net, str) and name is None) or net is None:
        return found
    function = import_function(name) if name is not None else net
    assert callable(function)
    with torch.random.fork_rng():
        module, _ = returned(function, name or "net", shape, classes, found)
    return {**found, "bottleneck": 0} if isinstance(module, Staged) else found


def arguments_accepted_by(function: Callable[..., Any], offered: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments that a function has a parameter for, by name.

    ``**others`` does not count: the function may pass those on to one that does not accept them.

    >>> arguments_accepted_by(lambda classes, **others: None, {"classes": 10, "shape": (5,)})
    {'classes': 10}
    """
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in offered.items() if name in parameters}


# --- Networks of timm ---


def has_timm(name: str) -> bool:
    """Whether timm is installed and has a network of that name."""
    return find_spec("timm") is not None and bool(networks_of("timm").is_model(name))


def build_timm(name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> Staged:
    """A network of timm for images of any number of channels; the option ``pretrained=True`` loads weights."""
    package = with_network("timm", name)
    if len(shape) != 3:
        raise InputError(f"timm's {name} reads images, but a sample has shape {shape}: use --net mlp for vectors.")
    own = {option: value for option, value in options.items() if option == "pretrained" or option not in SETTINGS}
    check_timm_options(own)
    try:
        module = package.create_model(name, num_classes=classes, in_chans=shape[0], **own)
    except Exception as error:
        raise InputError(f"timm cannot build {name} for {shape[0]} channels: {reason(error)}.") from error
    return staged(module, name, shape, classes, options)


def build_torchvision(name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> Staged:
    """A network of torchvision; the option ``pretrained=True`` loads weights."""
    if unknown := options.keys() - SETTINGS:
        raise InputError(f"networks of torchvision have no option {min(unknown)!r}: leave it out.")
    try:
        module = torchvision_module(name, shape, bool(options.get("pretrained")))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"torchvision cannot build {name}: {reason(error)}.") from error
    return staged(module, name, shape, classes, options)


def check_timm_options(options: Mapping[str, Any]) -> None:
    """Refuse options other than :data:`TIMM_OPTIONS`, and values other than texts and numbers."""
    for option, value in options.items():
        if option not in TIMM_OPTIONS:
            raise InputError(
                f"the option {option!r} of timm's networks is not accepted, because some of them open files: choose "
                f"from {', '.join(sorted(TIMM_OPTIONS))}, or write a function that builds the network (--net "
                "package.module:function)."
            )
        parts = value if isinstance(value, list | tuple) else (value,)
        if not all(isinstance(part, str | int | float | None) for part in parts):
            raise InputError(f"the option {option!r} of timm's networks is {value!r}: give a number or a text.")


# --- From any module to a staged network ---


def staged(
    module: Any, name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any] | None = None
) -> Staged:
    """A module as a staged network, with the options of :class:`NetSettings`, tried on two samples."""
    options = options or {}
    if not isinstance(module, nn.Module):
        raise InputError(f"{name} returned a {type(module).__name__}: return an nn.Module.")
    check_precision(module, name)
    samples = torch.zeros(2, *shape, dtype=torch.float32)
    try:
        with torch.no_grad():
            if any(nn.parameter.is_lazy(p) for p in module.parameters()):
                module.eval()(samples)  # so that lazy layers learn their sizes
            if isinstance(module, Staged):
                module = with_start_weights(module, options)
            else:
                head = head_of(module.eval(), name, shape)
                if options.get("weights"):
                    load_weights(module, options["weights"], head)
                module = from_module(
                    module.train(),
                    classes,
                    head=head,
                    normalise_logits=options.get("logit_norm", True) is not False,
                    bottleneck=whole(options.get("bottleneck") or 0, "bottleneck"),
                )
                module = with_start_weights(module, {**options, "weights": None, "bottleneck": None})
            network: Staged = module
            logits = network.eval()(samples)["logits"]
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the network of {name} cannot read samples of shape {shape}: {reason(error)}.") from error
    if tuple(logits.shape) != (2, classes):
        raise InputError(
            f"the network of {name} gives logits of shape {tuple(logits.shape)} for 2 samples and {classes} classes: "
            f"return one number per class."
        )
    if samples._version:  # VAT needs the gradient at the samples themselves
        raise InputError(f"the network of {name} changes its input in place: write x = x - m, not x -= m, and so on.")
    network.train()
    return network


def with_start_weights(network: Staged, options: Mapping[str, Any]) -> Staged:
    """A new network with the weights in a file, if the options name one, and with frozen statistics, if they say so."""
    if options.get("bottleneck"):
        raise InputError("a network that has named stages gets no bottleneck: set bottleneck=0 (--bottleneck 0).")
    if options.get("weights"):
        load_weights(network, options["weights"])
    if options.get("freeze_statistics"):
        freeze_statistics(network)
    return network


def check_precision(module: nn.Module, name: str) -> None:
    """Weights must be in single precision, like the samples; where bfloat16 is faster, vmt uses it by itself."""
    for kind in (p.dtype for p in module.parameters() if p.is_floating_point() and p.dtype != torch.float32):
        raise InputError(f"the network of {name} has weights of {kind}, not torch.float32: return network.float().")


def head_of(module: nn.Module, name: str, shape: tuple[int, ...]) -> str:
    """The name of the dense layer whose output the network returns, wherever it is registered.

    That output becomes the logits, so a network that changes it afterwards is refused.
    """
    given: dict[str, torch.Tensor] = {}

    def keep(place: str) -> Callable[..., None]:
        return lambda layer, inputs, output: given.update({place: output.clone()})  # it may be changed in place

    dense = {place: layer for place, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    hooks = [layer.register_forward_hook(keep(place)) for place, layer in dense.items()]
    try:
        out = module(torch.rand(2, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32))
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(out, torch.Tensor):
        return last_dense(module)  # the encoder refuses such a network
    for place, output in reversed(given.items()):
        if torch.equal(output.flatten(), out.flatten()):
            return place
    last_dense(module)  # has a better message if there is no dense layer, or a softmax behind it
    raise InputError(
        f"the network of {name} does not return what one of its nn.Linear gives: let it return logits without a "
        "softmax, or return vmt.nets.from_module(network, classes, head=…)."
    )


def reason(error: Exception) -> str:
    """The message of an error in a user's code, and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{first_line(error).rstrip('.')} ({type(error).__name__} in {Path(last.filename).name}, line {last.lineno})"
