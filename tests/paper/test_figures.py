"""The paper's figures, drawn from real runs of a few iterations, and gradient norms computed by hand."""

import json
import struct
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.paper_runs import write_runs
from vmt.cli.main import main
from vmt.model import load
from vmt.paper.figures import (
    NORMS,
    SYSTEMS_OVER_TIME,
    System,
    curve_of,
    gradient_norm,
    mean_over_seeds,
    norms_in_between,
    norms_of_network,
    systems_of_tsne,
    tsne,
)
from vmt.runs.spec import DataSpec, load_data

FIGURES = ("tsne", "gradient-norms", "accuracy-over-time")


@pytest.fixture(scope="module")
def folder(official_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, run folders and results like those of the tables."""
    folder = tmp_path_factory.mktemp("figures")
    (folder / "data").symlink_to(official_data)
    wanted = [*systems_of_tsne(instance_norm=True), *SYSTEMS_OVER_TIME]
    write_runs(wanted, folder / "data", folder / "runs", folder / "results")
    return folder


def figure(folder: Path, name: str, out: Path, *more: object) -> int:
    folders = ["--runs", folder / "runs", "--results", folder / "results", "--data", folder / "data", "--out", out]
    return main([str(each) for each in ("paper", "figure", name, *folders, *more)])


def size_of_png(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_a_vector_file_and_a_png(
    folder: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made" / "it.svg"
    assert figure(folder, name, out, "--instance-norm", "--samples", 3) == 0
    printed = capsys.readouterr()
    assert "missing" not in printed.err
    assert str(out) in printed.out
    drawing = out.read_text()
    assert "<svg" in drawing
    assert min(size_of_png(out.with_suffix(".png"))) > 300
    if name != "gradient-norms":  # these take long, and another test compares the norms of two calls
        assert figure(folder, name, tmp_path / "again.svg", "--instance-norm", "--samples", 3) == 0
        assert (tmp_path / "again.svg").read_text() == drawing, "the same runs give the same file"


def test_a_missing_model_is_named_and_the_others_are_drawn(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = systems_of_tsne(instance_norm=True)[1]
    assert system.label == "VADA"
    path = system.model(folder / "runs", 0)
    aside = path.rename(tmp_path / path.name)
    try:
        assert figure(folder, "gradient-norms", tmp_path / "norms.pdf", "--samples", 2) == 0
    finally:
        aside.rename(path)
    message = capsys.readouterr().err
    assert "missing: VADA" in message
    assert "vmt paper run all --only mnist-svhn_vada_dirt_t_in --seeds 0 --phases 1" in message
    assert (tmp_path / "norms.pdf").read_bytes().startswith(b"%PDF")
    saved = json.loads((tmp_path / "norms.json").read_text())
    assert list(saved["norms"]) == ["VMT, warm-up"]
    assert len(saved["norms"]["VMT, warm-up"]["mean"]) == 11


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tsne", "--instance-norm"], ["MNIST and SVHN", "--data", "vmt data download"]),
        (["gradient-norms"], ["--data"]),
        (["tsne"], ["Source only", "vmt paper run all --only mnist-svhn_source_only_no-in", "--runs"]),
        (["gradient-norms", "--seed", "5"], ["seed 5", "vmt paper run"]),
        (["accuracy-over-time", "--results", "nowhere"], ["nowhere", "vmt paper run", "--results"]),
        (["accuracy-over-time", "--no-instance-norm"], ["--no-instance-norm"]),
        (["tsne", "--out", "picture.gif"], ["picture.gif", ".svg"]),
        (["tsne", "--instance-norm", "--data", "nowhere"], ["nowhere", "does not exist"]),
    ],
)
def test_bad_input_is_named_in_one_sentence(
    folder: Path,
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = ["--runs", str(folder / "runs"), "--results", str(folder / "results")]
    assert main(["paper", "figure", *folders, *arguments]) == 2
    message = capsys.readouterr().err.strip()
    assert message.startswith("vmt: ")
    assert "\n" not in message
    assert all(word in message for word in words), message
    assert not list(tmp_path.iterdir())


def test_gradient_norms_are_those_computed_by_hand() -> None:
    """For p = softmax(W x) the Jacobian is (diag(p) − p pᵀ) W."""
    torch.manual_seed(0)
    weight = torch.randn(3, 5, dtype=torch.float64)
    x, y = torch.randn(2, 4, 5, dtype=torch.float64)

    def by_hand(point: Tensor) -> float:
        p = (weight @ point).softmax(0)
        return float(((torch.diag(p) - torch.outer(p, p)) @ weight).square().sum().sqrt())

    def f(inputs: Tensor) -> Tensor:
        return (inputs @ weight.T).softmax(1)

    torch.testing.assert_close(gradient_norm(f, x), torch.tensor([by_hand(row) for row in x], dtype=torch.float64))
    found = norms_in_between(f, x, y, lambdas=(1.0, 0.25, 0.0))
    mixed = [[by_hand(lam * a + (1 - lam) * b) for a, b in zip(x, y, strict=True)] for lam in (1.0, 0.25, 0.0)]
    torch.testing.assert_close(found, torch.tensor(mixed, dtype=torch.float64))


def test_gradient_norms_are_computed_in_evaluation_mode(folder: Path) -> None:
    """Two calls agree, in spite of dropout and noise, and the norm of a sample does not depend on its batch."""
    task = load_data(DataSpec("mnist-svhn", str(folder / "data")))
    model = load(systems_of_tsne(instance_norm=True)[2].model(folder / "runs", 0))
    model.network.train()
    assert task.target_test is not None
    x = task.target_test.x[:2]
    first, again = (norms_of_network(model.network, x, model.preprocess) for _ in range(2))
    torch.testing.assert_close(first, again)
    assert model.network.training, "the mode of the network is restored"
    # With two samples, each is the other's partner: λ for the one is 1 − λ for the other.
    torch.testing.assert_close(first[:, 0], first.flip(0)[:, 1], rtol=1e-3, atol=1e-6)


def test_systems_have_the_model_of_their_phase() -> None:
    before, after = systems_of_tsne(instance_norm=False)[3:]
    assert before.model(Path("runs"), 1) == Path("runs/mnist-svhn_vmt_dirt_t_no-in_1/model_vmt.safetensors")
    assert after.model(Path("runs"), 1) == Path("runs/mnist-svhn_vmt_dirt_t_no-in_1/model.safetensors")
    assert isinstance(before, System)
    assert "--phases 1" in before.job(1).command
    assert "--phases" not in after.job(1).command


def test_the_time_of_a_curve_excludes_compiling_and_later_phases() -> None:
    """The first evaluation comes after a minute of compiling; then ten iterations take a second."""
    record = {
        "seed": 3,
        "phase_iterations": {"vmt": 40, "dirt_t": 160},
        "curve": [
            [10, 0.1, 0.9, 61.0],
            [20, 0.2, 0.9, 62.0],
            [30, 0.3, None, 63.0],
            [40, 0.4, 0.9, 64.0],
            [50, 0.5, 0.9, 99.0],
        ],
        "environment": {"gpu": "a GPU"},
    }
    curve = curve_of(record, "vmt")
    assert curve.iterations == [10, 20, 30, 40]
    assert curve.accuracy == pytest.approx([10, 20, 30, 40])
    assert curve.seconds_per_iteration == pytest.approx(0.1)
    assert curve.hardware == "a GPU"


def test_tsne_keeps_two_distant_clusters_apart() -> None:
    torch.manual_seed(0)
    features = torch.randn(40, 8)
    features[20:] += 50
    points = torch.from_numpy(tsne(features.numpy(), seed=0))
    inside = torch.cdist(points[:20], points[:20]).max()
    between = torch.cdist(points[:20], points[20:]).min()
    assert between > inside


def test_norms_are_averaged_over_the_seeds_that_have_a_model() -> None:
    def norms(value: float) -> dict[str, object]:
        return {"lambda": [0.0, 1.0], "pairs": 3, **{kind: [value, 2 * value] for kind in NORMS}}

    found = mean_over_seeds({0: {"VADA": norms(1.0), "VMT": norms(5.0)}, 1: {"VADA": norms(3.0)}})
    assert found["VADA"]["mean"] == [2.0, 4.0]
    assert found["VADA"]["seeds"] == 2
    assert found["VMT"]["upper_quartile"] == [5.0, 10.0]
