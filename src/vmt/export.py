"""Export a model as one file for other programs, ONNX or ``torch.export``, and read such a file back.

The file contains the preprocessing: it takes samples as they are stored and returns probabilities. Images have the
shape (N, H, W, C), in which pictures are decoded; vectors have (N, F). N is free. Height and width of images are free
as well, unless the network expects pictures that are cropped to keep their aspect ratio: then the program that decodes
them crops them to the network's size (examples/onnx_only.py).

An ONNX file only computes. A ``.pt2`` file can run code when it is opened, because ``torch.export`` unpickles parts of
it and evaluates expressions in it, so it is read only if the caller trusts it.

The header of the file has the entries ``format`` and ``version`` and, in JSON, ``classes``, ``features``, ``input``,
``preprocess`` and ``about``. ONNX has it in the metadata of the model, a ``.pt2`` file in the extra file ``vmt.json``.
"""

import copy
import io
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from vmt.data.domains import domain, reorder_columns
from vmt.data.files.paths import FORMATS, MOST_CHECKED, ONNX, PT2
from vmt.data.preprocess import BYTES, Preprocess, check_range
from vmt.disk import check_parent_folder, write_atomically
from vmt.errors import InputError, first_line, parsing
from vmt.evaluate.accuracy import BATCH
from vmt.model import Model, load, read_description
from vmt.nets.backbone import VECTORS

EXPORT_FORMAT, EXPORT_VERSION = "vmt-export", 2
# Version 1 has no crop and no other interpolation than bilinear; files that need neither are still written as such.
EXTRA = "vmt.json"
INPUT, OUTPUT = "samples", "probabilities"
TOLERANCE = 1e-4
SHARE_MISSING = 0.1  # of random samples for a model that fills in missing values
# The axes whose size is free, in order.
AXES = ("batch", "height", "width")
MISSING = "ONNX files need the package {}: pip install 'vmt[export]'."

# onnxruntime has no name for this level of logging: errors are raised, and need not be printed as well.
NO_MESSAGES = 4
# The memory in bytes for the weights and the results of all layers. A file decides what it computes, so without a limit
# one of a few hundred bytes could fill the memory.
ONNX_MEMORY = 3 * 2**29
VALUES_AT_ONCE = 2**23  # values of samples in a batch; more of them may exceed the memory on the way
EXPORTED = ("an exported model", "export the model again")

Run = Callable[[NDArray[Any]], NDArray[np.float32]]


@dataclass(frozen=True)
class Parity:
    """How far an exported file is from its model."""

    samples: int
    difference: float
    """The largest difference of any probability."""


def export(model: Model, path: str | Path, format: str | None = None, samples: Any = None) -> Parity:
    """Write a model as an ``.onnx`` or ``.pt2`` file, after checking that its probabilities equal the model's.

    Parameters
    ----------
    model
        A trained model; its network is exported in evaluation mode.
    format
        ``"onnx"`` or ``"pt2"``; by default the path's suffix.
    samples
        Samples to compare on, as :meth:`vmt.Model.predict` takes them, of which at most 1,000 are used; or an iterator
        over several such arrays, for samples of different shapes. By default, random samples.

    Examples
    --------
    >>> import tempfile, vmt
    >>> ys = np.arange(60) % 3
    >>> xs = np.random.default_rng(0).normal(size=(60, 5)) + 2 * ys[:, None]
    >>> model = vmt.adapt((xs, ys), xs + 0.5, iterations=2, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parity = export(model, f"{folder}/model.pt2", samples=xs)
    >>> parity.samples, parity.difference < 1e-4
    (60, True)
    """
    path = Path(path)
    format = format or path.suffix[1:]
    if format not in FORMATS:
        raise InputError(f"there is no export format {format!r}: choose one of {', '.join(FORMATS)}.")
    check_parent_folder(path)
    model.check_finite()
    # On the CPU, where the file runs: a GPU rounds convolutions differently.
    network, backbone = copy.deepcopy(model.network).cpu(), model.backbone
    if backbone is not None:
        backbone = replace(backbone, module=copy.deepcopy(backbone.module).cpu())
    model = Model(network, model.spec, model.preprocess, model.classes, model.about, model.features, backbone)
    checked = parts_of(random_samples(model.reads) if samples is None else samples)
    any_size = model.reads.size is not None and model.reads.stretches
    program = trace_module(Deployed(model).eval(), example(model.reads), any_size)
    content = (as_onnx if format == ONNX else as_pt2)(program, header_of(model))
    parity = check_parity(model, from_bytes(content, format, str(path)).predict_proba, checked)
    write_atomically(path, content)
    return parity


