"""Parts of a report: intervals, curves, samples, maps, colours."""

import re

import numpy as np
import pytest
import torch

from vmt.data import Preprocess
from vmt.report.curves import charts_for, curves_of, thinned
from vmt.report.intervals import difference, wilson
from vmt.report.page import asset
from vmt.report.samples import confusion, draw_rows, mixing, project
from vmt.report.thumbnails import make_sheet


def test_intervals() -> None:
    # Newcombe (1998): 56 of 70 against 48 of 80, methods 3 and 10 of his two papers.
    assert wilson(56 / 70, 70) == pytest.approx((0.6917, 0.8770), abs=2e-4)
    assert difference(56 / 70, 70, 48 / 80, 80) == pytest.approx((0.0524, 0.3339), abs=2e-4)
    assert wilson(1.0, 20) == pytest.approx((0.8389, 1.0), abs=2e-4)
    assert wilson(0.0, 20)[0] == 0
    assert wilson(0.3, 0) == (0, 1)


def test_curves_of_a_log() -> None:
    log = [
        {"step": 1, "phase": "a", "classifier/L_y": 2.0, "classifier/predicted share(target)": [0.5, 0.5]},
        {"step": 1, "phase": "a", "target": {"accuracy": None, "entropy": 0.5, "predicted_share": [0.2, 0.8]}},
        {"step": 2, "phase": "a", "target": {"accuracy": 0.5, "entropy": 0.4, "predicted_share": [1, 0]}},
        {"step": 2, "phase": "a", "validators": {"im": 0.7, "snd": None}, "validated": 240, "alarm": "none"},
        {"step": 3, "phase": "b", "classifier/L_y": float("nan"), "something/new": 1.5},
    ]
    found = curves_of(log)
    assert found["target/accuracy"] == ([2], [0.5])
    assert found["target/largest share"] == ([1, 2], [0.8, 1.0])
    assert found["validators/im"] == ([2], [0.7])
    assert found["classifier/L_y"] == ([1], [2.0])
    assert "validators/snd" not in found
    groups = {chart["key"]: chart["group"] for chart in charts_for(list(found), 2)}
    assert groups["validators/im"] == "scores"
    assert groups["target/accuracy"] == "accuracy"
    assert set(groups) == set(found)


def test_long_curves_are_thinned_to_means() -> None:
    steps, values = thinned((list(range(1, 1001)), [float(i % 2) for i in range(1000)]), 50)
    assert len(steps) == len(values) <= 51
    assert (steps[-1], values[-1]) == (1000, 1.0)
    assert all(0.4 < value < 0.6 for value in values[:-1])
    assert steps == sorted(steps)


def test_samples_are_drawn_at_random() -> None:
    """Evenly spaced samples of a file that repeats its classes in turn could miss some of them."""
    chosen = draw_rows(500, 350)
    assert len(set(chosen.tolist())) == 350
    assert min(np.bincount(chosen % 10)) > 20
    assert chosen.tolist() == draw_rows(500, 350).tolist()
    assert draw_rows(4, 10).tolist() == [0, 1, 2, 3]


def test_many_classes_have_a_list_of_mistakes_and_no_matrix() -> None:
    labels = np.repeat(np.arange(50), 4)
    predicted = labels.copy()
    predicted[:3] = 7
    found = confusion(labels, predicted, 50)
    assert found["matrix"] is None
    assert found["largest"] == [[0, 7, 3, 4]]


def test_sheets_fit_the_budget() -> None:
    x = torch.randint(0, 256, (400, 3, 96, 64), dtype=torch.uint8)
    preprocess = Preprocess(3, (96, 64), (1 / 127.5,), (-1.0,))
    sheet = make_sheet([x], preprocess, 400_000)
    assert len(sheet.uri) <= 400_000
    assert sheet.tile < 96
    white = torch.full((3, 1, 8, 8), 255, dtype=torch.uint8)
    small = make_sheet([white], Preprocess(1, (8, 8), (1 / 127.5,), (-1.0,)), 9999)
    assert small.tile == 8
    assert small.uri.startswith("data:image/png"), "small images are not scaled"


def test_maps() -> None:
    random = np.random.default_rng(0)
    near, far = random.normal(size=(60, 5)).astype(np.float32), random.normal(size=(60, 5)).astype(np.float32) + 50
    for how in ("pca", "tsne"):
        points, name = project(np.concatenate([near, far]), how)
        assert points is not None
        assert points.min() >= 0
        assert points.max() <= 1
        gap = np.linalg.norm(points[:60].mean(0) - points[60:].mean(0))
        assert gap > 2 * points[:60].std(), (how, name)
    assert project(np.ones((40, 5), np.float32), "tsne")[0] is None
    assert project(random.normal(size=(40, 1)).astype(np.float32), "pca")[0] is not None
    assert mixing(near, far) == 0
    assert mixing(near, random.normal(size=(90, 5)).astype(np.float32)) == pytest.approx(0.5, abs=0.12)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_text_and_marks_stand_out_in_both_themes() -> None:
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", asset("report.css"))
    colours = {name: (light, dark) for name, light, dark in pairs}
    for theme in (0, 1):
        for ground in ("paper", "surface"):
            for name, both in colours.items():
                if name in ("paper", "surface", "line"):
                    continue
                assert contrast(both[theme], colours[ground][theme]) >= 4.5, (name, ground, theme)
