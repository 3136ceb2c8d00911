"""A saved model that is refined on the target alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import vmt
from tests.own_data import write_blobs
from vmt.cli.main import main
from vmt.model import load

SHORT = ["--batch-size", "16", "--device", "cpu", "--validate-samples", "50"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    source, target = write_blobs(folder)
    arguments = ["train", "--source", source, "--target", target, "--out", folder / "run", "--iterations", 60, *SHORT]
    assert main([str(each) for each in arguments]) == 0
    return folder


def refine(folder: Path, out: Path, *more: object) -> int:
    arguments = ["train", "--from", folder / "run", "--target", folder / "target.npz", "--out", out, *SHORT, *more]
    return main([str(each) for each in arguments])


def test_a_model_is_refined_on_the_target_alone(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (trained / "source.npz").rename(trained / "away.npz")
    try:
        assert refine(trained, tmp_path / "run", "--iterations", 40, "--lambda-t", 0.1, "--lr", 1e-3) == 0
        printed = capsys.readouterr().out
        assert "no source" in printed
        assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "report.html"), "--device", "cpu"]) == 0
    finally:
        (trained / "away.npz").rename(trained / "source.npz")
    before, after = (load(path, device="cpu") for path in (trained / "run", tmp_path / "run"))
    x = np.load(trained / "target.npz")["x"]
    assert after.classes == before.classes
    assert after.preprocess == before.preprocess
    agreement = float((after.predict(x) == before.predict(x)).mean())
    assert agreement > 0.9
    assert not np.array_equal(after.predict_proba(x), before.predict_proba(x))
    recipe = json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]
    assert (recipe["method"], recipe["settings"]["lambda_t"], recipe["settings"]["interval"]) == ("dirt_t", 0.1, 4)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert any("classifier/teacher" in record for record in log)


def test_it_is_resumed_bit_for_bit(trained: Path, tmp_path: Path) -> None:
    flags = ["--iterations", 12, "--checkpoint-every", 6, "--evaluate-every", 6]
    assert refine(trained, tmp_path / "whole", *flags) == 0
    part = tmp_path / "part"
    shutil.copytree(tmp_path / "whole", part)
    for name in ("model.safetensors", "summary.json"):
        (part / name).unlink()
    shutil.rmtree(part / "checkpoints" / "step-000000012")
    assert main(["train", "--resume", str(part)]) == 0
    one, other = (vmt.load(path, device="cpu").network.state_dict() for path in (tmp_path / "whole", part))
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("flags", "offender"),
    [
        (["--source", "a.npz"], "--source"),
        (["--method", "mcc"], "mcc"),
        (["--dirt-t"], "--dirt-t"),
        (["--method", "auto"], "auto"),
        (["--pretrained"], "--pretrained"),
        (["--lambda-d", "1"], "--lambda-d"),
        (["--impute", "mean"], "--impute"),
    ],
)
def test_what_needs_a_source_is_refused(
    flags: list[str], offender: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refine(trained, tmp_path / "run", *flags) == 2
    assert offender in capsys.readouterr().err
    assert not (tmp_path / "run" / "run.json").exists()


def test_samples_of_another_kind_are_refused(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros((30, 9)))
    arguments = ["train", "--from", str(trained / "run"), "--target", str(tmp_path / "other.npz")]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    assert "9" in capsys.readouterr().err


def test_pictures_are_refused_for_a_model_of_vectors(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "other.npz", x=np.arange(20 * 64, dtype=np.uint8).reshape(20, 8, 8))
    arguments = ["train", "--from", str(trained / "run"), "--target", str(tmp_path / "other.npz")]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    assert "vectors" in capsys.readouterr().err


def test_vectors_are_refused_for_a_model_of_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures, labels = np.random.default_rng(0).integers(0, 255, (20, 8, 8), dtype=np.uint8), np.arange(20) % 2
    model = vmt.adapt((pictures, labels), pictures, "source_only", iterations=1, progress=False, device="cpu")
    model.save(tmp_path / "model.safetensors")
    np.savez(tmp_path / "vectors.npz", x=np.random.default_rng(1).normal(size=(20, 3)))
    arguments = ["train", "--from", str(tmp_path / "model.safetensors"), "--target", str(tmp_path / "vectors.npz")]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    assert "images" in capsys.readouterr().err


def test_a_refined_network_of_the_users_is_evaluated_on_its_target(tmp_path: Path) -> None:
    source, target = write_blobs(tmp_path)
    own = ["--net", "tests.user_modules:still"]
    data = ["--source", source, "--target", target, "--out", tmp_path / "run", "--iterations", 10]
    assert main([str(each) for each in ["train", *data, *own, *SHORT]]) == 0
    assert refine(tmp_path, tmp_path / "refined", "--iterations", 4, "--target-test", tmp_path / "test.npz", *own) == 0
    assert main(["evaluate", str(tmp_path / "refined"), *own]) == 0
