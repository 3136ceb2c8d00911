"""Run folders and results as the paper's tables leave them, but for their length: of a few iterations."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from vmt.paper.experiment import Job
from vmt.paper.figures import System
from vmt.paper.results import write_result
from vmt.runs.folder import RunSpec
from vmt.runs.recipes import with_settings
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import DataSpec, load_data


def write_runs(systems: Iterable[System], data: Path, runs: Path, results: Path) -> None:
    """The run of each system with seed 0, and its result file."""
    task = load_data(DataSpec("mnist-svhn", str(data)))
    for experiment in {system.experiment.name: system.experiment for system in systems}.values():
        recipe = experiment.recipe(0)
        short = {"iterations": 4} | ({} if recipe.dirt_t is None else {"dirt_t_iterations": 2})
        recipe = with_settings(recipe, short)
        config = replace(recipe.config, batch_size=4, evaluate_every=2, precision="float32", validate_samples=0)
        spec = RunSpec(DataSpec("mnist-svhn", str(data)), replace(recipe, config=config))
        job = Job(experiment, 0, experiment.phases[-1])
        summary = carry_out(Run.of(spec, task), runs / job.run).summary
        write_result(results, job, summary, runs / job.run, task)