class Deployed(nn.Module):
    """From stored samples to probabilities; if the model has a backbone, from pictures by way of their features."""

    fill: Tensor

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.network, self.reads = model.network, Affine(model.reads)
        self.is_images = model.reads.size is not None
        self.size = model.reads.size if model.reads.stretches else None
        self.imputes = model.preprocess.fill is not None
        self.register_buffer("fill", torch.tensor(model.preprocess.fill or (0.0,)))
        self.backbone = None if model.backbone is None else model.backbone.module
        self.of_features = Affine(model.preprocess)

    def forward(self, samples: Tensor) -> Tensor:
        x = samples.to(torch.float32)
        if self.imputes:
            x = torch.where(x.isnan(), self.fill, x)
        if self.is_images:
            x = x.permute(0, 3, 1, 2).contiguous()  # as in training, for a network that flattens with view
        if self.size is not None:
            # Antialiasing does not change how images are enlarged, so one formula serves every size.
            x = F.interpolate(x, self.size, mode="bilinear", align_corners=False, antialias=True)
        x = self.reads(x)
        if self.backbone is not None:
            x = self.of_features(VECTORS(self.backbone(x)))
        logits: Tensor = self.network(x)["logits"]
        return logits.float().softmax(1)


class Affine(nn.Module):
    """The scale and the shift of a preprocessing."""

    scale: Tensor
    shift: Tensor

    def __init__(self, preprocess: Preprocess) -> None:
        super().__init__()
        per_value = (-1,) if preprocess.size is None else (-1, 1, 1)
        for name, values in zip(("scale", "shift"), preprocess.affine, strict=True):
            self.register_buffer(name, torch.tensor(values).view(per_value))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


def trace_module(module: nn.Module, samples: Tensor, any_size: bool) -> torch.export.ExportedProgram:
    """The module as a graph, for any number of samples and, if ``any_size``, for images of any size."""
    free = {axis: torch.export.Dim(name) for axis, name in enumerate(AXES[: 3 if any_size else 1])}
    failures: list[Exception] = []
    # The strict tracer reads the code of a network; the other one records a single run, in which len(x) is constant.
    for strict in (False, True):
        try:
            with quiet(), plain_attention():
                return torch.export.export(module, (samples,), dynamic_shapes=(free,), strict=strict)
        except Exception as error:  # a user-defined network may raise anything in the tracer
            failures.append(error)
    raise InputError(
        f"the network cannot be exported ({cause_of(failures[0])}): avoid branches that depend on values, and sizes "
        "that depend on the number of samples."
    ) from failures[0]


@contextmanager
def plain_attention() -> Iterator[None]:
    """Run torch's transformer layers as the operations that they consist of, because ONNX lacks the fused one."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def as_pt2(program: torch.export.ExportedProgram, header: dict[str, str]) -> bytes:
    file = io.BytesIO()
    with quiet():
        torch.export.save(program, file, extra_files={EXTRA: json.dumps(header, ensure_ascii=False)})
    return file.getvalue()


def as_onnx(program: torch.export.ExportedProgram, header: dict[str, str]) -> bytes:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(package) is None:
            raise InputError(MISSING.format(package))
    try:
        with quiet():
            made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=[INPUT], output_names=[OUTPUT])
    except Exception as error:
        raise InputError(f"the network cannot be written as ONNX ({cause_of(error)}): try the format pt2.") from error
    assert made is not None
    proto: Any = made.model_proto
    name_free_axes(proto.graph)
    remove_traces(proto.graph)
    for key, value in header.items():
        proto.metadata_props.add(key=key, value=value)
    content: bytes = proto.SerializeToString()
    return content


def name_free_axes(graph: Any) -> None:
    """Name the free axes for readers of the file; sizes inside the graph are not kept."""
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        for axis, name in zip(value.type.tensor_type.shape.dim, AXES, strict=False):
            if axis.dim_param:
                axis.dim_param = name


def remove_traces(graph: Any) -> None:
    """Remove the exporter's notes on where each operation came from: they contain paths of this machine."""
    for node in graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")


