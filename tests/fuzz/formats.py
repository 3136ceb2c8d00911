"""Every format that vmt opens: how its files are mutated, and everything that reads them."""

import bz2
import gzip
import hashlib
import io
import json
import random
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save

import vmt
from tests.fuzz import mutations as m
from tests.fuzz.valid import (
    FIXTURES,
    cifar_batch,
    fixture,
    idx,
    labels,
    mat,
    model_file,
    model_on_features,
    npy,
    npz,
    numbers,
    parquet,
    picture,
    picture_bytes,
    table,
    tar,
    usps_text,
    vectors,
)
from tests.user_modules import frozen
from vmt.cli import select
from vmt.data.domains import domain
from vmt.data.files.own import ReadOptions, own_task, read_own
from vmt.data.files.store import open_store, read_journal
from vmt.data.files.stream import InputSpec, SampleBatch, expand_inputs, stream_samples
from vmt.data.preprocess import BYTES, Preprocess
from vmt.data.readers.archives import unpack
from vmt.data.readers.digits import read_mnist, read_svhn, read_usps
from vmt.data.readers.photographs import STL_SMALL, read_cifar10, read_stl10
from vmt.data.stored import StoredSamples
from vmt.data.synthetic.mnistm import read_mnistm
from vmt.errors import InputError
from vmt.export import load_exported
from vmt.nets.factory import NetSpec
from vmt.nets.pretrained import load_weights
from vmt.progress import Progress
from vmt.report.contents import gather
from vmt.report.page import render
from vmt.report.samples import Options
from vmt.runs.ranking import ranked, read_history, validators_of
from vmt.runs.ranking import warnings as rank_warnings
from vmt.trackers import read_tracked
from vmt.train.checkpoint import LoopState, load_latest, to_bytes
from vmt.train.log import Log

Files = Mapping[str, bytes]
Reader = Callable[[Path], object]


@dataclass(frozen=True)
class Format:
    """A format: valid files, and for each file that is mutated, its mutation and its readers, which get the folder."""

    files: Files
    mutations: Mapping[str, m.Mutation]
    readers: Mapping[str, Sequence[Reader]]
    complete: Callable[[random.Random, dict[str, bytes]], None] = lambda draw, files: None
    """Corrects the files around a mutated one, such as checksums, so that the damage gets further."""

    def case(self, draw: random.Random) -> tuple[str, dict[str, bytes]]:
        """The name of the mutated file, and all files of one case."""
        files = dict(self.files)
        name = draw.choice(list(self.mutations))
        files[name] = self.mutations[name](draw, files[name])
        self.complete(draw, files)
        return name, files


# --- Readers ---


def start_from(name: str, folder: Path) -> None:
    load_weights(torch.nn.Linear(3, 2), folder / name)


VECTORS = InputSpec(Preprocess(3, None, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)))
IMAGES = InputSpec(Preprocess(3, (8, 8), (BYTES.scale,), (BYTES.shift,)))
HOW = ReadOptions(cache=False, progress=False)


def as_own(name: str) -> Reader:
    return lambda folder: read_own(folder / name, cache=False)


def as_source(name: str) -> Reader:
    return lambda folder: own_task(folder / name, folder / name, how=HOW)


def labelled(name: str) -> tuple[Reader, ...]:
    """A source needs labels, which .npy files cannot have."""
    return () if name.endswith(".npy") else (as_source(name),)


def as_target(name: str, source: str) -> Reader:
    return lambda folder: own_task(folder / source, folder / name, how=HOW)


def as_input(name: str, *specs: InputSpec) -> Reader:
    """The samples as vmt predict reads them, from a path and from a list of paths on standard input."""

    def read(folder: Path) -> None:
        for spec in specs:
            for item in stream_samples(expand_inputs([str(folder / name)], spec), spec, io.BytesIO()):
                if not isinstance(item, SampleBatch):
                    raise InputError(f"{item.file!r} is left out: {item.reason}")
                domain(item.x, name=name)

    return read


