"""Missing values that are filled in, and domains that are standardised by themselves, from the file to the export."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import vmt
from tests.own_data import write_csv
from vmt.cli.main import main
from vmt.data import domain, read_own
from vmt.data.files.own import ReadOptions, own_task
from vmt.data.files.tables import open_csv
from vmt.data.task import Task, make_task
from vmt.errors import InputError
from vmt.export import export, load_exported

QUICK = {"iterations": 3, "progress": False, "device": "cpu"}
RNG = np.random.default_rng(0)
Y = np.arange(60) % 2
XS: NDArray[np.float64] = RNG.normal(3 * Y[:, None], 1, (60, 3))
XT: NDArray[np.float64] = 10 + 4 * XS[::-1]
HOLES = RNG.random((60, 3)) < 0.2


def with_holes(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(HOLES, np.nan, x)


def task(xs: NDArray[np.float64], xt: NDArray[np.float64], **options: object) -> Task:
    source, target = (domain(x, Y, name=name, missing=True) for name, x in (("source", xs), ("target", xt)))
    return make_task(source, target.without_labels(), source_test=source, target_test=target, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("impute", ["mean", "median"])
def test_each_domain_is_filled_in_by_itself(impute: str) -> None:
    xs, xt = with_holes(XS), with_holes(XT)
    made = task(xs, xt, impute=impute)
    values = [getattr(np, f"nan{impute}")(x, axis=0) for x in (xs.astype(np.float32), xt.astype(np.float32))]
    expected = [np.where(HOLES, value, x) for value, x in zip(values, (xs, xt), strict=True)]
    for found, wanted in zip((made.source, made.target), expected, strict=True):
        np.testing.assert_allclose(found.x, wanted, rtol=1e-6)
    assert made.preprocess.fill == pytest.approx(values[1])
    assert made.target_test is not None
    np.testing.assert_array_equal(made.target_test.x, made.target.x)


def test_a_feature_that_only_the_source_has() -> None:
    xt = XT.copy()
    xt[:, 1] = np.nan
    made = task(XS, xt, impute="mean")
    assert made.preprocess.fill is not None
    assert made.preprocess.fill[1] == pytest.approx(XS[:, 1].mean(), rel=1e-6)
    with pytest.raises(InputError, match=r"feature 1 .* source"):
        task(xt, XS, impute="mean")


def test_missing_values_are_refused_unless_they_are_filled_in() -> None:
    with pytest.raises(InputError, match=r"target has .* missing values.*impute"):
        task(XS, with_holes(XT))
    with pytest.raises(InputError, match=r"the source .*feature 2.*impute"):
        vmt.adapt((np.where(np.arange(3) == 2, np.nan, XS), Y), XT, **QUICK)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'modus'"):
        task(XS, with_holes(XT), impute="modus")
    with pytest.raises(InputError, match="infinite"):
        domain([[1.0, np.inf]], name="x", missing=True)


def test_each_domain_is_standardised_by_itself() -> None:
    """Also if the units differ so much that the pair is refused otherwise."""
    with pytest.raises(InputError, match="--standardise-per-domain"):
        task(XS, XT * 1e4)
    made = task(XS, XT * 1e4, standardise_per_domain=True)
    for part in (made.source, made.target):
        seen = made.preprocess(part.x).double()
        torch.testing.assert_close(seen.mean(0), torch.zeros(3).double(), atol=1e-5, rtol=0)
        torch.testing.assert_close(seen.std(0, correction=0), torch.ones(3).double(), atol=1e-5, rtol=0)
    np.testing.assert_allclose(made.target.x, XT * 1e4, rtol=1e-6)
    images = domain(RNG.integers(0, 256, (8, 8, 8), np.uint8), np.arange(8) % 2, name="images")
    with pytest.raises(InputError, match="standardise_per_domain is for vectors"):
        make_task(images, images, standardise_per_domain=True)


def test_a_constant_feature_of_one_domain_stays_finite() -> None:
    constant = np.where(np.arange(3) == 1, 5.0, XS)
    for xs, xt in ((constant, XT), (XS, constant)):
        made = task(xs, xt, standardise_per_domain=True)
        assert made.preprocess(made.source.x).isfinite().all()
        assert made.preprocess(made.target.x).abs().max() < 10


@pytest.mark.parametrize("suffix", ["safetensors", "onnx"])
def test_a_model_fills_in_with_the_values_of_the_target(tmp_path: Path, suffix: str) -> None:
    model = vmt.adapt((XS, Y), with_holes(XT), impute="median", standardise_per_domain=True, **QUICK)  # type: ignore[arg-type]
    path = tmp_path / f"model.{suffix}"
    if suffix == "onnx":
        assert export(model, path).difference < 1e-5
        again: vmt.Model | vmt.export.Exported = load_exported(path)
    else:
        model.save(path)
        again = vmt.load(path)
    assert again.preprocess == model.preprocess
    filled = np.where(HOLES, model.preprocess.fill, XT)
    np.testing.assert_allclose(again.predict_proba(with_holes(XT)), model.predict_proba(filled), atol=1e-5)
    plain = vmt.adapt((XS, Y), XT, **QUICK)  # type: ignore[arg-type]
    assert plain.preprocess.fill is None
    with pytest.raises(InputError, match="missing value"):
        plain.predict(with_holes(XT))


@pytest.mark.parametrize("cell", ["", "NA", "nan", "NULL", "?"])
def test_missing_cells_of_a_table(tmp_path: Path, cell: str) -> None:
    rows: list[list[object]] = [[k, cell if k == 4 else k * k, "ab"[k % 2]] for k in range(10)]
    path = write_csv(tmp_path / "a.csv", [["height", "width", "label"], *rows])
    with pytest.raises(InputError, match=r"row 6 .*'width'.*--impute"):
        read_own(path)
    assert read_own(path, missing=True).domain.x[4].isnan().tolist() == [False, True]
    made, _ = own_task(path, path, how=ReadOptions(cache=False, progress=False), impute="median")
    assert made.preprocess.fill is not None
    assert made.preprocess.fill[1] == 25
    rows[4][1] = "red"
    write_csv(path, [["height", "width", "label"], *rows])
    with pytest.raises(InputError, match="'red'"):
        read_own(path, missing=True)


def test_a_first_row_with_a_missing_value_is_not_a_header() -> None:
    assert not open_csv(iter(["1.5,,3", "2,3,4"]), "a.csv", None).layout.named
    assert open_csv(iter([",0,1", "0,2,3"]), "a.csv", None).layout.named  # pandas, with its index


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, x in (("source", XS), ("target", with_holes(XT))):
        cells = [["" if np.isnan(v) else v for v in row] for row in x]
        write_csv(
            tmp_path / f"{name}.csv", [["a", "b", "c", "label"], *([*c, y] for c, y in zip(cells, Y, strict=True))]
        )
    train = ["train", "--source", "source.csv", "--target", "target.csv", "--iterations", "3", "--device", "cpu"]
    assert main([*train, "--out", "run"]) == 2
    assert "--impute" in capsys.readouterr().err
    assert main([*train, "--out", "run", "--impute", "mean", "--standardise-per-domain"]) == 0
    assert main(["evaluate", "run", "--test", "target.csv"]) == 0
    assert main(["predict", "run", "target.csv", "--out", "predictions.csv"]) == 0
    with open("predictions.csv", newline="") as file:
        written = [row[2] for row in csv.reader(file)][1:]
    assert written == [str(k) for k in vmt.load("run").predict(with_holes(XT))]
    assert main(["train", "digits", "--impute", "mean"]) == 2
