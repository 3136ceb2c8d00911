"""Flags of ``vmt data``."""

from pathlib import Path
from typing import Any

from vmt.cli.later import Later
from vmt.cli.parsers.flags import add_json
from vmt.data.published import SOURCES, SYN_TEST, SYN_TRAIN

WORK = "vmt.cli.data"
EXAMPLES = """examples:
  vmt data download mnist svhn --data DATA     the two sets of mnist-svhn
  vmt data build mnistm --data DATA            MNIST-M, from MNIST and BSDS500
  vmt data build syn --data DATA               Synthetic Digits, re-created from fonts
"""
DOWNLOAD = f"""examples:
  vmt data download mnist svhn --data DATA
  vmt data download mnist bsds500 --data DATA  what MNIST-M is built from

Sets: {", ".join(SOURCES)}. Each file is checked against its published checksum; an interrupted download continues
where it stopped, and existing files are left alone. SVHN and BSDS500 are for non-commercial use.
"""
MNISTM = """examples:
  vmt data build mnistm --data DATA
  vmt data build mnistm --data DATA --out elsewhere/mnistm --json

Reads DATA/mnist and DATA/bsds500 and writes train.npz and test.npz. With the same seed everyone gets the same pixels.
"""
SYN = f"""examples:
  vmt data build syn --data DATA
  vmt data build syn --data DATA --fonts /usr/share/fonts --workers 8
  vmt data build syn --out small --count 10000 --test-count 1000 --seed 1

Draws numbers with the fonts that ship with matplotlib and writes recreated_train.npz ({SYN_TRAIN:,} pictures) and
recreated_test.npz ({SYN_TEST:,}). It is a re-creation, not the published set, and every result on it says so.
The number of workers does not change the pictures.
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("data", help="download or build the benchmark sets", epilog=EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_download(actions)
    builders = actions.add_parser("build", help="build a set that cannot be downloaded", epilog=EXAMPLES)
    sets = builders.add_subparsers(dest="set", metavar="SET", required=True)
    add_mnistm(sets)
    add_syn(sets)


def add_download(actions: Any) -> None:
    parser = actions.add_parser("download", help="fetch published sets", epilog=DOWNLOAD)
    parser.add_argument("sets", nargs="+", metavar="SET", help=f"any of {', '.join(SOURCES)}")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the data folder to put them under")
    add_json(parser)
    parser.set_defaults(run=Later(WORK, "download"))


def add_mnistm(sets: Any) -> None:
    parser = sets.add_parser("mnistm", help="MNIST-M, from MNIST and BSDS500", epilog=MNISTM)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the folder of mnist and bsds500")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: DATA/mnistm)")
    parser.add_argument("--seed", type=int, default=0, help="draws photographs and crops (default: 0, everyone's)")
    add_json(parser)
    parser.set_defaults(run=Later(WORK, "mnistm"))


def add_syn(sets: Any) -> None:
    parser = sets.add_parser("syn", help="Synthetic Digits, re-created from fonts", epilog=SYN)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--data", type=Path, metavar="DIR", help="the data folder; writes to its folder syn")
    place.add_argument("--out", type=Path, metavar="DIR", help="the folder to write to")
    for split, flag, default in (("train", "--count", SYN_TRAIN), ("test", "--test-count", SYN_TEST)):
        parser.add_argument(
            flag, type=int, default=default, metavar="N", help=f"pictures in the {split} split (default: {default})"
        )
    parser.add_argument("--seed", type=int, default=0, help="decides every draw (default: 0)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: all cores)")
    parser.add_argument("--fonts", type=Path, metavar="DIR", help="also draw with the fonts under this folder")
    add_json(parser)
    parser.set_defaults(run=Later(WORK, "syn"))
