"""The command ``vmt``: parse the arguments, run a command, and turn errors into a message and an exit code.

Each command has a module, with its options at the top. PyTorch takes seconds to import, so no module imports it before
the options have been parsed: help and errors in the options appear immediately.
"""

import argparse
import os
import re
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
from vmt.cli.options import Help, HelpAll
from vmt.errors import InputError, message_of_gpu_error, message_of_os_error, perhaps
from vmt.progress import STDERR, STDOUT, CleanStream, as_vmt, to_stderr
from vmt.ranks.launch import check_alone, is_first

EXAMPLES = """examples:
  vmt demo                                    see VMT work on a small real task, in a few minutes on a CPU
  vmt train mnist-svhn --data DATA --dirt-t   the paper's recipe for MNIST → SVHN
  vmt train --source a.npz --target b.npz     your own data
  vmt report RUN -o report.html               a page that shows whether it worked
  vmt select RUN RUN                          rank runs without target labels
  vmt predict RUN picture.png                 classes and probabilities as CSV
  vmt export RUN                              one file for other programs, in ONNX
"""
# What each command does. Its options and its code are in the module of the same name, or in the one below.
COMMANDS = {
    "demo": "see VMT work on a small real task, in a few minutes on a CPU",
    "train": "train a method on a task or on your own data",
    "search": "search the settings of a method without target labels",
    "select": "rank runs without target labels",
    "report": "write a page that shows whether a run worked",
    "evaluate": "measure the accuracy of a trained model",
    "predict": "predict classes and probabilities for pictures, arrays and tables",
    "export": "write a trained model as an ONNX or .pt2 file",
    "data": "download or build the benchmark sets",
    "paper": "rebuild the tables and figures of the paper",
    "cache": "show or remove what is kept to save time: decoded pictures, features, compiled kernels",
    "bench": "time an iteration of a plain implementation and of each engine",
    "methods": "list the methods",
    "tasks": "list the tasks",
}
MODULES = {"methods": "lists", "tasks": "lists"}
INTERRUPTED = 130
NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


class Parser(argparse.ArgumentParser):
    """An argument parser whose error messages are one sentence, and whose help fits the terminal.

    Its help leaves the options in the default ``rare`` to ``--help-all`` (:func:`vmt.cli.options.shown_first`).
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **{**more, "formatter_class": Help})
        self.color = False  # that of Python 3.14, which has other rules
        self.add_argument("--help-all", action=HelpAll, help=argparse.SUPPRESS)

    def parse_known_args(self, *arguments: Any, **more: Any) -> Any:
        """Refuse unknown options here: the parser of ``vmt`` could not suggest an option of the command."""
        known, unknown = super().parse_known_args(*arguments, **more)
        if wrong := next((one for one in unknown if one.startswith("-")), None):
            option = wrong.split("=")[0].replace("_", "-")
            self.error(f"there is no option {wrong}{perhaps(option, self._option_string_actions)}")
        return known, unknown

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            if action.type not in NUMBERS:
                raise
            what = f"{arg_string!r} is not {NUMBERS[action.type]}"
            raise argparse.ArgumentError(action, what) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            what = f"there is no {value!r}{perhaps(str(value), choices)}: choose one of {', '.join(choices)}"
            raise argparse.ArgumentError(action, what)

    def format_help(self) -> str:
        """The help with a short usage, and without the rare options."""
        rare = [(a, a.help) for a in self._actions if a.dest in (self.get_default("rare") or ())]
        usage = self.usage
        positionals = self._get_formatter()
        positionals.add_usage(None, [a for a in self._actions if not a.option_strings], [], "")
        self.usage = " ".join([self.prog, "[options]", *positionals.format_help().split()[len(self.prog.split()) :]])
        for action, _ in rare:
            action.help = argparse.SUPPRESS
        try:
            text = super().format_help()
        finally:
            self.usage = usage
            for action, help in rare:
                action.help = help
        return f"{text}\n{self.prog} --help-all shows {len(rare)} more options.\n" if rare else text

    def _print_message(self, message: str, file: Any = None) -> None:
        stream = STDOUT if file is sys.stdout else STDERR
        headings = re.compile(r"^(usage|[a-z][a-z ]*)(?=:( |$))", re.MULTILINE)
        super()._print_message(headings.sub(lambda found: stream.styled(found[0], "bold"), message), file)

    def error(self, message: str) -> NoReturn:
        print_error(f"{message}; see '{self.prog} --help'.")
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
        command = commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
        command.set_defaults(opening="")
        if only in (None, name):
            import_module(f"vmt.cli.{MODULES.get(name, name)}").add_arguments(command)
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of a command. Without a command the help is printed; an unknown one is refused."""
    if not argv or argv[0] == "help":
        argv = [*argv[1:], "--help"]
    command = argv[0]
    parser = build_parser(command)
    if not command.startswith("-") and command not in COMMANDS:
        parser.error(f"there is no command {command!r}{instead_of(command)}: choose one of {', '.join(COMMANDS)}")
    return parser.parse_args(argv)


