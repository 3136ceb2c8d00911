"""A run folder has one writer. A second process gets an error, and a killed one leaves nothing locked."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import vmt
from tests.processes import PATIENCE, Started
from tests.processes import vmt as vmt_command
from vmt.disk import write_atomically
from vmt.runs.folder import InUse, folder_lock


def hold(folder: Path) -> None:
    with folder_lock(folder):
        (folder / "held").touch()
        time.sleep(PATIENCE)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Started]:
    process = Started(hold, (tmp_path,))
    while not (tmp_path / "held").exists():
        assert process.is_running(), process.output
        time.sleep(0.01)
    (tmp_path / "held").unlink()
    yield process
    process.send_signal(signal.SIGKILL)
    process.ended()


def test_a_folder_has_one_writer_until_it_is_killed(holder: Started, tmp_path: Path) -> None:
    with (
        pytest.raises(InUse, match=f"process {holder.pid} on .*{tmp_path}"),
        folder_lock(tmp_path),
    ):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.ended()
    with folder_lock(tmp_path), folder_lock(tmp_path / "." / ""):
        pass  # again by the same process


def test_training_refuses_a_folder_that_another_process_trains_in(holder: Started, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    with pytest.raises(InUse):
        vmt.adapt((x, np.arange(20) % 2), x, iterations=2, out=tmp_path, progress=False)
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}
    source, target = tmp_path.parent / "s.npz", tmp_path.parent / "t.npz"
    np.savez(source, x=x, y=np.arange(20) % 2)
    np.savez(target, x=x)
    done = vmt_command("train", "--source", source, "--target", target, "--out", tmp_path)
    assert done.returncode == 2
    assert f"process {holder.pid}" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lock_is_released_when_the_work_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), folder_lock(tmp_path):
        raise ZeroDivisionError
    with folder_lock(tmp_path):
        pass


def test_a_file_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(vmt.InputError, match="is a file"), folder_lock(tmp_path / "file"):
        pass


def test_a_folder_whose_checkpoints_could_not_be_opened_again(tmp_path: Path) -> None:
    folder = tmp_path / "caf\udce9"  # how Python has a byte that is no UTF-8
    with pytest.raises(vmt.InputError, match="not UTF-8"), folder_lock(folder):
        pass
    assert not folder.exists()


def test_a_tilde_that_the_shell_left_alone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # as in --out=~/run, which a shell leaves alone
    with pytest.raises(vmt.InputError, match="begins with ~"), folder_lock(Path("~/run")):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_has_one_writer_among_the_threads_of_a_process(tmp_path: Path) -> None:
    """Otherwise the second would start the same run again when the first has ended."""
    refused: list[str] = []

    def second() -> None:
        try:
            with folder_lock(tmp_path):
                pass
        except InUse as error:
            refused.append(str(error))

    with folder_lock(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1
    assert str(tmp_path) in refused[0]
    second()
    assert len(refused) == 1


def test_threads_that_write_one_file_do_not_mix_it_up(tmp_path: Path) -> None:
    """As two that save a model under one name: it is all of one of them."""
    path, contents = tmp_path / "file", [bytes([i]) * 300_000 for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            list(pool.map(lambda content: write_atomically(path, content), contents))
            assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
