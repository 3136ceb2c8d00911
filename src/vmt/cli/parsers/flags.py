"""Flags that several commands have."""

from typing import Any


def add_device(parser: Any) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")


def add_json(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print a summary as JSON on the last line of stdout")


def add_net(parser: Any) -> None:
    parser.add_argument("--net", metavar="NAME", help="package.module:function, for a network of your own")
