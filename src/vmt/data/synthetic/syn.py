"""Synthetic Digits, re-created: the published set cannot be had everywhere, and this one is drawn from fonts at hand.

It is a re-creation and called so wherever it is named: in its files and in the name of its domain.
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

from vmt.data.published import SYN_TEST, SYN_TRAIN
from vmt.data.readers.digits import Samples, Split, known_split
from vmt.data.synthetic.built_sets import Built, Chunk, Tick, no_tick, read_digits, write_set
from vmt.data.synthetic.drawn_numbers import SIDE, render
from vmt.data.synthetic.glyphs import Atlas, make_atlas
from vmt.errors import InputError

COUNTS: dict[Split, int] = {"train": SYN_TRAIN, "test": SYN_TEST}
STREAMS: dict[Split, int] = {"train": 0, "test": 1}
CHUNK = 128  # pictures drawn at once, the fastest number; never fewer, so that no picture depends on how many follow
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
    """Writes recreated_train.npz and recreated_test.npz. The result does not depend on the number of workers."""
    counts = COUNTS if counts is None else counts
    if seed < 0 or workers < 1 or min(counts.values()) < 1:
        raise InputError("the re-creation needs a seed of 0 or more, and one worker and one picture or more.")
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
        chunks = _chunks(atlas, seed, split, count, workers)
        made[split] = write_set(files[split], (count, 3, SIDE, SIDE), chunks, settings, tick)
    return Built(files, made)


def recreation_file(folder: Path, split: Split) -> Path:
    return folder / f"recreated_{known_split(split)}.npz"


def recreation_exists(folder: Path, split: Split) -> bool:
    return recreation_file(folder, split).exists()


def read_recreation(folder: Path, split: Split) -> Samples:
    """Images (N, 3, 32, 32) uint8 and labels of the set that ``vmt data build syn`` wrote."""
    return read_digits(recreation_file(folder, split), SIDE, REMEDY)


def _chunks(atlas: Atlas, seed: int, split: Split, count: int, workers: int) -> Iterator[Chunk]:
    """The pictures in order, a chunk at a time; the last chunk is drawn whole and then cut."""
    starts = range(0, count, CHUNK)
    drawing = Drawing(atlas, seed, STREAMS[split])
    if workers == 1 or len(starts) == 1:
        yield from _cut(map(drawing, starts), count)
        return
    # Started afresh: a fork of a process in which torch has threads may hang.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(workers, len(starts)), context, _begin, (drawing,)) as pool:
            try:
                yield from _cut(pool.map(_draw, starts, chunksize=4), count)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    except BrokenProcessPool as error:
        raise InputError("a worker was killed, perhaps for lack of memory: give fewer --workers.") from error


def _cut(chunks: Iterator[Chunk], count: int) -> Iterator[Chunk]:
    for x, y in chunks:
        yield x[:count], y[:count]
        count -= len(x)


@dataclass(frozen=True, eq=False)
class Drawing:
    """Draws the chunk that starts at an index."""

    atlas: Atlas
    seed: int
    stream: int

    def __call__(self, start: int) -> Chunk:
        threads = torch.get_num_threads()
        # One thread: work that is cut up otherwise may round otherwise, and the workers share the cores already.
        torch.set_num_threads(1)
        try:
            x, y = render(self.atlas, self.seed, self.stream, np.arange(start, start + CHUNK))
        finally:
            torch.set_num_threads(threads)
        return x.numpy(), y.numpy()


# What a worker draws with, sent once when it starts rather than with every chunk.
_drawing: Drawing | None = None


def _begin(drawing: Drawing) -> None:
    global _drawing
    _drawing = drawing
    # Ctrl-C reaches every process of the terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _draw(start: int) -> Chunk:
    assert _drawing is not None
    return _drawing(start)
