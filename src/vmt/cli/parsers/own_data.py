"""Flags for data of one's own."""

from typing import Any

from vmt.data.files.paths import INPUT_FORMATS


def add_flags(group: Any) -> None:
    group.add_argument("--source", metavar="PATH", help=f"your labelled source: {INPUT_FORMATS}")
    group.add_argument("--target", metavar="PATH", help="your target, likewise; it needs no labels")
    group.add_argument("--target-test", metavar="PATH", help="labelled target samples, to report the accuracy on")
    group.add_argument(
        "--use-target-labels",
        metavar="WEIGHT",
        type=float,
        nargs="?",
        const=1.0,
        help="train on those labels of the target that are known as well, with this weight (default: 1); without it "
        "they only measure the accuracy",
    )
    group.add_argument("--label", metavar="COLUMN", help="column of a table with the classes (default: label)")
    group.add_argument(
        "--image-size", metavar="N", type=int, nargs="+", help="height and width, or one side, to bring pictures to"
    )
    group.add_argument("--channels", type=int, choices=(1, 3), help="pictures in grey or in colour")
    group.add_argument("--no-cache", action="store_true", help="neither use nor keep decoded pictures")
