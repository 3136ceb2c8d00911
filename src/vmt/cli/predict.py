"""``vmt predict``: classes and probabilities of samples, written batch by batch."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from vmt.cli.options import add_device, add_json, add_net
from vmt.data.files.paths import FEW_UNREADABLE, PICTURE_SUFFIXES, UNREADABLE_SHARE
from vmt.errors import InputError, counted, few, printable
from vmt.progress import STDERR

if TYPE_CHECKING:
    from vmt.data.files.stream import Item, SampleBatch, Unreadable
    from vmt.export import Exported
    from vmt.model import Model

Row = tuple[str, int, str, list[float]]
# What a spreadsheet takes for the start of a formula, also behind the separator of some countries.
FORMULA = re.compile(r"(?:^|(?<=[;\n]))(?='*[=+\-@＝＋－＠])")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)
EXAMPLES = """examples:
  vmt predict runs/mine picture.png photo.jpg             classes and probabilities as CSV
  vmt predict runs/mine folder/ --out predictions.csv     every picture and NumPy file below a folder
  vmt predict runs/mine images.npz --out predictions.jsonl
  vmt predict model.onnx list.csv                         pictures listed in a CSV, with an exported model
  vmt predict model.safetensors table.csv                 the rows of a table
  find . -name '*.jpg' | vmt predict runs/mine - | head   paths on standard input, one per line
  cut -d, -f2-9 big.csv | vmt predict runs/table -        rows on standard input, for a model of vectors

A picture is one sample; an .npz file (key x), an .npy file and a table hold many. Files are read a batch at a time, so
their number and size do not matter. Samples that cannot be read are named and left out; the command stops when
there are more than 10 of them and they are more than 1 % of all samples so far. The columns of a table are found by
name if both model and table have names, and must otherwise be in the order of the training data.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "model", type=Path, help="a run's folder, a saved model, or an .onnx or .pt2 file (the last with --trust)"
    )
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="pictures, folders, lists of pictures (.csv), tables (.csv, .tsv, .csv.gz, .tsv.gz, .parquet), .npz or "
        ".npy files; - for stdin",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write here instead of to stdout")
    parser.add_argument(
        "--format", choices=tuple(WRITERS), help="format of the output (default: by the name of --out, or csv)"
    )
    parser.add_argument("--label", metavar="COLUMN", help="column of a table that is not a feature (default: label)")
    parser.add_argument(
        "--max-unreadable",
        metavar="N",
        type=int,
        help=f"stop after N unreadable samples (default: {FEW_UNREADABLE}, or {UNREADABLE_SHARE:.0%}% if more)",
    )
    parser.add_argument(
        "--trust", action="store_true", help="open a .pt2 file, which can run code that someone put into it"
    )
    add_net(parser)
    add_device(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from vmt.data.files.stream import InputSpec, expand_inputs, stream_samples
    from vmt.export import open_model

    model = open_model(arguments.model, arguments.device, arguments.net, arguments.trust, arguments.features)
    reads = InputSpec(model.reads, model.features, arguments.label)
    inputs = expand_inputs(arguments.inputs, reads)
    check_not_an_input(arguments.out, [arguments.model, *inputs])
    counts = ReadCounts(arguments.max_unreadable)
    with bar(inputs, show=arguments.out is not None or not sys.stdout.isatty()) as progress:
        batches = predicted(model, stream_samples(inputs, reads, sys.stdin.buffer), counts, progress)
        # The first batch is read before --out is opened: input that is refused must not change an existing file.
        first = next(batches, [])
        if not first:
            counts.close()
        with output(arguments.out) as file:
            write = WRITERS[arguments.format or format_of(arguments.out)](file, model.classes)
            for rows in chain([first], batches):
                write(rows)
    counts.close()
    if arguments.out is not None:
        print(f"Wrote {counted(counts.read, 'prediction')} to {printable(str(arguments.out))}.", file=STDERR)
    if arguments.json:
        out = arguments.out and str(arguments.out)
        print(json.dumps({"samples": counts.read, "unreadable": len(counts.faults), "out": out}))
    return 0


def predicted(model: Model | Exported, items: Iterator[Item], counts: ReadCounts, progress: Any) -> Iterator[list[Row]]:
    """The rows of each batch that can be read. Samples that cannot be read are counted."""
    from vmt.data.files.stream import Unreadable

    for item in items:
        if isinstance(item, Unreadable):
            counts.add(item)
            continue
        yield list(predictions(model, item))
        counts.read += len(item.files)
        progress.update(len(item.files))


def predictions(model: Model | Exported, batch: SampleBatch) -> Iterator[Row]:
    """The file and index of each sample, its class, and the probability of every class."""
    try:
        probabilities = model.predict_proba(batch.x)
    except InputError as error:
        raise InputError(f"{batch.files[0]}: {error}") from error
    for name, index, row in zip(batch.files, batch.indices, probabilities, strict=True):
        yield name, index, model.classes[int(row.argmax())], [float(p) for p in row]


@dataclass
class ReadCounts:
    """How many samples were read, and which cannot be read. Too many of the latter raise an :class:`InputError`."""

    most: int | None
    read: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, fault: Unreadable) -> None:
        self.faults.append(f"{fault.file} ({fault.reason})")
        bad = len(self.faults)
        allowed = self.most if self.most is not None else max(FEW_UNREADABLE, UNREADABLE_SHARE * (self.read + bad))
        if bad > allowed:
            written = "; the predictions before that are written" if self.read else ""
            raise InputError(
                f"{bad} samples cannot be read: {few(self.faults)}; repair or remove them, or allow more with "
                f"--max-unreadable{written}."
            )

    def close(self) -> None:
        bad = len(self.faults)
        if bad and not self.read:
            raise InputError(
                f"none of the input can be read: {few(self.faults)}; give pictures, tables or NumPy files."
            )
        if bad:
            what = f"{bad} of {self.read + bad} samples cannot be read and are left out"
            print(f"{what}: {few(self.faults, FEW_UNREADABLE)}", file=sys.stderr)


