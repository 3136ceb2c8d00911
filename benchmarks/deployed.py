"""Predict 500 photographs of every kind with an exported file, by vmt predict and without vmt, and compare both.

    python benchmarks/deployed.py --data DATA --folder /tmp/deployed --out results/deployed.json

The photographs are pictures of PACS that are saved again: in sizes from 40 to 2,400 pixels, with each of the eight EXIF
orientations, as colour, grey and CMYK JPEG files, and as PNG files in colour, grey, with a palette, and with each of
three kinds of transparency. ``vmt train`` trains on the features of PACS, ``vmt export`` writes the file, and ``vmt
predict`` reads the photographs twice: with the run, and with the file. Then the documented script,
``examples/onnx_only.py``, classifies them as a program that has neither vmt nor PyTorch, and the lines that it has to
decode a picture feed ONNX Runtime for the probabilities. (vmt predict writes these with six decimals.)
"""

import argparse
import json
import math
import os
import platform
import runpy
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import PIL
import torch
from hardware import machine
from numpy.typing import NDArray
from PIL import Image

from vmt.data.files.paths import PICTURE_SUFFIXES
from vmt.data.files.pictures import ORIENTATION, TURNS
from vmt.data.picture_sets import PICTURE_SETS
from vmt.disk import write_atomically
from vmt.runs.folder import commit

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "examples" / "onnx_only.py"
FROM = ("photo", "art")  # the source and the target, whose pictures are saved again
SIDES = (40, 2400)  # of the longer side
# What has to be done to an upright picture, so that its orientation makes it upright again.
UNTURN = TURNS | {6: TURNS[8], 8: TURNS[6]}
KINDS = {
    "colour.jpg": "RGB",
    "grey.jpg": "L",
    "cmyk.jpg": "CMYK",
    "colour.png": "RGB",
    "grey.png": "L",
    "palette.png": "P",
    "alpha.png": "RGBA",
    "grey-alpha.png": "LA",
    "palette-alpha.png": "PA",
}


def photograph(original: Path, kind: str, orientation: int, random: np.random.Generator, out: Path) -> None:
    """Save a picture again, in a size that is drawn."""
    longer = math.exp(random.uniform(*np.log(SIDES)))
    size = [round(longer), round(longer * random.uniform(0.4, 1))]
    if random.random() < 0.5:
        size.reverse()
    with Image.open(original) as opened:
        picture = opened.convert("RGB").resize((size[0], size[1]), Image.Resampling.BICUBIC)
    if orientation in UNTURN:
        picture = picture.transpose(UNTURN[orientation])
    mode = KINDS[kind]
    if mode in ("RGBA", "LA", "PA"):
        alpha = np.linspace(0, 255, picture.width)[None, :] * np.ones((picture.height, 1))
        picture = picture.convert("LA" if mode == "LA" else "RGBA")
        picture.putalpha(Image.fromarray(alpha.astype(np.uint8)))
    if mode in ("P", "PA"):
        picture = picture.quantize(64, method=Image.Quantize.FASTOCTREE)
    elif picture.mode != mode:
        picture = picture.convert(mode)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    how: dict[str, Any] = {"quality": int(random.integers(60, 96)), "progressive": bool(random.integers(2))}
    picture.save(out, exif=exif, **(how if out.suffix == ".jpg" else {}))


def make_photographs(data: Path, folder: Path, count: int, seed: int) -> dict[Path, str]:
    """The photographs with their classes. Every kind comes with every orientation."""
    pacs = PICTURE_SETS["pacs"]
    domains = [pacs.folder(data, name) for name in FROM]
    originals = sorted(
        path for domain in domains for path in domain.rglob("*") if path.suffix.lower() in PICTURE_SUFFIXES
    )
    folder.mkdir()
    made = {}
    for number, chosen in enumerate(np.random.default_rng(seed).permutation(len(originals))[:count]):
        kind, orientation = list(KINDS)[number % len(KINDS)], number // len(KINDS) % 8 + 1
        path = folder / f"{number:03}-turned-{orientation}-{kind}"
        photograph(originals[chosen], kind, orientation, np.random.default_rng((seed, number)), path)
        made[path] = originals[chosen].parent.name
    return made


