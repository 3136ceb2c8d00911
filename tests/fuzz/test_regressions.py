"""Files that once ended in a traceback, took all memory or never ended, each with its reader."""

import gzip
import hashlib
import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

import vmt
from tests.fuzz.formats import IMAGES, VECTORS
from tests.fuzz.mutations import DEEP
from tests.fuzz.valid import fixture, mat, model_file, npz, numbers, parquet, table
from vmt.data.files.numpy_files import iterate_rows, read_npy
from vmt.data.files.own import own_task, read_own
from vmt.data.files.stream import Unreadable, stream_samples
from vmt.data.readers.digits import read_matlab, read_svhn, read_usps
from vmt.data.readers.pickles import read_plain_pickle
from vmt.data.synthetic.mnistm import read_mnistm
from vmt.errors import InputError, parsing
from vmt.export import Exported, load_exported
from vmt.nets.factory import NetSpec
from vmt.runs.record import read_run_record
from vmt.train.checkpoint import load_latest
from vmt.train.log import read_log


def array_file(header: str, values: bytes = b"\0" * 48) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + values


def header(shape: object, kind: str = "<f4") -> str:
    return repr({"descr": kind, "fortran_order": False, "shape": shape})


ARRAYS = {
    "more values than memory": header((10**12, 3)),
    "a length beyond 64 bits": header((10**30,)),
    "a negative length": header((-1, 3)),
    "a row without values": header((10**18, 0)),
    "huge elements": header((4,), "|S2147483647"),
    "objects": header((4,), "|O"),
    "an unfinished text": "'''",
    "an unfinished bracket": "{'descr': (",
    "brackets too deep": "(" * 3000,
    "a missing field": "{'shape': (4, 3), 'fortran_order': False}",
    "another type": header((4, 3), "no type"),
    "a single value": header(()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", ARRAYS.values(), ids=ARRAYS)
def test_headers_of_arrays(tmp_path: Path, text: str) -> None:
    for suffix in ("npy", "npz"):
        path = tmp_path / f"x.{suffix}"
        content = array_file(text)
        if suffix == "npz":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("x.npy", content)
        else:
            path.write_bytes(content)
        for read in (read_own, lambda path: list(iterate_rows(path))):
            with pytest.raises(InputError, match=path.name):
                read(path)
        (item,) = stream_samples([path], VECTORS, io.BytesIO())
        assert isinstance(item, Unreadable)


def test_an_archive_that_unpacks_to_far_more_than_its_size(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    size = 100 * 2**20
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as file,
    ):
        file.write(array_file(header((size // 16, 16), "|u1"), b""))
        for _ in range(100):
            file.write(bytes(2**20))
    with pytest.raises(InputError, match=r"bomb\.npz unpacks to more than"):
        read_own(path)


def test_members_of_an_archive_that_are_not_arrays(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"no array")
    with pytest.raises(InputError, match="no array 'x'"):
        read_own(path)


def test_an_archive_in_place_of_an_array(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(npz(x=np.zeros(3)))
    with pytest.raises(InputError, match=r"ends in \.npz"):
        read_npy(tmp_path / "x.npy")


LABELS = {
    "too many": np.arange(7) % 2,
    "several columns": np.zeros((4, 2), int),
    "too many names": np.array(["a"] * 5),
    "without a type": np.zeros(4, "V3"),
}


@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)
def test_target_labels_that_do_not_belong_to_the_samples(tmp_path: Path, y: np.ndarray) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3))
    (tmp_path / "source.npz").write_bytes(npz(x=np.tile(x, (3, 1)), y=np.arange(12) % 2))
    (tmp_path / "target.npz").write_bytes(npz(x=x, y=y))
    for read in (read_own, lambda path: own_task(tmp_path / "source.npz", path)):
        with pytest.raises(InputError, match=r"target\.npz"):
            read(tmp_path / "target.npz")


def test_a_column_of_labels(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(npz(x=np.random.default_rng(0).normal(size=(4, 3)), y=np.arange(4)[:, None] % 2))
    labels = read_own(tmp_path / "x.npz").labels
    assert labels is not None
    assert labels.tolist() == [0, 1, 0, 1]


def test_names_of_parquet_columns_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(parquet(0).replace(b"length", b"l\xff\xfegth"))
    for read in (read_own, lambda path: list(stream_samples([path], VECTORS, io.BytesIO()))):
        with pytest.raises(InputError, match=r"t\.parquet"):
            read(path)


def test_a_nul_in_a_list_of_pictures(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_bytes(b"file,label\na\0b.png,x\nc.png,y\n")
    with pytest.raises(InputError, match=r"list\.csv"):
        read_own(path, cache=False)
    items = list(stream_samples([path], IMAGES, io.BytesIO()))
    items += stream_samples(["-"], IMAGES, io.BytesIO(b"a\0b.png\n"))
    assert all(isinstance(item, Unreadable) for item in items)


# --- Published sets ---


@pytest.mark.parametrize("compressed", [False, True])
def test_matlab_files_are_read_as_scipy_reads_them(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "a.mat"
    arrays = {"X": numbers(4, 5, 3, 2), "y": np.array([[1.0], [10.0]]), "short": np.array([[3]], np.int16)}
    savemat(path, {**arrays, "text": "abc", "cell": np.array(["a", 1], object)}, do_compression=compressed)
    read = read_matlab(path, ("X", "y", "short", "text", "cell"), "download it again")
    assert set(read) == set(arrays)
    for name, array in loadmat(path, variable_names=tuple(arrays)).items():
        if name in arrays:
            np.testing.assert_array_equal(read[name], array, strict=True)


def test_a_matlab_file_that_unpacks_to_far_more_than_its_size(tmp_path: Path) -> None:
    data = zlib.compress(struct.pack("<II", 14, 100 * 2**20) + bytes(100 * 2**20), 1)
    (tmp_path / "train_32x32.mat").write_bytes(mat(True)[:128] + struct.pack("<II", 15, len(data)) + data)
    with pytest.raises(InputError, match=r"train_32x32\.mat unpacks to far more"):
        read_svhn(tmp_path, "train")


MATLAB = {"a length beyond the file": 132, "a type": 152, "a dimension": 160, "flags": 144}


@pytest.mark.parametrize("place", MATLAB.values(), ids=MATLAB)
def test_damaged_matlab_files(tmp_path: Path, place: int) -> None:
    content = bytearray(mat(False))
    content[place : place + 4] = struct.pack("<I", 2**31 - 1)
    (tmp_path / "train_32x32.mat").write_bytes(content)
    with pytest.raises(InputError, match=r"train_32x32\.mat"):
        read_svhn(tmp_path, "train")


def test_a_text_of_digits_with_one_long_word(tmp_path: Path) -> None:
    import bz2

    (tmp_path / "usps.bz2").write_bytes(bz2.compress(b"1 " * 513 * 200 + b"1" * 2**20))
    with pytest.raises(InputError, match=r"usps\.bz2"):
        read_usps(tmp_path, "train")


def test_dicts_nested_so_that_a_walk_would_never_end(tmp_path: Path) -> None:
    nested: dict[str, Any] = {}
    for _ in range(60):
        nested = {"a": nested, "b": nested}
    (tmp_path / "batch").write_bytes(pickle.dumps(nested))
    assert list(read_plain_pickle(tmp_path / "batch", "download it again")) == ["a", "b"]


@pytest.mark.parametrize(
    "y", [np.zeros(2, "V3"), np.zeros(2, "U1"), np.array(1)], ids=["no type", "text", "one number"]
)
def test_labels_of_a_built_set(tmp_path: Path, y: np.ndarray) -> None:
    (tmp_path / "train.npz").write_bytes(npz(x=numbers(2, 3, 28, 28), y=y, made=np.array("{}")))
    with pytest.raises(InputError, match=r"train\.npz"):
        read_mnistm(tmp_path, "train")


# --- Models ---


def changed_model(tmp_path: Path, change: Callable[[dict[str, str]], object]) -> Path:
    """A model with another header, and without the checksum, as early versions wrote it."""
    content = model_file(tmp_path, NetSpec("mlp", (3,), 3, {"width": 4}), VECTORS.preprocess)
    length = int.from_bytes(content[:8], "little")
    parts = json.loads(content[8 : 8 + length])
    parts["__metadata__"].pop("sha256")
    change(parts["__metadata__"])
    text = json.dumps(parts).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    return path


def network(**values: object) -> Callable[[dict[str, str]], object]:
    described = {"name": "mlp", "shape": [3], "classes": 3, "options": {"width": 4}}
    return lambda header: header.update(network=json.dumps({**described, **values}))


def preprocess(**values: object) -> Callable[[dict[str, str]], object]:
    return lambda header: header.update(preprocess=json.dumps({**VECTORS.preprocess.to_dict(), **values}))


HEADERS: dict[str, Callable[[dict[str, str]], object]] = {
    "no version": lambda header: header.pop("version"),
    "a version that is not a number": lambda header: header.update(version="x"),
    "no network": lambda header: header.pop("network"),
    "no classes": lambda header: header.pop("classes"),
    "no facts": lambda header: header.pop("about"),
    "classes that are not names": lambda header: header.update(classes="[1, null, {}]"),
    "fewer classes": lambda header: header.update(classes='["a"]'),
    "deep JSON": lambda header: header.update(about="[" * DEEP + "]" * DEEP),
    "a network wider than memory": network(options={"width": 10**9}),
    "a network of no width": network(options={"width": -1}),
    "samples larger than memory": network(shape=[10**12]),
    "samples without a shape": network(shape=None),
    "classes without end": network(classes=10**12),
    "a name that is not text": network(name=None),
    "options that are a list": network(options=[1]),
    "a width that is text": network(options={"width": "a"}),
    "half a unit": network(options={"width": 0.5}),
    "a scale that is text": preprocess(scale="abc"),
    "an infinite shift": preprocess(shift=[float("inf")] * 3),
    "infinitely many channels": preprocess(channels=float("inf")),
    "no size": preprocess(size=[]),
    "too few values to fill in": preprocess(fill=[1.0]),
    "pictures that are resized in no known way": preprocess(
        channels=3, size=[8, 8], scale=[1 / 127.5], shift=[-1.0], interpolation=None
    ),
    "an infinite value to fill in": preprocess(fill=[float("nan")] * 3),
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS)
def test_headers_of_models(tmp_path: Path, change: Callable[[dict[str, str]], object]) -> None:
    path = changed_model(tmp_path, change)
    with pytest.raises(InputError, match=r"model\.safetensors") as caught:
        vmt.load(path, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_model_without_a_checksum_is_still_read(tmp_path: Path) -> None:
    assert vmt.load(changed_model(tmp_path, lambda header: None), device="cpu").classes == ("ant", "bee", "cat")


# --- Exports ---

onnx = pytest.importorskip("onnx")


def onnx_file(path: Path, change: Callable[[Any], object]) -> Path:
    proto = onnx.load_model_from_string(fixture("vectors.onnx"))
    change(proto)
    path.write_bytes(proto.SerializeToString())
    return path


def entry(name: str, value: str | None) -> Callable[[Any], object]:
    def change(proto: Any) -> None:
        kept = [(each.key, each.value) for each in proto.metadata_props if each.key != name]
        del proto.metadata_props[:]
        for key, text in kept + ([(name, value)] if value is not None else []):
            proto.metadata_props.add(key=key, value=text)

    return change


def other_output(proto: Any) -> None:
    proto.graph.output[0].name = proto.graph.node[-1].output[0] = "other"


def then(proto: Any, operation: str, *constants: tuple[str, list[int]], **attributes: object) -> None:
    """Put an operation behind the probabilities."""
    last, output = proto.graph.node[-1], proto.graph.output[0]
    last.output[0] = "before"
    for name, values in constants:
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(values, np.int64), name))
    inputs = ["before", *(name for name, _ in constants)]
    proto.graph.node.append(onnx.helper.make_node(operation, inputs, [output.name], **attributes))
    del output.type.tensor_type.shape.dim[:]


def huge_constant(proto: Any) -> None:
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([900_000_000], np.int64), "length"))
    proto.graph.node.append(onnx.helper.make_node("ConstantOfShape", ["length"], ["huge"]))
    proto.graph.node.append(onnx.helper.make_node("ReduceSum", ["huge"], ["sum"], keepdims=0))
    last, output = proto.graph.node[-3], proto.graph.output[0]
    last.output[0] = "before"
    proto.graph.node.append(onnx.helper.make_node("Add", ["before", "sum"], [output.name]))


def external_data(proto: Any) -> None:
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


EXPORTS: dict[str, Callable[[Any], object]] = {
    "another output": other_output,
    "more rows": lambda proto: then(proto, "Tile", ("repeats", [2, 1])),
    "more columns": lambda proto: then(proto, "Tile", ("repeats", [1, 2])),
    "another type": lambda proto: then(proto, "Cast", to=onnx.TensorProto.DOUBLE),
    "a constant of gigabytes": huge_constant,
    "values in another file": external_data,
    "no classes": entry("classes", None),
    "classes that are a number": entry("classes", "7"),
    "no version": entry("version", None),
    "a version that is not a number": entry("version", "new"),
    "deep JSON": entry("preprocess", "[" * DEEP),
    "no preprocessing": entry("preprocess", None),
}


@pytest.mark.parametrize("change", EXPORTS.values(), ids=EXPORTS)
def test_exports(tmp_path: Path, change: Callable[[Any], object]) -> None:
    path = onnx_file(tmp_path / "model.onnx", change)
    with pytest.raises(InputError, match=r"model\.onnx"):
        load_exported(path).predict_proba(np.zeros((3, channels()), np.float32))


def channels() -> int:
    proto = onnx.load_model_from_string(fixture("vectors.onnx"))
    return int(json.loads(next(each.value for each in proto.metadata_props if each.key == "preprocess"))["channels"])


def test_external_data_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="refers to other files"):
        load_exported(onnx_file(tmp_path / "model.onnx", external_data))


def test_a_batch_that_needs_too_much_memory_is_split() -> None:
    sizes = []

    def run(samples: np.ndarray) -> np.ndarray:
        sizes.append(len(samples))
        if len(samples) > 2:
            raise MemoryError
        return np.full((len(samples), 2), 0.5, np.float32)

    header = {"classes": '["a", "b"]', "preprocess": json.dumps(VECTORS.preprocess.to_dict())}
    assert Exported(run, header, "model.onnx").predict_proba(np.zeros((7, 3))).shape == (7, 2)
    assert sizes == [7, 3, 1, 2, 4, 2, 2]


# --- Runs ---


def run_folder(tmp_path: Path, **changed: bytes) -> Path:
    for name in ("run.json", "log.jsonl", "summary.json"):
        (tmp_path / name).write_bytes(changed.get(name.split(".")[0], fixture(f"finished/{name}")))
    return tmp_path


def with_value(file: str, *places: str, value: object) -> bytes:
    whole = json.loads(fixture(f"finished/{file}"))
    inner = whole
    for place in places[:-1]:
        inner = inner[place]
    inner[places[-1]] = value
    return json.dumps(whole).encode()


RUNS: dict[str, dict[str, bytes]] = {
    "a record too deep": {"run": b'{"data": ' + b"[" * DEEP},
    "a summary too deep": {"summary": b"[" * DEEP},
    "a list in place of a record": {"run": b"[1, 2]"},
    "a seed that is a list": {"run": with_value("run.json", "recipe", "config", "seed", value=[1])},
    "a method that is a number": {"run": with_value("run.json", "recipe", "method", value=7)},
    "a source that is a number": {"run": with_value("run.json", "data", "source", value=7)},
    "a length that is text": {"run": with_value("run.json", "recipe", "settings", "iterations", value="x")},
    "settings that are text": {"run": with_value("run.json", "recipe", "settings", value="x")},
    "a choice without lengths": {"run": with_value("run.json", "recipe", "method", value="auto")},
    "a choice in a time that is text": {
        "run": with_value(
            "run.json", "recipe", value={"method": "auto", "settings": {"iterations": {}, "minutes": "x"}, "config": {}}
        )
    },
    "a search without a study": {"run": with_value("run.json", "search", value={"space": {}, "by": "snd"})},
    "an environment that is text": {"run": with_value("run.json", "environment", value="x")},
    "a fingerprint that is a list": {"run": with_value("run.json", "fingerprint", value=[])},
    "a best model that is a number": {"summary": with_value("summary.json", "best", value=0.5)},
    "a best model without a step": {"summary": with_value("summary.json", "best", value={"by": "snd"})},
    "a summary of pairs": {"summary": b'[["best", {"step": []}]]'},
}


@pytest.mark.parametrize("changed", RUNS.values(), ids=RUNS)
def test_records_of_runs(tmp_path: Path, changed: dict[str, bytes]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(changed))}.json"):
        read_run_record(run_folder(tmp_path, **changed))


LINES = {
    "deep JSON": b"[" * DEEP,
    "a step that is text": b'{"step": "9", "phase": "vmt"}',
    "no phase": b'{"step": 9}',
    "a number beyond all": b'{"step": 9, "phase": "vmt", "L_y": 1e999}',
    "not a number": b'{"step": 9, "phase": "vmt", "L_y": NaN}',
    "scores that are a list": b'{"step": 9, "phase": "vmt", "target": {}, "source": null, "validators": []}',
    "shares that are a number": json.dumps(
        {"step": 9, "phase": "vmt", "source": None}
        | {"target": {"samples": 4, "accuracy": None, "predicted_share": 1, "entropy": 0.5}}
    ).encode(),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_damaged_lines_of_a_log_are_left_out(tmp_path: Path, line: bytes) -> None:
    whole = fixture("finished/log.jsonl")
    (tmp_path / "log.jsonl").write_bytes(whole)
    before = read_log(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").write_bytes(line + b"\n" + whole)
    assert read_log(tmp_path / "log.jsonl") == before


STATES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no tensors": lambda state: state.pop("tensors"),
    "no loop state": lambda state: state.pop("notes"),
    "text in place of a tensor": lambda state: state["tensors"].update(step="13"),
    "an unknown entry": lambda state: state["notes"].update(other=1),
    "a clock that is text": lambda state: state["notes"].update(clock="x"),
    "a list": lambda state: state.update(tensors=[1, 2]),
}


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
def test_checkpoints_with_right_checksums(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    import torch

    folder = tmp_path / "step-000000013"
    folder.mkdir()
    for name in ("state.pt", "weights.safetensors"):
        (folder / name).write_bytes(fixture(f"stopped_in_vmt/checkpoints/step-000000013/{name}"))
    state = torch.load(folder / "state.pt", weights_only=True)
    change(state)
    torch.save(state, folder / "state.pt")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    (folder / "manifest.json").write_text(json.dumps({"step": 13, "sha256": sums}))
    with pytest.raises(InputError, match=str(tmp_path)):
        load_latest(tmp_path)


# --- The boundary ---


ERRORS = [KeyError("x"), MemoryError(), RecursionError("deep"), OSError("no gzip"), AssertionError()]


@pytest.mark.parametrize("error", ERRORS)
def test_the_boundary_names_the_file_and_the_remedy(error: Exception) -> None:
    with pytest.raises(InputError) as caught, parsing("a.bin", "a list", "write it again"):
        raise error
    assert caught.value.__cause__ is error
    assert str(caught.value).startswith("a.bin ")
    assert str(caught.value).endswith(": write it again.")


def test_the_boundary_passes_on_what_says_more() -> None:
    with pytest.raises(InputError, match=r"^a\.csv: row 3 is wrong$"), parsing("a.csv", "a table", "save it again"):
        raise InputError("row 3 is wrong")
    with pytest.raises(InputError, match="Permission denied"), parsing("a.csv", "a table", "save it again"):
        raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_the_boundary_does_not_stop_an_interruption(kind: type[BaseException]) -> None:
    with pytest.raises(kind), parsing("a.csv", "a table", "save it again"):
        raise kind


def test_a_gzipped_table_is_read_in_the_end(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(table()))
    assert read_own(tmp_path / "t.csv.gz").classes == ("ant", "bee", "ä")


def test_a_line_break_in_a_name_does_not_break_the_sentence(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text('path,label\n"no\nsuch\npicture.png",a\n')
    with pytest.raises(InputError) as raised:
        read_own(tmp_path / "list.csv")
    assert "\n" not in str(raised.value)
    assert "picture.png" in str(raised.value)
