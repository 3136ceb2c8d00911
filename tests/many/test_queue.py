"""A queue of runs that other processes may share."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vmt.many.queue import Queue, QueueOutcome, run_queue
from vmt.many.storage import OpenRun, Storage
from vmt.progress import Notify, Progress
from vmt.runs.folder import folder_lock


@dataclass(frozen=True)
class FileJob:
    """Writes a file."""

    run: str


class FileQueue(Queue[FileJob]):
    """Jobs that are done when their file is there; counts how often that is asked."""

    def __init__(self, folder: Path, count: int, also: Callable[[str], None] = lambda run: None) -> None:
        super().__init__([FileJob(f"{number:04}") for number in range(count)], Storage(folder))
        self.folder, self.also = folder, also
        self.asked = 0
        self.did: list[str] = []

    def file_of(self, run: str) -> Path:
        return self.folder / f"{run}.done"

    def is_done(self, job: FileJob) -> bool:
        self.asked += 1
        return self.file_of(job.run).exists()

    def do(
        self,
        job: FileJob,
        run: OpenRun,
        budget: float | None,
        notify: Notify,
        new_progress: Callable[[str], Progress],
    ) -> bool:
        self.did.append(job.run)
        self.also(job.run)
        self.file_of(job.run).touch()
        return True


def test_the_questions_about_done_jobs_grow_with_the_jobs_and_not_with_their_square(tmp_path: Path) -> None:
    """With a storage under a URL, each is a request."""
    asked = []
    for count in (10, 40):
        queue = FileQueue(tmp_path / str(count), count)
        assert run_queue(queue, None, lambda _: None) == QueueOutcome(count, 0, {})
        asked.append(queue.asked)
    assert asked[1] <= 4 * asked[0]


def test_a_job_that_another_process_does_in_the_meantime_is_not_done_again(tmp_path: Path) -> None:
    queue = FileQueue(tmp_path, 4, lambda run: queue.file_of("0002").touch())
    assert run_queue(queue, None, lambda _: None) == QueueOutcome(4, 0, {})
    assert queue.did == ["0000", "0001", "0003"]


def test_a_run_that_another_works_on_is_tried_again_after_the_next(tmp_path: Path) -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with folder_lock(tmp_path / "0000"):
            held.set()
            release.wait()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()

    def end_the_other(run: str) -> None:
        release.set()
        other.join()

    queue = FileQueue(tmp_path, 3, end_the_other)
    assert run_queue(queue, None, lambda _: None) == QueueOutcome(3, 0, {})
    assert queue.did == ["0001", "0000", "0002"]


def test_nothing_is_said_of_the_time_if_other_processes_have_done_the_rest(tmp_path: Path) -> None:
    queue = FileQueue(tmp_path, 2)
    lines: list[str] = []
    assert run_queue(queue, 0.0, lines.append) == QueueOutcome(0, 2, {})
    assert len(lines) == 1
    for job in queue.jobs:
        queue.file_of(job.run).touch()
    lines.clear()
    assert run_queue(queue, 0.0, lines.append) == QueueOutcome(0, 0, {})
    assert lines == []
