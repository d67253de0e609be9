"""A claimed job becomes one that runs here, or one that cannot."""

from __future__ import annotations

import random

from pinlater.model import DequeuedJob
from pinlater_workers.app import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import BodyInvalid
from pinlater_workers.metrics import Metrics
from pinlater_workers.running import Running, attempt_number
from pinlater_workers.verdict import Action, Verdict
from pinlater_workers.worker.trouble import log

MAX_SAID = 1_000
"""So many unknown types are said at most: bodies can hold any name."""


class Intake:
    """Reads each body once. The app's types are those of the worker's start. Times are of time.monotonic."""

    def __init__(self, app: App, unknown_delay_s: float, metrics: Metrics) -> None:
        self._types = {name: each for name, each in app.job_types.items() if not each.settings.raw}
        self._raw = {each.settings.queue: each for each in app.job_types.values() if each.settings.raw}
        self._unknown_delay_s = unknown_delay_s
        self._metrics = metrics
        self._rng = random.Random()
        self._said: set[tuple[str, str]] = set()

    def running(self, job: DequeuedJob, queue: str, now_s: float, now_ms: int) -> tuple[Running, Verdict | None]:
        """The job, ready to run; or with what becomes of it where this worker cannot run it."""
        try:
            envelope = read_envelope(job.body)
        except BodyInvalid as error:
            self._metrics.unreadable(queue)
            status = f"attempt {attempt_number(job)}: BodyInvalid: {error}\n"
            log.warning("job %s failed, no attempt follows: %s", job.descriptor, status.rstrip())
            return _not_run(job, queue, now_s), Verdict(Action.FAIL, status=status, error="BodyInvalid")
        job_type = self._raw.get(queue) if envelope is None else self._types.get(envelope.job)
        if job_type is None:
            name = "a body that is no envelope" if envelope is None else envelope.job
            return _not_run(job, queue, now_s), self._unknown(queue, name)
        limit_s = job_type.settings.time_limit_s
        return Running(job, queue, job_type, now_s, now_s + limit_s, envelope, now_ms + int(limit_s * 1000)), None

    def _unknown(self, queue: str, name: str) -> Verdict:
        """Back to where a worker that knows it may take it. No attempt is spent."""
        self._metrics.unknown(queue)
        if (queue, name) not in self._said and len(self._said) < MAX_SAID:
            self._said.add((queue, name))
            log.warning("queue %s has jobs of a type that is unknown here, %.100s; they are given back", queue, name)
        return Verdict(Action.GIVE_BACK, int(self._unknown_delay_s * 1000 * self._rng.uniform(0.75, 1.25)))


def _not_run(job: DequeuedJob, queue: str, now_s: float) -> Running:
    return Running(job, queue, None, now_s, now_s)
