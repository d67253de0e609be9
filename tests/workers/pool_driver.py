"""A pool, and a worker's part in it: hands it jobs, is told of their ends, and carries out their checkpoints."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pinlater.model import Checkpoint, DequeuedJob
from pinlater_workers import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Outcome
from pinlater_workers.jobs.progress_report import ProgressReport, TakeProgress
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.pools.base import JobPool, JobsEnded, NoteProgress, SaveCheckpoint

WITHIN_S = 100.0
TIME_LIMIT_S = 60.0
T = TypeVar("T")


def is_gone(process: int) -> bool:
    """Or dead, and not waited for by the process that inherited it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class PoolDriver:
    """Owns the event loop; its calls block the test, at most WITHIN_S each."""

    def __init__(self, app: App, make: Callable[[JobsEnded, SaveCheckpoint, NoteProgress], JobPool]) -> None:
        self.app = app
        self.reports: list[Sequence[tuple[RunningJob, Outcome]]] = []
        self.outcomes: dict[RunningJob, Outcome] = {}
        self.saved: list[tuple[RunningJob, Checkpoint]] = []
        self.made: list[tuple[RunningJob, ProgressReport]] = []
        self.refusal: Exception | None = None
        """What a checkpoint raises."""
        self._runner = asyncio.Runner()
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self.pool = make(self._ended, self._save, self._progress)

    def open(self) -> PoolDriver:
        self.run(self.pool.open())
        return self

    def close(self) -> None:
        try:
            self.run(self.pool.close())
        finally:
            self._runner.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(coroutine, WITHIN_S))

    def running(self, job_type: JobType, *args: object, body: bytes | None = None) -> RunningJob:
        """A first attempt of two, not submitted yet."""
        body = job_type.body(*args) if body is None else body
        number = next(self._numbers)
        job = DequeuedJob(f"job-{number}", body, 1, 2, 2, 0, 0, f"claim-{number}")
        now_s = time.monotonic()
        deadline_ms = int((time.time() + TIME_LIMIT_S) * 1000)
        until_s, envelope = now_s + TIME_LIMIT_S, read_envelope(body)
        return RunningJob(job, job_type.settings.queue, job_type, now_s, until_s, envelope, deadline_ms)

    def submit(self, job_type: JobType, *args: object, body: bytes | None = None) -> RunningJob:
        running = self.running(job_type, *args, body=body)
        self.run(self._on_loop(self.pool.submit, running))
        return running

    def stop(self, running: RunningJob, why: StopReason, by: str | None = None) -> None:
        running.stop_reason, running.cancelled_by = why, by
        self.run(self._on_loop(self.pool.stop, running, why))

    def outcome(self, running: RunningJob) -> Outcome:
        self.until(lambda: running in self.outcomes)
        return self.outcomes[running]

    def result(self, job_type: JobType, *args: object, body: bytes | None = None) -> Outcome:
        return self.outcome(self.submit(job_type, *args, body=body))

    def statuses(self, running: RunningJob) -> list[str]:
        return [checkpoint.prepend_status.rstrip() for of, checkpoint in self.saved if of is running]

    def says(self, running: RunningJob) -> str:
        """The first status that the job sets."""
        self.until(lambda: bool(self.statuses(running)))
        return self.statuses(running)[0]

    def until(self, holds: Callable[[], bool]) -> None:
        self.run(self._until(holds))

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Looks at every news, and now and then, as not everything is told."""
        while not holds():
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), 0.02)
            except TimeoutError:
                continue

    async def _on_loop(self, call: Callable[..., None], *args: object) -> None:
        call(*args)

    def _ended(self, ended: Sequence[tuple[RunningJob, Outcome]]) -> None:
        self.reports.append(ended)
        for running, outcome in ended:
            assert running not in self.outcomes, "told twice"
            self.outcomes[running] = outcome
        self._news.set()

    def _progress(self, running: RunningJob, take: TakeProgress) -> None:
        made = take()
        if made is not None:
            self.made.append((running, made))
        self._news.set()

    async def _save(self, running: RunningJob, checkpoint: Checkpoint) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.saved.append((running, checkpoint))
        self._news.set()
