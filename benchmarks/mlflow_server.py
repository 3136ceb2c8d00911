"""A run that is sent to a real tracking server of MLflow on the loopback address, and read back from it.

    python -m venv server && server/bin/pip install mlflow==3.17.2
    python benchmarks/mlflow_server.py --server server/bin/mlflow

The server has an environment of its own, because vmt needs only mlflow-skinny, which has no server. It keeps its runs
in SQLite and listens on 127.0.0.1. The script trains source only on the embedded digits, reads everything back with
MLflow's client, compares it with the folder of the run, and prints what is equal. A difference ends it with an error.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

import vmt
from vmt.cli.main import main as run_vmt
from vmt.data.tasks import load_task
from vmt.runs.folder import commit
from vmt.trackers import client_of, flat
from vmt.train.log import scalars

SECONDS_TO_START = 120


@contextmanager
def served(command: Path, folder: Path) -> Iterator[str]:
    """The address of a server, which is ended afterwards with the processes that it has started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [command, "server", "--host", "127.0.0.1", "--port", port, "--workers", 1]
    words += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", folder / "artifacts"]
    quiet = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.txt").open("w") as printed:
        server = subprocess.Popen([*map(str, words)], stdout=printed, stderr=printed, env=quiet, start_new_session=True)
    try:
        wait_for(server, f"http://127.0.0.1:{port}/health", folder / "server.txt")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def wait_for(server: subprocess.Popen[bytes], address: str, printed: Path) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + SECONDS_TO_START
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the server does not answer: {printed.read_text()[-2000:]}")


def compared(address: str, run: Path, folder: Path) -> dict[str, Any]:
    """What was read back and is equal to the files of the run."""
    client = client_of(address)
    (tracked,) = client.search_runs([client.get_experiment_by_name("vmt").experiment_id])
    assert tracked.info.status == "FINISHED"
    record = json.loads((run / "run.json").read_text())
    settings = {name: str(value) for name, value in flat({key: record[key] for key in ("data", "recipe")})}
    settings = {name: value for name, value in settings.items() if value != "None"}
    assert tracked.data.params == settings
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    logged = {(name, each["step"]): value for each in records for name, value in scalars(each)}
    histories = {name: client.get_metric_history(tracked.info.run_id, name) for name in tracked.data.metrics}
    points = {(name, each.step): each.value for name, history in histories.items() for each in history}
    assert points == logged
    assert sum(map(len, histories.values())) == len(points), "a point was sent twice"
    fetched = Path(client.download_artifacts(tracked.info.run_id, "", str(folder)))
    weights, own = (load_file(place / "model.safetensors") for place in (fetched, run))
    assert weights.keys() == own.keys()
    assert all(weights[name].equal(own[name]) for name in own)
    names = ("run.json", "summary.json", "log.jsonl", "curves.png")
    same = [name for name in names if (run / name).exists()]
    assert all((fetched / name).read_bytes() == (run / name).read_bytes() for name in same)
    assert "<html" in (fetched / "report.html").read_text()
    x = load_task("digits").target.x[:100].numpy()
    there, here = (vmt.load(place / "model.safetensors", device="cpu").predict_proba(x) for place in (fetched, run))
    assert (there == here).all()
    return {
        "settings": len(settings),
        "points": len(points),
        "weights": sum(tensor.numel() for tensor in own.values()),
        "equal files": same,
        "predictions": len(x),
        "KB of the report": round((fetched / "report.html").stat().st_size / 1000),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, required=True, help="the command mlflow of an environment that has it")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--out", type=Path, help="also write what is printed to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder, began = Path(made), time.monotonic()
        run = folder / "run"
        (folder / "fetched").mkdir()
        with served(arguments.server.absolute(), folder) as address:
            started = time.monotonic() - began
            words = ["digits", "--method", "source_only", "--iterations", arguments.iterations, "--log-every", "10"]
            words += ["--evaluate-every", max(1, arguments.iterations // 2), "--device", "cpu", "--out", run]
            if run_vmt(["train", *map(str, words), "--mlflow", address]) != 0:
                raise SystemExit("the run has failed")
            found = compared(address, run, folder / "fetched")
    said = subprocess.run([arguments.server.absolute(), "--version"], capture_output=True, text=True, check=True)
    about = {
        "server": said.stdout.strip(),
        "client": f"mlflow-skinny {version('mlflow-skinny')}",
        "commit": commit(),
        "seconds until the server answered": round(started, 1),
        **found,
    }
    text = json.dumps(about, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
