"""Run folders and results like those of the paper's tables, of a few iterations."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from vmt.paper.experiment import Experiment, Job
from vmt.paper.figures import System
from vmt.paper.results import write_result
from vmt.runs.folder import RunSpec
from vmt.runs.recipes import with_settings
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import DataSpec, load_data


def write_runs(systems: Iterable[System], data: Path, runs: Path, results: Path) -> None:
    """Write a run folder with seed 0 and a result file for each system.

    To save time, only VMT with DIRT-T is trained, with and without instance norm; the others are copies under the names
    that their own runs would have.
    """
    spec = DataSpec("mnist-svhn", str(data))
    task = load_data(spec)
    experiments = {system.experiment.name: system.experiment for system in systems}
    for instance_norm in {experiment.instance_norm for experiment in experiments.values()}:
        trained = Experiment("mnist-svhn", "vmt", instance_norm, dirt_t=True)
        recipe = with_settings(trained.recipe(0), {"iterations": 4, "dirt_t_iterations": 2})
        config = replace(recipe.config, batch_size=4, evaluate_every=2, precision="float32", validate_samples=0)
        folder = runs / Job(trained, 0, "dirt_t").run
        summary = carry_out(Run.of(RunSpec(spec, replace(recipe, config=config)), task), folder).summary
        accuracies = list(summary["phases"].values())
        for experiment in experiments.values():
            if experiment.instance_norm == instance_norm:
                job = Job(experiment, 0, experiment.phases[-1])
                if runs / job.run != folder:
                    shutil.copytree(folder, runs / job.run)
                    (runs / job.run / "model_vmt.safetensors").rename(
                        runs / job.run / f"model_{experiment.method}.safetensors"
                    )
                reached = dict(zip(experiment.phases, accuracies, strict=False))
                write_result(results, job, {**summary, "phases": reached}, runs / job.run, task)