def as_stdin(name: str, spec: InputSpec) -> Reader:
    """Paths or rows on standard input."""
    return lambda folder: list(stream_samples(["-"], spec, io.BytesIO((folder / name).read_bytes())))


def unpacked(name: str, folder: Path) -> None:
    try:
        unpack(folder / name, folder / "out")
    finally:
        shutil.rmtree(folder / "out", ignore_errors=True)


def load_model(folder: Path) -> object:
    model = vmt.load(folder / "model.safetensors", device="cpu")
    return model.predict_proba(samples_for(model.preprocess))


def load_model_on_features(folder: Path) -> object:
    model = vmt.load(folder / "model.safetensors", device="cpu", features=frozen)
    return model.predict_proba(np.zeros((2, 8, 9, 3), np.uint8))


def run_exported(folder: Path) -> object:
    model = load_exported(folder / "model.onnx")
    return model.predict_proba(samples_for(model.preprocess))


def samples_for(preprocess: Preprocess) -> np.ndarray:
    """Two samples that a model can read; a model of huge samples gets small images, and refuses small vectors."""
    if preprocess.size is None:
        return np.zeros((2, min(preprocess.channels, 1000)), np.float32)
    values = preprocess.values
    kind = np.uint8 if values is BYTES else np.float32
    return np.zeros((2, 8, 9, min(preprocess.channels, 4)), kind)


def rank(folder: Path) -> None:
    """The evaluations of a run as vmt select ranks them."""
    history = read_history(folder / "run")
    for name in validators_of(history.evaluations):
        ranked(history.evaluations, name)
    list(rank_warnings([history]))


def sometimes(read: Reader, file: str) -> Reader:
    """Read one case in ten, chosen by the content of the mutated file, because a whole page takes long."""

    def read_some(folder: Path) -> None:
        if zlib.crc32((folder / file).read_bytes()) % 10 == 0:
            read(folder)

    return read_some


def show_runs(folder: Path) -> None:
    """Everything that vmt report and vmt select show without the data of the runs."""
    render(gather([folder / "run"], Options(map="none", device="cpu"), Progress()))
    with redirect_stdout(io.StringIO()):
        select.run(SimpleNamespace(runs=[folder / "run"], by="ami_source", all=True, history=True, json=False))  # type: ignore[arg-type]


def rewind_log(folder: Path) -> None:
    Log(folder / "run").rewind(8)


def restore(folder: Path) -> object:
    """A checkpoint as a resumed run reads it."""
    latest = load_latest(folder / "checkpoints")
    assert latest is not None
    tensors, loop_state, _ = latest
    LoopState(**loop_state)
    state = SimpleNamespace(tensors=lambda: empty_state())
    torch.no_grad()(vmt.step.state.State.restore_)(state, tensors)  # type: ignore[arg-type]
    return int(tensors["step"])


@cache
def empty_state() -> dict[str, torch.Tensor]:
    folder = FIXTURES / "stopped_in_vmt" / "checkpoints"
    latest = load_latest(folder)
    assert latest is not None
    return {name: torch.zeros_like(tensor) for name, tensor in latest[0].items()}


# --- The formats ---


def any_of(*mutations: m.Mutation) -> m.Mutation:
    """Bytes anywhere in a third of all cases, otherwise the mutations of the structure."""
    return m.one_of(
        m.one_of(m.damaged, m.damaged, m.truncated), *mutations, *(mutations if len(mutations) == 1 else ())
    )


def table_format(name: str, content: bytes, *mutations: m.Mutation, **more: bytes) -> Format:
    files = {name: content, "source.csv": table(), **more}
    readers = (as_own(name), as_source(name), as_target(name, "source.csv"), as_input(name, VECTORS))
    return Format(files, {name: any_of(*mutations)}, {name: readers})