def instead_of(command: str) -> str:
    """A suggestion for an unknown command, which may be the name of a task or a method."""
    from vmt.data.tasks import TASKS
    from vmt.methods.settings import METHODS

    if command in TASKS:
        return f" (perhaps vmt train {command}?)"
    if command in METHODS:
        return f" (perhaps vmt train --method {command}?)"
    return perhaps(command, COMMANDS)


def show_start(arguments: argparse.Namespace) -> None:
    """Print the first line of a command before PyTorch is imported, which takes seconds.

    Short commands print it on a terminal only, so that nothing is mixed with their output elsewhere.
    """
    if "torch" not in sys.modules and is_first() and (arguments.opening or STDERR.isatty()):
        start = STDERR.styled(f"vmt {arguments.command}:", "bold")
        to_stderr(f"{start} {arguments.opening or 'loading PyTorch …'}")


def show_warning(
    others: Callable[..., None], message: Warning | str, category: type, filename: str, *rest: Any
) -> None:
    """Show a warning of this package without the line of code that it comes from."""
    if Path(vmt.__file__).parent in Path(filename).parents:
        as_vmt(f"{str(message).rstrip('.')}.", "yellow")
    else:
        others(message, category, filename, *rest)


def print_error(message: str) -> None:
    as_vmt(message, "red")


def open_closed_streams() -> None:
    """Replace streams that the shell closed (``2>&-``). Otherwise a file of a run would get the number of such a
    stream, and what libraries write to the stream would end up in the file."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the process ends)


@contextmanager
def clean_streams() -> Iterator[None]:
    """Escape control characters in everything that is printed: names come from files, which may be somebody else's."""
    before = sys.stdout, sys.stderr
    streams: list[Any] = [CleanStream(stream) for stream in before]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


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
    with clean_streams():
        return run(sys.argv[1:] if argv is None else argv)


def run(argv: list[str]) -> int:
    """Run a command, and turn errors into a message and an exit code."""
    try:
        arguments = parse(argv)
        if arguments.command != "train":
            check_alone(f"vmt {arguments.command}")
        if getattr(arguments, "needs_torch", True):
            show_start(arguments)
            with ended_by_ctrl_c():
                import torch  # noqa: F401
        with warnings.catch_warnings():
            warnings.showwarning = partial(show_warning, warnings.showwarning)
            return int(arguments.run(arguments))
    except InputError as error:
        if is_first():  # rank 0 also prints the errors of other ranks
            print_error(str(error))
        return 2
    except BrokenPipeError:
        # The reader has closed the pipe (`vmt predict … | head`). That is not an error, but stdout must not be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print_error(message_of_os_error(error))
        return 2
    except RuntimeError as error:
        if (message := message_of_gpu_error(error)) is None:
            raise
        print_error(message)
        return 1
    except KeyboardInterrupt:
        as_vmt("interrupted.")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
