"""An exported file, read back: predicts like the model that it was made from, without its code.

The file's header says what it is: ``format`` and ``version``, and in JSON ``classes``, ``features``, ``input``,
``preprocess`` and ``about``. ONNX keeps it among the model's metadata, a ``.pt2`` file in the extra file ``vmt.json``.
"""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmt.data import Preprocess, domain
from vmt.data.frames import in_order_of
from vmt.data.ranges import BYTES, check_range
from vmt.errors import InputError
from vmt.evaluate import BATCH
from vmt.model import Model, load
from vmt.names import FORMATS, ONNX

FORMAT, VERSION = "vmt-export", 1
EXTRA = "vmt.json"
INPUT, OUTPUT = "samples", "probabilities"
MISSING = "{} is not installed, which ONNX files need: pip install 'vmt[export]'."

# onnxruntime's name for it is a bare number.
ERRORS_ONLY = 3

Run = Callable[[NDArray[Any]], NDArray[np.float32]]


class Exported:
    """A classifier from an exported file, on the CPU."""

    def __init__(self, run: Run, header: Mapping[str, str]) -> None:
        self.run = run
        self.classes: tuple[str, ...] = tuple(json.loads(header["classes"]))
        self.features: tuple[str, ...] = tuple(json.loads(header.get("features", "[]")))
        self.preprocess = Preprocess.from_dict(json.loads(header["preprocess"]))

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """The probability of each class for each sample: (N, classes)."""
        stored = self.stored(domain(in_order_of(x, self.features, "the input", "the file"), name="the input").x)
        return np.concatenate([self.run(stored[i : i + BATCH]) for i in range(0, len(stored), BATCH)])

    def predict(self, x: Any) -> NDArray[np.int64]:
        """The most probable class number of each sample; ``classes`` has the names."""
        result: NDArray[np.int64] = self.predict_proba(x).argmax(1)
        return result

    def stored(self, x: Tensor) -> NDArray[Any]:
        """Samples in the type and layout that the file reads."""
        channels = self.preprocess.channels
        if self.preprocess.size is None:
            if x.ndim != 2 or x.shape[1] != channels:
                raise InputError(f"the file reads vectors (N, {channels}), not samples of shape {tuple(x.shape)}.")
            return x.cpu().numpy()
        if x.ndim != 4 or x.shape[1] not in (1, channels):
            raise InputError(f"the file reads images with {channels} channels, not samples of shape {tuple(x.shape)}.")
        x = self.values(x).expand(-1, channels, -1, -1)
        return x.permute(0, 2, 3, 1).contiguous().cpu().numpy()

    def values(self, x: Tensor) -> Tensor:
        """Images in the value range of the training."""
        check_range(x, self.preprocess.values)
        if self.preprocess.values is not BYTES:
            return x
        if x.is_floating_point() and not torch.equal(x, x.round()):
            raise InputError("the file reads whole values in 0–255, as pictures hold them: round the input.")
        return x.to(torch.uint8)

    def __repr__(self) -> str:
        return f"Exported({len(self.classes)} classes, samples of {self.preprocess.channels} channels)"


def open_model(path: str | Path, device: str = "auto", network: str | None = None) -> Model | Exported:
    """Whatever can predict: a run's folder, a saved model, or an exported file, which needs no ``network``."""
    path = Path(path)
    return load_exported(path, device) if path.suffix[1:] in FORMATS else load(path, network, device)


def load_exported(path: str | Path, device: str = "auto") -> Exported:
    """The classifier in an ``.onnx`` or ``.pt2`` file that ``vmt export`` wrote.

    >>> import tempfile, vmt
    >>> ys = np.arange(60) % 3
    >>> xs = np.random.default_rng(0).normal(size=(60, 5)) + 2 * ys[:, None]
    >>> model = vmt.adapt((xs, ys), xs + 0.5, iterations=2, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parity = vmt.export.export(model, f"{folder}/model.pt2", samples=xs)
    ...     classifier = load_exported(f"{folder}/model.pt2")
    >>> bool((classifier.predict(xs) == model.predict(xs)).all())
    True
    """
    path = Path(path)
    if device not in ("auto", "cpu"):
        raise InputError(f"an exported file is run on the CPU here, not on {device}: leave out --device.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): give a file that vmt export wrote.") from error
    return from_bytes(content, path.suffix[1:], str(path))


def from_bytes(content: bytes, format: str, name: str) -> Exported:
    """The classifier in the content of an exported file."""
    run, header = from_onnx(content, name) if format == ONNX else from_pt2(content, name)
    if header.get("format") != FORMAT:
        raise InputError(f"{name} was not written by vmt export: it lacks the class names and the input's description.")
    if int(header["version"]) > VERSION:
        raise InputError(f"{name} has format version {header['version']}, newer than this library knows: upgrade vmt.")
    return Exported(run, header)


def from_onnx(content: bytes, name: str) -> tuple[Run, Mapping[str, str]]:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError(MISSING.format("onnxruntime")) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = ERRORS_ONLY
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a dozen exceptions, without a common one of its own
        raise InputError(f"{name} is not a readable ONNX file: export the model again.") from error

    def run(samples: NDArray[Any]) -> NDArray[np.float32]:
        result: NDArray[np.float32] = session.run([OUTPUT], {INPUT: samples})[0]
        return result

    return run, session.get_modelmeta().custom_metadata_map


def from_pt2(content: bytes, name: str) -> tuple[Run, Mapping[str, str]]:
    extra = {EXTRA: ""}
    try:
        module = torch.export.load(io.BytesIO(content), extra_files=extra).module()
    except Exception as error:  # a damaged archive fails anywhere between zip and the parts of the graph
        raise InputError(f"{name} is not a readable .pt2 file: export the model again.") from error

    def run(samples: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            result: NDArray[np.float32] = module(torch.from_numpy(samples)).numpy()
        return result

    return run, json.loads(extra[EXTRA] or "{}")
