"""Code that the commands share: options made from dataclasses, options of several commands, and the help formatter.

One definition serves Python and the command line: the name, type, default and docstring of a dataclass field are those
of the option.
"""

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, get_args

from vmt.errors import as_flag

WIDEST = 118


def add_fields(group: argparse._ActionsContainer, cls: type[Any], skip: Sequence[str] = (), **metavars: str) -> None:
    """Add an option for each field of a dataclass. An option that is not given is None: the recipe's value applies."""
    texts = field_helps(cls)
    for field in fields(cls):
        if field.name in skip:
            continue
        option = as_flag(field.name)
        kind: Any = next((each for each in get_args(field.type) if each is not type(None)), field.type)
        text = texts[field.name] + (f" (default: {field.default})" if field.default not in (None, "") else "")
        if kind is bool:
            group.add_argument(option, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            metavar = metavars.get(field.name, kind.__name__.upper())
            group.add_argument(option, type=kind, default=None, metavar=metavar, help=text)


def shown_first(parser: argparse.ArgumentParser, *options: str) -> None:
    """Leave all options but these to ``--help-all``, so that ``--help`` of a command with many options is short."""
    dests = {option.removeprefix("--").replace("-", "_") for option in options}
    rare = (action.dest for action in parser._actions if action.option_strings and action.dest not in dests)
    parser.set_defaults(rare=frozenset(rare))


class HelpAll(argparse._HelpAction):
    """Prints the help of a command with all its options."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        parser.set_defaults(rare=frozenset())
        super().__call__(parser, *rest)


def given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The options with these names that were given."""
    return {name: value for name in names if (value := getattr(arguments, name, None)) is not None}


def names_of(*classes: type[Any]) -> list[str]:
    """The names of the fields of some dataclasses."""
    return [field.name for cls in classes for field in fields(cls)]


def field_helps(cls: type[Any]) -> dict[str, str]:
    """The string that follows each field in the source of a dataclass, written as the help of an option."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    name = None
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif name and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            texts[name] = as_help(" ".join(str(statement.value.value).split()))
    return texts


def as_help(sentence: str) -> str:
    """A sentence as the help of an option: without its full stop and its capital letter.

    >>> as_help("Samples per domain in a batch."), as_help("CPU threads.")
    ('samples per domain in a batch', 'CPU threads')
    """
    text = sentence.removesuffix(".").replace("%", "%%")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def add_device(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")


def add_place(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--on",
        default="local",
        metavar="PLACE",
        help="local, or ray[:ADDRESS] for the machines of a Ray cluster; without an address Ray is started on this "
        "machine, unless RAY_ADDRESS names a cluster (default: local)",
    )
    parser.add_argument(
        "--gpus-per-run",
        type=float,
        metavar="SHARE",
        help="on Ray, the share of a GPU that each run takes, for example 0.33 under NVIDIA's MPS (default: 1 if the "
        "cluster has GPUs)",
    )


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print a summary as JSON on the last line of stdout")


def add_net(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--net", metavar="NAME", help="package.module:function, for your own network")
    parser.add_argument(
        "--features", metavar="NAME", help="package.module:function, for features of a network of your own"
    )


class Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal. Paragraphs are wrapped; a long example has its explanation on the next line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width = min(width, WIDEST)
        return "\n\n".join(wrap_paragraph(paragraph, width) for paragraph in text.strip("\n").split("\n\n")) + "\n"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(" ".join(text.split()), width)


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines that break at spaces only, so that usps-mnist and --dirt-t stay whole."""
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def wrap_paragraph(paragraph: str, width: int) -> str:
    """A paragraph of prose, or a heading with indented lines below it, in lines of at most ``width`` where possible."""
    lines = paragraph.split("\n")
    if not any(line.startswith("  ") for line in lines):
        return "\n".join(wrapped(" ".join(lines), width))
    if max(map(len, lines)) <= width:
        return paragraph
    return "\n".join(each for line in lines for each in narrowed(line, width))


def narrowed(line: str, width: int) -> list[str]:
    """``  command   explanation`` in two lines or more."""
    command, _, about = re.sub(r"(?<=\S) {2,}", "\0", line).partition("\0")
    if len(line) <= width or not about:
        return [line]
    return [command, *wrapped(about, width, " " * 6)]
