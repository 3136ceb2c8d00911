"""What can happen to a run that nobody watches: signals, full disks, damaged files. Nothing saved is lost."""

import os
import re
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

import vmt as vmt_package
from tests.interrupted import send_at
from tests.own_data import write_blobs
from tests.processes import vmt
from vmt.cli.main import main
from vmt.disk import flush_to_disk
from vmt.train.checkpoint import load_latest, save_checkpoint

FLAGS = ["--iterations", 60, "--dirt-t", "--dirt-t-iterations", 40, "--interval", 20, "--log-every", 5]
FLAGS += ["--evaluate-every", 20, "--checkpoint-every", 10, "--batch-size", 16, "--keep-best", "im", "--tensorboard"]
LONG = 300 * "a"
posix = pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    assert main([str(each) for each in begin(folder, folder / "run")]) == 0
    return folder


def begin(data: Path, run: Path) -> list[object]:
    source, target = write_blobs(data)
    return ["train", "--source", source, "--target", target, "--out", run, *FLAGS]


def models(run: Path) -> dict[str, bytes]:
    """The weights of every model file; their headers name the folder."""
    return {path.name: save(load_file(path)) for path in run.glob("model*.safetensors")}


def same_end(run: Path, unbroken: Path) -> None:
    assert main(["train", "--resume", str(run)]) == 0
    assert models(run) == models(unbroken / "run")
    assert (run / "log.jsonl").read_text() == (unbroken / "run" / "log.jsonl").read_text()


@posix
def test_a_run_saves_when_its_terminal_closes_and_continues_under_nohup(unbroken: Path, tmp_path: Path) -> None:
    for name, before, code in (("run", closes, 130), ("nohup", closes_under_nohup, 0)):
        run = tmp_path / name
        arguments = begin(unbroken, run)
        arguments[arguments.index("--checkpoint-every") + 1] = 1000
        assert vmt(*arguments, before=before).returncode == code
        assert list(run.glob("checkpoints/step-*"))
    same_end(tmp_path / "run", unbroken)
    assert models(tmp_path / "nohup") == models(unbroken / "run")


def closes() -> None:
    send_at(15, "SIGHUP")


def closes_under_nohup() -> None:
    """All that nohup does to a process whose streams are not a terminal."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    closes()


@posix
@pytest.mark.parametrize("part", ["checkpoints/step-*/state.pt", "log.jsonl"])
def test_a_full_disk_is_one_error_message_and_the_run_can_be_resumed(unbroken: Path, tmp_path: Path, part: str) -> None:
    """A limit on the size of files stands for the full disk; the largest growing file reaches it first."""
    import resource

    run = tmp_path / "run"
    arguments = [str(each) for each in begin(unbroken, run)]
    size = max(path.stat().st_size for path in (unbroken / "run").glob(part)) - 100
    if not part.startswith("checkpoints"):  # before the first checkpoint, which is larger
        arguments[arguments.index("--checkpoint-every") + 1] = "1000"
        size = (unbroken / "run" / "run.json").stat().st_size + 500  # which is written first
    arguments.remove("--tensorboard")

    done = vmt(*arguments, before=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size)))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert Path(part).name in done.stderr
    assert "File too large" in done.stderr
    same_end(run, unbroken)


def test_a_new_checkpoint_replaces_damaged_ones_and_leftovers_of_kills(tmp_path: Path) -> None:
    """There are three checkpoints if a kill came before the oldest was removed."""
    for step in (10, 20, 30):
        save_checkpoint(tmp_path / "later", {}, {"seconds": float(step)}, step)
        shutil.copytree(tmp_path / "later" / f"step-{step:09d}", tmp_path / "run" / f"step-{step:09d}")
    for step in (20, 30):
        (tmp_path / "run" / f"step-{step:09d}" / "manifest.json").write_text("{")
    shutil.copytree(tmp_path / "run" / "step-000000010", tmp_path / "run" / ".step-000000020.1")
    save_checkpoint(tmp_path / "run", {}, {"seconds": 15.0}, 15)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["step-000000010", "step-000000015"]
    found = load_latest(tmp_path / "run")
    assert found is not None
    assert found[1] == {"seconds": 15.0}


def test_damaged_lines_of_a_log_are_left_out(unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken / "run", run)
    lines = (run / "log.jsonl").read_bytes().splitlines(keepends=True)
    damaged = [*lines[:2], b"\0" * 80 + b"\n", *lines[3:4], b'{"st\xff\n', b"12\n", b'{"phase": "vmt"}\n', *lines[4:]]
    (run / "log.jsonl").write_bytes(b"".join(damaged) + b'{"step": 100, "pha')
    assert main(["train", "--resume", str(run)]) == 0
    assert (run / "log.jsonl").read_bytes() == b"".join([*lines[:2], *lines[3:]])
    assert models(run) == models(unbroken / "run")


def test_a_model_file_with_a_wrong_bit_is_refused(unbroken: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    whole = (unbroken / "run" / path.name).read_bytes()
    with safe_open(unbroken / "run" / path.name, framework="pt") as file:
        header = file.metadata()
    for place in (len(whole) - 5, whole.index(b"iterations"), len(whole) // 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(vmt_package.InputError, match=re.escape(str(path))):
            vmt_package.load(path)
    # Earlier versions wrote no checksum.
    del header["sha256"]
    save_file(load_file(unbroken / "run" / path.name), path, metadata=header)
    assert vmt_package.load(path).classes == ("0", "1", "2")


@pytest.mark.parametrize("name", ["report", "select"])
def test_a_damaged_summary_is_one_error_message(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(unbroken / "run", "run")
    Path("run/summary.json").write_text("[1, 2]")
    assert main([name, "run"]) == 2
    assert "summary.json" in capsys.readouterr().err


@posix
@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--resume", LONG),
        ("train", "--source", f"{LONG}.npz", "--target", "b.npz"),
        ("predict", LONG, "a.npz"),
        ("evaluate", f"{LONG}.safetensors", "--test", "a.npz"),
    ],
)
def test_a_path_that_the_system_refuses_is_one_error_message(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(list(arguments))
    output = capsys.readouterr().err.splitlines()
    assert code == 2
    assert output[-1].startswith("vmt: ")
    assert "File name too long" in output[-1]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that cannot be flushed")
def test_a_file_system_that_cannot_flush_folders_can_be_written_to() -> None:
    folder = os.open("/proc", os.O_RDONLY)
    with pytest.raises(OSError, match="Invalid argument"):
        os.fsync(folder)
    os.close(folder)
    flush_to_disk(Path("/proc"))
