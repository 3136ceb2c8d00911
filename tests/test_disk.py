"""What a killed process or a full disk leaves behind."""

import os
import time
from functools import partial
from pathlib import Path

import pytest

from tests.own_data import write_blobs
from tests.processes import vmt
from vmt.cli.main import main
from vmt.disk import DAY, write_atomically
from vmt.runs.folder import folder_lock

FLAGS = ["--method", "source_only", "--iterations", "4", "--checkpoint-every", "2", "--batch-size", "8"]


def train(folder: Path) -> list[str]:
    source, target = write_blobs(folder, 60)
    return ["train", "--source", str(source), "--target", str(target), "--out", str(folder / "run"), *FLAGS]


def test_a_resumed_run_removes_what_a_kill_left(tmp_path: Path) -> None:
    assert main(train(tmp_path)) == 0
    run = tmp_path / "run"
    left = [
        run / f".{name}.0a1b2c3d" for name in ("model.safetensors", "model_best.safetensors", "log.jsonl", "run.json")
    ]
    left.append(run / "checkpoints" / ".step-000000004.4711" / "state.pt")
    # An export may be under way, and a user may have files of such names.
    others = [run / ".model.onnx.0a1b2c3d", run / ".run.json.backup", run / ".notes"]
    for path in (*left, *others):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half of it")
    assert main(["train", "--resume", str(run)]) == 0
    assert [path for path in left if path.exists()] == []
    assert [path for path in others if not path.exists()] == []
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-000000002", "step-000000004"]


def test_a_folder_without_a_lock_keeps_what_may_still_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems have no locks, so another process may be writing there."""
    fresh, old = tmp_path / ".run.json.00000001", tmp_path / ".run.json.00000002"
    for path in (fresh, old):
        path.write_bytes(b"half of it")
    os.utime(old, (0, 0))
    monkeypatch.setattr("vmt.runs.folder._lock", lambda file, folder: False)
    with folder_lock(tmp_path):
        pass
    assert fresh.exists()
    assert not old.exists()


def test_a_file_that_is_written_again_removes_what_a_kill_left_of_it(tmp_path: Path) -> None:
    times = {".page.html.0a1b2c3d": 2 * DAY, ".page.html.ffffffff": 60, ".other.html.0a1b2c3d": 2 * DAY}
    for name, age in times.items():
        (tmp_path / name).write_bytes(b"half of it")
        os.utime(tmp_path / name, 2 * (time.time() - age,))
    write_atomically(tmp_path / "page.html", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".other.html.0a1b2c3d", ".page.html.ffffffff", "page.html",
    ]  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_a_disk_that_is_full_at_the_start_is_named(tmp_path: Path) -> None:
    """No byte can be written, not even the name of the process into the lock."""
    import resource

    done = vmt(*train(tmp_path), before=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0)))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "run") in done.stderr.splitlines()[-1]
