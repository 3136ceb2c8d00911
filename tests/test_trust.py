"""No file that vmt opens runs code, unless the user says that the file is trusted."""

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import vmt
from tests.own_pictures import picture, save
from vmt.cli.main import main
from vmt.export import export, load_exported
from vmt.model import read_model_file


class MakesAFolder:
    """What an attacker pickles: it is called when the pickle is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def model() -> vmt.Model:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((40, 4)), np.arange(40) % 2
    return vmt.adapt((x, y), x, iterations=2, batch_size=8, progress=False)


def test_a_pt2_file_is_opened_only_if_it_is_trusted(
    model: vmt.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its example inputs are a pickle, which torch reads."""
    honest, evil, ran = tmp_path / "honest.pt2", tmp_path / "evil.pt2", tmp_path / "the code has run"
    export(model, honest)
    pickled = io.BytesIO()
    torch.save(((MakesAFolder(ran),), {}), pickled)
    with zipfile.ZipFile(honest) as archive, zipfile.ZipFile(evil, "w") as changed:
        for name in archive.namelist():
            held = archive.read(name)
            changed.writestr(name, pickled.getvalue() if name.endswith("sample_inputs/model.pt") else held)
    np.save(tmp_path / "x.npy", np.zeros((2, 4), np.float32))
    with pytest.raises(vmt.InputError, match=r"evil\.pt2.*--trust"):
        load_exported(evil)
    assert main(["predict", str(evil), str(tmp_path / "x.npy")]) == 2
    assert "evil.pt2" in capsys.readouterr().err
    renamed = evil.rename(tmp_path / "evil.bin")
    with pytest.raises(vmt.InputError, match=r"evil\.bin"):
        load_exported(renamed)
    assert not ran.exists()
    # The attack is real: it works on whoever trusts the file.
    renamed.rename(evil)
    main(["predict", str(evil), str(tmp_path / "x.npy"), "--trust"])
    assert ran.exists()
    assert main(["predict", str(honest), str(tmp_path / "x.npy"), "--trust"]) == 0


TIMM = '''
"""As much of timm as vmt uses. It writes down how it is called."""
import json
from pathlib import Path
from torch import nn

def is_model(name):
    return name == "resnet18"

def list_models():
    return ["resnet18"]

def create_model(name, num_classes, in_chans, **options):
    Path(__file__).with_name("called.json").write_text(json.dumps(options))
    body = nn.Conv2d(in_chans, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1)
    return nn.Sequential(*body, nn.Linear(4, num_classes))
'''


@pytest.fixture
def timm_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which a small package named timm writes the options of its last call."""
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "timm.py").write_text(TIMM)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    return folder / "called.json"


def test_options_in_a_file_that_could_make_timm_open_others_are_refused(
    timm_calls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y)
    data, run = tmp_path / "a.npz", tmp_path / "run"
    vmt.adapt(
        data, data, "source_only", net="timm:resnet18", net_options={"drop_rate": 0.1}, iterations=2, batch_size=4,
        device="cpu", out=run, progress=False,
    )  # fmt: skip
    # An honest model is built with its options.
    timm_calls.unlink()
    assert vmt.load(run).spec.options == {"drop_rate": 0.1}
    assert json.loads(timm_calls.read_text()) == {"drop_rate": 0.1}
    timm_calls.unlink()
    header, tensors = read_model_file(run / "model.safetensors")
    record = json.loads((run / "run.json").read_text())
    for options in (
        {"checkpoint_path": "evil.pth"},
        {"pretrained_cfg": {"url": "https://example.org/evil.pth"}},
        {"pretrained_cfg_overlay": {"file": "evil.pth"}},
        {"drop_rate": {"url": "https://example.org"}},
    ):
        (option,) = options
        network = json.loads(header["network"]) | {"options": options}
        save_file(tensors, tmp_path / "evil.safetensors", metadata=header | {"network": json.dumps(network)})
        with pytest.raises(vmt.InputError, match=option):
            vmt.load(tmp_path / "evil.safetensors")
        # The record of a run holds options, too.
        record["recipe"]["net_options"] = options
        (run / "run.json").write_text(json.dumps(record))
        assert main(["train", "--resume", str(run)]) == 2
        assert option in capsys.readouterr().err
    assert not timm_calls.exists()


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 12 12\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.mark.skipif(os.name == "nt", reason="needs a program without a suffix")
def test_a_picture_never_starts_ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow opens files by their content, and gives PostScript, which is a program, to Ghostscript."""
    ran = tmp_path / "it ran"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(program.parent), os.environ["PATH"]]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(4):
        save(tmp_path / "in" / f"{number}.png", picture(number))
    (tmp_path / "in" / "program.png").write_bytes(EPS)
    code = f"import vmt; print(vmt.data.read_own({str(tmp_path / 'in')!r}).notes)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "program.png (damaged)" in done.stdout, done.stderr
    assert not ran.exists()


@pytest.mark.parametrize("command", ["evaluate", "export"])
def test_a_function_for_features_that_only_the_record_of_a_run_names_is_not_imported(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "it ran"
    (tmp_path / f"evil_{command}.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y)
    data, run = tmp_path / "a.npz", tmp_path / "run"
    vmt.adapt(data, data, "source_only", iterations=2, batch_size=4, device="cpu", out=run, progress=False)
    record = json.loads((run / "run.json").read_text())
    record["data"]["features"] = f"evil_{command}:make"
    (run / "run.json").write_text(json.dumps(record))
    main([command, str(run)])
    assert not ran.exists()
    # The attack is real: it works on whoever names the function.
    main([command, str(run), "--features", f"evil_{command}:make"])
    assert ran.exists()
