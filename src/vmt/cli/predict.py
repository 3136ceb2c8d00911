"""``vmt predict``: classes and probabilities of whatever there is, written as they come."""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from vmt.data.folders import SUFFIXES, few
from vmt.data.reading import FEW, PART, PATIENCE
from vmt.data.stream import STDIN, Chunk, Fault, Reads, expand, stream
from vmt.errors import InputError
from vmt.exported import Exported, open_model
from vmt.model import Model

EXAMPLES = """examples:
  vmt predict runs/mine picture.png photo.jpg             classes and probabilities as CSV
  vmt predict runs/mine folder/ --out predictions.csv     every picture and NumPy file below a folder
  vmt predict runs/mine images.npz --out predictions.jsonl
  vmt predict model.onnx list.csv                         pictures that a CSV lists, by a file of vmt export
  vmt predict model.safetensors table.csv                 the rows of a table
  find . -name '*.jpg' | vmt predict runs/mine - | head   paths on standard input, one per line
  cut -d, -f2-9 big.csv | vmt predict runs/table -        for a model of vectors, also the rows of a CSV

A picture is one sample; an .npz file (key x), an .npy file and a table hold many. Files are read a batch at a time, so
that their number and size do not matter. What cannot be read is named and left out; when it is more than 10 samples and
more than 1 % of those so far, the command stops. A table's columns are found by their names where model and table have
any, and else must stand in the order of the training.
"""

Row = tuple[str, int, str, list[float]]


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="classes and probabilities of pictures, arrays and tables",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, help="a run's folder, a saved model, or an .onnx or .pt2 file")
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="pictures, folders, lists of pictures (.csv), tables (.csv, .parquet), .npz or .npy files; - for stdin",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write here instead of to stdout")
    parser.add_argument("--format", choices=tuple(WRITERS), help="default: as --out is named, or csv")
    parser.add_argument("--label", metavar="COLUMN", help="column of a table that is no feature (default: label)")
    parser.add_argument(
        "--max-unreadable", metavar="N", type=int, help=f"stop after so many (default: {FEW}, or {PART:.0%}% if more)"
    )
    parser.add_argument("--net", metavar="NAME", help="package.module:function, for a network of your own")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON on the last line of stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    model = open_model(arguments.model, arguments.device, arguments.net)
    reads = Reads(model.preprocess, model.features, arguments.label)
    inputs = expand(arguments.inputs, reads)
    check_apart(arguments.out, [arguments.model, *inputs])
    tally = Tally(arguments.max_unreadable)
    with output(arguments.out) as file:
        write = WRITERS[arguments.format or format_of(arguments.out)](file, model.classes)
        with bar(inputs, shown=arguments.out is not None or not sys.stdout.isatty()) as progress:
            for item in stream(inputs, reads, sys.stdin.buffer):
                if isinstance(item, Fault):
                    tally.count(item)
                    continue
                write(predictions(model, item))
                tally.read += len(item.files)
                progress.update(len(item.files))
    tally.close()
    if arguments.json:
        out = arguments.out and str(arguments.out)
        print(json.dumps({"samples": tally.read, "unreadable": len(tally.faults), "out": out}))
    return 0


def predictions(model: Model | Exported, chunk: Chunk) -> Iterator[Row]:
    """Where a sample came from, its class, the probability of every class."""
    try:
        probabilities = model.predict_proba(chunk.x)
    except InputError as error:
        raise InputError(f"{chunk.files[0]}: {error}") from error
    for name, index, row in zip(chunk.files, chunk.indices, probabilities, strict=True):
        yield name, index, model.classes[int(row.argmax())], [float(p) for p in row]


@dataclass
class Tally:
    """How many samples could be read, and which could not; stops when the latter are too many."""

    most: int | None
    read: int = 0
    faults: list[str] = field(default_factory=list)

    def count(self, fault: Fault) -> None:
        self.faults.append(f"{fault.file} ({fault.reason})")
        bad = len(self.faults)
        allowed = self.most if self.most is not None else max(FEW, PART * (self.read + bad))
        if bad > allowed:
            raise InputError(
                f"{bad} of the first {self.read + bad} samples cannot be read: {few(self.faults)}; repair or remove "
                "them, or allow more with --max-unreadable; what was predicted before is written."
            )

    def close(self) -> None:
        bad = len(self.faults)
        if bad and not self.read:
            raise InputError(f"nothing of the input can be read: {few(self.faults)}; give pictures or NumPy files.")
        if bad:
            what = f"{bad} of {self.read + bad} samples cannot be read and are left out"
            print(f"{what}: {few(self.faults, FEW)}", file=sys.stderr)


def write_csv(file: TextIO, classes: Sequence[str]) -> Callable[[Iterator[Row]], None]:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["file", "index", "class", *(f"p({name})" for name in classes)])

    def write(rows: Iterator[Row]) -> None:
        writer.writerows([name, index, label, *(f"{p:.6f}" for p in row)] for name, index, label, row in rows)
        file.flush()

    return write


def write_jsonl(file: TextIO, classes: Sequence[str]) -> Callable[[Iterator[Row]], None]:
    def write(rows: Iterator[Row]) -> None:
        for name, index, label, row in rows:
            probabilities = {label: round(p, 6) for label, p in zip(classes, row, strict=True)}
            record = {"file": name, "index": index, "class": label, "probabilities": probabilities}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        file.flush()

    return write


WRITERS = {"csv": write_csv, "jsonl": write_jsonl}


def format_of(out: Path | None) -> str:
    return "jsonl" if out is not None and out.suffix.lower() in (".jsonl", ".ndjson", ".json") else "csv"


def check_apart(out: Path | None, read: Sequence[Path | str]) -> None:
    """Nothing that is to be read may be written over; a folder may hold the predictions of the last time."""
    if out is not None and out.exists() and any(one != STDIN and out.samefile(one) for one in read):
        raise InputError(f"{out} is among what is to be read: choose another --out, or move it away.")


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


def bar(inputs: Sequence[Path | str], shown: bool) -> Any:
    """Progress on stderr, with an end in sight where every input is one picture."""
    pictures = all(one != STDIN and Path(one).suffix.lower() in SUFFIXES for one in inputs)
    return tqdm(
        total=len(inputs) if pictures else None,
        desc="predicting",
        unit="samples",
        delay=PATIENCE,
        mininterval=0.1 if sys.stderr.isatty() else 15.0,
        leave=False,
        disable=not shown,
    )
