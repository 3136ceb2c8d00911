"""Bad input gets one clear sentence that names the offender, exit code 2, and no traceback."""

import gzip
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from tests.own_data import command, write_blobs
from tests.processes import vmt
from vmt.cli.main import main

Case = Callable[[Path], tuple[list[object], list[str]]]
"""From an empty folder to a command line and the words that the error message must contain."""


def images(n: int = 40, channels: int = 3, classes: int = 4, top: int = 256) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.integers(0, top, (n, 12, 12, channels), dtype=np.uint8), np.arange(n) % classes


def own(folder: Path, source: dict[str, object], target: dict[str, object]) -> list[object]:
    np.savez(folder / "a.npz", **source)  # type: ignore[arg-type]
    np.savez(folder / "b.npz", **target)  # type: ignore[arg-type]
    return ["train", "--source", folder / "a.npz", "--target", folder / "b.npz", "--out", folder / "run"]


def missing_file(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "--source", folder / "none.npz", "--target", folder / "none.npz"], ["none.npz"]


def missing_folder(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "mnist-svhn", "--data", folder / "none"], [str(folder / "none")]


def no_data_folder(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "mnist-svhn"], ["mnist-svhn", "--data"]


def official_files(folder: Path) -> Path:
    """A tiny data folder in the official formats."""
    (folder / "mnist").mkdir()
    (folder / "svhn").mkdir()
    x, y = images(20, 1)
    for split in ("train", "t10k"):
        small = np.ascontiguousarray(np.resize(x, (20, 28, 28)))
        pixels = struct.pack(">4i", 0x803, 20, 28, 28) + small.tobytes()
        labels = struct.pack(">2i", 0x801, 20) + (y % 10).astype(np.uint8).tobytes()
        (folder / "mnist" / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(pixels))
        (folder / "mnist" / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    colour = np.random.default_rng(1).integers(0, 256, (32, 32, 3, 20), dtype=np.uint8)
    for split in ("train", "test"):
        savemat(folder / "svhn" / f"{split}_32x32.mat", {"X": colour, "y": (y % 10 + 1)[:, None].astype(np.uint8)})
    return folder


def truncated_mat(folder: Path) -> tuple[list[object], list[str]]:
    path = official_files(folder) / "svhn" / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:3000])
    return ["train", "mnist-svhn", "--data", folder], ["train_32x32.mat"]


def truncated_gz(folder: Path) -> tuple[list[object], list[str]]:
    path = official_files(folder) / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-40])
    return ["train", "mnist-svhn", "--data", folder], ["train-images-idx3-ubyte.gz"]


def wrong_label_range(folder: Path) -> tuple[list[object], list[str]]:
    x, y = images()
    return own(folder, {"x": x, "y": y}, {"x": x, "y": y + 7}), ["b.npz", "10"]


def not_a_number(folder: Path) -> tuple[list[object], list[str]]:
    x, y = images()
    broken = x / np.float32(255)
    broken[3, 2, 1, 0] = np.nan
    return own(folder, {"x": broken, "y": y}, {"x": x / np.float32(255)}), ["a.npz", "NaN"]


def empty_domain(folder: Path) -> tuple[list[object], list[str]]:
    x, y = images()
    return own(folder, {"x": x, "y": y}, {"x": x[:0]}), ["b.npz", "empty"]


def one_class(folder: Path) -> tuple[list[object], list[str]]:
    x, y = images()
    return own(folder, {"x": x, "y": 0 * y}, {"x": x}), ["a.npz", "class 0"]


def signs_as_classes(folder: Path) -> tuple[list[object], list[str]]:
    x, y = images()
    return own(folder, {"x": x, "y": np.where(y == 0, -1, 1)}, {"x": x}), ["a.npz", "−1"]


def mismatched_channels(folder: Path) -> tuple[list[object], list[str]]:
    x, y = images()
    return own(folder, {"x": x, "y": y}, {"x": images(channels=4)[0]}), ["3 channels", "4"]


def mismatched_range(folder: Path) -> tuple[list[object], list[str]]:
    x, y = images()
    return own(folder, {"x": x, "y": y}, {"x": x / np.float32(255)}), ["0–255", "0–1"]


def source_without_labels(folder: Path) -> tuple[list[object], list[str]]:
    x, _ = images()
    return own(folder, {"x": x}, {"x": x}), ["a.npz", "labels"]


