"""Checkpoints that survive a kill at any moment: written aside, flushed, then renamed into place, each with checksums.

A checkpoint is a folder: ``weights.safetensors`` (the networks), ``state.pt`` (optimisers, step and the loop's own
notes; loads with ``weights_only=True``) and ``manifest.json`` (checksums). The last two are kept, so that a damaged one
has a predecessor.
"""

import hashlib
import io
import json
import os
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from vmt.disk import explain_write_errors, flush_to_disk, write_atomically
from vmt.errors import InputError


@dataclass
class LoopState:
    """How a run has gone so far."""

    seconds: float = 0.0
    best_source: float = 0.0
    collapsed: str | None = None
    phases: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last judgement of each phase that has ended."""
    clock: list[tuple[int, float]] = field(default_factory=list)
    """Iterations and the seconds they had taken, at each look."""
    best: dict[str, Any] | None = None
    """Which look is the best by ``Config.keep_best``."""


CHECKPOINTS = "checkpoints"
KEEP = 2
WEIGHTS, STATE, MANIFEST = "weights.safetensors", "state.pt", "manifest.json"
PREFIX = "step-"


class Damaged(Exception):
    """A checkpoint that cannot be trusted."""


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any], step: int) -> None:
    """Write one checkpoint and drop those before the last two."""
    roles = {name: t.contiguous() for name, t in tensors.items() if name.startswith("roles/")}
    rest = {name: t.clone() for name, t in tensors.items() if not name.startswith("roles/")}
    final = folder / f"{PREFIX}{step:09d}"
    aside = folder / f".{final.name}.{os.getpid()}"
    with explain_write_errors(final):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            parts = {WEIGHTS: save(roles), STATE: saved({"tensors": rest, "notes": dict(notes)})}
            for name, content in parts.items():
                write_atomically(aside / name, content)
            sums = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
            write_atomically(aside / MANIFEST, json.dumps({"step": step, "sha256": sums}).encode())
            flush_to_disk(aside)
            shutil.rmtree(final, ignore_errors=True)
            aside.replace(final)
            flush_to_disk(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    for old in outdated(folder, final):
        shutil.rmtree(old, ignore_errors=True)


def saved(state: dict[str, Any]) -> bytes:
    """``torch.save`` to memory: to a disk that is full it fails with an error of its own, not with the system's."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def outdated(folder: Path, newest: Path) -> list[Path]:
    """What a new checkpoint makes useless: those before the last two, the damaged ones from after it that the run went
    back from, and what kills in the middle of a write have left."""
    whole = checkpoints(folder)
    later = [path for path in whole if path.name > newest.name]
    return [*later, *whole[len(later) + KEEP :], *folder.glob(f".{PREFIX}*")]


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, newest first."""
    return sorted(folder.glob(f"{PREFIX}*"), reverse=True) if folder.is_dir() else []


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and notes of one checkpoint; :class:`Damaged` when anything in it is not what was written."""
    try:
        sums = json.loads((path / MANIFEST).read_text())["sha256"]
        for name in (WEIGHTS, STATE):
            if checksum(path / name) != sums[name]:
                raise Damaged(f"{path / name} is damaged")
        state = torch.load(path / STATE, weights_only=True, map_location="cpu")
        return {**load_file(path / WEIGHTS), **state["tensors"]}, state["notes"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError, pickle.UnpicklingError) as error:
        raise Damaged(f"{path} cannot be read ({type(error).__name__})") from error


def load_latest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any], list[str]] | None:
    """The newest checkpoint that is whole, with a sentence about each that is not; None when there is none at all."""
    said: list[str] = []
    for path in checkpoints(folder):
        try:
            tensors, notes = load_checkpoint(path)
        except Damaged as damage:
            said.append(f"{damage}: going back to the checkpoint before it.")
            continue
        return tensors, notes, said
    if said:
        raise InputError(f"every checkpoint in {folder} is damaged: start the run again in another folder.")
    return None
