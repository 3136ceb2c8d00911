"""Training on features of pictures, from folders to a deployed file."""

import csv
import json
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor, nn

import vmt
from tests.own_pictures import CLASSES, class_folders, picture
from tests.user_modules import Frozen, frozen
from vmt.api import task_of
from vmt.cli.main import main
from vmt.data.framing import PictureFormat
from vmt.errors import InputError
from vmt.nets.backbone import format_of, make_backbone
from vmt.runs.run import make_run, with_shares
from vmt.train.config import Config

NAME = "tests.user_modules:frozen"
ROOT = Path(__file__).parent.parent
SHORT = ("--iterations", "40", "--batch-size", "16", "--device", "cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of pictures, and a finished run on their features."""
    folder = tmp_path_factory.mktemp("features")
    class_folders(folder / "source", each=12)
    class_folders(folder / "target", each=12, shade=500)
    mixed(folder / "mixed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VMT_CACHE", str(folder / "cache"))
        data = ["--source", str(folder / "source"), "--target", str(folder / "target"), "--features", NAME]
        assert main(["train", *data, "--method", "source_only", *SHORT, "--out", str(folder / "run")]) == 0
    return folder


def mixed(folder: Path) -> None:
    """Pictures of other sizes: turned by EXIF, grey, CMYK and with an alpha channel."""
    folder.mkdir()
    turned = Image.Exif()
    turned[0x0112] = 8
    for number in range(len(CLASSES)):
        large = Image.fromarray(np.kron(picture(number, 1, (12, 12)), np.ones((5, 7, 1), np.uint8)))
        large.save(folder / f"{number} wide.jpg", quality=95)
        large.transpose(Image.Transpose.ROTATE_270).save(folder / f"{number} turned.jpg", exif=turned, quality=95)
        large.convert("L").save(folder / f"{number} grey.png")
        large.convert("CMYK").save(folder / f"{number} cmyk.jpg", quality=95)
        large.convert("RGBA").save(folder / f"{number} alpha.png")


@pytest.fixture(autouse=True)
def own_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMT_CACHE", str(folder / "cache"))


def predictions(path: Path) -> dict[str, tuple[str, list[float]]]:
    with path.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return {row[0]: (row[2], [float(p) for p in row[3:]]) for row in rows}


def test_the_exported_file_and_plain_onnx_runtime_classify_pictures_as_vmt_does(folder: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run, deployed = folder / "run", tmp_path / "model.onnx"
    assert main(["export", str(run), "--features", NAME, "--out", str(deployed)]) == 0
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    assert main(["predict", str(run), str(folder / "mixed"), "--features", NAME, "--out", str(ours)]) == 0
    assert main(["predict", str(deployed), str(folder / "mixed"), "--out", str(theirs)]) == 0
    expected, exported = predictions(ours), predictions(theirs)
    assert len(expected) == 5 * len(CLASSES)
    decoded = runpy.run_path(str(ROOT / "examples" / "onnx_only.py"))["decoded"]
    session = onnxruntime.InferenceSession(deployed, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    classes, expects = json.loads(metadata["classes"]), json.loads(metadata["input"])
    for path, (name, probabilities) in expected.items():
        (plain,) = session.run(None, {expects["name"]: decoded(path, expects)[None]})
        np.testing.assert_allclose(plain[0], probabilities, atol=1e-4)
        np.testing.assert_allclose(exported[path][1], probabilities, atol=1e-4)
        assert classes[int(plain[0].argmax())] == name == exported[path][0]


def test_a_model_is_saved_with_its_backbone_and_runs_no_code_that_only_it_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "run" / "model.safetensors"
    with pytest.raises(InputError, match=NAME):
        vmt.load(file)
    with pytest.raises(InputError, match="timm:other"):
        vmt.load(file, features="timm:other")
    for command in (
        ["predict", str(folder / "run"), str(folder / "target")],
        ["train", "--resume", str(folder / "run")],
    ):
        assert main(command) == 2
        assert NAME in capsys.readouterr().err

    def other_weights() -> nn.Module:
        made = Frozen()
        nn.init.zeros_(made.maps.weight)
        return made

    pictures = np.stack([picture(number, 3) for number in range(3)])
    named, given = vmt.load(file, features=NAME), vmt.load(file, features=other_weights)
    np.testing.assert_array_equal(named.predict_proba(pictures), given.predict_proba(pictures))
    assert named.reads.crop == 1.0


def test_evaluation_on_pictures_and_on_the_features_of_the_run_agree(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accuracies = []
    for more in ([], ["--test", str(folder / "target")]):
        assert main(["evaluate", str(folder / "run"), "--features", NAME, "--json", *more]) == 0
        accuracies.append(json.loads(capsys.readouterr().out.splitlines()[-1])["accuracy"])
    assert accuracies[0] == accuracies[1] > 0.5


def test_a_report_shows_the_pictures_as_the_frozen_network_sees_them(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["report", str(folder / "run"), "--map", "none", "-o", str(page)]) == 0
    assert "data:image" not in page.read_text(encoding="utf-8")  # the function is not named, so it is not imported
    assert main(["report", str(folder / "run"), "--features", NAME, "--map", "none", "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "data:image" in text
    assert "12×12 pixels in colour" in text
    assert main(["report", str(folder / "run"), "--features", "mine:other", "-o", str(page)]) == 2


def test_features_are_computed_on_the_device_of_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--source", str(folder / "source"), "--target", str(folder / "target"), "--features", NAME]
    assert main(["train", *data, "--device", "cuda:99", "--out", str(folder / "nowhere")]) == 2
    printed = capsys.readouterr()
    assert "cuda:99" in printed.err
    assert "12×12" not in printed.out, "the pictures were read before the device was refused"


def test_a_run_on_features_is_resumed_to_the_same_model(folder: Path, tmp_path: Path) -> None:
    arguments = {"iterations": 30, "batch_size": 16, "device": "cpu", "features": NAME, "progress": False}
    places = folder / "source", folder / "target"
    whole = vmt.adapt(*places, "source_only", **arguments)
    out = tmp_path / "run"
    vmt.adapt(*places, "source_only", **arguments, out=out)
    for file in out.glob("*.safetensors"):
        file.unlink()
    assert main(["train", "--resume", str(out), "--features", NAME]) == 0
    x = np.stack([picture(number, 7) for number in range(3)])
    resumed = vmt.load(out, features=frozen)
    np.testing.assert_array_equal(resumed.predict_proba(x), whole.predict_proba(x))


def test_features_of_arrays_from_python() -> None:
    x, y = np.stack([picture(k % 3, k) for k in range(36)]), np.arange(36) % 3
    model = vmt.adapt((x, y), x, "source_only", features=frozen, iterations=40, batch_size=16, progress=False)
    assert model.predict_proba(x).shape == (36, 3)
    assert model.evaluate(x, y).accuracy > 0.5
    with pytest.raises(InputError, match="vectors"):
        vmt.adapt((x.reshape(36, -1), y), x.reshape(36, -1), features=frozen, progress=False)


def test_features_are_standardised_by_domain_and_trained_on_with_equal_class_shares(folder: Path) -> None:
    x, y = np.stack([picture(number, 1) for number in range(60)]), np.arange(60) % 2
    x, y = x[(y == 0) | (np.arange(60) < 20)], y[(y == 0) | (np.arange(60) < 20)]  # 30 and 10 samples
    task = task_of((x, y), 3 * x[:20] // 4, None, None, None, backbone=make_backbone(frozen))
    for part in (task.source, task.target):
        np.testing.assert_allclose(task.preprocess(part.x).mean(0), 0, atol=1e-4)
    config = Config(device="cpu")
    made = {"dirt_t": False, "iterations": 2, "target_labels": None, "net": None, "net_options": None}
    run = make_run(task, "vmt", asked={}, config=config, **made)
    assert run.recipe.net_options["logit_norm"] is False
    drawn, shares = with_shares(run)
    assert shares is None
    assert drawn.source.y is not None
    assert len(set(drawn.source.y.bincount().tolist())) == 1
    asked = make_run(task, "vmt", asked={}, config=config, match_shares=False, **made)
    assert with_shares(asked)[0] is task


def test_auto_chooses_among_runs_on_features(folder: Path, tmp_path: Path) -> None:
    data = ["--source", str(folder / "source"), "--target", str(folder / "target"), "--features", NAME]
    out = tmp_path / "auto"
    assert main(["train", *data, "--method", "auto", *SHORT, "--out", str(out)]) == 0
    assert vmt.load(out, features=NAME).predict(np.stack([picture(0, 1)])).shape == (1,)


def test_what_a_network_expects_of_pictures() -> None:
    assert format_of(Frozen()) == PictureFormat((12, 12), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), "bicubic")
    as_in_timm = nn.Linear(2, 2)
    cfg = {"input_size": (3, 224, 224), "mean": (0.5,) * 3, "std": (0.2,) * 3, "interpolation": "bicubic"}
    as_in_timm.pretrained_cfg = {**cfg, "crop_pct": 0.9}  # type: ignore[assignment]
    assert format_of(as_in_timm) == PictureFormat((224, 224), (0.5,) * 3, (0.2,) * 3, "bicubic", 0.9)
    assert make_backbone(frozen, PictureFormat((16, 16), crop=0.5)).preprocess.format.size == (16, 16)


def test_a_network_with_other_weights_code_or_framing_has_other_features_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "from tests.user_modules import Frozen\ndef make(): return Frozen()\n"
    (tmp_path / "one_of_mine.py").write_text(code)
    (tmp_path / "other_of_mine.py").write_text(f"{code}# changed\n")

    def fingerprint(name: str, asked: PictureFormat | None = None) -> str:
        return replace(make_backbone(f"{name}_of_mine:make", asked), name="").fingerprint

    assert fingerprint("one") == fingerprint("one")
    assert fingerprint("one") != fingerprint("other")
    assert fingerprint("one") != fingerprint("one", PictureFormat(crop=0.5))
    assert fingerprint("one") != fingerprint("one", PictureFormat(mean=(0.5,), std=(0.5,)))
    changed = make_backbone("one_of_mine:make")
    changed.module.maps.weight[3, 0, 0, 0] += 1e-3  # type: ignore[index,union-attr]
    assert replace(changed, name="").fingerprint != fingerprint("one")


def test_a_network_that_flattens_with_view_gives_features_as_well() -> None:
    class Viewed(Frozen):
        def forward(self, x: Tensor) -> Tensor:
            return self.maps(x).view(len(x), -1)

    assert make_backbone(Viewed).width == 20 * 3 * 3


@pytest.mark.parametrize(
    ("features", "offender"),
    [
        ("resnet50", "resnet50"),
        ("tests.user_modules:nothing", "nothing"),
        ("tests.user_modules:CLASSES", "CLASSES"),
        (lambda: nn.Conv2d(3, 4, 3), "size"),
        (lambda: Frozen().double(), "float64"),
        (Frozen(), "function"),
        (3, "3"),
    ],
)
def test_networks_that_cannot_give_features_are_refused(features: object, offender: str) -> None:
    with pytest.raises(InputError, match=offender):
        make_backbone(features)  # type: ignore[arg-type]


def test_timm_brings_its_preprocessing() -> None:
    pytest.importorskip("timm")
    backbone = make_backbone("timm:resnet18", pretrained=False)
    assert backbone.width == 512
    assert backbone.preprocess.mean == (0.485, 0.456, 0.406)
    assert backbone.preprocess.size == (224, 224)