def unknown_method(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digits", "--method", "vnt"], ["'vnt'", "vmt"]


def unknown_method_before_the_data_are_read(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "--source", folder / "none", "--target", folder / "none", "--method", "vnt"], ["'vnt'", "auto"]


def number_that_is_not_one(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digits", "--iterations", "many"], ["--iterations", "'many'", "whole number"]


def folder_that_does_not_exist(folder: Path) -> tuple[list[object], list[str]]:
    return ["select", folder / "none"], [str(folder / "none"), "does not exist"]


def unknown_task(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digit"], ["'digit'", "digits"]


def unknown_network(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digits", "--net", "smal", "--out", folder / "run"], ["'smal'", "small"]


def unknown_flag(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digits", "--lamda_t", 1], ["--lamda_t", "--lambda-t", "vmt train --help"]


def setting_of_another_method(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digits", "--method", "dann", "--radius", 1], ["dann", "--radius"]


def no_iterations(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digits", "--iterations", 0, "--out", folder / "run"], ["iterations", "0"]


def teachers_without_end(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digits", "--dirt-t", "--interval", 0, "--out", folder / "run"], ["interval", "0"]


def refining_without_dirt_t(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digits", "--dirt-t-iterations", 9], ["--dirt-t-iterations", "--dirt-t"]


def unwritable_folder(folder: Path) -> tuple[list[object], list[str]]:
    source, target = write_blobs(folder)
    # A file where a folder is needed cannot be written into, not even by root.
    (folder / "file").write_text("")
    return ["train", "--source", source, "--target", target, "--out", folder / "file" / "run"], [str(folder / "file")]


def resume_with_another_seed(folder: Path) -> tuple[list[object], list[str]]:
    source, target = write_blobs(folder)
    flags = ["--iterations", 2, "--batch-size", 8, "--log-every", 1]
    assert main([str(a) for a in ["train", "--source", source, "--target", target, "--out", folder / "r", *flags]]) == 0
    return ["train", "--resume", folder / "r", "--seed", 5], ["--seed", "5"]


def resume_with_other_data(folder: Path) -> tuple[list[object], list[str]]:
    arguments, _ = resume_with_another_seed(folder)
    write_blobs(folder, n=200)
    return arguments[:3], [str(folder / "r"), "data"]


def resume_of_nothing(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "--resume", folder], [str(folder)]


def folder_in_use(folder: Path) -> tuple[list[object], list[str]]:
    resume_with_another_seed(folder)
    source, target = folder / "source.npz", folder / "target.npz"
    return ["train", "--source", source, "--target", target, "--out", folder / "r"], [str(folder / "r"), "--resume"]


def device_that_is_not_there(folder: Path) -> tuple[list[object], list[str]]:
    return ["train", "digits", "--device", "cuda:63", "--out", folder / "run"], ["cuda:63"]


def not_a_model(folder: Path) -> tuple[list[object], list[str]]:
    (folder / "model.safetensors").write_bytes(b"not a model")
    return ["predict", folder, folder / "x.png"], ["model.safetensors"]


CASES: list[Case] = [
    missing_file,
    missing_folder,
    no_data_folder,
    truncated_mat,
    truncated_gz,
    wrong_label_range,
    not_a_number,
    empty_domain,
    one_class,
    signs_as_classes,
    mismatched_channels,
    mismatched_range,
    source_without_labels,
    unknown_method,
    unknown_method_before_the_data_are_read,
    number_that_is_not_one,
    folder_that_does_not_exist,
    unknown_task,
    unknown_network,
    unknown_flag,
    setting_of_another_method,
    no_iterations,
    teachers_without_end,
    refining_without_dirt_t,
    unwritable_folder,
    resume_with_another_seed,
    resume_with_other_data,
    resume_of_nothing,
    folder_in_use,
    device_that_is_not_there,
    not_a_model,
]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--lambda-t", -1], ["lambda_t", "-1"]),
        (["--lambda-s", "nan"], ["lambda_s", "nan"]),
        (["--lambda-t", "inf"], ["lambda_t", "inf"]),
        (["--lr", 0], ["learning rate", "0.0"]),
        (["--lr", -0.1], ["learning rate", "-0.1"]),
        (["--radius", 0], ["radius"]),
        (["--xi", -1], ["xi"]),
        (["--dirt-t", "--beta", -1], ["beta", "-1"]),
        (["--device", "gpu"], ["'gpu'", "cuda:N"]),
    ],
)
def test_values_out_of_range(
    flags: list[object], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = write_blobs(tmp_path)
    own = ["train", "--source", source, "--target", target, "--out", tmp_path / "run", *flags]
    assert main([str(argument) for argument in own]) == 2
    output = capsys.readouterr().err.strip()
    assert all(word in output for word in words)
    assert len(output.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_one_sentence_and_exit_code_2(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, words = case(tmp_path)
    capsys.readouterr()
    try:
        code = main([str(a) for a in arguments])
    except SystemExit as ended:  # an error that argparse found
        code = int(str(ended.code))
    output = capsys.readouterr().err
    assert code == 2
    assert output.startswith("vmt: ")
    assert len(output.strip().splitlines()) == 1
    for word in words:
        assert word in output


def test_a_process_prints_no_traceback(tmp_path: Path) -> None:
    arguments = command("train", "mnist-svhn", "--data", tmp_path / "none")
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    first, last = done.stderr.strip().splitlines()
    assert first.startswith("vmt train: ")
    assert last.startswith("vmt: ")


def test_the_progress_bar_does_not_overwrite_the_error(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    done = vmt("train", "--source", source, "--target", target, "--out", tmp_path / "run", "--lr", "1e30")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("vmt: ")
    assert "iteration" in last


def test_a_run_refused_before_its_first_step_leaves_the_folder_free(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    again = ["train", "--source", source, "--target", target, "--out", tmp_path / "run", "--iterations", 2]
    command = [str(argument) for argument in [*again, "--batch-size", 8, "--device", "cpu"]]
    assert main([*command, "--engine", "captured"]) == 2
    assert main(command) == 0
    assert main(command) == 2, "a run that has started is kept"