def cell(text: str) -> str:
    """A name as a cell of a CSV file, which a terminal only shows and a spreadsheet does not run.

    Control characters are escaped. What looks like a formula gets an apostrophe in front; if it already has one, it
    gets another, so that removing one apostrophe restores every name.

    >>> cell("cat"), cell("-1"), cell("=1+1"), cell("'=1+1")
    ('cat', '-1', "'=1+1", "''=1+1")
    """
    text = printable(text).replace("\t", "\\u0009")
    return text if NUMBER.fullmatch(text) else FORMULA.sub("'", text)


def write_csv(file: TextIO, classes: Sequence[str]) -> Callable[[list[Row]], None]:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["file", "index", "class", *(cell(f"p({name})") for name in classes)])

    def write(rows: list[Row]) -> None:
        writer.writerows(
            [cell(name), index, cell(label), *(f"{p:.6f}" for p in row)] for name, index, label, row in rows
        )
        file.flush()

    return write


def write_jsonl(file: TextIO, classes: Sequence[str]) -> Callable[[list[Row]], None]:
    def write(rows: list[Row]) -> None:
        for name, index, label, row in rows:
            probabilities = {label: round(p, 6) for label, p in zip(classes, row, strict=True)}
            record = {"file": name, "index": index, "class": label, "probabilities": probabilities}
            file.write(printable(json.dumps(record, ensure_ascii=False)) + "\n")
        file.flush()

    return write


WRITERS = {"csv": write_csv, "jsonl": write_jsonl}


def format_of(out: Path | None) -> str:
    return "jsonl" if out is not None and out.suffix.lower() in (".jsonl", ".ndjson", ".json") else "csv"


def check_not_an_input(out: Path | None, read: Sequence[Path | str]) -> None:
    """Refuse to overwrite an input. A folder of inputs may hold the predictions of an earlier run."""
    from vmt.data.files.stream import STDIN
    from vmt.disk import check_parent_folder

    if out is None:
        return
    check_parent_folder(out)
    if out.exists() and any(one != STDIN and out.samefile(one) for one in read):
        raise InputError(f"{out} is one of the inputs: choose another --out, or move it away.")


@contextmanager
def output(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another --out.") from error


def bar(inputs: Sequence[Path | str], show: bool) -> Any:
    """Progress on stderr, with a total if every input is one picture."""
    from vmt.data.files.pictures import PATIENCE
    from vmt.data.files.stream import STDIN
    from vmt.progress import Bar

    pictures = all(one != STDIN and Path(one).suffix.lower() in PICTURE_SUFFIXES for one in inputs)
    total = len(inputs) if pictures else None
    return Bar("predicting", "samples", total, show=show, delay=PATIENCE, leave=False)
