"""Samples to predict on are read in batches."""

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.own_pictures import picture, save
from vmt.data.files import stream as module
from vmt.data.files.numpy_files import iterate_rows
from vmt.data.files.stream import InputSpec, SampleBatch, expand_inputs, stream_samples
from vmt.data.preprocess import Preprocess


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    """A sparse file of 400 MB, and an endless list of paths on standard input."""
    shape = (400_000, 16, 16, 4)
    mapped = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.uint8, shape)
    mapped[-1] = 7
    del mapped
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    last = 0
    for portion in iterate_rows(tmp_path / "big.npy"):
        last = int(portion[-1, 0, 0, 0])
    assert last == 7
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # kilobytes
    (tmp_path / "big.npy").unlink()
    asked = 0

    def endless() -> Iterator[bytes]:
        nonlocal asked
        path = str(save(tmp_path / "x.png", picture(1))).encode()
        while True:
            asked += 1
            yield path + b"\n"

    reads = InputSpec(Preprocess(3, (12, 12), (1 / 127.5,), (-1.0,)))
    first = next(iter(stream_samples(expand_inputs(["-"], reads), reads, endless())))  # type: ignore[arg-type]
    assert isinstance(first, SampleBatch)
    assert len(first.files) == module.BATCH
    assert asked < 4 * module.BATCH
