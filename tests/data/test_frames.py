"""Data frames keep the names of their columns; what cannot be held in 32 bits is said."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import vmt
from vmt.errors import InputError
from vmt.export import export, load_exported
from vmt.runs.recipes import defaults_for

Array = NDArray[np.float64]
FEW = {"iterations": 40, "progress": False}


class Twice:
    """A frame with two columns of one name."""

    columns = ("a", "a")

    def __getitem__(self, name: str) -> object:
        return np.zeros((9, 2))


@dataclass
class Frame:
    """What pandas and polars have in common, of which only this is used: names, and columns by name."""

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
    model = vmt.adapt((frame(xs, "abc"), y), target, target_test=(frame(xt, "bca"), y), **FEW)
    assert model.features == ("a", "b", "c")
    assert model.evaluate(xt, y).accuracy > 0.9
    assert (model.predict_proba(frame(xt, "cab")) == model.predict_proba(xt)).all()
    with pytest.raises(InputError, match="the input lacks the column c of the model"):
        model.predict(frame(xt, "ab"))


def test_columns_of_several_types(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    xs, y, _ = moved
    columns = {"a": xs[:, 0], "flag": xs[:, 1] > 0, "count": np.array([1, 2] * 60, object)}
    samples = vmt.data.domain(Frame(columns), name="the source")
    assert samples.features == ("a", "flag", "count")
    assert samples.x[:2, 2].tolist() == [1, 2]
    with pytest.raises(InputError, match="column 'kind' of the source has 'u' instead of a number"):
        vmt.adapt((Frame({**columns, "kind": np.array(["u"] * 120)}), y), xs, **FEW)
    with pytest.raises(InputError, match="the source has two columns called 'a'"):
        vmt.data.domain(Twice(), name="the source")
    with pytest.raises(InputError, match="y of the source has values of type <U1: number the classes from 0"):
        vmt.data.domain(xs, np.array(["u", "v"])[y], name="the source")
    assert repr(samples) == "<domain the source: 120 samples of shape (3,), without labels>"
    with pytest.raises(InputError, match="first: sample 1, column 'count'"):
        vmt.data.domain(Frame({**columns, "count": np.array([1, np.nan] * 60, object)}), name="the source")


def test_digits_that_32_bits_do_not_have(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    xs, y, xt = moved
    source, target = np.c_[xs, 1e9 + xs[:, 0]], np.c_[xt, 1e9 + xt[:, 0]]
    with pytest.raises(InputError, match=r"feature 3 has values near 1e\+09 that differ by about 2"):
        vmt.adapt((source, y), target, **FEW)
    with pytest.raises(InputError, match="feature 3"):
        vmt.VMTClassifier(iterations=2).fit(torch.tensor(source), y, X_target=target)
    constant = np.full((120, 1), 1e9)
    assert vmt.adapt((np.c_[xs, constant], y), np.c_[xt, constant], iterations=2, progress=False)
    with pytest.raises(InputError, match=r"1e\+200 \(sample 0, feature 1\).* too large for 32 bits"):
        vmt.data.domain([[1.0, 1e200]], name="the source")


def test_what_is_no_array(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    xs, y, xt = moved
    dataset = torch.utils.data.TensorDataset(torch.tensor(xs), torch.tensor(y))
    for strange in (dataset, torch.utils.data.DataLoader(dataset)):
        with pytest.raises(InputError, match=f"is a {type(strange).__name__}.*from_dataset"):
            vmt.adapt(strange, xt, **FEW)
    for unlabelled in (xs, [xs, y], {"x": xs}):
        with pytest.raises(InputError, match=r"source is a \w+: pass \(samples, labels\)"):
            vmt.adapt(unlabelled, xt, **FEW)  # type: ignore[arg-type]
    from scipy.sparse import csr_matrix

    with pytest.raises(InputError, match=r"sparse csr_matrix.*toarray"):
        vmt.adapt((csr_matrix(xs), y), xt, **FEW)
    with pytest.raises(InputError, match="the target has 1 sample"):
        vmt.adapt((xs, y), xt[:1], **FEW)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"method": "Co-DA"}, r"no method 'Co-DA' \(perhaps co_da\?\)"),
        ({"method": "dirt_t"}, "DIRT-T comes after one of them"),
        ({"method": vmt.methods.dann}, r"pass a name such as 'vada', or a value such as vmt.methods.vada\(\)"),
        ({"method": vmt.methods.vmt(), "lambda_t": 0.1}, r"lambda_t is for a method by its name.*vmt\(lambda_t=…\)"),
        ({"method": vmt.methods.vmt(), "dirt_t": True}, r"dirt_t=True is for a method by its name"),
        ({"dirt_t": "yes"}, "dirt_t is 'yes': give True or False"),
        ({"lamda_t": 0.1}, r"no setting 'lamda_t' \(perhaps lambda_t\?\)"),
        ({"iteration": 5}, r"no setting 'iteration' \(perhaps iterations\?\)"),
        ({"method": "dann", "lambda_t": 0.1}, "method dann takes no lambda_t: it is a setting of other methods"),
        ({"beta": 0.1}, "beta is a setting of DIRT-T: add dirt_t=True"),
        ({"net": nn.Linear(3, 2)}, "net is a Linear: pass a function"),
        ({"resume": True}, "name its folder with out="),
        ({"batchsize": 8}, r"no setting 'batchsize' \(perhaps batch_size\?\)"),
    ],
)
def test_arguments_that_cannot_be_meant(
    moved: tuple[Array, NDArray[np.int64], Array], arguments: dict[str, object], said: str
) -> None:
    xs, y, xt = moved
    with pytest.raises(InputError, match=said):
        vmt.adapt((xs, y), xt, **arguments, **FEW)  # type: ignore[arg-type]


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))


def test_a_function_may_build_any_module(moved: tuple[Array, NDArray[np.int64], Array], tmp_path: Path) -> None:
    xs, y, xt = moved
    model = vmt.adapt((xs, y), xt, net=plain, iterations=2, progress=False)
    model.save(tmp_path / "own.safetensors")
    again = vmt.load(tmp_path / "own.safetensors", network=plain)
    assert (again.predict_proba(xt) == model.predict_proba(xt)).all()
    classifier = vmt.VMTClassifier(net=plain, iterations=2).fit(xs, y, X_target=xt)
    assert classifier.predict(xt).shape == (120,)


def test_an_estimators_model_knows_its_columns(moved: tuple[Array, NDArray[np.int64], Array]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    xs, y, _ = moved
    table = pyarrow.table({name: xs[:, i] for i, name in enumerate("abc")})
    classifier = vmt.VMTClassifier(iterations=2)
    with pytest.raises(InputError, match=r"pass method=vmt.methods.dirt_t"):
        vmt.VMTClassifier(vmt.methods.vmt(iterations=2), dirt_t=True).fit(xs, y)
    assert classifier.fit(xs, y).model_.features == ()
    assert classifier.fit(table, y).model_.features == ("a", "b", "c")


def test_an_exported_file_knows_its_columns(moved: tuple[Array, NDArray[np.int64], Array], tmp_path: Path) -> None:
    xs, y, xt = moved
    export(vmt.adapt((frame(xs, "abc"), y), frame(xt, "abc"), **FEW), tmp_path / "model.pt2")
    exported = load_exported(tmp_path / "model.pt2")
    np.testing.assert_array_equal(exported.predict_proba(frame(xt, "cab")), exported.predict_proba(frame(xt, "abc")))
    with pytest.raises(InputError, match="the input lacks the column b of the file"):
        exported.predict_proba(frame(xt, "ac"))


def test_a_method_by_its_name_has_the_settings_of_the_command_line(
    moved: tuple[Array, NDArray[np.int64], Array],
) -> None:
    xs, y, xt = moved
    by_name = vmt.adapt((xs, y), xt, "dann", seed=3, **FEW)
    chosen = replace(defaults_for(xs.shape[1:], len(xs)), iterations=40)
    written_down = vmt.adapt((xs, y), xt, chosen.recipe("dann").build(), seed=3, **FEW)
    assert by_name.about["method"] == "dann"
    np.testing.assert_array_equal(by_name.predict_proba(xt), written_down.predict_proba(xt))
    assert not np.array_equal(by_name.predict_proba(xt), vmt.adapt((xs, y), xt, seed=3, **FEW).predict_proba(xt))
