"""Cells of a few iterations, as the paper's tables have them of many."""

from vmt.paper.experiment import Cell, Experiment

SHORT = {"iterations": 3}


def cell(row: str, method: str, seeds: int = 1) -> Cell:
    """Of a few iterations, before DIRT-T."""
    return Cell(row, "mnist-svhn", Experiment("mnist-svhn", method, changes=SHORT), method, 40.9, seeds=seeds)


def refined(phase: str, seeds: int = 1) -> Cell:
    changes = {**SHORT, "dirt_t_iterations": 2}
    return Cell(phase, "mnist-svhn", Experiment("mnist-svhn", dirt_t=True, changes=changes), phase, 95.1, 1.0, seeds)