def picture_format(contents: Mapping[str, bytes], mutation: m.Mutation) -> Format:
    """Pictures of one kind, each beside an intact one, as a folder and as input of vmt predict."""
    files = {f"{name}/{name}": content for name, content in contents.items()}
    intact = {f"{name}/intact.png": picture_bytes("PNG") for name in contents}
    readers = {name: (as_own(str(Path(name).parent)), as_input(name, IMAGES)) for name in files}
    return Format({**files, **intact}, dict.fromkeys(files, any_of(mutation)), readers)


def array_formats() -> Iterator[tuple[str, Format]]:
    flat = vectors()
    for name, more, mutation in (
        ("npy", {"x.npy": npy(flat)}, m.npy_changed),
        ("npz", {"x.npz": npz(x=flat, y=labels(12))}, m.one_of(m.zipped(m.npy_changed), m.zip_directory_changed)),
    ):
        file = f"x.{name}"
        others = {
            f"images.{name}": npy(numbers(3, 8, 8)) if name == "npy" else npz(True, x=numbers(3, 8, 8), y=labels(3)),
            f"names.{name}": npy(np.asfortranarray(flat)) if name == "npy" else npz(x=flat, y=np.array(["a", "b"] * 6)),
        }
        files = {**more, **others, "source.npz": npz(x=flat, y=labels(12))}
        readers = {
            each: (as_own(each), as_target(each, "source.npz"), as_input(each, VECTORS), *labelled(each))
            for each in (file, *others)
        }
        yield name, Format(files, dict.fromkeys(readers, any_of(mutation)), readers)


# What a summary may have since the fixtures were made.
BESIDE = {
    "adabn": {"target_accuracy": 0.5, "source_accuracy": 0.7, "validators": {"ami_source": 0.4}, "alarm": None},
    "choice": {"text": "VMT was chosen.", "chosen": "run", "candidates": {"vmt": {"score": 0.3, "alarm": "x"}}},
}


def run_format(record: str, name: str, mutation: m.Mutation, *readers: Reader) -> Format:
    names = ("adapt.json", "log.jsonl") if record == "adapted" else ("run.json", "log.jsonl", "summary.json")
    files = {f"run/{each}": fixture(f"{record}/{each}") for each in names}
    if "summary.json" in names:
        files["run/summary.json"] = json.dumps({**json.loads(files["run/summary.json"]), **BESIDE}).encode()
    if record == "adapted":
        files["run/log.jsonl"] = fixture("finished/log.jsonl")
    return Format(
        files, {f"run/{name}": any_of(mutation)}, {f"run/{name}": (rank, sometimes(show_runs, f"run/{name}"), *readers)}
    )


def checkpoint_formats() -> Iterator[tuple[str, Format]]:
    step = "checkpoints/step-000000013"
    files = {
        f"{step}/{name}": fixture(f"stopped_in_vmt/{step}/{name}")
        for name in ("manifest.json", "state.pt", "weights.safetensors")
    }

    def sign(draw: random.Random, changed: dict[str, bytes]) -> None:
        if draw.random() < 0.9:
            sums = {
                name: hashlib.sha256(changed[f"{step}/{name}"]).hexdigest()
                for name in ("state.pt", "weights.safetensors")
            }
            changed[f"{step}/manifest.json"] = json.dumps({"step": 13, "sha256": sums}).encode()

    inside = m.zipped(m.damaged)
    for name, mutation, complete in (
        ("manifest.json", m.json_changed, lambda draw, files: None),
        ("state.pt", m.one_of(inside, inside, m.zip_directory_changed), sign),
        ("weights.safetensors", m.safetensors_changed, sign),
    ):
        file = f"{step}/{name}"
        yield name, Format(files, {file: any_of(mutation)}, {file: (restore,)}, complete)


