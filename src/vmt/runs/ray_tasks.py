"""Tasks on Ray: the same function many times, on the machines of a cluster, and again elsewhere when one is lost.

Ray starts the tasks where there is room, and moves their arguments there. What is left to do here is to connect, to
call a task again whose worker or node was lost, to stop the tasks with a checkpoint, and to show their progress.
"""

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import vmt
from vmt.errors import InputError, counted, first_line, message_of_gpu_error
from vmt.progress import Notify
from vmt.ranks.launch import check_alone
from vmt.runs.board import Board, Event, ProgressTable
from vmt.runs.workers import MOST_FAILURES
from vmt.train.loop import interruptible

SECONDS_BETWEEN_POLLS = 0.3
SECONDS_TO_CONNECT = 5.0
SECONDS_TO_TELL = 10.0
Tell = Callable[[Event], None]
"""Tells the process that started a task about its progress."""


@dataclass(frozen=True)
class OnRay:
    """Where tasks run, and what each of them takes."""

    address: str | None = None
    """``HOST:PORT``, ``ray://HOST:PORT`` or ``auto``; None joins the cluster that ``RAY_ADDRESS`` names, or starts Ray
    on this machine."""
    gpus_per_run: float | None = None
    """The share of a GPU of each task. None is a whole one, if the cluster has GPUs and they are asked for."""


class WorkerFailed(Exception):
    """A task cannot continue in this worker process, but may in another."""


def where_to_run(on: str, gpus_per_run: float | None) -> OnRay | None:
    """Read ``local``, ``ray`` or ``ray:ADDRESS``; None stands for this machine without Ray."""
    kind, _, address = on.partition(":")
    if kind not in ("local", "ray") or (kind == "local" and address):
        raise InputError(f"there is no place {on!r} to run on: give local, ray or ray:ADDRESS.")
    if kind == "local":
        if gpus_per_run is not None:
            raise InputError(
                "--gpus-per-run is for runs on Ray: add --on ray, or leave it out (--at-once runs several on one GPU)."
            )
        return None
    if gpus_per_run is not None and not 0 <= gpus_per_run <= 1:
        raise InputError(f"--gpus-per-run must be between 0 and 1, because a run uses one GPU, but got {gpus_per_run}.")
    check_alone("--on ray")
    return OnRay(address or None, gpus_per_run)


@contextmanager
def connected(place: OnRay, devices: set[str], notify: Notify, show: bool) -> Iterator["Cluster"]:
    """Join a cluster, or start Ray on this machine and end it afterwards. ``devices`` are those that tasks ask for."""
    ray = import_ray()
    was_connected = ray.is_initialized()
    before = signal.getsignal(signal.SIGTERM)
    own_folder = None
    try:
        with redirect_stdout(sys.stderr):  # Ray prints its warnings to stdout, which belongs to results
            if not was_connected:
                address = place.address or os.environ.get("RAY_ADDRESS")
                if address and address != "local":
                    join(ray, address)
                else:
                    own_folder = start(ray)
                with suppress(ValueError):  # in another thread than the main one
                    signal.signal(signal.SIGTERM, before)  # Ray's handler would end the process without a checkpoint
                if own_folder is None:
                    notify(f"Ray: joined {address}, {room(ray)}.")
                else:
                    notify(f"Ray: started on this machine, {room(ray)}.")
                if url := dashboard_of(ray):
                    notify(f"Ray's dashboard: http://{url}")
            gpus = share_of_gpu(ray.cluster_resources().get("GPU", 0), place.gpus_per_run, devices)
            yield Cluster(ray, gpus, notify, ProgressTable(show))
    finally:
        if not was_connected:
            ray.shutdown()  # ends what was started here, and leaves a cluster that was joined
        if own_folder is not None:
            shutil.rmtree(own_folder, ignore_errors=True)


