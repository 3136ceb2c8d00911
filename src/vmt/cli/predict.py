"""``vmt predict``: classes and probabilities of whatever there is, written as they come."""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from vmt.data.files.paths import FEW_UNREADABLE, PICTURE_SUFFIXES, UNREADABLE_SHARE
from vmt.data.files.pictures import progress_bar
from vmt.data.files.stream import STDIN, InputSpec, Item, SampleBatch, Unreadable, expand_inputs, stream_samples
from vmt.disk import check_parent_folder
from vmt.errors import InputError, few
from vmt.export import Exported, open_model
from vmt.model import Model

Row = tuple[str, int, str, list[float]]


def run(arguments: argparse.Namespace) -> int:
    model = open_model(arguments.model, arguments.device, arguments.net)
    reads = InputSpec(model.preprocess, model.features, arguments.label)
    inputs = expand_inputs(arguments.inputs, reads)
    check_apart(arguments.out, [arguments.model, *inputs])
    tally = Tally(arguments.max_unreadable)
    with bar(inputs, shown=arguments.out is not None or not sys.stdout.isatty()) as progress:
        batches = predicted(model, stream_samples(inputs, reads, sys.stdin.buffer), tally, progress)
        first = next(batches, [])  # before --out is opened: what is there already outlives input that is refused
        if not first:
            tally.close()
        with output(arguments.out) as file:
            write = WRITERS[arguments.format or format_of(arguments.out)](file, model.classes)
            for rows in chain([first], batches):
                write(rows)
    tally.close()
    if arguments.json:
        out = arguments.out and str(arguments.out)
        print(json.dumps({"samples": tally.read, "unreadable": len(tally.faults), "out": out}))
    return 0


def predicted(model: Model | Exported, items: Iterator[Item], tally: "Tally", progress: Any) -> Iterator[list[Row]]:
    """The rows of each batch that can be read; faults are counted."""
    for item in items:
        if isinstance(item, Unreadable):
            tally.count(item)
            continue
        yield list(predictions(model, item))
        tally.read += len(item.files)
        progress.update(len(item.files))


def predictions(model: Model | Exported, chunk: SampleBatch) -> Iterator[Row]:
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

    def count(self, fault: Unreadable) -> None:
        self.faults.append(f"{fault.file} ({fault.reason})")
        bad = len(self.faults)
        allowed = self.most if self.most is not None else max(FEW_UNREADABLE, UNREADABLE_SHARE * (self.read + bad))
        if bad > allowed:
            written = "; what was predicted before is written" if self.read else ""
            raise InputError(
                f"{bad} samples cannot be read: {few(self.faults)}; repair or remove them, or allow more with "
                f"--max-unreadable{written}."
            )

    def close(self) -> None:
        bad = len(self.faults)
        if bad and not self.read:
            raise InputError(f"nothing of the input can be read: {few(self.faults)}; give pictures or NumPy files.")
        if bad:
            what = f"{bad} of {self.read + bad} samples cannot be read and are left out"
            print(f"{what}: {few(self.faults, FEW_UNREADABLE)}", file=sys.stderr)


def write_csv(file: TextIO, classes: Sequence[str]) -> Callable[[list[Row]], None]:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["file", "index", "class", *(f"p({name})" for name in classes)])

    def write(rows: list[Row]) -> None:
        writer.writerows([name, index, label, *(f"{p:.6f}" for p in row)] for name, index, label, row in rows)
        file.flush()

    return write


def write_jsonl(file: TextIO, classes: Sequence[str]) -> Callable[[list[Row]], None]:
    def write(rows: list[Row]) -> None:
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
    if out is None:
        return
    check_parent_folder(out)
    if out.exists() and any(one != STDIN and out.samefile(one) for one in read):
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
    pictures = all(one != STDIN and Path(one).suffix.lower() in PICTURE_SUFFIXES for one in inputs)
    return progress_bar(len(inputs) if pictures else None, "predicting", "samples", shown)
