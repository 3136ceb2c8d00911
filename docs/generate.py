"""Write the parts of the documentation that come from the code: tables on the methods' pages, the command-line page.

    python docs/generate.py

A test fails if a page and the code differ.
"""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from vmt import methods
from vmt.cli.main import build_parser
from vmt.cli.options import field_helps
from vmt.methods.nodes import (
    Adversarial,
    Augmented,
    Batch,
    Conditioned,
    Mix,
    Node,
    Reversed,
    Start,
    Sum,
    Tap,
    View,
    below,
)
from vmt.methods.nouns import Method, Update
from vmt.methods.settings import DirtTSettings, PythonSettings, Settings
from vmt.step.plan import Pass, plan

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"
FLAGS = {**field_helps(Settings), **field_helps(DirtTSettings)}
MEANINGS = {
    **FLAGS,
    **field_helps(PythonSettings),
    "base": "the method that comes first",
    "iterations": "length of the phase",
    "optimiser": "Adam as TensorFlow has it, `AdamW` or `SGD`; `lr` may be a schedule",
}
SWITCHES = ("vat", "fresh_lambda", "entropy_weights")
NAMES = [*methods.METHODS, "dirt_t"]
TAPS = ("features", "hidden", "logits")


def settings_table(name: str) -> str:
    """A table of the arguments of a method's function: name, default, flag and meaning."""
    rows = ["| argument | default | command line | meaning |", "|---|---|---|---|"]
    for argument, parameter in inspect.signature(getattr(methods, name)).parameters.items():
        default = "" if parameter.default is inspect.Parameter.empty else f"`{shown(parameter.default)}`"
        rows.append(f"| `{argument}` | {default} | {flag_of(argument, name)} | {MEANINGS[argument]} |")
    return "\n".join(rows)


def shown(default: object) -> str:
    return f"{default:g}" if isinstance(default, float) else repr(default)


def flag_of(argument: str, method: str) -> str:
    if argument == "optimiser":
        return "`--optimiser`, `--lr` …"
    if argument == "base":
        return "`--method`, `--dirt-t`"
    if argument == "iterations" and method == "dirt_t":
        return "`--dirt-t-iterations`"
    flag = argument.replace("_", "-")
    return f"`--no-{flag}`" if argument in SWITCHES else f"`--{flag}`" if argument in FLAGS else "–"


def passes_table(name: str) -> str:
    """A table of the network calls of one iteration of the method's own phase, in the order of the plan."""
    method = methods.dirt_t(methods.vmt()) if name == "dirt_t" else getattr(methods, name)()
    rows = ["| update | network | inputs, each normalised by itself | up to | gradient |", "|---|---|---|---|---|"]
    for update in method.phases[-1].updates:
        for each in plan(update, {role: taps_of(method, role) for role in method.roles}):
            inputs = ", ".join(input_of(view) for view in each.views)
            rows.append(f"| {update.name} | {network(each)} | {inputs} | {each.exit} | {gradient(each, update)} |")
    return "\n".join(rows)


def taps_of(method: Method, role: str) -> tuple[str, ...]:
    own = {"discriminator": ("domain",), "private": ("code",), "decoder": ("reconstruction",)}
    return next((taps for name, taps in own.items() if role.startswith(name)), TAPS)


def network(each: Pass) -> str:
    entry = "" if each.entry == "input" else f" from {each.entry}"
    return each.role + entry + ("" if each.training else ", evaluation mode")


def input_of(view: View) -> str:
    text = described(view.input)
    return f"**{text}**" if view.statistics else text


def described(node: Node) -> str:
    match node:
        case Batch(stream, ""):
            return stream
        case Batch(stream):
            return f"another {stream} batch"
        case Mix(of):
            return f"mixed {described(of)}"
        case Start(of):
            return f"{described(of)} + ξd"
        case Adversarial(of):
            return f"{described(of)} + r"
        case Tap(view, name):
            return f"{name} of {described(view.input)}"
        case Augmented(of):
            return described(of) if isinstance(of, Augmented) else f"augmented {described(of)}"
        case Reversed(of):
            return f"reversed {described(of)}"
        case Sum(parts):
            return " + ".join(map(described, parts))
        case Conditioned(features):
            return f"{described(features)} × predictions"
    raise TypeError(f"described() has no text for {node}")


def gradient(each: Pass, update: Update) -> str:
    if each.probing:
        return "to the input"
    return "to the weights" if each.gradient and each.role in update.optimises else passed_on(each, update)


def passed_on(each: Pass, update: Update) -> str:
    """Whether a network that is not optimised passes the gradient on to a network that is."""
    inputs = [node for view in each.views for node in below(view.input)]
    through = any(isinstance(node, Tap) and node.view.role in update.optimises for node in inputs)
    return "through it" if through else "none"


