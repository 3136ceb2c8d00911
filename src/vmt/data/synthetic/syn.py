"""Synthetic Digits, re-created with the fonts at hand, because the published set is hard to obtain.

The result is called a re-creation wherever it is named: in its files and in the name of its domain.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vmt.data.fetch import SYN_TEST, SYN_TRAIN
from vmt.data.readers.digits import Samples, Split, known_split
from vmt.data.synthetic.built_sets import Built, LabelledImages, Tick, no_tick, read_digits, write_set
from vmt.data.synthetic.drawn_numbers import SIDE, render
from vmt.data.synthetic.glyphs import Atlas, make_atlas
from vmt.errors import InputError

COUNTS: dict[Split, int] = {"train": SYN_TRAIN, "test": SYN_TEST}
STREAMS: dict[Split, int] = {"train": 0, "test": 1}
CHUNK = 128  # pictures drawn at once, the fastest number; constant, so that no picture depends on the count
NAME = "Synthetic Digits (re-creation)"
REMEDY = "re-create Synthetic Digits with: vmt data build syn --data DIR"


def build_syn(
    out: Path,
    counts: dict[Split, int] | None = None,
    seed: int = 0,
    workers: int = 1,
    fonts: Path | None = None,
    tick: Tick = no_tick,
) -> Built:
    """Write recreated_train.npz and recreated_test.npz. The result does not depend on the number of workers."""
    counts = COUNTS if counts is None else counts
    if seed < 0 or workers < 1 or min(counts.values()) < 1:
        raise InputError(
            f"seed must be 0 or more, workers and counts 1 or more, but got {seed}, {workers} and "
            f"{list(counts.values())}."
        )
    atlas = make_atlas(fonts)
    files = {split: recreation_file(out, split) for split in counts}
    made: dict[Split, dict[str, Any]] = {}
    for split, count in counts.items():
        settings = {
            "set": NAME,
            "split": split,
            "count": count,
            "seed": seed,
            "fonts": list(atlas.fonts),
            "glyphs": atlas.checksum,
        }
        chunks = _chunks(ChunkRenderer(atlas, seed, STREAMS[split]), count, workers)
        made[split] = write_set(files[split], (count, 3, SIDE, SIDE), chunks, settings, tick)
    return Built(files, made)


def recreation_file(folder: Path, split: Split) -> Path:
    return folder / f"recreated_{known_split(split)}.npz"


def recreation_exists(folder: Path, split: Split) -> bool:
    return recreation_file(folder, split).exists()


def read_recreation(folder: Path, split: Split) -> Samples:
    """Images (N, 3, 32, 32) uint8 and labels of the set that ``vmt data build syn`` wrote."""
    return read_digits(recreation_file(folder, split), SIDE, REMEDY)


@dataclass(frozen=True, eq=False)
class ChunkRenderer:
    """Draws the chunk of pictures that starts at an index."""

    atlas: Atlas
    seed: int
    stream: int

    def __call__(self, start: int) -> LabelledImages:
        threads = torch.get_num_threads()
        # One thread: another division of the work may round differently, and the workers share the cores already.
        torch.set_num_threads(1)
        try:
            x, y = render(self.atlas, self.seed, self.stream, np.arange(start, start + CHUNK))
        finally:
            torch.set_num_threads(threads)
        return x.numpy(), y.numpy()


def _chunks(renderer: ChunkRenderer, count: int, workers: int) -> Iterator[LabelledImages]:
    """The pictures in order, a chunk at a time; the last chunk is drawn whole and then cut."""
    starts = range(0, count, CHUNK)
    if workers == 1 or len(starts) == 1:
        yield from _cut(map(renderer, starts), count)
        return
    # Spawned, because a fork of a process in which torch has threads may hang.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(workers, len(starts)), context, _start_worker, (renderer,)) as pool:
            try:
                yield from _cut(pool.map(_render_in_worker, starts, chunksize=4), count)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    except BrokenProcessPool as error:
        raise InputError("a worker was killed, perhaps for lack of memory: give fewer --workers.") from error


def _cut(chunks: Iterator[LabelledImages], count: int) -> Iterator[LabelledImages]:
    for x, y in chunks:
        yield x[:count], y[:count]
        count -= len(x)


# The renderer of a worker process, sent once when it starts rather than with every chunk.
_renderer: ChunkRenderer | None = None


def _start_worker(renderer: ChunkRenderer) -> None:
    global _renderer
    _renderer = renderer
    # Ctrl-C reaches every process of the terminal; the parent process stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Stop a worker whose parent was killed; it would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _render_in_worker(start: int) -> LabelledImages:
    assert _renderer is not None
    return _renderer(start)