def header_of(model: Model) -> dict[str, str]:
    """Everything that a program needs to know if it has only the file."""
    described = {
        "format": EXPORT_FORMAT,
        "version": "1" if model.reads.stretches else str(EXPORT_VERSION),
        "classes": model.classes,
        "features": model.features,
        "input": input_of(model.reads),
        "preprocess": model.reads.to_dict(),
        "about": model.about,
    }
    return {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in described.items()}


def input_of(preprocess: Preprocess) -> dict[str, Any]:
    """A description of the input."""
    if preprocess.size is None:
        described = {"name": INPUT, "layout": "NF", "dtype": "float32", "features": preprocess.channels}
        return described | ({} if preprocess.fill is None else {"missing": "NaN"})
    values = preprocess.values
    cropped = {"crop": preprocess.crop, "interpolation": preprocess.interpolation}
    return {
        "name": INPUT,
        "layout": "NHWC",
        "dtype": "uint8" if values is BYTES else "float32",
        "range": [values.low, values.high],
        "channels": preprocess.channels,
        "resized_to": list(preprocess.size),
        **({} if preprocess.stretches else cropped),
    }


def check_parity(model: Model, probabilities: Any, parts: Sequence[Any]) -> Parity:
    """Compare a file with its model, on many samples together and on single ones, and refuse it if they differ."""
    pairs = [(probabilities(x), model.predict_proba(x)) for part in parts for x in (part, part[:1])]
    difference = max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)
    if not difference <= TOLERANCE:  # also if it is NaN
        raise InputError(
            f"the exported probabilities differ from the model's by up to {difference:.2g} (allowed: {TOLERANCE:.0e}), "
            "so nothing was written: check for layers that are random or keep state in evaluation mode."
        )
    return Parity(sum(map(len, parts)), difference)


