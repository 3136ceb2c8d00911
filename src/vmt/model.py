"""A trained classifier: it predicts on arrays, and is saved to and loaded from one file.

The file is a safetensors file whose header holds the description of the network, the preprocessing and the class names.
Loading it needs nothing else and runs no code from the file.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from vmt.data.domains import Domain, domain, encode_labels, reorder_columns
from vmt.data.files.features import as_pictures
from vmt.data.files.paths import FORMATS
from vmt.data.preprocess import Preprocess, check_range
from vmt.device import default_torch_settings, single_precision, torch_device
from vmt.disk import write_atomically
from vmt.errors import InputError, few, parsing
from vmt.evaluate.accuracy import Evaluation, evaluate, logits_of, percent
from vmt.evaluate.finite import fault_in_weights
from vmt.nets.adapter import placed_on_device
from vmt.nets.backbone import Backbone, SavedBackbone
from vmt.nets.factory import OWN_MODULE, NetSpec, builder, factory_name
from vmt.nets.networks import Staged
from vmt.nets.registry import COMPOSED, NETS
from vmt.notebook import html_table
from vmt.progress import duration

FORMAT = "vmt-model"
VERSION = 2
# Version 1 knew only images in [-1, 1]; models that need nothing else are still written as such, for earlier versions.
BACKBONE = "backbone:"  # before the names of its weights in the file; no network has a stage with a colon in its name
MODEL_FILE = ("a readable model file", "give the folder of a run, or a file that Model.save wrote")


class Model:
    """A classifier for the target domain, as :func:`vmt.adapt` returns and :func:`vmt.load` loads it.

    >>> import numpy as np, vmt
    >>> ys = np.arange(60) % 3
    >>> xs = np.random.default_rng(0).normal(size=(60, 5)) + 2 * ys[:, None]
    >>> model = vmt.adapt((xs, ys), xs + 0.5, classes=["ant", "bee", "cat"], iterations=2, progress=False)
    >>> model.classes
    ('ant', 'bee', 'cat')
    >>> model.predict(xs[:4]).shape, model.predict_proba(xs[:4]).shape
    ((4,), (4, 3))
    >>> evaluation = model.evaluate(xs, ys)
    >>> evaluation.samples, len(evaluation.per_class)
    (60, 3)
    """

    backbone: Backbone | None = None  # pickles of earlier versions have none

    def __init__(
        self,
        network: Staged,
        spec: NetSpec,
        preprocess: Preprocess,
        classes: Sequence[str],
        about: Mapping[str, Any] | None = None,
        features: Sequence[str] = (),
        backbone: Backbone | None = None,
    ) -> None:
        self.network = network.eval().requires_grad_(False)
        self.spec = spec
        self.preprocess = preprocess
        self.classes = tuple(classes)
        self.about = dict(about or {})
        """Facts about its training: method, iterations, accuracies."""
        self.features = tuple(features)
        """The names of the columns that it was trained on, if they have names."""
        self.backbone = backbone
        """The frozen network whose features of pictures ``network`` reads; None if it reads samples itself."""

    @property
    def reads(self) -> Preprocess:
        """The preprocessing of the samples that are predicted on: pictures, if the model has a backbone."""
        return self.preprocess if self.backbone is None else self.backbone.preprocess

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """The probability of each class for each sample: (N, classes)."""
        logits = logits_of(self.network, self._samples(x, None).x, self.preprocess)
        result: NDArray[np.float32] = logits.softmax(1).cpu().numpy()
        return result

    def predict(self, x: Any) -> NDArray[np.int64]:
        """The most probable class number of each sample; ``model.classes`` has the names."""
        result: NDArray[np.int64] = self.predict_proba(x).argmax(1)
        return result

    def evaluate(self, x: Any, y: Any) -> Evaluation:
        """Accuracy, accuracy per class, shares of predicted classes and mean entropy on labelled samples.

        Labels are class numbers, or names of ``classes``.
        """
        return replace(evaluate(self.network, self._samples(x, y), self.preprocess), class_names=self.classes)

    def to(self, device: str | torch.device) -> "Model":
        self.network.to(device)
        if self.backbone is not None:
            self.backbone.module.to(device)
        return self

    def _samples(self, x: Any, y: Any) -> Domain:
        y = encode_labels(y, self.classes, "the input")
        x = reorder_columns(x, self.features, "the input", "the model")
        samples = domain(x, y, name="the input", missing=self.preprocess.fill is not None)
        if self.backbone is not None and samples.is_images:
            pictures = as_pictures(samples, self.backbone.preprocess)
            samples = replace(samples, x=torch.from_numpy(self.backbone.features(pictures)))
        if samples.is_images != (self.preprocess.size is not None):
            kinds = ("vectors", "images") if self.preprocess.size is None else ("images", "vectors")
            raise InputError(
                f"this model reads {kinds[0]}, but the input of shape {tuple(samples.x.shape)} holds {kinds[1]}."
            )
        if samples.is_images:
            check_range(samples.x, self.preprocess.values)
        if samples.y is not None and int(samples.y.max()) >= len(self.classes):
            raise InputError(
                f"the input has the label {int(samples.y.max())}, but this model knows {len(self.classes)} classes."
            )
        return samples

    def save(self, path: str | Path) -> None:
        """Write everything that is needed to predict to one file."""
        self.check_finite()
        header = {
            "format": FORMAT,
            "version": "1" if self.preprocess.is_plain and self.backbone is None else str(VERSION),
            "network": json.dumps(self.spec.to_dict()),
            "preprocess": json.dumps(self.preprocess.to_dict()),
            "classes": json.dumps(self.classes, ensure_ascii=False),
            "features": json.dumps(self.features, ensure_ascii=False),
            "about": json.dumps(self.about),
        }
        state = self.network.state_dict()
        if self.backbone is not None:
            header["backbone"] = json.dumps(self.backbone.to_dict())
            state = {**state, **{BACKBONE + name: t for name, t in self.backbone.module.state_dict().items()}}
        # Copies, because the format cannot express that two names share a tensor, as in a layer that is used twice.
        tensors = {n: t.detach().cpu().clone(memory_format=torch.contiguous_format) for n, t in state.items()}
        write_atomically(Path(path), save(tensors, metadata=header | {"sha256": digest(tensors, header)}))

    def check_finite(self) -> None:
        """Refuse to write a model whose weights are infinite or not a number."""
        if fault := fault_in_weights({"network": self.network}):
            raise InputError(f"the model is not written, because {fault}: train it again with a lower learning rate.")

    def __repr__(self) -> str:
        of = "" if self.backbone is None else f" on features of {self.backbone.name}"
        return f"Model({self.spec.name}{of}, {len(self.classes)} classes, samples of shape {self.spec.shape})"

    def _repr_html_(self) -> str:
        kind = "vectors" if self.preprocess.size is None else "pictures"
        kind = kind if self.backbone is None else f"features of pictures, by {self.backbone.name},"
        rows = [
            ["network", self.spec.name],
            ["samples", f"{kind} of shape {'×'.join(str(side) for side in self.spec.shape)}"],
            ["classes", f"{len(self.classes)}: {few(list(self.classes), 8)}"],
            *rows_about(self.about),
        ]
        return html_table("vmt.Model", rows)


def rows_about(about: Mapping[str, Any]) -> list[list[str]]:
    """What is known about a training, in the words of ``summary.json``, as rows of a table."""

    def share(accuracy: Any) -> str:
        return "unknown" if accuracy is None else percent(accuracy)

    written: dict[str, Callable[[Any], str]] = {
        "method": str,
        "iterations": lambda count: f"{count:,}",
        "target_accuracy": share,
        "source_accuracy": share,
        "best": lambda best: f"iteration {best['step']:,}, {best['by']} {best['score']:.4f}",
        "collapsed": str,
        "seconds": duration,
        "run": str,
    }
    return [
        [name.replace("_", " ").replace("seconds", "training time"), write(about[name])]
        for name, write in written.items()
        if about.get(name) is not None or (name == "target_accuracy" and name in about)
    ]


def digest(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """A checksum of the contents of a file, by which damage is noticed."""
    checksum = hashlib.sha256(json.dumps(sorted(header.items())).encode())
    for name in sorted(tensors):
        checksum.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        checksum.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def check_trusted(spec: NetSpec, network: str | None, what: str | Path) -> NetSpec:
    """The spec of a network that may be built: one of this package or of timm, or one whose function the user names."""
    if network is not None and spec.name == OWN_MODULE:
        return replace(spec, name=network)
    if spec.name == OWN_MODULE:
        raise InputError(
            f"{what} holds a user-defined network: name the function that builds it with --net package.module:function "
            "(in Python: network=function)."
        )
    if network is not None and network != spec.name and (spec.factory is None or factory_name(network) != spec.factory):
        raise InputError(
            f"{what} was trained with the network {spec.name}, not {network}: correct --net, or leave it out."
        )
    if network is None and spec.factory is not None:
        raise InputError(
            f"{what} holds a network that is built by {spec.factory}, and importing that function runs its code: if "
            f"you trust it, add --net {spec.factory} (in Python: network={spec.factory!r})."
        )
    return spec


def load(
    path: str | Path,
    network: Callable[..., nn.Module] | str | None = None,
    device: str = "auto",
    features: Callable[..., nn.Module] | Backbone | str | None = None,
    *,
    head_alone: bool = False,
) -> Model:
    """Load a model from its file, or from the folder of the run that made it.

    A model with a user-defined network needs ``network``: the ``package.module:function`` that it was trained with, or
    a function that builds it. Importing runs code, so a name that only the file mentions is never imported. The same
    holds for ``features``, the function of a model that was trained with ``--features``; its weights are in the file.
    With ``head_alone``, such a model is loaded without the network that computes features, and reads vectors.

    >>> import numpy as np, tempfile, vmt
    >>> ys = np.arange(60) % 3
    >>> xs = np.random.default_rng(0).normal(size=(60, 5)) + 2 * ys[:, None]
    >>> model = vmt.adapt((xs, ys), xs + 0.5, iterations=2, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.safetensors")
    ...     again = vmt.load(f"{folder}/model.safetensors")
    >>> bool((again.predict_proba(xs) == model.predict_proba(xs)).all())
    True
    """
    path = find_model_file(Path(path))
    header, tensors = read_model_file(path)
    with parsing(path, *MODEL_FILE):
        spec = NetSpec.from_dict(json.loads(header["network"]))
        about = dict(json.loads(header["about"]))
        preprocess, classes, columns = read_description(header, spec.classes)
        frozen = {n.removeprefix(BACKBONE): tensors.pop(n) for n in list(tensors) if n.startswith(BACKBONE)}
        check_size(spec, tensors)
        saved = SavedBackbone.from_dict(json.loads(header["backbone"])) if "backbone" in header else None
        if saved is not None and spec.shape != (saved.width,):
            raise ValueError(f"{saved.width} features for samples of shape {spec.shape}")
    backbone = None if saved is None or head_alone else saved.load(frozen, features, path, device)
    # Building a network draws initial weights, which are replaced; the caller's generator is left as it was.
    with default_torch_settings(), single_precision(), torch.random.fork_rng(devices=[]):
        if network is None or isinstance(network, str):
            module = check_trusted(spec, network, path).build()
        else:
            module = builder(network, spec.shape, spec.classes, spec.options)()
    try:
        module.load_state_dict(tensors)
    except (RuntimeError, TypeError) as error:
        why = shorten(str(error).splitlines()[-1], 160, placeholder=" …")  # the message lists every layer
        raise InputError(f"the weights in {path} do not fit its network: {why}") from error
    placed = torch_device(device)
    return Model(
        placed_on_device(module.to(placed), spec.shape, placed),  # as in training, so that it rounds the same
        spec,
        preprocess,
        classes,
        about,
        columns,
        backbone,
    )


def read_description(header: Mapping[str, str], classes: int | None = None) -> tuple[Preprocess, list[str], list[str]]:
    """The preprocessing, the names of the classes and those of the features in the header of a model or an export."""
    preprocess = Preprocess.from_dict(json.loads(header["preprocess"]))
    names, features = json.loads(header["classes"]), json.loads(header.get("features", "[]"))
    for each in (names, features):
        if not isinstance(each, list) or not all(isinstance(name, str) for name in each):
            raise TypeError(f"{shorten(repr(each), 80)} is not a list of names")
    if not names or len(names) != (len(names) if classes is None else classes):
        raise ValueError(f"{len(names)} class names for {classes} classes")
    if features and len(features) != preprocess.channels:
        raise ValueError(f"{len(features)} names for {preprocess.channels} features")
    return preprocess, names, features


def check_size(spec: NetSpec, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a description whose network would need far more memory than the weights in its file.

    The network is built without memory first. A function of the user's is trusted, and need not work like that.
    """
    if spec.name not in (*NETS, *COMPOSED):
        return
    with torch.device("meta"):
        needed = sum(tensor.numel() for tensor in spec.build().state_dict().values())
    if needed > 2 * sum(tensor.numel() for tensor in tensors.values()):
        raise ValueError(f"its network has {needed:,} weights, far more than the file")


def find_model_file(path: Path) -> Path:
    """The model file that a path names, or that is in the run folder it names."""
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file() and (path.parent / "checkpoints").is_dir():
        run = path.parent
        ended = sorted(run.glob("model_*.safetensors"), key=lambda file: file.stat().st_mtime)
        meanwhile = f" Meanwhile you can use {ended[-1]}." if ended else ""
        raise InputError(
            f"the run in {run} is not finished: resume it with vmt train --resume {run}, or resume=True.{meanwhile}"
        )
    if not path.is_file():
        raise InputError(f"there is no model at {path}: give a saved model, or the folder of a finished run.")
    if path.suffix[1:] in FORMATS:
        raise InputError(
            f"{path} is an exported file: open it with vmt.export.load_exported, or give the model that it was made "
            "from."
        )
    return path


def read_model_file(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The header and the weights in a file that :meth:`Model.save` wrote."""
    with parsing(path, *MODEL_FILE), safe_open(path, framework="pt") as file:
        header = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if header.get("format") != FORMAT:
        raise InputError(
            f"{path} holds tensors, but is not a model of this library: give a file that Model.save wrote."
        )
    with parsing(path, *MODEL_FILE):
        version = int(header["version"])
    if version > VERSION:
        raise InputError(
            f"{path} has format version {header['version']}, which this version of vmt does not know: upgrade vmt."
        )
    # Files of early versions have no checksum.
    if (written := header.pop("sha256", None)) is not None and written != digest(tensors, header):
        raise InputError(f"{path} is damaged: copy it again, or resume its run, which writes it again.")
    return header, tensors