def command_pages() -> str:
    parts = [
        "# The command line",
        "`vmt COMMAND --help` prints the options that are used most, and `vmt COMMAND --help-all` prints all of this.\n"
        "`python -m vmt` is the same command. On a terminal, headings and messages have colours, unless the\n"
        "environment variable `NO_COLOR` is set. The exit code is 2 after bad input, with one sentence that says what\n"
        "to do, 1 after a GPU error, and 130 after Ctrl-C or `kill`, which save first.",
        *commands(build_parser()),
    ]
    return "\n\n".join(parts) + "\n"


def commands(parser: argparse.ArgumentParser, level: int = 2) -> Iterator[str]:
    """A section for each command, followed by sections for its subcommands."""
    if level > 2:
        yield from section(parser, level - 1)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, child in action.choices.items():
                child.description = child.description or helps.get(name)
                yield from commands(child, level + 1)


def section(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    description = re.sub(r"^``[^`]+``: ", "", parser.description or "")
    yield f"{'#' * min(level, 3)} `{parser.prog}`"
    yield description[:1].upper() + description[1:].rstrip(".") + "."
    examples, rest = examples_of(parser.epilog or "")
    if examples:
        yield "```console\n" + "\n".join(examples) + "\n```"
    if rest:
        yield rest
    groups: dict[str, list[argparse.Action]] = {}
    for group in parser._action_groups:
        heading = "" if group.title in ("positional arguments", "options") else f"**{str(group.title).capitalize()}**"
        heading += f": {group.description}" if group.description else ""
        groups.setdefault(heading, []).extend(filter(worth_saying, group._group_actions))
    for heading, actions in groups.items():
        if heading:
            yield heading
        if actions:
            yield "\n".join(["| argument | meaning |", "|---|---|", *(row(parser, action) for action in actions)])


def worth_saying(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)


def row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return f"| {invocation(action)} | {escaped(text)} |"


def invocation(action: argparse.Action) -> str:
    """How an argument is written. argparse's own text differs between versions of Python."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else None
    value = str(action.metavar or choices or action.dest.upper()).replace("|", "\\|")  # a bar would end the cell
    many = {"+": f"{value}…", "*": f"[{value}…]", "?": f"[{value}]"}.get(str(action.nargs), value)
    if not action.option_strings:
        return f"`{many.lower() if action.metavar is None else many}`"
    flags = ", ".join(f"`{flag}`" for flag in action.option_strings)
    return flags if action.nargs == 0 else flags.replace("`", f" {many}`", 2).replace(f" {many}`", "`", 1)


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")


def examples_of(epilog: str) -> tuple[list[str], str]:
    """The example commands of a help text, with their explanations as comments, and the text below them."""
    head, _, rest = epilog.partition("\n\n")
    found = [line.strip() for line in head.splitlines() if line.startswith("  ")]
    examples = [re.sub(r"\s{2,}(?=\S)", "    # ", line, count=1) for line in found]
    return [f"$ {line}" for line in examples], re.sub(r"^ {2}(\w+) +", r"- `\1`: ", escaped(rest.strip()), flags=re.M)


def filled(page: str, kind: str, table: str) -> str:
    """A page in which the table between its two marks is replaced."""
    begin, end = f"<!-- {kind}: written by docs/generate.py -->", f"<!-- end of {kind} -->"
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"the page has no place for {kind}: add {begin} and {end} to it.")
    return f"{before}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"


def fuzz_table() -> str:
    """What happened to the damaged files of each format, and how it was measured: fuzz*.json of the results."""
    records = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("fuzz*.json"))]
    formats = {name: counts for record in records for name, counts in record["formats"].items()}
    rows = [
        "| format | cases | read | refused | tracebacks | crashes | peak memory |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    numbers = ("cases", "read", "refused", "tracebacks", "crashes")
    total = {name: sum(counts[name] for counts in formats.values()) for name in numbers}
    total["peak"] = max(counts["peak"] for counts in formats.values())
    for format, counts in (*formats.items(), ("all", total)):
        cells = " | ".join(f"{counts[name]:,}" for name in numbers)
        rows.append(f"| {format} | {cells} | {counts['peak'] / 2**20:.0f} MiB |")
    about = "`{command}` at commit {commit}, on {cores} cores ({machine}), with Python {python} and torch {torch}"
    measured = [f"{about.format(**record)}, in {record['seconds'] / 60:.0f} min." for record in records]
    return "\n".join(rows) + "\n\n" + "\n\n".join(measured)


def pages() -> Iterator[tuple[Path, str]]:
    """Every page with generated parts, and the text that it should have."""
    for name in NAMES:
        path = DOCS / "methods" / f"{name}.md"
        yield path, filled(filled(path.read_text(), "settings", settings_table(name)), "passes", passes_table(name))
    yield DOCS / "cli.md", command_pages()
    path = DOCS / "files-and-trust.md"
    yield path, filled(path.read_text(), "fuzz", fuzz_table())


def main() -> int:
    for path, text in pages():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
