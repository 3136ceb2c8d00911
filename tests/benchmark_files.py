"""Small files in the formats of the published sets, and a check of errors about them."""

import bz2
import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from vmt.errors import InputError

COUNTS = {"train": 40, "test": 20}


def images(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def labels(count: int, classes: int = 10) -> np.ndarray:
    return (np.arange(count) % classes).astype(np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_mnist(data: Path) -> None:
    (data / "mnist").mkdir(parents=True)
    for split, prefix in (("train", "train"), ("test", "t10k")):
        count = COUNTS[split]
        for kind, array in (("images-idx3", images(count, 28, 28)), ("labels-idx1", labels(count))):
            (data / "mnist" / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx(array)))


def write_cropped(path: Path, count: int, first: int) -> None:
    """The .mat format of SVHN, in which labels start from `first`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"X": images(32, 32, 3, count), "y": labels(count)[:, None] + first})


def write_svhn(data: Path) -> None:
    for split, count in COUNTS.items():
        write_cropped(data / "svhn" / f"{split}_32x32.mat", count, first=1)


def write_syn(data: Path) -> None:
    for split, count in COUNTS.items():
        write_cropped(data / "syn" / f"synth_{split}_32x32.mat", count, first=0)


def write_usps(data: Path) -> None:
    (data / "usps").mkdir(parents=True)
    for name, count in (("usps.bz2", COUNTS["train"]), ("usps.t.bz2", COUNTS["test"])):
        (data / "usps" / name).write_bytes(bz2.compress(usps_text(images(count, 256), labels(count))))


def usps_text(pixels: np.ndarray, digits: np.ndarray) -> bytes:
    values = pixels / 127.5 - 1
    lines = [
        f"{digit + 1} " + " ".join(f"{i}:{value:.4f}" for i, value in enumerate(row, 1)) + " \n"
        for digit, row in zip(digits, values, strict=True)
    ]
    return "".join(lines).encode()


def cifar_batch(count: int, seed: int = 0, **changes: object) -> dict[bytes, object]:
    batch = {"data": images(count, 3072, seed=seed), "labels": labels(count).tolist(), "batch_label": b"a batch"}
    return {key.encode(): value for key, value in (batch | changes).items()}


def write_cifar10(data: Path) -> Path:
    folder = data / "cifar10" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for i in range(1, 6):
        (folder / f"data_batch_{i}").write_bytes(pickle.dumps(cifar_batch(20, seed=i), protocol=2))
    (folder / "test_batch").write_bytes(pickle.dumps(cifar_batch(20, seed=9), protocol=2))
    return folder


def write_stl10(data: Path) -> Path:
    folder = data / "stl10" / "stl10_binary"
    folder.mkdir(parents=True)
    for split, count in COUNTS.items():
        images(count, 3, 96, 96).tofile(folder / f"{split}_X.bin")
        (labels(count) + 1).tofile(folder / f"{split}_y.bin")
    return folder


def write_small_stl10(data: Path) -> Path:
    (data / "stl10").mkdir(parents=True)
    path = data / "stl10" / "stl10_32.npz"
    np.savez_compressed(path, x_train=images(40, 32, 32, 3), y_train=labels(40))
    return path


def write_photographs(data: Path, count: int = 3) -> None:
    (data / "bsds500").mkdir(parents=True)
    for i in range(count):
        Image.fromarray(images(40, 60, 3, seed=i)).save(data / "bsds500" / f"{i}.jpg")


def error_names(caught: pytest.ExceptionInfo[InputError], *parts: object) -> None:
    """Check that an error is a sentence that names each of these."""
    for part in parts:
        assert str(part) in str(caught.value)
    assert str(caught.value).endswith(".")
