"""Flags of ``vmt train``."""

import argparse
from pathlib import Path
from typing import Any

from vmt.cli.fields import add_fields
from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_json
from vmt.cli.parsers.own_data import add_flags
from vmt.data.tasks import TASKS
from vmt.methods.settings import METHODS
from vmt.nets.registry import NETS
from vmt.train.config import Config

EXAMPLES = """examples:
  vmt train digits                                        the embedded task, no download
  vmt train mnist-svhn --data DATA --out runs/m2s         VMT as in the paper, with instance norm
  vmt train mnist-svhn --data DATA --dirt-t --seed 1      then DIRT-T, as in the paper
  vmt train mnist-svhn --data DATA --method vada --no-instance-norm
  vmt train --source labelled/ --target unlabelled/       folders of pictures, one subfolder per class
  vmt train --source a.npz --target b.npz --iterations 5000
  vmt train --source a/ --target b/ --net mine.nets:make  a network of your own: make(classes=…, shape=…)
  vmt train --resume runs/m2s                             continue after a kill, to the same result

DATA holds the official files, for example mnist/*-ubyte.gz and svhn/{train,test}_32x32.mat; see vmt data --help.
Your own data: a folder of pictures, a .csv of paths and labels, a table of numbers with a column of labels (.csv, .tsv,
these as .gz, .parquet), an .npz with x and, for the source, y, or an .npy. The target needs no labels.
"""
DEFAULTS = "defaults come from the task's recipe; on your own data they are chosen by the kind of samples, and printed"
# Flags of the methods: name, type, help. Which of them a method takes is read off its function.
SETTINGS: dict[str, tuple[Any, str]] = {
    "lambda_d": (float, "weight of the domain-adversarial loss"),
    "lambda_s": (float, "weight of the penalties on the source"),
    "lambda_t": (float, "weight of the penalties on the target; the setting to try first"),
    "warm_up": (float, "share of the iterations over which λ_t grows from 0, for example 0.125"),
    "lambda_mix_t": (float, "weight of virtual mixup (L_m) on the target, if not λ_t"),
    "mix": (str, "where virtual labels are mixed: logits, probabilities or hidden"),
    "alpha": (float, "λ of the mix is drawn from Beta(α, α)"),
    "radius": (float, "radius ε of virtual adversarial training (VAT), L2 per sample"),
    "xi": (float, "length of VAT's first step ξ; chosen from the network if not given"),
    "lr": (float, "Adam's learning rate"),
    "decay": (float, "decay of the weight average"),
    "iterations": (int, "iterations of the method, before DIRT-T"),
}
DIRT_T: dict[str, tuple[Any, str]] = {
    "beta": (float, "weight of the teacher's labels in DIRT-T"),
    "interval": (int, "iterations until DIRT-T takes a new teacher"),
    "dirt_t_iterations": (int, "iterations of DIRT-T"),
}


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("train", help="train a method on a task or on your own data", epilog=EXAMPLES)
    parser.add_argument("task", nargs="?", help=f"one of {', '.join(TASKS)}; leave it out with --source and --target")
    own = parser.add_argument_group("data")
    own.add_argument("--data", metavar="DIR", help="folder of the task's official files")
    add_flags(own)
    own.add_argument("--out", metavar="DIR", type=Path, help="the run's folder (default: runs/TASK-METHOD-SEED)")
    own.add_argument("--resume", metavar="RUN", type=Path, help="continue this run; it knows its own settings")
    add_json(own)
    group = parser.add_argument_group("method", DEFAULTS)
    group.add_argument("--method", help=f"one of {', '.join(METHODS)} (default: vmt)")
    group.add_argument("--dirt-t", action="store_true", default=None, help="refine with DIRT-T afterwards")
    group.add_argument(
        "--vat",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="use virtual adversarial training, L_v (default: yes)",
    )
    group.add_argument(
        "--fresh-lambda",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="draw λ anew at every step (default: yes; the authors' program does not)",
    )
    for name, (kind, text) in {**SETTINGS, **DIRT_T}.items():
        group.add_argument("--" + name.replace("_", "-"), type=kind, metavar=kind.__name__.upper(), help=text)
    group.add_argument(
        "--net",
        help=f"one of {', '.join(NETS)}, package.module:function of your own, or timm:name (default: the recipe's)",
    )
    group.add_argument(
        "--instance-norm",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="normalise each image at the input (default: yes for the paper's tasks and networks)",
    )
    add_fields(parser.add_argument_group("run"), Config)
    parser.set_defaults(run=Later("vmt.cli.train"))
