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
from tests.own_data import vmt as command
from tests.own_pictures import picture, save
from vmt.export import export, load_exported
from vmt.model import read_model_file


class TouchesAFile:
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


def test_a_pt2_file_is_opened_only_if_it_is_trusted(model: vmt.Model, tmp_path: Path) -> None:
    """Its example inputs are a pickle, which torch reads."""
    honest, evil, ran = tmp_path / "honest.pt2", tmp_path / "evil.pt2", tmp_path / "the code has run"
    export(model, honest)
    pickled = io.BytesIO()
    torch.save(((TouchesAFile(ran),), {}), pickled)
    with zipfile.ZipFile(honest) as archive, zipfile.ZipFile(evil, "w") as changed:
        for name in archive.namelist():
            held = archive.read(name)
            changed.writestr(name, pickled.getvalue() if name.endswith("sample_inputs/model.pt") else held)
    np.save(tmp_path / "x.npy", np.zeros((2, 4), np.float32))
    with pytest.raises(vmt.InputError, match=r"evil\.pt2.*--trust"):
        load_exported(evil)
    done = command("predict", evil, tmp_path / "x.npy")
    assert done.returncode == 2
    assert "evil.pt2" in done.stderr
    renamed = evil.rename(tmp_path / "evil.bin")
    with pytest.raises(vmt.InputError, match=r"evil\.bin"):
        load_exported(renamed)
    assert not ran.exists()
    # The attack is real: it works on whoever trusts the file.
    renamed.rename(evil)
    command("predict", evil, tmp_path / "x.npy", "--trust")
    assert ran.exists()
    assert command("predict", honest, tmp_path / "x.npy", "--trust").returncode == 0


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
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    return folder / "called.json"


@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint_path": "evil.pth"},
        {"pretrained_cfg": {"url": "https://example.org/evil.pth"}},
        {"pretrained_cfg_overlay": {"file": "evil.pth"}},
        {"drop_rate": {"url": "https://example.org"}},
    ],
)
def test_options_in_a_file_that_could_make_timm_open_others_are_refused(
    options: dict[str, object], timm_calls: Path, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8), np.arange(20) % 2
    short = {"net": "timm:resnet18", "batch_size": 4, "iterations": 2, "device": "cpu"}
    trained = vmt.adapt((x, y), x, net_options={"drop_rate": 0.1}, progress=False, **short)  # type: ignore[arg-type]
    trained.save(tmp_path / "model.safetensors")
    timm_calls.unlink()
    # An honest model is built with its options.
    assert vmt.load(tmp_path / "model.safetensors").spec.options == {"drop_rate": 0.1}
    assert json.loads(timm_calls.read_text()) == {"drop_rate": 0.1}
    timm_calls.unlink()
    header, tensors = read_model_file(tmp_path / "model.safetensors")
    network = json.loads(header["network"]) | {"options": options}
    save_file(tensors, tmp_path / "evil.safetensors", metadata=header | {"network": json.dumps(network)})
    with pytest.raises(vmt.InputError, match=next(iter(options))):
        vmt.load(tmp_path / "evil.safetensors")
    # The record of a run holds options, too.
    np.savez(tmp_path / "a.npz", x=x, y=y)
    run = tmp_path / "run"
    vmt.adapt(tmp_path / "a.npz", tmp_path / "a.npz", out=run, progress=False, **short)  # type: ignore[arg-type]
    timm_calls.unlink()
    record = json.loads((run / "run.json").read_text())
    record["recipe"]["net_options"] = options
    (run / "run.json").write_text(json.dumps(record))
    done = command("train", "--resume", run)
    assert done.returncode == 2
    assert next(iter(options)) in done.stderr
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
