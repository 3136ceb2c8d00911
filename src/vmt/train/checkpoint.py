"""Checkpoints that survive a kill at any moment: written under another name, flushed, then renamed into place.

A checkpoint is a folder with ``weights.safetensors`` (the networks), ``state.pt`` (the optimisers, the step and the
:class:`LoopState`; loads with ``weights_only=True``) and ``manifest.json`` (checksums). The last two are kept, so that
there is another one if the last is damaged.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from vmt.disk import explain_write_errors, flush_to_disk, write_atomically
from vmt.errors import InputError, parsing
from vmt.json_types import from_json


@dataclass
class LoopState:
    """What the training loop knows about a run so far."""

    seconds: float = 0.0
    """The time that all iterations and evaluations took."""
    best_source: float = 0.0
    """The best accuracy on held-out source samples."""
    collapsed: str | None = None
    """What is wrong with the run, if it has collapsed."""
    phases: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last evaluation of each phase that has ended."""
    clock: list[tuple[int, float]] = field(default_factory=list)
    """The iteration of each evaluation, and the seconds until then."""
    best: dict[str, Any] | None = None
    """The best evaluation by ``Config.keep_best``."""
    ranks: int = 1
    """The number of processes that train the networks together."""


CHECKPOINTS = "checkpoints"
KEEP = 2
WEIGHTS, STATE, MANIFEST = "weights.safetensors", "state.pt", "manifest.json"
PREFIX = "step-"


def save_checkpoint(folder: Path, tensors: Mapping[str, Tensor], loop_state: Mapping[str, Any], step: int) -> None:
    """Write one checkpoint, and remove all but the last two."""
    roles = {name: t.contiguous() for name, t in tensors.items() if name.startswith("roles/")}
    rest = {name: t.clone() for name, t in tensors.items() if not name.startswith("roles/")}
    final = folder / f"{PREFIX}{step:09d}"
    unfinished = folder / f".{final.name}.{os.getpid()}"
    with explain_write_errors(final):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            parts = {WEIGHTS: save(roles), STATE: to_bytes({"tensors": rest, "notes": dict(loop_state)})}
            for name, content in parts.items():
                write_atomically(unfinished / name, content)
            sums = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
            write_atomically(unfinished / MANIFEST, json.dumps({"step": step, "sha256": sums}).encode())
            flush_to_disk(unfinished)
            shutil.rmtree(final, ignore_errors=True)
            unfinished.replace(final)
            flush_to_disk(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    for old in outdated_checkpoints(folder, final):
        shutil.rmtree(old, ignore_errors=True)


def to_bytes(state: dict[str, Any]) -> bytes:
    """``torch.save`` to memory, because on a full disk it would raise its own error instead of the system's."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def outdated_checkpoints(folder: Path, newest: Path) -> list[Path]:
    """The folders to remove after a new checkpoint is written.

    These are all checkpoints before the last two, later ones that were damaged, so that the run continued from an
    earlier one, and incomplete ones of a process that was killed.
    """
    complete = checkpoints(folder)
    later = [path for path in complete if path.name > newest.name]
    return [*later, *complete[len(later) + KEEP :], *unfinished_checkpoints(folder)]


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, newest first."""
    return sorted(folder.glob(f"{PREFIX}*"), reverse=True) if folder.is_dir() else []


def last_step(folder: Path) -> int | None:
    """The iteration of the newest complete checkpoint; None without one."""
    saved = checkpoints(folder)
    return int(saved[0].name.removeprefix(PREFIX)) if saved else None


def unfinished_checkpoints(folder: Path) -> list[Path]:
    """Incomplete checkpoints, of a process that writes one or was killed while it did."""
    return list(folder.glob(f".{PREFIX}*"))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the loop state of a checkpoint; an :class:`InputError` if a file is not what was written."""
    with parsing(path, "a complete checkpoint", "resume from another one"):
        sums = json.loads((path / MANIFEST).read_bytes())["sha256"]
        for name in (WEIGHTS, STATE):
            if checksum(path / name) != sums[name]:
                raise InputError(f"{path / name} is damaged: resume from another checkpoint.")
        state = torch.load(path / STATE, weights_only=True, map_location="cpu")
        tensors = {**load_file(path / WEIGHTS), **state["tensors"]}
        if not all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()):
            raise TypeError("not only tensors")
        from_json(LoopState, state["notes"])
        return tensors, state["notes"]


def load_latest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any], list[str]] | None:
    """The newest checkpoint that is not damaged, and a message about each that is; None if there is none at all."""
    messages: list[str] = []
    for path in checkpoints(folder):
        try:
            tensors, loop_state = load_checkpoint(path)
        except InputError as error:
            damage = str(error).rpartition(": ")[0]
            messages.append(f"{damage}: continuing from the checkpoint before it.")
            continue
        return tensors, loop_state, messages
    if messages:
        raise InputError(f"every checkpoint in {folder} is damaged: start the run again in another folder.")
    return None
