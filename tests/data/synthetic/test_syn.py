"""The re-creation of Synthetic Digits: repeatable with any number of workers, varied, legible, and called so."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from tests import benchmark_files as files
from vmt.data import build_syn, load_task, read_npz, read_recreation
from vmt.data.synthetic.built_sets import read_made
from vmt.data.synthetic.drawn_numbers import render, uniforms, words
from vmt.data.synthetic.glyphs import Atlas, make_atlas
from vmt.errors import InputError


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    return make_atlas()


@pytest.fixture(scope="module")
def pictures(atlas: Atlas) -> tuple[torch.Tensor, torch.Tensor]:
    return render(atlas, 0, 0, np.arange(2048))


def test_the_number_of_workers_changes_nothing(tmp_path):
    counts = {"train": 700, "test": 10}
    built = [build_syn(tmp_path / str(workers), counts, seed=3, workers=workers) for workers in (1, 2)]
    for split in ("train", "test"):
        assert built[0].files[split].read_bytes() == built[1].files[split].read_bytes()


def test_a_shorter_set_is_the_beginning_of_a_longer_one(tmp_path):
    build_syn(tmp_path / "long", {"train": 300, "test": 1})
    build_syn(tmp_path / "short", {"train": 150, "test": 1})
    long, short = (read_recreation(tmp_path / name, "train") for name in ("long", "short"))
    np.testing.assert_array_equal(short[0], long[0][:150])
    np.testing.assert_array_equal(short[1], long[1][:150])


def test_seed_and_split_draw_other_pictures(atlas, pictures):
    indices = np.arange(64)
    for seed, stream in ((1, 0), (0, 1)):
        x, _ = render(atlas, seed, stream, indices)
        assert not any(torch.equal(a, b) for a, b in zip(x, pictures[0], strict=False))


def test_a_picture_depends_on_its_index_alone(atlas, pictures):
    chosen = np.array([5, 2000, 17])
    x, y = render(atlas, 0, 0, chosen)
    assert torch.equal(y, pictures[1][chosen])
    # Another batch size may round differently in the last place.
    assert (x.int() - pictures[0][chosen].int()).abs().max() <= 1


def test_pictures_vary_and_are_legible(pictures):
    x, y = pictures
    assert x.shape == (2048, 3, 32, 32)
    assert y.bincount(minlength=10).min() > 150
    grey = x.float().mean(dim=1)
    assert (grey.amax((1, 2)) - grey.amin((1, 2))).min() > 15
    assert x.float().mean((1, 2, 3)).std() > 25, "light and dark pictures"
    assert x.float().std(dim=1).mean() > 10, "colours"


def test_the_label_is_the_digit_in_the_middle(pictures):
    """Projected on each class's main direction: far above chance only if label and digit agree."""
    x, y = pictures
    middle = x.float().mean(dim=1)[:, 4:-4, 6:-6].flatten(1)
    middle = middle - middle.mean(dim=1, keepdim=True)
    middle = middle / middle.norm(dim=1, keepdim=True)
    # Ink is lighter or darker than its background: the square of a correlation does not see which.
    directions = torch.stack([torch.linalg.svd(middle[:1500][y[:1500] == k])[2][0] for k in range(10)])
    guess = (middle[1500:] @ directions.T).abs().argmax(dim=1)
    assert (guess == y[1500:]).float().mean() > 0.35


def test_it_is_called_a_re_creation_wherever_it_is_named(tmp_path):
    build_syn(tmp_path / "syn", {"train": 40, "test": 20})
    files.write_svhn(tmp_path)
    made = read_made(tmp_path / "syn" / "recreated_train.npz", "")
    assert made["set"] == "Synthetic Digits (re-creation)"
    assert len(made["fonts"]) > 10
    task = load_task("syn-svhn", tmp_path)
    assert task.source.name == "SYN (re-creation) train"
    assert task.source_test.name == "SYN (re-creation) test"
    files.write_syn(tmp_path)
    assert load_task("syn-svhn", tmp_path).source.name == "SYN train", "the published set comes first"


def test_the_files_can_be_read_as_a_users_own_data(tmp_path):
    built = build_syn(tmp_path, {"train": 12, "test": 3})
    x, y = read_npz(built.files["train"])
    assert x.shape == (12, 3, 32, 32)
    assert y is not None
    assert len(y) == 12


def test_existing_files_are_neither_rebuilt_nor_replaced(tmp_path):
    first = build_syn(tmp_path, {"train": 12, "test": 3})
    before = first.files["train"].stat().st_mtime_ns
    assert build_syn(tmp_path, {"train": 12, "test": 3}).made == first.made
    assert first.files["train"].stat().st_mtime_ns == before
    with pytest.raises(InputError, match=r"recreated_train.npz .*settings"):
        build_syn(tmp_path, {"train": 13, "test": 3})


def test_fonts_of_the_user(tmp_path, atlas):
    shipped = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for name in ("DejaVuSansDisplay.ttf", "cmsy10.ttf", "LastResortHE-Regular.ttf", "STIXGeneral.ttf"):
        if (shipped / name).exists():
            (tmp_path / name).write_bytes((shipped / name).read_bytes())
    (tmp_path / "broken.otf").write_bytes(b"not a font")
    found = make_atlas(tmp_path)
    assert found.fonts == (*atlas.fonts, "STIXGeneral.ttf"), "fonts without digits of their own are left out"
    with pytest.raises(InputError, match="absent"):
        make_atlas(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty .*\.ttf"):
        make_atlas(tmp_path / "empty")


@pytest.mark.parametrize("bad", [{"seed": -1}, {"workers": 0}, {"counts": {"train": 0, "test": 1}}])
def test_invalid_settings(tmp_path, bad):
    with pytest.raises(InputError, match=r"seed|workers|counts"):
        build_syn(tmp_path, **bad)


def test_drawn_numbers_are_uniform_and_independent():
    u = uniforms(0, 0, np.arange(20_000), 4)
    assert u.min() >= 0
    assert u.max() < 1
    counts = np.stack([np.histogram(column, 20, (0, 1))[0] for column in u.T])
    assert abs(counts - 1000).max() < 150
    both = np.corrcoef(np.concatenate([u[:-1], u[1:]], axis=1).T)
    assert np.abs(both - np.eye(8)).max() < 0.04
    assert len(words(0, 0, np.arange(1000), 50).unique()) == 50_000
