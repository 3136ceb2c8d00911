"""``vmt cache`` lists what is kept to save time, and removes it."""

import json
import os
import time
from pathlib import Path

import pytest

from vmt.cache import cache_folder, trim
from vmt.cli.main import main
from vmt.disk import DAY


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VMT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def filled(kind: str, name: str, size: int, used_before: float = 0.0) -> Path:
    folder = cache_folder(kind)
    assert folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if name.endswith(".npz"):
        path.write_bytes(bytes(size))
    else:
        path.mkdir()
        (path / "rows").write_bytes(bytes(size))
    os.utime(path, (time.time() - used_before,) * 2)
    return path


def test_the_cache_is_listed_and_removed_by_kind(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures, features = filled("pictures", "folder", 3000), filled("features", "a.npz", 500)
    assert main(["cache", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sizes = {kind: each["bytes"] for kind, each in found.items()}
    assert sizes == {"pictures": 3000, "features": 500, "inductor": 0, "runs": 0}
    assert found["pictures"]["folder"] == str(own_cache / "pictures")
    assert main(["cache", "--remove", "pictures"]) == 0
    assert not pictures.exists()
    assert features.exists()
    assert main(["cache", "--remove"]) == 0
    assert not features.exists()
    assert main(["cache"]) == 0, "an empty cache is not an error"
    assert main(["cache", "--remove", "picture"]) == 2


def test_the_least_recently_used_goes_first_but_nothing_that_a_run_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmt.cache.CACHE_BYTES", 1000)
    today = [filled("pictures", name, 900) for name in ("running", "b.npz")]
    old, very_old = filled("pictures", "c", 900, 2 * DAY), filled("features", "d.npz", 10, 40 * DAY)
    trim("pictures")
    trim("features")
    assert [path.exists() for path in (*today, old, very_old)] == [True, True, False, False]
