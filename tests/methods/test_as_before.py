"""Every method is the value that it was at commit 364b1c0, for many settings.

A run's record keeps the names of losses and the numbers of the nodes that they read, and the order of terms decides how
their sum is rounded. So a method may be written down in another way, but must not become another value. The fixture was
made by the code of that commit; this writes it again:

    PYTHONPATH=src python tests/methods/test_as_before.py > tests/fixtures/364b1c0/methods.json
"""

import json
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vmt import methods

FIXTURE = Path(__file__).parents[1] / "fixtures" / "364b1c0" / "methods.json"
ADAM = methods.source_only().phases[0].updates[0].optimiser


def rising(progress: float) -> float:
    """A schedule."""
    return progress


DOMAIN = [{"lambda_d": 0}, {"lambda_d": 0.0}, {"lambda_d": 0.5}, {"lambda_d": rising}]
BOTH = [
    *DOMAIN,
    {"lambda_s": 0},
    {"lambda_s": 0.25},
    {"lambda_s": rising},
    {"lambda_t": 0},
    {"lambda_t": 0.06},
    {"lambda_t": rising},
    {"lambda_s": 0, "lambda_t": 0},
    {"lambda_d": 0, "lambda_s": 0, "lambda_t": 0},
    {"warm_up": 0.25},
    {"warm_up": 1},
    {"warm_up": 0.25, "lambda_t": 0},
    {"warm_up": 0.25, "lambda_t": rising},
]
AROUND = [{"radius": 1.5}, {"xi": 0.1}, {"radius": 0.5, "xi": 1e-6}]
ENTROPY = [{"entropy": False}, {"entropy": False, "lambda_t": 0}]
BETWEEN: list[dict[str, Any]] = [
    {"mix": None},
    {"mix": "probabilities"},
    {"mix": "hidden"},
    {"vat": False},
    {"mix": None, "vat": False},
    {"mix": "hidden", "vat": False, "lambda_mix_t": 0.5},
    {"alpha": 0.5},
    {"fresh_lambda": False},
    {"mix": "hidden", "alpha": 2, "fresh_lambda": False},
    {"lambda_mix_t": 1e-3},
    {"lambda_mix_t": 0},
    {"lambda_mix_t": rising},
    {"lambda_mix_t": 1e-3, "lambda_t": 0},
]
EVERY: list[dict[str, Any]] = [
    {},
    {"optimiser": replace(ADAM, lr=3e-3, beta1=0.9)},
    {"optimiser": replace(ADAM, lr=rising)},
    {"iterations": 100},
    {"iterations": 5},
]
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "source_only": [*EVERY, {"statistics": "target"}],
    "target_only": EVERY,
    "mmd": [*EVERY, {"weight": 0.5}, {"weight": 0}, {"tap": "features"}],
    "dann": [*EVERY, *DOMAIN],
    "vada": [*EVERY, *BOTH, *AROUND, *ENTROPY],
    "co_da": [
        *EVERY,
        *BOTH,
        *AROUND,
        *ENTROPY,
        {"lambda_p": 0.1, "lambda_div": 0},
        {"ceiling": 5.0},
        {"lambda_p": rising},
    ],
    "vmt": [
        *EVERY,
        *BOTH,
        *AROUND,
        *BETWEEN,
        {"warm_up": 0.5, "lambda_mix_t": 1e-3},
        {"warm_up": 0.5, "lambda_mix_t": 0},
        {"warm_up": 0.5, "lambda_mix_t": 1e-3, "lambda_t": 0},
    ],
}
DIRT_T: list[dict[str, Any]] = [
    {},
    {"beta": 0.5},
    {"beta": rising},
    {"lambda_t": 0},
    {"lambda_t": rising},
    {"interval": 500, "iterations": 100},
    *AROUND,
    *BETWEEN,
]