def all_formats(folder: Path) -> dict[str, Callable[[], Format]]:
    """Every format by name; `folder` is for files that only vmt can write."""
    vector_spec = NetSpec("mlp", (3,), 3, {"width": 4})
    weights = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    formats: dict[str, Callable[[], Format]] = {
        "csv": lambda: table_format("t.csv", table(), m.cells_changed),
        "tsv": lambda: table_format("t.tsv", table("\t"), m.cells_changed),
        "csv.gz": lambda: table_format("t.csv.gz", gzip.compress(table(), mtime=0), m.gzipped(m.cells_changed)),
        "parquet": parquet_format,
        "list": list_format,
        "png": lambda: picture_format(
            {f"{mode}.png": picture_bytes("PNG", mode) for mode in ("RGB", "LA", "P", "1")}, m.png_changed
        ),
        "jpeg": lambda: picture_format(
            {
                "a.jpg": picture_bytes("JPEG", exif=exif()),
                "b.jpeg": picture_bytes("JPEG", "L", progressive=True),
                "c.jpg": picture_bytes("JPEG", "CMYK"),
            },
            m.jpeg_changed,
        ),
        "tiff": lambda: picture_format(
            {
                "a.tif": picture_bytes("TIFF"),
                "b.tiff": picture_bytes("TIFF", compression="tiff_lzw"),
                "c.tif": picture_bytes("TIFF", "F"),
                "d.tif": picture_bytes("TIFF", "1", compression="group4"),
                "e.tif": picture_bytes("TIFF", compression="jpeg"),
                "f.tif": picture_bytes("TIFF", "I;16"),
                "g.tif": picture_bytes("TIFF", compression="tiff_adobe_deflate"),
            },
            m.tiff_changed,
        ),
        "webp": lambda: picture_format(
            {"a.webp": picture_bytes("WEBP"), "b.webp": picture_bytes("WEBP", "RGBA", lossless=True)}, m.damaged
        ),
        "gif": lambda: picture_format(
            {
                "a.gif": picture_bytes("GIF", "P"),
                "b.gif": picture_bytes("GIF", "RGB", save_all=True, append_images=[picture(2)]),
            },
            m.damaged,
        ),
        "bmp": lambda: picture_format({"a.bmp": picture_bytes("BMP"), "b.dib": picture_bytes("DIB", "P")}, m.damaged),
        "other pictures": lambda: picture_format(
            {
                "a.ppm": picture_bytes("PPM"),
                "b.pgm": picture_bytes("PPM", "L"),
                "c.tga": picture_bytes("TGA", compression="tga_rle"),
                "d.ico": picture_bytes("ICO"),
                "e.jp2": picture_bytes("JPEG2000"),
                "f.avif": picture_bytes("AVIF", speed=10),
            },
            m.damaged,
        ),
        "store of pictures": store_format,
        "mat": mat_format,
        "idx": idx_format,
        "usps": lambda: Format(
            {"usps.bz2": bz2.compress(usps_text())},
            {"usps.bz2": any_of(m.bzipped(m.damaged))},
            {"usps.bz2": (lambda folder: read_usps(folder, "train"),)},
        ),
        "cifar pickle": lambda: Format(
            {"test_batch": cifar_batch(2)},
            {"test_batch": any_of(pickle_changed)},
            {"test_batch": (lambda folder: read_cifar10(folder, "test"),)},
        ),
        "stl and built sets": stl_format,
        "archive": lambda: Format(
            {"a.tar.gz": gzip.compress(tar(), 1, mtime=0), "b.tar": tar()},
            {"a.tar.gz": any_of(m.gzipped(m.tarred)), "b.tar": any_of(m.tarred)},
            {name: (partial(unpacked, name),) for name in ("a.tar.gz", "b.tar")},
        ),
        "model": lambda: Format(
            {"model.safetensors": model_file(folder, vector_spec, VECTORS.preprocess, ("a", "b", "c"))},
            {"model.safetensors": any_of(m.safetensors_changed)},
            {"model.safetensors": (load_model,)},
        ),
        "model on features": lambda: Format(
            {"model.safetensors": model_on_features(folder)},
            {"model.safetensors": any_of(m.safetensors_changed)},
            {"model.safetensors": (load_model_on_features,)},
        ),
        "file of weights": lambda: Format(
            {"w.safetensors": save(weights), "w.pt": to_bytes({"state_dict": weights})},
            {"w.safetensors": any_of(m.safetensors_changed), "w.pt": any_of(m.zipped(m.damaged))},
            {name: (partial(start_from, name),) for name in ("w.safetensors", "w.pt")},
        ),
        "onnx": lambda: Format(
            {"model.onnx": fixture("vectors.onnx")},
            {"model.onnx": m.one_of(m.damaged, *[m.protobuf_changed] * 4)},
            {"model.onnx": (run_exported,)},
        ),
        "run.json": lambda: run_format("finished", "run.json", m.json_changed),
        "mlflow.json": lambda: Format(
            {"mlflow.json": json.dumps({"uri": "http://127.0.0.1:5000", "run": "8432d8f54dd3"}).encode()},
            {"mlflow.json": any_of(m.json_changed)},
            {"mlflow.json": (read_tracked,)},
        ),
        "adapt.json": lambda: run_format("adapted", "adapt.json", m.json_changed),
        "summary.json": lambda: run_format("finished", "summary.json", m.json_changed),
        "log.jsonl": lambda: run_format("finished", "log.jsonl", m.json_lines_changed, rewind_log),
    }
    arrays, checkpoints = dict(array_formats()), dict(checkpoint_formats())
    return formats | {
        name: partial(dict.__getitem__, {**arrays, **checkpoints}, name) for name in (*arrays, *checkpoints)
    }