def import_ray() -> ModuleType:
    """Ray; an InputError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to Ray's makers without being asked for
    try:
        import ray
    except ImportError as error:
        raise InputError("--on ray needs the package ray: pip install 'vmt[ray]', or leave it out.") from error
    module: ModuleType = ray
    return module


def start(ray: ModuleType) -> str:
    """Start Ray on this machine, on its loopback address. Returns its folder."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # a busy machine needs more than Ray's 30 seconds
    folder = tempfile.mkdtemp(prefix="vmt-ray-", dir="/tmp" if os.name == "posix" else None)  # sockets have short names
    try:
        ray.init(
            address="local",
            log_to_driver=False,
            logging_level="ERROR",
            include_dashboard=has_dashboard(),
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def has_dashboard() -> bool:
    """Whether the packages of Ray's dashboard are installed (``pip install "ray[default]"``)."""
    try:
        import_module("ray.dashboard.optional_deps")
    except ImportError:
        return False
    return True


def join(ray: ModuleType, address: str) -> None:
    """Join a cluster. Ray itself would wait for minutes for one that does not answer, so it is asked first."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    wanted = f"no Ray answers at {address}"
    remedy = "start one with ray start --head, give another address, or leave it out to start Ray on this machine"
    if address != "auto":
        if not host or not port.isdecimal():
            raise InputError(f"{address} is not an address of Ray: give HOST:PORT, ray://HOST:PORT or auto.")
        try:
            socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_CONNECT).close()
        except (OSError, OverflowError) as error:
            raise InputError(f"{wanted} ({error}): {remedy}.") from error
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # of several kinds
        raise InputError(f"{wanted} ({first_line(error)[:200]}): {remedy}.") from error


def room(ray: ModuleType) -> str:
    """The size of a cluster, in words."""
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    total = ray.cluster_resources()
    return ", ".join(
        [counted(nodes, "node"), counted(int(total.get("CPU", 0)), "CPU"), counted(int(total.get("GPU", 0)), "GPU")]
    )


def dashboard_of(ray: ModuleType) -> str | None:
    """The address of the dashboard, if there is one."""
    with suppress(Exception):  # a client of a remote cluster may not know it
        return ray._private.worker.get_dashboard_url() or None
    return None


def share_of_gpu(available: float, asked: float | None, devices: set[str]) -> float:
    """The share of a GPU that a task takes."""
    numbered = sorted(device for device in devices if device.startswith("cuda:"))
    if numbered:
        raise InputError(f"Ray chooses the GPU of each run: give the device cuda or auto, not {numbered[0]}.")
    wants = devices != {"cpu"}
    share = float(available > 0 and wants) if asked is None else asked
    if share > 0 and not wants:
        raise InputError("--gpus-per-run is for runs on a GPU: leave it out, or leave out the device cpu.")
    if share > available:
        raise InputError(
            "the Ray cluster has no GPU: leave out --gpus-per-run, or start its nodes with ray start --num-gpus N."
        )
    if share == 0 and "cuda" in devices:
        raise InputError("the runs ask for the device cuda, but get no GPU of the Ray cluster: give --gpus-per-run 1.")
    return share


@dataclass(frozen=True)
class Cluster:
    """A Ray that is connected, and what a task takes of it."""

    ray: ModuleType
    gpus: float
    """The share of a GPU that each task gets."""
    notify: Notify
    table: ProgressTable

    @property
    def device(self) -> str:
        """The device of runs that name none."""
        return "cuda" if self.gpus else "cpu"

    @property
    def at_once(self) -> int:
        """The number of tasks for which there is room at the same time."""
        total = self.ray.cluster_resources()
        cpus = int(total.get("CPU", 1))
        return max(1, min(cpus, int(total["GPU"]) * self.on_a_device) if self.gpus else cpus)

    @property
    def on_a_device(self) -> int:
        """The number of tasks on one GPU at the same time or, on CPUs, in the whole cluster."""
        return max(1, int(1 / self.gpus + 1e-6)) if self.gpus else self.at_once

    def run(
        self,
        function: Callable[..., Any],
        shared: Sequence[Any],
        calls: Mapping[str, Sequence[Any]],
        at_once: int | None = None,
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Call ``function(tell, *shared, *calls[name])`` as a task for each name.

        Returns the results, and for each name without one the reason. ``function`` must be one that every node can
        import. A task whose worker or node is lost is called again. Ctrl-C and ``kill`` reach the tasks, as in
        :func:`vmt.train.loop.interruptible`, and what they return then is among the results.
        """
        ray = self.ray
        # A process that has seen its GPU fail cannot use it again.
        options = {"num_cpus": 1, "num_gpus": self.gpus, "max_retries": 0, "max_calls": 1 if self.gpus else 0}
        task = ray.remote(**options)(carry_out_task)
        # If its node is lost, it is started again elsewhere, and calls that were under way are repeated.
        kept = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        board = ray.remote(**kept)(Board).remote() if self.table.visible else None
        try:
            stored = ray.put(tuple(shared))
        except TypeError as error:
            raise InputError(f"the runs cannot be sent to other processes ({first_line(error)}).") from error
        waiting, running = deque(calls), dict[Any, str]()
        results, problems, failures = dict[str, Any](), dict[str, str](), Counter[str]()
        is_stopping = False
        self.table.begin(len(calls))
        with interruptible() as interrupted:
            while running or (waiting and not is_stopping):
                while waiting and not is_stopping and (at_once is None or len(running) < at_once):
                    name = waiting.popleft()
                    running[task.remote(function, board, vmt.__version__, stored, calls[name])] = name
                ready, _ = ray.wait(list(running), num_returns=len(running), timeout=SECONDS_BETWEEN_POLLS)
                self._show(board)
                if interrupted() and not is_stopping:
                    is_stopping = True
                    for reference in running:
                        ray.cancel(reference)
                for reference in ready:
                    name = running.pop(reference)
                    self.table.remove(name)
                    why = None
                    try:
                        results[name], was_stopped = ray.get(reference)
                        if was_stopped and not is_stopping:
                            why = "Its worker was asked to stop."
                    except ray.exceptions.TaskCancelledError:
                        continue
                    except ray.exceptions.RayTaskError as error:
                        if not isinstance(error.cause, WorkerFailed):
                            problems[name] = own_fault(error.cause, name)
                            continue
                        why = str(error.cause)
                    except ray.exceptions.RayError as error:
                        why = how_it_was_lost(ray, error)
                    if why is None or is_stopping:
                        self.table.count()
                        continue
                    failures[name] += 1
                    if failures[name] > MOST_FAILURES:
                        problems[name] = f"{name} was given up after {counted(failures[name], 'failure')}: {why}"
                    else:
                        self.notify(f"{name}: {why} It continues on another worker.")
                        waiting.append(name)
        self.table.close()
        return results, problems

    def _show(self, board: Any) -> None:
        if board is not None:
            with suppress(self.ray.exceptions.RayError):
                self.table.show(self.ray.get(board.take.remote(), timeout=10))


def carry_out_task(
    function: Callable[..., Any], board: Any, version: str, shared: Sequence[Any], arguments: Sequence[Any]
) -> tuple[Any, bool]:
    """A task: what the function returns, and whether the worker was asked to stop."""
    if vmt.__version__ != version:
        raise InputError(
            f"{socket.gethostname()} has vmt {vmt.__version__}, and not {version}: install the same on all nodes."
        )

    told: list[Any] = []

    def tell(event: Event) -> None:
        if board is not None:
            told[:] = [board.tell.remote(event)]

    try:
        with interruptible() as interrupted:
            return function(tell, *shared, *arguments), interrupted()
    except RuntimeError as error:
        if (message := message_of_gpu_error(error)) is None:
            raise
        raise WorkerFailed(f"on {socket.gethostname()}, {message}") from None
    finally:
        with suppress(Exception):  # progress is not worth a failure
            import_ray().get(told, timeout=SECONDS_TO_TELL)  # or the result would come before the last events


def own_fault(error: BaseException, name: str) -> str:
    """Why a task has failed that would fail again."""
    if isinstance(error, InputError):
        return str(error)
    lines = str(error).strip().splitlines()
    return f"{name}: {type(error).__name__}: {lines[-1] if lines else 'no message'}"


def how_it_was_lost(ray: ModuleType, error: Exception) -> str:
    """Why a task has no result, in a sentence."""
    kinds = ray.exceptions
    if isinstance(error, kinds.NodeDiedError | kinds.LocalRayletDiedError):
        return "The node that it was running on was lost."
    if isinstance(error, kinds.OutOfMemoryError):
        return "Its worker was ended because the node was out of memory."
    if isinstance(error, kinds.WorkerCrashedError):
        return "Its worker process has died."
    lines = str(error).strip().splitlines()
    return f"Ray reports {type(error).__name__} ({lines[0][:200] if lines else 'no message'})."


# --- Workers that share work by themselves ---


def in_ray_workers(
    cluster: Cluster, work: Callable[..., Any], arguments: Sequence[Any], count: int, budget: float | None
) -> tuple[list[Any], list[str]]:
    """:func:`vmt.runs.workers.in_workers` with tasks in place of processes of this machine."""
    deadline = None if budget is None else time.time() + budget
    names = {f"worker {number}": (number,) for number in range(1, count + 1)}
    outcomes, problems = cluster.run(work_as_task, (work, arguments, deadline), names)
    return list(outcomes.values()), list(problems.values())


def work_as_task(
    tell: Tell, work: Callable[..., Any], arguments: Sequence[Any], deadline: float | None, number: int
) -> Any:
    budget = None if deadline is None else deadline - time.time()
    return work(*arguments, budget, lambda line: tell((f"worker {number}", "say", (line,))))
