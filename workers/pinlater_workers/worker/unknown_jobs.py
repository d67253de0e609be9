"""Jobs that this worker cannot run: requeued without an attempt spent, ever less often, and ended after a time.

A first line in the job's status says since when, and how often the job is looked for; that is all that is kept, so it
counts for all workers together. The rounds are planned from that moment alone. A job whose run_after is one of them
was last requeued here or by a worker like this. Any other was run, put off or retried by somebody meanwhile, and where
that may matter the time counts from anew. While workers of another version take from the queue, as in a deploy, a job
comes back sooner than its next round, so that one of them soon has it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from pinlater.client.async_client import AsyncClient
from pinlater.clock import Clock
from pinlater.durations import duration_text, parse_duration, seconds_text
from pinlater.log_guard import GuardedLogger
from pinlater.model import DequeuedJob, JobInfo
from pinlater.schedule import utc_text
from pinlater_workers.envelope import VERSION_TYPE
from pinlater_workers.execution.failure_text import one_line
from pinlater_workers.heartbeat.messages import UnknownEntry
from pinlater_workers.jobs.attempt_record import worker_name
from pinlater_workers.jobs.context import attempt_number
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.worker.ack_batches import PlannedRequeue, Result
from pinlater_workers.worker.other_versions import OtherVersions

log = GuardedLogger("pinlater_workers.worker")

UNKNOWN = Outcome(Action.GIVE_BACK, error="UnknownType")
"""Of a job that this worker cannot run, until it is decided what becomes of it."""

LONGEST_ROUND_MS = 600_000
ROUNDS_PER_WAIT = 4
"""A round is a quarter of the time before it: a worker that knows the type finds the job soon after it has come."""
QUICK_MS = 1_000
"""The first round, and the shortest wait, while workers of another version take from the queue."""
QUICK_PER_S = 100
"""So many jobs come back so soon, of each worker: with more of them it would do little else."""
MAX_LOGGED = 1_000
"""The most types that are logged: bodies can hold any name."""
MAX_NAME_CHARS = 100
MAX_MET = 100
MET_S = 900.0
"""What was met so lately is told of: each such job comes again within ten minutes."""

_LINE = re.compile(
    r"^not run: .* since (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) \(.*; looked for again after (\S+), later less often",
    re.MULTILINE,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UnknownKind(StrEnum):
    """Why a job cannot be run here. The words stand in metrics."""

    TYPE = "type"
    """A type that no job of the app has."""
    BODY = "body"
    """A body that is not the framework's, in a queue without a raw job."""
    VERSION = "version"
    """A body of a later version of the framework."""


class FirstSeen(NamedTuple):
    """What a status says: since when nobody here could run the job, and the first round."""

    since_ms: int
    first_ms: int