def parts_of(samples: Any) -> list[Any]:
    """The arrays of an iterator, or at most 1,000 evenly spaced samples of one array."""
    if not isinstance(samples, Iterator):
        samples = samples if isinstance(samples, Tensor) else np.asarray(samples)
        count = min(len(samples), MOST_CHECKED)
        samples = [samples[np.arange(count) * len(samples) // max(count, 1)]]
    parts = [part for part in samples if len(part)]
    if not parts:
        raise InputError("there are no samples to compare on: give one or more.")
    return parts


def random_samples(preprocess: Preprocess) -> NDArray[Any]:
    """Random samples in the range of real ones."""
    random, count = np.random.default_rng(0), 64
    if preprocess.size is None:
        standard = random.standard_normal((count, preprocess.channels))
        vectors: NDArray[Any] = (standard - np.array(preprocess.shift)) / np.array(preprocess.scale)
        if preprocess.fill is not None:
            vectors[random.random(vectors.shape) < SHARE_MISSING] = np.nan
        return vectors.astype(np.float32)
    shape, values = (count, *preprocess.size, preprocess.channels), preprocess.values
    if values is BYTES:
        return random.integers(0, 256, shape, dtype=np.uint8)
    return random.uniform(values.low, values.high, shape).astype(np.float32)


def example(preprocess: Preprocess) -> Tensor:
    """The example for the tracer: a number of samples that equals no other size, and images that need resizing."""
    if preprocess.size is None:
        return torch.zeros(3, preprocess.channels)
    height, width = preprocess.size
    if preprocess.stretches:
        height, width = height + 2, width + 3
    kind = torch.uint8 if preprocess.values is BYTES else torch.float32
    return torch.zeros(3, height, width, preprocess.channels, dtype=kind)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporters, which report packages that are not needed here and their own errors."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.ERROR))
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def cause_of(error: BaseException) -> str:
    """The message of the original error, to which the ONNX exporter adds a page of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error).rstrip(".:")


class Exported:
    """A classifier read from an exported file, which runs on the CPU."""

    def __init__(self, run: Run, header: Mapping[str, str], name: str) -> None:
        self.name = name
        self.run = run
        self.preprocess, classes, features = read_description(header)
        self.classes, self.features = tuple(classes), tuple(features)

    @property
    def reads(self) -> Preprocess:
        """The preprocessing of the samples that are predicted on, as :attr:`vmt.Model.reads`."""
        return self.preprocess

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """The probability of each class for each sample: (N, classes)."""
        x = reorder_columns(x, self.features, "the input", "the file")
        stored = self.stored(domain(x, name="the input", missing=self.preprocess.fill is not None).x)
        batch = max(1, min(BATCH, VALUES_AT_ONCE // max(1, math.prod(stored.shape[1:]))))
        return np.concatenate([self.checked_run(stored[i : i + batch]) for i in range(0, len(stored), batch)])

    def checked_run(self, samples: NDArray[Any]) -> NDArray[np.float32]:
        """The probabilities of a batch; a file that gives anything else is refused."""
        try:
            result = np.asarray(self.run(samples))
        except Exception as error:
            if len(samples) > 1:  # the limit on memory may be too low for many large images at once
                half = len(samples) // 2
                return np.concatenate([self.checked_run(samples[:half]), self.checked_run(samples[half:])])
            with parsing(self.name, *EXPORTED):
                raise error
        if result.shape != (len(samples), len(self.classes)) or result.dtype != np.float32:
            raise InputError(
                f"{self.name} gives {result.dtype} of shape {result.shape} for {len(samples)} samples and "
                f"{len(self.classes)} classes: {EXPORTED[1]}."
            )
        return result

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
        if not self.preprocess.stretches:
            x = self.preprocess.fit(x)
        x = self.values(x).expand(-1, channels, -1, -1)
        return x.permute(0, 2, 3, 1).contiguous().cpu().numpy()

    def values(self, x: Tensor) -> Tensor:
        """Images in the value range of the training."""
        check_range(x, self.preprocess.values)
        if self.preprocess.values is not BYTES:
            return x
        if x.is_floating_point() and not torch.equal(x, x.round()):
            raise InputError("the file reads whole numbers in 0–255, as pictures hold them: round the input.")
        return x.to(torch.uint8)

    def __repr__(self) -> str:
        return f"Exported({len(self.classes)} classes, samples of {self.preprocess.channels} channels)"


def open_model(
    path: str | Path,
    device: str = "auto",
    network: str | None = None,
    trust: bool = False,
    features: str | None = None,
) -> Model | Exported:
    """Open a run folder, a saved model or an exported file for prediction; the latter needs no functions."""
    path = Path(path)
    return load_exported(path, device, trust) if path.suffix[1:] in FORMATS else load(path, network, device, features)


def load_exported(path: str | Path, device: str = "auto", trust: bool = False) -> Exported:
    """Load the classifier in an ``.onnx`` or ``.pt2`` file that ``vmt export`` wrote.

    Opening a ``.pt2`` file can run code that someone put into it, so it needs ``trust=True``. An ONNX file cannot run
    code.

    >>> import tempfile, vmt
    >>> ys = np.arange(60) % 3
    >>> xs = np.random.default_rng(0).normal(size=(60, 5)) + 2 * ys[:, None]
    >>> model = vmt.adapt((xs, ys), xs + 0.5, iterations=2, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parity = vmt.export.export(model, f"{folder}/model.pt2", samples=xs)
    ...     classifier = load_exported(f"{folder}/model.pt2", trust=True)
    >>> bool((classifier.predict(xs) == model.predict(xs)).all())
    True
    """
    path = Path(path)
    if device not in ("auto", "cpu"):
        raise InputError(f"an exported file runs on the CPU, not on {device}: leave out --device.")
    format = path.suffix[1:]
    if format not in FORMATS:
        raise InputError(f"{path} is not an exported file, which ends in .{' or .'.join(FORMATS)}: give such a file.")
    if format == PT2 and not trust:
        raise InputError(
            f"{path} is a .pt2 file, and opening one can run code that someone put into it: add --trust (in Python: "
            "trust=True) if you trust whoever made it, or use the model or its .onnx file instead."
        )
    with parsing(path, "an exported model", "give a file that vmt export wrote"):
        content = path.read_bytes()
    return from_bytes(content, format, str(path))


def from_bytes(content: bytes, format: str, name: str) -> Exported:
    """The classifier in the content of an exported file."""
    run, header = from_onnx(content, name) if format == ONNX else from_pt2(content, name)
    if header.get("format") != EXPORT_FORMAT:
        raise InputError(
            f"{name} was not written by vmt export: give a file that was, because others lack the class names."
        )
    with parsing(name, *EXPORTED):
        if int(header["version"]) > EXPORT_VERSION:
            raise InputError(
                f"{name} has format version {header['version']}, which this version of vmt does not know: upgrade vmt."
            )
        return Exported(run, header, name)


def from_onnx(content: bytes, name: str) -> tuple[Run, Mapping[str, str]]:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError(MISSING.format("onnxruntime")) from error
    limit_onnx_memory()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = NO_MESSAGES
    options.add_session_config_entry("session.use_env_allocators", "1")
    with parsing(name, "a readable ONNX file", EXPORTED[1]):
        if has_external_data(memoryview(content)):
            raise InputError(f"{name} refers to other files for its weights, which are not opened: {EXPORTED[1]}.")
        # The fall-back to other providers would only print a page.
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"], enable_fallback=0)
        header = dict(session.get_modelmeta().custom_metadata_map)

    def run(samples: NDArray[Any]) -> NDArray[np.float32]:
        result: NDArray[np.float32] = session.run([OUTPUT], {INPUT: samples})[0]
        return result

    return run, header


@cache
def limit_onnx_memory() -> None:
    """Limit the memory of all ONNX files of this process; onnxruntime has no limit for a single one."""
    import onnxruntime

    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    as_requested = 1  # grow by what is needed instead of doubling
    limits = onnxruntime.OrtArenaCfg({"max_mem": ONNX_MEMORY, "arena_extend_strategy": as_requested})
    onnxruntime.create_and_register_allocator(memory, limits)


# The messages of an ONNX file that can contain tensors: for each, the fields that hold others of them.
ONNX_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
EXTERNAL_FIELDS = (13, 14)  # of a tensor: the place of its values, and whether they are outside the file


def has_external_data(content: memoryview, message: str = "model") -> bool:
    """Whether a tensor of an ONNX file has its values in another file."""
    for field, value in protobuf_fields(content):
        if message == "tensor" and field in EXTERNAL_FIELDS and value:
            return True
        inner = ONNX_MESSAGES[message].get(field)
        if inner is not None and isinstance(value, memoryview) and has_external_data(value, inner):
            return True
    return False


def protobuf_fields(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number and the value of each field of a protobuf message: whole numbers, and bytes for everything else."""
    place = 0

    def varint() -> int:
        nonlocal place
        number = shift = 0
        while True:
            byte = content[place]
            place += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 63:
                return number

    while place < len(content):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        length = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        yield key >> 3, content[place : place + length]
        place += length


def from_pt2(content: bytes, name: str) -> tuple[Run, Mapping[str, str]]:
    """The program and the header in a file that was written here, or that the user trusts: this can run its code."""
    extra = {EXTRA: ""}
    with parsing(name, "a readable .pt2 file", EXPORTED[1]):
        module = torch.export.load(io.BytesIO(content), extra_files=extra).module()

    def run(samples: NDArray[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            result: NDArray[np.float32] = module(torch.from_numpy(samples)).numpy()
        return result

    return run, json.loads(extra[EXTRA] or "{}")
