"""Flags of ``vmt methods`` and ``vmt tasks``."""

from typing import Any

from vmt.cli.later import Later


def add_commands(commands: Any) -> None:
    for name in ("methods", "tasks"):
        parser = commands.add_parser(name, help=f"list the {name}", epilog=f"example:\n  vmt {name}")
        parser.add_argument("--json", action="store_true", help="print as JSON")
        parser.set_defaults(run=Later("vmt.cli.inspect", f"list_{name}"))
