"""Features of pictures that a frozen network has computed: once, and kept in the cache by the content of the pictures.

A cached vector is found again by the bytes of its picture, the framing, and the network with its weights and
preprocessing, so that neither a renamed file nor another network can be mistaken for it. Pictures are decoded, passed
through the network and forgotten a batch at a time, and what is done when a process is killed need not be done again.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmt.data.domains import Domain
from vmt.data.files.cached import Arrays, cached_arrays
from vmt.data.files.pictures import (
    DECODER_VERSION,
    PATIENCE,
    PictureHeaders,
    decode,
    fault_notes,
    read_in_threads,
    refuse_too_many_faults,
)
from vmt.data.framing import Framing
from vmt.data.preprocess import Preprocess, value_range
from vmt.data.stored import StoredSamples
from vmt.progress import Bar

BATCH = 64  # pictures that are decoded before they pass through the network
ENTRY = 128  # pictures in one entry of the cache, about; more are lost when a process is killed

Pixels = NDArray[np.uint8]
Decoded = Iterator[tuple[int, Pixels | str]]


class Extractor(Protocol):
    """A frozen network that turns pictures into vectors."""

    @property
    def width(self) -> int:
        """The number of features."""

    @property
    def preprocess(self) -> Preprocess:
        """From pictures to what the network sees."""

    @property
    def fingerprint(self) -> str:
        """A text that differs between networks that compute different features."""

    def features(self, x: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The features (N, F) of stored pictures (N, C, H, W)."""


def read_features(
    headers: PictureHeaders, extractor: Extractor, cache: bool = True, progress: bool = True
) -> tuple[NDArray[np.float32], NDArray[np.bool_], tuple[str, ...]]:
    """The features (N, F) of the readable pictures, a mask of these among all pictures, and notes on the others."""
    pictures, framing = headers.pictures, extractor.preprocess.framing
    faults = [str(fault) for fault in headers.faults]
    digests: list[str | None] = [None] * len(pictures.files)
    readable = [i for i, fault in enumerate(faults) if not fault]
    contents = read_in_threads(_digest, [pictures.files[i] for i in readable])
    for i, (_, found) in zip(readable, contents, strict=True):
        if isinstance(found, str):
            faults[i] = found
        else:
            digests[i] = found.hex()

    def decoded(places: Sequence[int]) -> Decoded:
        results = read_in_threads(lambda path: decode(path, framing), [pictures.files[i] for i in places])
        for i, (_, result) in zip(places, results, strict=True):
            yield i, result

    x = np.zeros((len(digests), extractor.width), np.float32)
    with Bar(
        f"features of {pictures.name}", "pictures", len(readable), show=progress, delay=PATIENCE, leave=False
    ) as bar:
        for i, fault in _computed(digests, decoded, extractor, framing, cache, bar.update, x):
            faults[i] = fault
    known = np.array(faults) == ""
    refuse_too_many_faults(pictures, np.array(faults))
    return x[known], known, fault_notes(pictures, np.array(faults))


def features_of_arrays(
    images: Domain, extractor: Extractor, cache: bool = True, progress: bool = True
) -> NDArray[np.float32]:
    """The features (N, F) of images that are arrays, of any size."""
    stored = as_pictures(images, extractor.preprocess).cpu().numpy()
    x = np.zeros((len(stored), extractor.width), np.float32)
    digests: list[str | None] = [hashlib.blake2b(image.tobytes(), digest_size=20).hexdigest() for image in stored]

    def decoded(places: Sequence[int]) -> Decoded:
        return ((i, stored[i]) for i in places)

    with Bar(f"features of {images.name}", "samples", len(stored), show=progress, delay=PATIENCE, leave=False) as bar:
        list(_computed(digests, decoded, extractor, extractor.preprocess.framing, cache, bar.update, x))
    return x


def as_pictures(images: Domain, preprocess: Preprocess) -> Tensor:
    """Images as the decoder of pictures gives them: bytes, in the size that the network reads."""
    x = images.x.loaded() if isinstance(images.x, StoredSamples) else images.x
    if x.is_floating_point():
        values = value_range(images)
        x = ((x * values.scale + values.shift + 1) * 127.5).round().clamp(0, 255)
    return preprocess.fit(x).round().to(torch.uint8)


def _computed(
    digests: Sequence[str | None],
    decoded: Callable[[Sequence[int]], Decoded],
    extractor: Extractor,
    framing: Framing,
    cache: bool,
    advance: Callable[[int], None],
    out: NDArray[np.float32],
) -> Iterator[tuple[int, str]]:
    """Fill in ``out``, entry by entry of the cache, and give the faults of pictures that cannot be decoded."""
    places: dict[str, list[int]] = {}
    for i, digest in enumerate(digests):
        if digest is not None:
            places.setdefault(digest, []).append(i)
    about = [DECODER_VERSION, PIL.__version__, extractor.fingerprint, *framing.described()]
    for group in _groups(list(places)):

        def compute(group: Sequence[str] = group) -> Arrays:
            firsts = {places[digest][0]: row for row, digest in enumerate(group)}
            vectors, found = np.zeros((len(group), extractor.width), np.float32), [""] * len(group)

            def readable() -> Iterator[tuple[int, Pixels]]:
                for place, result in decoded(list(firsts)):
                    if isinstance(result, str):
                        found[firsts[place]] = result
                    else:
                        yield firsts[place], result

            pictures = readable()
            while batch := list(islice(pictures, BATCH)):
                rows, pixels = zip(*batch, strict=True)
                vectors[list(rows)] = extractor.features(np.stack(pixels))
            return {"features": vectors, "faults": np.array(found)}

        arrays = cached_arrays("features", [*about, list(group)], compute, cache)
        advance(sum(len(places[digest]) for digest in group))  # those from the cache, too
        for digest, vector, fault in zip(group, arrays["features"], arrays["faults"], strict=True):
            for i in places[digest]:
                out[i] = vector
                if fault:
                    yield i, str(fault)


def _groups(digests: Sequence[str]) -> Iterator[list[str]]:
    """Pictures by the first bits of their digests, so that a picture more or less changes one group alone."""
    bits = max(0, math.ceil(math.log2(max(len(digests), 1) / ENTRY)))
    groups: dict[int, list[str]] = {}
    for digest in sorted(digests):
        groups.setdefault(int(digest[:8], 16) >> (32 - bits), []).append(digest)
    yield from groups.values()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).digest()
