"""Data frames keep the names of their columns; containers that are not arrays are refused."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import vmt
from vmt.errors import InputError
from vmt.export import export, load_exported

Array = NDArray[np.float64]
SHORT = {"iterations": 40, "progress": False}


class Twice:
    """A data frame with two columns of the same name."""

    columns = ("a", "a")

    def __getitem__(self, name: str) -> object:
        return np.zeros((9, 2))


@dataclass
class Frame:
    """The part of pandas and polars that is used: the names of columns, and columns by name."""

    values: dict[str, object]

    @property
    def columns(self) -> list[str]:
        return list(self.values)

    def __getitem__(self, names: str | list[str]) -> object:
        return self.values[names] if isinstance(names, str) else Frame({name: self.values[name] for name in names})


@pytest.fixture(scope="module")
def moved() -> tuple[Array, NDArray[np.int64], Array]:
    random = np.random.default_rng(0)
    y = np.arange(120) % 2
    x = random.normal(size=(120, 3)) + np.array([4, 0, -4]) * y[:, None]
    return x, y, x + 0.3


def frame(x: Array, names: str) -> Frame:
    return Frame({name: x[:, "abc".index(name)] for name in names})


def test_columns_are_found_by_their_names(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    xs, y, xt = moved
    target = frame(xt, "cba")
    target.values["remark"] = np.array(["text"] * len(xt))  # the source lacks it
    model = vmt.adapt((frame(xs, "abc"), y), target, target_test=(frame(xt, "bca"), y), **SHORT)
    assert model.features == ("a", "b", "c")
    assert model.evaluate(xt, y).accuracy > 0.9
    assert (model.predict_proba(frame(xt, "cab")) == model.predict_proba(xt)).all()
    with pytest.raises(InputError, match="column c"):
        model.predict(frame(xt, "ab"))


def test_columns_of_several_types(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    xs, y, _ = moved
    columns = {"a": xs[:, 0], "flag": xs[:, 1] > 0, "count": np.array([1, 2] * 60, object)}
    samples = vmt.data.domain(Frame(columns), name="the source")
    assert samples.features == ("a", "flag", "count")
    assert samples.x[:2, 2].tolist() == [1, 2]
    with pytest.raises(InputError, match="'kind' of the source has 'u'"):
        vmt.adapt((Frame({**columns, "kind": np.array(["u"] * 120)}), y), xs, **SHORT)
    with pytest.raises(InputError, match=r"the source .*'a'"):
        vmt.data.domain(Twice(), name="the source")
    with pytest.raises(InputError, match=r"y of the source .*<U1"):
        vmt.data.domain(xs, np.array(["u", "v"])[y], name="the source")
    assert repr(samples) == "<domain the source: 120 samples of shape (3,), without labels>"
    with pytest.raises(InputError, match="first: sample 1, column 'count'"):
        vmt.data.domain(Frame({**columns, "count": np.array([1, np.nan] * 60, object)}), name="the source")


def test_differences_that_float32_cannot_represent(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    xs, y, xt = moved
    source, target = np.c_[xs, 1e9 + xs[:, 0]], np.c_[xt, 1e9 + xt[:, 0]]
    with pytest.raises(InputError, match=r"feature 3 .*1e\+09"):
        vmt.adapt((source, y), target, **SHORT)
    with pytest.raises(InputError, match="feature 3"):
        vmt.VMTClassifier(iterations=2).fit(torch.tensor(source), y, X_target=target)
    constant = np.full((120, 1), 1e9)
    assert vmt.adapt((np.c_[xs, constant], y), np.c_[xt, constant], iterations=2, progress=False)
    with pytest.raises(InputError, match=r"1e\+200 \(sample 0, feature 1\).* too large for 32 bits"):
        vmt.data.domain([[1.0, 1e200]], name="the source")


def test_containers_that_are_not_arrays(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    xs, y, xt = moved
    dataset = torch.utils.data.TensorDataset(torch.tensor(xs), torch.tensor(y))
    for strange in (dataset, torch.utils.data.DataLoader(dataset)):
        with pytest.raises(InputError, match=f"is a {type(strange).__name__}.*from_dataset"):
            vmt.adapt(strange, xt, **SHORT)
    for unlabelled in (xs, [xs, y], {"x": xs}):
        with pytest.raises(InputError, match=r"source .*\(samples, labels\)"):
            vmt.adapt(unlabelled, xt, **SHORT)  # type: ignore[arg-type]
    from scipy.sparse import csr_matrix

    with pytest.raises(InputError, match=r"sparse csr_matrix.*toarray"):
        vmt.adapt((csr_matrix(xs), y), xt, **SHORT)
    with pytest.raises(InputError, match="the target has 1 sample"):
        vmt.adapt((xs, y), xt[:1], **SHORT)


def test_the_model_of_an_estimator_has_column_names(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    xs, y, _ = moved
    table = pyarrow.table({name: xs[:, i] for i, name in enumerate("abc")})
    classifier = vmt.VMTClassifier(iterations=2)
    with pytest.raises(InputError, match=r"dirt_t"):
        vmt.VMTClassifier(vmt.methods.vmt(iterations=2), dirt_t=True).fit(xs, y)
    assert classifier.fit(xs, y).model_.features == ()
    assert classifier.fit(table, y).model_.features == ("a", "b", "c")


def test_an_exported_file_has_column_names(moved: tuple[Array, NDArray[np.int64], Array], tmp_path: Path) -> None:
    xs, y, xt = moved
    export(vmt.adapt((frame(xs, "abc"), y), frame(xt, "abc"), **SHORT), tmp_path / "model.pt2")
    exported = load_exported(tmp_path / "model.pt2", trust=True)
    np.testing.assert_array_equal(exported.predict_proba(frame(xt, "cab")), exported.predict_proba(frame(xt, "abc")))
    with pytest.raises(InputError, match="column b"):
        exported.predict_proba(frame(xt, "ac"))
