"""TensorBoard shows what the log holds, each point once."""

import sys
from pathlib import Path

import pytest

from tests.own_data import write_blobs
from tests.processes import call, vmt
from vmt.cli.main import main
from vmt.errors import InputError
from vmt.train.log import LOG, TensorBoard, read_log, scalars

FLAGS = ["--iterations", 20, "--log-every", 5, "--evaluate-every", 10, "--checkpoint-every", 10, "--batch-size", 8]


def shown(run: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_every_number_of_the_log_is_shown_once_after_a_resume_too(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    run = tmp_path / "run"
    arguments = ["train", "--source", source, "--target", target, "--out", run, "--tensorboard", *FLAGS]
    assert main([str(each) for each in arguments]) == 0
    first = shown(run)
    logged = [(r["step"], r["classifier/L_y"]) for r in read_log(run / LOG) if "classifier/L_y" in r]
    assert [step for step, _ in logged] == [5, 10, 15, 20]
    assert first["classifier/L_y"] == [(step, pytest.approx(value)) for step, value in logged]
    assert [step for step, _ in first["target/entropy"]] == [10, 20]
    assert [step for step, _ in first["source/accuracy"]] == [10, 20]
    assert "classifier/predicted_share_target/2" in first
    # A kill after the last checkpoint leaves such a folder; resuming removes the points and makes them again.
    for newest in sorted((run / "checkpoints").glob("step-*"))[1:]:
        newest.rename(tmp_path / newest.name)
    assert main(["train", "--resume", str(run)]) == 0
    again = shown(run)
    assert {tag: [step for step, _ in points] for tag, points in again.items()} == {
        tag: [step for step, _ in points] for tag, points in first.items()
    }


def test_names_and_nesting() -> None:
    record = {"step": 3, "phase": "vmt", "a/L_m(target)": 1.5, "target": {"accuracy": None, "share": [0.5, 0.5]}}
    assert dict(scalars(record)) == {"a/L_m_target": 1.5, "target/share/0": 0.5, "target/share/1": 0.5}


def test_without_the_package_there_is_one_error_message_and_no_folder(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    own = ["--source", source, "--target", target, "--out", tmp_path / "run"]
    done = vmt("train", *own, "--tensorboard", *FLAGS, before=hide_the_package)
    assert done.returncode == 2
    assert "pip install 'vmt[tensorboard]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def hide_the_package() -> None:
    sys.modules["tensorboard"] = None  # type: ignore[assignment]


@pytest.mark.skipif(sys.platform == "win32", reason="a limit of POSIX stands for a full disk")
def test_a_full_disk_is_one_error_message(tmp_path: Path) -> None:
    done = call(fill_the_disk, tmp_path)
    assert str(tmp_path / "tensorboard") in done.stdout
    assert "File too large" in done.stdout
    assert done.stderr == ""


def fill_the_disk(folder: Path) -> None:
    import resource

    board = TensorBoard(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    try:
        for step in range(1000):
            board.write({"step": step, "phase": "vmt", "loss": 1.0, "share": [0.5] * 20})
    except InputError as error:
        print(error)
