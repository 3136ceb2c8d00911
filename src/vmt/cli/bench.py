"""``vmt bench``."""

import argparse
import json

from vmt.engine.bench import bench


def run(arguments: argparse.Namespace) -> int:
    report = bench(
        arguments.net,
        batch_size=arguments.batch_size,
        engines=arguments.engines,
        device=arguments.device,
        precision=arguments.precision,
        iterations=arguments.iterations,
        data=arguments.data,
        baseline=not arguments.no_baseline,
        plot=arguments.plot,
    )
    if arguments.json:
        print(json.dumps(report))
    return 0
