"""How much depends on the seed: accuracy after the first few thousand iterations of MNIST → SVHN with instance norm.

    python benchmarks/seeds.py --data DATA --seeds 0 1 2 3 4 5 6 7
    python benchmarks/seeds.py --data DATA --seeds 2 6 --warm-up 0.05 0.125
    python benchmarks/seeds.py --data DATA --seeds 0 --weights 2 6      # these initial weights, seed 0's batches

Prints one line of JSON per run. On one H200 a run of 5,000 iterations takes about 20 seconds; the first run compiles.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from vmt.data import Task, load_task
from vmt.device import chosen_precision, torch_device
from vmt.engine import make_engine
from vmt.evaluate.accuracy import evaluate
from vmt.nets import cnn
from vmt.runs.folder import environment
from vmt.runs.recipes import paper, with_settings
from vmt.step.iteration import make_context
from vmt.step.state import build_state, predictor_of

EVALUATE_EVERY = 2_500


def curve(task: Task, seed: int, weights: int, warm_up: float, iterations: int, device: str) -> list[float]:
    """Accuracy on the target test set in percent, every 2,500 iterations, for the start of a run of 40,000."""
    recipe = with_settings(paper("mnist-svhn"), {"warm_up": warm_up})
    method, config = recipe.build(), replace(recipe.config, seed=seed, device=device)
    shape = task.sample_shape
    state = build_state(method, lambda: cnn(shape, 10, instance_norm=True), shape, weights, torch_device(device))
    bfloat16, _ = chosen_precision(config.precision, task.source.x.device, task.source.is_images)
    context = make_context(task, method, state, seed=seed, batch_size=config.batch_size, bfloat16=bfloat16)
    engine = make_engine("auto", state, context, seed, method.iterations)
    accuracies = []
    for done in range(0, iterations, EVALUATE_EVERY):
        engine.run(method.phases[0], done, min(EVALUATE_EVERY, iterations - done), done)
        found = evaluate(predictor_of(method, state), task.target_test, task.preprocess)
        accuracies.append(round(100 * found.accuracy, 2))
    return accuracies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of MNIST's and SVHN's official files")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--weights", type=int, nargs="+", help="seeds of the initial weights (default: the same seeds)")
    parser.add_argument("--warm-up", type=float, nargs="+", default=[0.0], help="as for vmt train")
    parser.add_argument("--iterations", type=int, default=5_000)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    task = load_task("mnist-svhn", arguments.data).to(torch_device(arguments.device))
    for warm_up in arguments.warm_up:
        for seed in arguments.seeds:
            for weights in arguments.weights or [seed]:
                began = time.monotonic()
                found = curve(task, seed, weights, warm_up, arguments.iterations, arguments.device)
                row = {"seed": seed, "weights": weights, "warm_up": warm_up, "accuracy": found}
                row |= {"seconds": round(time.monotonic() - began, 1), **environment(arguments.device)}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
