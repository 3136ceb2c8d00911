"""The command ``vmt``: parse the arguments, run a command, and turn errors into a message and an exit code.

Each command has a module, with its options at the top. PyTorch takes seconds to import, so no module imports it before
the options have been parsed: help and errors in the options appear immediately.
"""

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import vmt
from vmt.cli.options import Help
from vmt.errors import InputError, message_of_gpu_error, message_of_os_error, perhaps
from vmt.progress import STDERR

EXAMPLES = """examples:
  vmt demo                                    see VMT work on a small real task, a few minutes on a CPU
  vmt train mnist-svhn --data DATA --dirt-t   the paper's recipe for MNIST → SVHN
  vmt train --source a.npz --target b.npz     your own data
  vmt report RUN -o report.html               a page that shows whether it worked
  vmt select RUN RUN                          rank runs without target labels
  vmt predict RUN picture.png                 classes and probabilities as CSV
  vmt export RUN                              one file for other programs, in ONNX
"""
# What each command does. Its options and its code are in the module of the same name, or in the one below.
COMMANDS = {
    "demo": "see VMT work on a small real task, a few minutes on a CPU",
    "train": "train a method on a task or on your own data",
    "select": "rank runs without target labels",
    "report": "write a page that shows whether a run worked",
    "evaluate": "measure the accuracy of a trained model",
    "predict": "predict classes and probabilities for pictures, arrays and tables",
    "export": "write a trained model as an ONNX or .pt2 file",
    "data": "download or build the benchmark sets",
    "paper": "rebuild the tables and figures of the paper",
    "bench": "time an iteration of a plain implementation and of each engine",
    "methods": "list the methods",
    "tasks": "list the tasks",
}
MODULES = {"methods": "lists", "tasks": "lists"}
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """An argument parser whose error messages are one sentence, and whose help fits the terminal."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **{**more, "formatter_class": Help})

    def parse_known_args(self, *arguments: Any, **more: Any) -> Any:
        """Refuse unknown options here: the parser of ``vmt`` could not suggest an option of the command."""
        known, unknown = super().parse_known_args(*arguments, **more)
        if wrong := next((one for one in unknown if one.startswith("-")), None):
            option = wrong.split("=")[0].replace("_", "-")
            self.error(f"there is no option {wrong}{perhaps(option, self._option_string_actions)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        print(f"vmt: {message}; see '{self.prog} --help'.", file=sys.stderr)
        sys.exit(2)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of ``vmt``, with the options of one command or of all commands."""
    parser = Parser(
        prog="vmt",
        description="Unsupervised domain adaptation with Virtual Mixup Training.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"vmt {vmt.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if only in (None, name):
            import_module(f"vmt.cli.{MODULES.get(name, name)}").add_arguments(command)
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of a command; a missing or unknown command ends the process like any other wrong argument."""
    command = argv[0] if argv else ""
    parser = build_parser(command)
    if not command:
        parser.error(f"name a command: {', '.join(COMMANDS)}")
    if not command.startswith("-") and command not in COMMANDS:
        parser.error(
            f"there is no command {command!r}{perhaps(command, COMMANDS)}: choose one of {', '.join(COMMANDS)}"
        )
    return parser.parse_args(argv)


def show_warning(
    others: Callable[..., None], message: Warning | str, category: type, filename: str, *rest: Any
) -> None:
    """Show a warning of this package without the line of code that it comes from."""
    if Path(vmt.__file__).parent in Path(filename).parents:
        print_message(f"{str(message).rstrip('.')}.")
    else:
        others(message, category, filename, *rest)


def print_message(message: str) -> None:
    print(f"vmt: {message}", file=STDERR)


def open_closed_streams() -> None:
    """Replace streams that the shell closed (``2>&-``). Otherwise a file of a run would get the number of such a
    stream, and what libraries write to the stream would end up in the file."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the process ends)


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """End the process immediately when Ctrl-C is pressed during imports.

    There is nothing to save yet, and a library may mistake the exception for an error of its own. A handler that was
    already set is kept.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def end(number: int, frame: object) -> None:
        os.write(2, b"vmt: interrupted.\n")
        os._exit(INTERRUPTED)

    try:
        signal.signal(signal.SIGINT, end)
    except ValueError:  # only the main thread may set handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code: 2 after bad input, with one sentence on stderr."""
    open_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        # Where output is not Unicode, as in a file on Windows, a λ must not end a run.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        argv = sys.argv[1:] if argv is None else argv
        arguments = parse(argv)
        if getattr(arguments, "needs_torch", True):
            with ended_by_ctrl_c():
                import torch  # noqa: F401
        with warnings.catch_warnings():
            warnings.showwarning = partial(show_warning, warnings.showwarning)
            return int(arguments.run(arguments))
    except InputError as error:
        print_message(str(error))
        return 2
    except BrokenPipeError:
        # The reader has closed the pipe (`vmt predict … | head`). That is not an error, but stdout must not be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print_message(message_of_os_error(error))
        return 2
    except RuntimeError as error:
        if (message := message_of_gpu_error(error)) is None:
            raise
        print_message(message)
        return 1
    except KeyboardInterrupt:
        print_message("interrupted.")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