def timed(seconds: dict[str, float], name: str, *command: object) -> str:
    """The output of a command that has to succeed."""
    began = time.monotonic()
    env = os.environ | {"PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True, env=env)
    seconds[name] = round(time.monotonic() - began, 1)
    print(f"{name}: {seconds[name]} s", flush=True)
    return done.stdout


def predictions(path: Path) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """The files, classes and probabilities that ``vmt predict`` wrote."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    values = [list(record["probabilities"].values()) for record in records]
    return [record["file"] for record in records], [record["class"] for record in records], np.array(values)


def plain_probabilities(model: Path, pictures: Sequence[str]) -> NDArray[np.float64]:
    """What ONNX Runtime gives for pictures that the documented lines have decoded, one at a time."""
    decoded = runpy.run_path(str(SCRIPT))["decoded"]
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    expects = json.loads(session.get_modelmeta().custom_metadata_map["input"])
    rows = [session.run(None, {expects["name"]: decoded(path, expects)[None]})[0][0] for path in pictures]
    return np.array(rows, dtype=np.float64)


def compared(names: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> dict[str, Any]:
    """How many classes are equal, and the pictures whose classes are not."""
    others = [name for name, a, b in zip(names, ours, theirs, strict=True) if a != b]
    return {"equal_classes": len(names) - len(others), "different": [Path(name).name for name in others]}


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    asked.folder.mkdir(parents=True)
    photographs, run, model = (asked.folder / name for name in ("photographs", "run", "photos.onnx"))
    labels = make_photographs(asked.data, photographs, asked.count, asked.seed)
    vmt, network = (sys.executable, "-m", "vmt"), ("--features", asked.features)
    load, seconds = os.getloadavg(), dict[str, float]()
    source, target = (PICTURE_SETS["pacs"].folder(asked.data, name) for name in FROM)
    train = ("train", "--source", source, "--target", target, *network)
    timed(seconds, "train", *vmt, *train, "--out", run)
    timed(seconds, "export", *vmt, "export", run, *network, "--out", model)
    by_run, by_file = (asked.folder / f"by_{name}.jsonl" for name in ("run", "file"))
    timed(seconds, "predict, run", *vmt, "predict", run, photographs, *network, "--out", by_run)
    timed(seconds, "predict, file", *vmt, "predict", model, photographs, "--out", by_file)
    names, classes, ours = predictions(by_file)
    names_of_run, classes_of_run, ours_of_run = predictions(by_run)
    assert names == names_of_run == sorted(map(str, labels))
    # The script prints a line for each picture: its name, its class and the probability of the class.
    printed = timed(seconds, "onnx_only.py", sys.executable, SCRIPT, model, *names).splitlines()
    classes_of_script = [line[len(name) + 2 :].rpartition(" (")[0] for name, line in zip(names, printed, strict=True)]
    plain = plain_probabilities(model, names)
    ranked = np.sort(plain, axis=1)
    return {
        "command": f"benchmarks/deployed.py --features {asked.features} --count {asked.count} --seed {asked.seed}",
        "train": " ".join(map(str, ("vmt", *train))).replace(str(asked.data), "DATA"),
        "photographs": {
            "count": len(names),
            "kinds": dict(Counter(Path(name).name.split("-", 3)[3] for name in names)),
            "orientations": dict(sorted(Counter(Path(name).name.split("-")[2] for name in names).items())),
            "accuracy": round(sum(labels[Path(n)] == c for n, c in zip(names, classes, strict=True)) / len(names), 4),
        },
        "vmt predict FILE and onnx_only.py": {
            **compared(names, classes, classes_of_script),
            "largest_difference": float(np.abs(ours - plain).max()),
        },
        "vmt predict RUN and onnx_only.py": {
            **compared(names, classes_of_run, classes_of_script),
            "largest_difference": float(np.abs(ours_of_run - plain).max()),
        },
        "smallest_margin": float((ranked[:, -1] - ranked[:, -2]).min()),
        "seconds": seconds,
        "commit": commit(),
        "versions": {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__, "pillow": PIL.__version__},
        "python": platform.python_version(),
        "machine": machine(),
        "load_before": [round(each, 2) for each in load],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data folder, which holds PACS")
    parser.add_argument("--folder", type=Path, required=True, help="a new folder for photographs, run and predictions")
    parser.add_argument("--features", default="pacs_network:features", help="as for vmt train")
    parser.add_argument("--count", type=int, default=500, help="photographs (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="chooses and changes the photographs (default: 0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the results to this file")
    asked = parser.parse_args(arguments)
    result = measure(asked)
    text = json.dumps(result, indent=1)
    print(text)
    if asked.out is not None:
        write_atomically(asked.out, (text + "\n").encode())
    counted = [value["equal_classes"] for name, value in result.items() if name.startswith("vmt predict")]
    return 0 if counted == [asked.count] * 2 else 1


if __name__ == "__main__":
    sys.exit(main())