def store_format() -> Format:
    """Decoded pictures in the cache; what is left of an interrupted packing is in the folder ``half``."""
    pixels = numbers(12, 3, 8, 8)
    crc = np.array([zlib.crc32(row.tobytes()) for row in pixels], np.uint32)
    low, high = pixels.min((1, 2, 3)), pixels.max((1, 2, 3))
    known = {"crc": crc, "low": low, "high": high, "faults": np.array([""] * 12)}
    lines = [{name: values[i : i + 4].tolist() for name, values in known.items()} for i in range(0, 12, 4)]
    files = {
        "rows.u8": pixels.tobytes(),
        "index.npz": npz(**known),
        "half/rows.u8": pixels.tobytes(),
        "half/journal.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in lines),
    }
    index = any_of(m.zipped(m.npy_changed), m.zip_directory_changed)
    mutated = {"rows.u8": any_of(m.damaged), "index.npz": index, "half/journal.jsonl": any_of(m.json_lines_changed)}
    readers: dict[str, tuple[Reader, ...]] = dict.fromkeys(("rows.u8", "index.npz"), (load_store,))
    readers["half/journal.jsonl"] = (lambda folder: read_journal(folder / "half", (3, 8, 8)),)
    return Format(files, mutated, readers)


def load_store(folder: Path) -> object:
    store = open_store(folder, (3, 8, 8))
    if store is None:
        raise InputError(f"{folder} has no complete store.")  # it would be packed again
    return StoredSamples(store.rows)[:]


def parquet_format() -> Format:
    files = {f"{k}.parquet": parquet(k) for k in range(3)}
    readers = {name: (as_own(name), as_target(name, "source.csv"), as_input(name, VECTORS)) for name in files}
    return Format({**files, "source.csv": table()}, dict.fromkeys(files, m.one_of(m.damaged, footer_changed)), readers)


def footer_changed(draw: random.Random, content: bytes) -> bytes:
    """Damage the metadata at the end of a Parquet file, which stays as long as it says."""
    length = int.from_bytes(content[-8:-4], "little")
    footer = m.damaged(draw, content[-8 - length : -8])
    return content[: -8 - length] + footer + len(footer).to_bytes(4, "little") + content[-4:]


