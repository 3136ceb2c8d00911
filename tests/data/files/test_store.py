"""Decoded pictures are packed into a store once, whatever interrupts it, and damage is never taken for pixels."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.fuzz.mutations import DEEP
from tests.own_pictures import class_folders, picture, save, unlabelled_folder
from vmt.data import read_own
from vmt.data.files import store as module
from vmt.data.files.store import JOURNAL, LOCK, ROWS, Picture, open_store, pack
from vmt.data.stored import StoredSamples
from vmt.errors import InputError

SHAPE = (3, 12, 12)
FORK = multiprocessing.get_context("fork")


def pixels(number: int) -> Picture | str:
    return "damaged" if number % 7 == 3 else picture(number % 3, number).transpose(2, 0, 1)


class Reading:
    """Reads made pictures, and counts them."""

    def __init__(self, fails_at: int = 10**9) -> None:
        self.read: list[int] = []
        self.fails_at = fails_at

    def __call__(self, numbers: Sequence[int], done: int) -> Iterator[Picture | str]:
        assert done == (numbers[0] if len(numbers) else done)
        for number in numbers:
            if number == self.fails_at:
                raise KeyboardInterrupt
            self.read.append(number)
            yield pixels(number)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 4)


def check(folder: Path, count: int = 50) -> None:
    found = open_store(folder, SHAPE)
    assert found is not None
    assert [fault != "" for fault in found.faults] == [number % 7 == 3 for number in range(count)]
    samples = StoredSamples(found.rows, np.flatnonzero(found.faults == ""))
    expected = np.stack([row for number in range(count) if not isinstance(row := pixels(number), str)])
    np.testing.assert_array_equal(samples.loaded().numpy(), expected)


def test_interrupted_packing_continues_after_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        pack(tmp_path, 50, SHAPE, Reading(fails_at=30))
    assert open_store(tmp_path, SHAPE) is None, "it is not complete"
    rest = Reading()
    pack(tmp_path, 50, SHAPE, rest)
    assert rest.read == list(range(28, 50)), "7 chunks of 4 were there"
    check(tmp_path)
    (tmp_path / LOCK).unlink()
    again = Reading()
    pack(tmp_path, 50, SHAPE, again)
    assert again.read == []
    assert not (tmp_path / JOURNAL).exists()
    assert not (tmp_path / LOCK).exists(), "a complete store is only read"


@pytest.mark.parametrize("damage", ["journal cut", "journal text", "journal too deep", "rows cut", "rows changed"])
def test_what_an_interruption_left_is_checked(tmp_path: Path, damage: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        pack(tmp_path, 50, SHAPE, Reading(fails_at=30))
    if damage.startswith("journal"):
        text = (tmp_path / JOURNAL).read_bytes()
        more = {"journal text": b'{"crc": 5}\n', "journal too deep": b"[" * DEEP + b"\n"}
        (tmp_path / JOURNAL).write_bytes(text[:-9] if damage == "journal cut" else text + more[damage])
    else:
        rows = bytearray((tmp_path / ROWS).read_bytes())
        place = 17 * 3 * 12 * 12
        rows = rows[:place] if damage == "rows cut" else rows[:place] + b"\xff\x00" + rows[place + 2 :]
        (tmp_path / ROWS).write_bytes(rows)
    rest = Reading()
    pack(tmp_path, 50, SHAPE, rest)
    kept = {"journal cut": 24, "journal text": 28, "journal too deep": 28, "rows cut": 16, "rows changed": 16}
    assert rest.read[0] == kept[damage]
    check(tmp_path)


def pack_up_to(folder: Path, stop: int) -> None:
    """Pack 100 pictures, but read none from this number on."""

    def read(numbers: Sequence[int], done: int) -> Iterator[Picture | str]:
        for number in numbers:
            if number == stop:
                time.sleep(3600)
            yield pixels(number)

    pack(folder, 100, SHAPE, read)


def test_a_killed_process_and_one_that_waits_for_it(tmp_path: Path) -> None:
    processes = [FORK.Process(target=pack_up_to, args=(tmp_path / "store", stop)) for stop in (30, 100)]
    processes[0].start()
    while not (tmp_path / "store" / JOURNAL).exists() or (tmp_path / "store" / JOURNAL).read_bytes().count(b"\n") < 7:
        time.sleep(0.02)
        assert processes[0].is_alive()
    processes[1].start()
    processes[0].kill()
    for process, code in zip(processes, (-signal.SIGKILL, 0), strict=True):
        process.join(300)
        assert process.exitcode == code
    check(tmp_path / "store", 100)


def test_damage_is_never_taken_for_pixels(tmp_path: Path) -> None:
    found = pack(tmp_path, 50, SHAPE, Reading())
    samples = StoredSamples(found.rows)
    with (tmp_path / ROWS).open("r+b") as file:
        file.seek(20 * 3 * 12 * 12 + 5)
        file.write(b"\x99")
    assert len(samples[:20]) == 20
    with pytest.raises(InputError, match="row 20"):
        samples[18:22]
    os.truncate(tmp_path / ROWS, 40 * 3 * 12 * 12)
    with pytest.raises(InputError, match=ROWS):
        samples[torch.tensor([45])]
    assert open_store(tmp_path, SHAPE) is None


def test_a_full_disk_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="VMT_CACHE"):
        pack(tmp_path, 2**40, SHAPE, Reading())


def test_stored_samples_are_a_tensor_that_is_read_when_it_is_indexed(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "a")
    (root / "кошка" / "bad.png").write_bytes(b"no picture")
    resident, stored = read_own(root), read_own(root, memory="1KiB")
    assert stored.classes == resident.classes
    (note,) = set(stored.notes) - set(resident.notes)
    assert "cache" in note
    x = stored.domain.x
    assert isinstance(x, StoredSamples)
    assert (x.shape, x.dtype, x.device, len(x)) == (resident.domain.x.shape, torch.uint8, torch.device("cpu"), 30)
    few = torch.tensor([7, 3, 3, 29])
    assert torch.equal(x[few], resident.domain.x[few])
    assert torch.equal(x[4:9], resident.domain.x[4:9])
    part, again = stored.domain.subset(few).subset(torch.tensor([2, 0])), resident.domain.x[torch.tensor([3, 7])]
    assert torch.equal(part.x.loaded(), again)
    assert [float(value) for value in part.x.aminmax()] == [float(value) for value in again.aminmax()]
    for whole in (lambda: x.float(), lambda: x + 1, lambda: x[0], lambda: torch.equal(x, x)):
        with pytest.raises(NotImplementedError):
            whole()


def test_pictures_that_exceed_the_memory_need_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = unlabelled_folder(tmp_path / "a", 5)
    with pytest.raises(InputError, match="--no-cache"):
        read_own(root, memory="1KiB", cache=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VMT_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="file"):
        read_own(root, memory="1KiB")
    assert len(read_own(root).domain) == 5


def test_a_damaged_store_is_packed_again(tmp_path: Path, own_cache: Path) -> None:
    root = unlabelled_folder(tmp_path / "a", 5)
    save(root / "001.png", picture(1, 5))
    first = read_own(root).domain.x
    for path in own_cache.rglob(ROWS):
        path.write_bytes(bytes(path.stat().st_size))
    assert torch.equal(read_own(root).domain.x, first)
