"""Command-line flags from dataclasses: the field's name, type, default and docstring are the flag's."""

import argparse
import ast
import inspect
import textwrap
from dataclasses import fields
from typing import Any


def add_fields(parser: argparse._ActionsContainer, cls: type[Any]) -> None:
    """One flag per field, which has a type that reads text, a default and a docstring. A flag that is not given stays
    None, so that a recipe's own value holds."""
    docs = field_docs(cls)
    for field in fields(cls):
        flag = "--" + field.name.replace("_", "-")
        default = "" if field.default == "" else f" (default: {field.default})"
        text = docs[field.name].replace("%", "%%") + default
        kind: Any = field.type
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            parser.add_argument(flag, type=kind, default=None, metavar=kind.__name__.upper(), help=text)


def given(arguments: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """The flags among these that were given."""
    return {name: value for name in names if (value := getattr(arguments, name, None)) is not None}


def field_docs(cls: type[Any]) -> dict[str, str]:
    """The string that follows each field in the source of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    name = None
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif name and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            docs[name] = " ".join(str(statement.value.value).split())
    return docs
