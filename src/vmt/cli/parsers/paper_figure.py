"""Flags of ``vmt paper figure``."""

import argparse
from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_device
from vmt.names import FIGURES


def add_figure(actions: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        "figure",
        help="draw a figure of the paper",
        description="The last hidden layer of four systems (tsne), gradient norms in between samples of VADA and VMT, "
        "or the accuracy over time of VAT and VMT. The first two need the runs' models and --data, the third results.",
    )
    parser.add_argument("figure", choices=FIGURES, help="which one")
    parser.add_argument("--data", help="folder of the official files")
    parser.add_argument("--out", type=Path, help="its file; a .svg (or .pdf) and a .png (default: figures/FIGURE.svg)")
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="test samples of a domain, or pairs; 0 takes all (default: what is done in minutes)",
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of the runs (default: 0)")
    parser.add_argument(
        "--instance-norm",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="which runs (default: without for tsne, as in the paper, and with for gradient-norms)",
    )
    add_device(parser)
    parser.set_defaults(run=Later("vmt.cli.paper_figure", "draw"))
    return parser