def cases() -> dict[str, Callable[[], Any]]:
    """How to build each method, by a text that says so."""
    made: dict[str, Callable[[], Any]] = {}

    def add(text: str, build: Callable[[], Any]) -> None:
        made[text] = build

    for name, many in SETTINGS.items():
        function = getattr(methods, name)
        for each in many:
            add(f"{name}({shown(each)})", lambda function=function, each=each: function(**each))
        add(f"dirt_t({name}())", lambda function=function: methods.dirt_t(function()))
        add(f"{name}() with_decay", lambda function=function: function().with_decay(0.9))
        add(f"{name}() with_iterations", lambda function=function: function().with_iterations(20))
        if name != "target_only":
            add(f"with_target_labels({name}())", lambda function=function: methods.with_target_labels(function()))
            add(
                f"with_target_labels(dirt_t({name}()), 0.5)",
                lambda function=function: methods.with_target_labels(methods.dirt_t(function()), 0.5),
            )
    for each in DIRT_T:
        add(f"dirt_t(vmt(), {shown(each)})", lambda each=each: methods.dirt_t(methods.vmt(), **each))
    add("dirt_t(vmt(iterations=100))", lambda: methods.dirt_t(methods.vmt(iterations=100)))
    add(
        "dirt_t(vmt(optimiser, decay))",
        lambda: methods.dirt_t(methods.vmt(optimiser=replace(ADAM, lr=rising)).with_decay(0.5), iterations=100),
    )
    add("dirt_t(vmt()) with_iterations", lambda: methods.dirt_t(methods.vmt()).with_iterations(None, 50))
    return made


def shown(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={described(value)}" for name, value in settings.items())


# Fields that the nouns did not have then. Their defaults change nothing.
ADDED = ("backbone_rate", "clip_norm", "augment")


def described(value: Any, *, without: tuple[str, ...] = ()) -> str:
    """A text that says everything about a value, and nothing about where it is defined."""
    if is_dataclass(value):
        left_out = {
            each.name for each in fields(value) if each.name in ADDED and getattr(value, each.name) == each.default
        }
        names = [field.name for field in fields(value) if field.name not in (*without, *left_out)]
        return f"{type(value).__qualname__}({', '.join(f'{name}={described(getattr(value, name))}' for name in names)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(described, value))})"
    return str(value.__qualname__) if callable(value) else repr(value)


def lines(method: Any) -> list[str]:
    """All of a method: its own fields, its roles, and its phases with their updates and terms, in their order."""
    found = [described(method, without=("roles", "phases"))]
    found += [f"{name}: {described(role)}" for name, role in method.roles.items()]
    for phase in method.phases:
        found.append(described(phase, without=("updates",)))
        for update in phase.updates:
            found.append(described(update, without=("terms",)))
            found += map(described, update.terms)
    return found


CASES = cases()


def fixture() -> str:
    """What every case is now. Many lines are the same in many methods, so each is written once."""
    all_lines: dict[str, int] = {}
    numbered = {
        case: [all_lines.setdefault(line, len(all_lines)) for line in lines(build())] for case, build in CASES.items()
    }
    by_case = ",\n".join(f"  {json.dumps(case)}: {json.dumps(numbers)}" for case, numbers in numbered.items())
    by_number = ",\n".join(f"  {json.dumps(line)}" for line in all_lines)
    return f'{{\n "cases": {{\n{by_case}\n }},\n "lines": [\n{by_number}\n ]\n}}\n'


@cache
def before() -> dict[str, list[str]]:
    then = json.loads(FIXTURE.read_text())
    return {case: [then["lines"][number] for number in numbers] for case, numbers in then["cases"].items()}


@pytest.mark.parametrize("case", CASES)
def test_a_method_is_the_value_that_it_was(case: str) -> None:
    assert lines(CASES[case]()) == before()[case]


def test_no_case_of_the_fixture_is_left_out() -> None:
    assert list(CASES) == list(before())


if __name__ == "__main__":
    sys.stdout.write(fixture())
