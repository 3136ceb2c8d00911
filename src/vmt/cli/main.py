"""The command ``vmt``."""

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import vmt
from vmt.cli.help import Help
from vmt.cli.later import INTERRUPTED
from vmt.cli.parsers import bench, data, demo, evaluate, export, inspect, paper, predict, report, select, train
from vmt.errors import InputError, gave_up, perhaps, refused
from vmt.train.progress import STDERR

EXAMPLES = """examples:
  vmt demo                                    see it work: a small real task, a few minutes on a CPU
  vmt train mnist-svhn --data DATA --dirt-t   the paper's recipe for MNIST → SVHN
  vmt train --source a.npz --target b.npz     your own data
  vmt report RUN -o report.html               a page that shows whether it worked
  vmt select RUN RUN                          which run, when there are no target labels?
  vmt predict RUN picture.png                 classes and probabilities as CSV
  vmt export RUN                              one file for other programs, in ONNX
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one sentence, and whose help fits the terminal."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **{**more, "formatter_class": Help})

    def parse_known_args(self, *arguments: Any, **more: Any) -> Any:
        """Flags that a command does not know are refused by the command itself, which knows the ones that are near."""
        known, unknown = super().parse_known_args(*arguments, **more)
        if strange := next((one for one in unknown if one.startswith("-")), None):
            flag = strange.split("=")[0].replace("_", "-")
            self.error(f"there is no flag {strange}{perhaps(flag, self._option_string_actions)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        print(f"vmt: {message}; see '{self.prog} --help'.", file=sys.stderr)
        sys.exit(2)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="vmt",
        description="Unsupervised domain adaptation with Virtual Mixup Training.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"vmt {vmt.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for module in (demo, train, select, report, evaluate, predict, export, data, paper, bench, inspect):
        module.add_commands(commands)
    return parser


def show_warning(
    others: Callable[..., None], message: Warning | str, category: type, filename: str, *rest: Any
) -> None:
    """A warning of this package as a sentence, without the line of code that it comes from."""
    if Path(vmt.__file__).parent in Path(filename).parents:
        print(f"vmt: {str(message).rstrip('.')}.", file=STDERR)
    else:
        others(message, category, filename, *rest)


def open_closed_streams() -> None:
    """Or a file of a run would be given the number of a stream that was closed (``2>&-``), and what libraries write to
    that stream would end up in the file."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the process ends)


def main(argv: list[str] | None = None) -> int:
    """Run a command; bad input ends in one sentence and exit code 2."""
    open_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        # Where output is not in Unicode, as on Windows when it goes to a file, a λ must not end a run.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = build_parser().parse_args(argv)
        with warnings.catch_warnings():
            warnings.showwarning = partial(show_warning, warnings.showwarning)
            return int(arguments.run(arguments))
    except InputError as error:
        print(f"vmt: {error}", file=STDERR)
        return 2
    except BrokenPipeError:
        # The reader went away (`vmt predict … | head`): not an error, but stdout must not be flushed again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"vmt: {refused(error)}", file=STDERR)
        return 2
    except RuntimeError as error:
        if (sentence := gave_up(error)) is None:
            raise
        print(f"vmt: {sentence}", file=STDERR)
        return 1
    except KeyboardInterrupt:
        print("vmt: interrupted.", file=STDERR)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
