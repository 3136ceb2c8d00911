"""Small valid files of the formats that vmt opens."""

import io
import json
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.io import savemat

from tests.user_modules import frozen
from vmt.data.preprocess import Preprocess
from vmt.model import Model
from vmt.nets.backbone import Backbone, make_backbone
from vmt.nets.factory import NetSpec

FIXTURES = Path(__file__).parents[1] / "fixtures" / "364b1c0"


def table(delimiter: str = ",") -> bytes:
    rows = [("length", "width", "height", "label")]
    rows += [(f"{k / 7:.3f}", str(k % 5), f"{k - 4}e-1", ("ant", "bee", "ä")[k % 3]) for k in range(12)]
    return "\n".join(delimiter.join(row) for row in rows).encode()


def picture(number: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (9, 10, 4), dtype=np.uint8)
    return Image.fromarray(pixels, "RGBA").convert(mode)


def picture_bytes(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    picture(1, mode).save(out, kind, **options)
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npz(compressed: bool = False, **arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def vectors(count: int = 12) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)


def labels(count: int, classes: int = 3) -> np.ndarray:
    return np.arange(count, dtype=np.int64) % classes


def parquet(number: int) -> bytes:
    import pyarrow
    from pyarrow import parquet as writer

    columns = {"length": vectors()[:, 0], "width": labels(12), "height": vectors()[:, 2], "label": ["ant", "bee"] * 6}
    if number:
        columns |= {"width": [None, True] * 6, "height": [str(k) for k in range(12)]}
    out = io.BytesIO()
    codec = ("none", "gzip", "snappy")[number % 3]
    writer.write_table(pyarrow.table(columns), out, compression=codec, use_dictionary=number != 1)
    return out.getvalue()


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def mat(compressed: bool, version: str = "5") -> bytes:
    out = io.BytesIO()
    x = numbers(32, 32, 3, 2) if version == "5" else numbers(32, 32)
    savemat(out, {"X": x, "y": np.array([[1], [10]])}, do_compression=compressed, format=version)
    content = out.getvalue()
    return content if version == "4" else b"MATLAB 5.0 MAT-file".ljust(116) + content[116:]  # without the time


def usps_text() -> bytes:
    values = (numbers(3, 256) / 127.5 - 1).round(3)
    rows = [" ".join([str(k + 1), *(f"{i}:{v}" for i, v in enumerate(row, 1))]) for k, row in enumerate(values)]
    return "\n".join(rows).encode() + b"\n"


def cifar_batch(protocol: int) -> bytes:
    return pickle.dumps({b"data": numbers(2, 3072), b"labels": [3, 9], b"batch_label": b"testing"}, protocol)


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (("a/one.bin", b"1" * 700), ("a/zwölf.bin", b"2"), ("a/b/three.bin", b"")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("a/link")
        link.type, link.linkname = tarfile.SYMTYPE, "one.bin"
        archive.addfile(link)
    return out.getvalue()


def model_on_features(folder: Path) -> bytes:
    backbone = make_backbone(frozen)
    width = backbone.width
    preprocess = Preprocess(width, None, (1.0,) * width, (0.0,) * width)
    return model_file(folder, NetSpec("mlp", (width,), 3), preprocess, backbone=backbone)


def model_file(
    folder: Path,
    spec: NetSpec,
    preprocess: Preprocess,
    features: tuple[str, ...] = (),
    backbone: Backbone | None = None,
) -> bytes:
    torch.manual_seed(0)
    path = folder / "model.safetensors"
    Model(spec.build(), spec, preprocess, ("ant", "bee", "cat"), {"method": "vmt"}, features, backbone).save(path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    # The order of the names in the header is another one in each process.
    header = json.dumps(json.loads(content[8 : 8 + length]), sort_keys=True).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()
