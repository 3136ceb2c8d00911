"""Cells whose runs have a few iterations; those of the paper's tables have many."""

from vmt.paper.experiment import Cell, Experiment

SHORT = {"iterations": 3}
# Config fields that make the runs of a queue small.
OVERRIDES = {"batch_size": 4, "log_every": 1, "checkpoint_every": 1, "validate_samples": 4, "device": "cpu"}


def cell(row: str, method: str, seeds: int = 1) -> Cell:
    """A cell of a method without DIRT-T."""
    return Cell(row, "mnist-svhn", Experiment("mnist-svhn", method, changes=SHORT), method, 40.9, seeds=seeds)


def refined(phase: str, seeds: int = 1) -> Cell:
    """A cell of VMT with DIRT-T, at the end of a phase."""
    changes = {**SHORT, "dirt_t_iterations": 2}
    return Cell(phase, "mnist-svhn", Experiment("mnist-svhn", dirt_t=True, changes=changes), phase, 95.1, 1.0, seeds)