class UnknownJobs:
    """Decides what becomes of them. `delay_s`: the first round; `limit_s`: how long they may be unknown, infinite for
    ever.
    """

    def __init__(
        self,
        client: AsyncClient,
        delay_s: float,
        limit_s: float,
        clock: Clock,
        metrics: WorkerMetrics,
        others: OtherVersions | None = None,
    ) -> None:
        self._client = client
        self._others = others
        self._quick = QuickReturns()
        self._first_ms = max(1, round(delay_s * 1000))
        self._limit_s = limit_s
        self._clock = clock
        self._metrics = metrics
        self._logged: set[tuple[str, str, bool]] = set()
        self._met: dict[tuple[str, str], UnknownEntry] = {}
        """By queue and type; the last that was met at the end."""

    def met(self) -> list[UnknownEntry]:
        """What was met of late, the last first."""
        since_s = time.monotonic() - MET_S
        self._met = {key: each for key, each in self._met.items() if each.met_s > since_s}
        return [*reversed(self._met.values())]

    def _note(self, running: RunningJob, jobs: int) -> None:
        key = running.queue, type_named(running)
        before = self._met.pop(key, None)
        self._met[key] = UnknownEntry(*key, jobs + (before.jobs if before else 0), time.monotonic())
        if len(self._met) > MAX_MET:
            del self._met[next(iter(self._met))]

    async def decide(self, results: Sequence[Result], timeout_s: float) -> list[Result]:
        """The results, with an outcome in place of each UNKNOWN. The errors of AsyncClient.lookup.

        A call more for those alone, as a dequeue does not bring statuses; and every two seconds one for each queue.
        """
        unknown = [running.job.descriptor for running, outcome in results if outcome is UNKNOWN]
        if not unknown:
            return list(results)
        found = await self._client.lookup(unknown, timeout=timeout_s)
        ages: dict[str, int | None] = {}
        if self._others is not None:
            for queue in {running.queue for running, outcome in results if outcome is UNKNOWN}:
                ages[queue] = await self._others.age_ms(queue, timeout_s)
        now_ms = self._clock.now_ms()
        return [
            (running, self._outcome(running, found, now_ms, ages.get(running.queue)) if outcome is UNKNOWN else outcome)
            for running, outcome in results
        ]

    def _outcome(
        self, running: RunningJob, found: Mapping[str, JobInfo], now_ms: int, others_ms: int | None
    ) -> Outcome:
        """`others_ms`: for how long workers of another version take from its queue; None: none do."""
        job = running.job
        info = found.get(job.descriptor)
        seen = first_seen(info.custom_status) if info is not None else None
        kind, name = kind_of(running)
        self._note(running, int(seen is None))
        if seen is None or not self._counts(seen, job, now_ms):
            is_quick = others_ms is not None and self._quick.take()
            seen = FirstSeen(now_ms, min(QUICK_MS, self._first_ms) if is_quick else self._first_ms)
            status = self._first_line(running.queue, name, seen)
            self._say(running.queue, name, "are requeued", has_ended=False)
            return PlannedRequeue(Action.GIVE_BACK, status=status, run_after_ms=next_round_ms(seen, now_ms))
        if now_ms - seen.since_ms >= self._limit_s * 1000 and is_planned(seen, job.run_after_ms):
            self._metrics.unknown_failed(running.queue, kind)
            self._say(running.queue, name, f"have failed after {seconds_text(self._limit_s)}", has_ended=True)
            return Outcome(Action.FAIL, status=_last_line(job, running.queue, name, seen, now_ms), error="UnknownType")
        return PlannedRequeue(Action.GIVE_BACK, run_after_ms=self._again_ms(seen, now_ms, others_ms))

    def _again_ms(self, seen: FirstSeen, now_ms: int, others_ms: int | None) -> int:
        """The next round; sooner while others may know the type, which a job can have waited for since long before."""
        round_ms = next_round_ms(seen, now_ms)
        if others_ms is None:
            return round_ms
        quick_ms = now_ms + max(QUICK_MS, min(now_ms - seen.since_ms, others_ms) // ROUNDS_PER_WAIT)
        is_early = quick_ms - seen.since_ms < self._limit_s * 1000 / 2  # later it would count from anew
        return quick_ms if quick_ms < round_ms and is_early and self._quick.take() else round_ms

    def _counts(self, seen: FirstSeen, job: DequeuedJob, now_ms: int) -> bool:
        """A time that is far from its end goes on, so that workers of two versions do not fill the status."""
        return is_planned(seen, job.run_after_ms) or now_ms - seen.since_ms < self._limit_s * 1000 / 2

    def _first_line(self, queue: str, name: str, seen: FirstSeen) -> str:
        ends = "" if self._limit_s == float("inf") else f"; FAILED after {seconds_text(self._limit_s)}"
        return (
            f"not run: {name}, unknown to the workers of queue {queue} since {since_text(seen.since_ms)} "
            f"({worker_name()}); looked for again after {duration_text(seen.first_ms)}, later less often{ends}\n"
        )

    def _say(self, queue: str, name: str, what: str, *, has_ended: bool) -> None:
        if (queue, name, has_ended) not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add((queue, name, has_ended))
            log.warning("queue %s has jobs that are unknown here, %s; they %s", queue, name, what)


class QuickReturns:
    """How many jobs may come back sooner than their rounds: so many in a second."""

    def __init__(self) -> None:
        self._since_s = 0.0
        self._left = 0

    def take(self) -> bool:
        """One of them."""
        now_s = time.monotonic()
        if now_s - self._since_s >= 1:
            self._since_s, self._left = now_s, QUICK_PER_S
        self._left -= 1
        return self._left >= 0


def type_named(running: RunningJob) -> str:
    """As the body says it; "" where it is not the framework's."""
    return "" if running.envelope is None else one_line(running.envelope.job, MAX_NAME_CHARS)


def kind_of(running: RunningJob) -> tuple[UnknownKind, str]:
    """The kind, and what people call it."""
    envelope = running.envelope
    if envelope is None:
        return UnknownKind.BODY, "a body that is not the framework's"
    if envelope.job.startswith(VERSION_TYPE):
        return UnknownKind.VERSION, f"a body of a later version, {one_line(envelope.job, MAX_NAME_CHARS)}"
    return UnknownKind.TYPE, f"type {one_line(envelope.job, MAX_NAME_CHARS)}"


def first_seen(status: str) -> FirstSeen | None:
    """Of the newest line that says so: it stands in front."""
    match = _LINE.search(status)
    if match is None:
        return None
    try:
        return FirstSeen(_time_ms(match[1]), max(1, round(parse_duration(match[2]) * 1000)))
    except ValueError:
        return None


def next_round_ms(seen: FirstSeen, after_ms: int) -> int:
    """The first round after that moment.

    >>> [next_round_ms(FirstSeen(0, 10_000), after_ms) // 1000 for after_ms in (0, 10_000, 50_000, 7_200_000)]
    [10, 20, 62, 7575]
    """
    at_ms = seen.since_ms
    while at_ms <= after_ms:
        quarter_ms = (at_ms - seen.since_ms) // ROUNDS_PER_WAIT
        step_ms = max(seen.first_ms, min(quarter_ms, LONGEST_ROUND_MS))
        steps = 1
        if seen.first_ms >= LONGEST_ROUND_MS or quarter_ms >= LONGEST_ROUND_MS:  # they are alike from here on
            steps = (after_ms - at_ms) // step_ms + 1
        at_ms += steps * step_ms
    return at_ms


def is_planned(seen: FirstSeen, time_ms: int) -> bool:
    """That moment is one of the rounds."""
    return time_ms > seen.since_ms and next_round_ms(seen, time_ms - 1) == time_ms


def _last_line(job: DequeuedJob, queue: str, name: str, seen: FirstSeen, now_ms: int) -> str:
    took = seconds_text((now_ms - seen.since_ms) // 1000)
    allowed = max(job.attempts_allowed, job.attempts_remaining)
    return (
        f"attempt {attempt_number(job)} of {allowed}: UnknownType: {name}, unknown to the workers of queue {queue} for "
        f"{took} [{utc_text(now_ms)}, {worker_name()}]\n"
    )


def since_text(time_ms: int) -> str:
    """As a status has it.

    >>> since_text(1795392552345)
    '2026-11-23T00:09:12.345Z'
    """
    return f"{utc_text(time_ms)[:-1]}.{time_ms % 1000:03d}Z"


def _time_ms(text: str) -> int:
    """ValueError: no such time."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return round((moment - _EPOCH).total_seconds() * 1000)