def list_format() -> Format:
    listed = b"file,label\n" + b"".join(f"{k}.png,{'ab'[k % 2]}\n".encode() for k in range(3))
    files = {
        "list.csv": listed,
        "paths": b"0.png\n1.png\n2.png\n",
        **{f"{k}.png": picture_bytes("PNG") for k in range(3)},
    }
    readers = {
        "list.csv": (as_own("list.csv"), as_input("list.csv", IMAGES)),
        "paths": (as_stdin("paths", IMAGES), as_stdin("paths", VECTORS)),
    }
    return Format(files, {"list.csv": any_of(m.cells_changed), "paths": any_of(m.cells_changed)}, readers)


def exif() -> bytes:
    tags = Image.Exif()
    tags[0x0112] = 6
    return tags.tobytes()


def mat_format() -> Format:
    files = {"train_32x32.mat": mat(True), "test_32x32.mat": mat(False)}
    readers = {f"{split}_32x32.mat": (partial(read_svhn, split=split),) for split in ("train", "test")}
    old = mat(False, "4")
    version_4: m.Mutation = lambda draw, content: m.damaged(draw, old)  # noqa: E731
    mutated = {
        "train_32x32.mat": any_of(m.mat_changed),
        "test_32x32.mat": any_of(m.mat_changed, m.mat_changed, version_4),
    }
    return Format(files, mutated, readers)


def idx_format() -> Format:
    files = {
        "train-images-idx3-ubyte.gz": gzip.compress(idx(numbers(2, 28, 28)), 1, mtime=0),
        "train-labels-idx1-ubyte.gz": gzip.compress(idx(numbers(2) % 10), 1, mtime=0),
        "t10k-images-idx3-ubyte": idx(numbers(2, 28, 28)),
        "t10k-labels-idx1-ubyte": idx(numbers(2) % 10),
    }
    header: m.Mutation = lambda draw, content: m.damaged(draw, content[:16]) + content[16:]  # noqa: E731
    mutated = {name: any_of(m.gzipped(header) if name.endswith(".gz") else header) for name in files}
    readers = {name: (partial(read_mnist, split="train" if "train" in name else "test"),) for name in files}
    return Format(files, mutated, readers)


def pickle_changed(draw: random.Random, content: bytes) -> bytes:
    """Damage the operations of a pickle of some protocol, rather than its pixels."""
    content = cifar_batch(draw.randrange(6))
    start = content.find(numbers(2, 3072).tobytes()[:40])
    if start < 0:
        return m.damaged(draw, content)
    end = start + 2 * 3072
    if draw.random() < 0.5:
        return m.damaged(draw, content[:start]) + content[start:]
    return content[:end] + m.damaged(draw, content[end:])


def stl_format() -> Format:
    made = np.array(json.dumps({"set": "MNIST-M", "sha256": ""}))
    small = npz(x_train=numbers(2, 32, 32, 3), y_train=labels(2))
    files = {
        f"stl10/{STL_SMALL}": small,
        "mnistm/train.npz": npz(x=numbers(2, 3, 28, 28), y=labels(2), made=made),
        "binary/train_X.bin": numbers(1, 3, 96, 96).tobytes(),
        "binary/train_y.bin": b"\x05",
    }
    archive = any_of(m.one_of(m.zipped(m.npy_changed), m.zip_directory_changed))
    mutated = {name: archive if name.endswith(".npz") else m.damaged for name in files}
    readers: dict[str, tuple[Reader]] = {
        f"stl10/{STL_SMALL}": (lambda folder: read_stl10(folder / "stl10", "train"),),
        "mnistm/train.npz": (lambda folder: read_mnistm(folder / "mnistm", "train"),),
        "binary/train_X.bin": (lambda folder: read_stl10(folder / "binary", "train"),),
        "binary/train_y.bin": (lambda folder: read_stl10(folder / "binary", "train"),),
    }
    return Format(files, mutated, readers)
