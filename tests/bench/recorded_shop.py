"""A made-up run as a history: producers and workers of one queue that keep what docs/semantics.md says.

Calls overlap. Each takes effect at its end; a few jobs come later, some attempts fail, and some workers ack late.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from pinlater.history.call_events import CallBegin, CallEnd, Event, Note
from pinlater.history.plain_form import digest

QUEUE = "mail"
START_MS = 1_790_000_000_000
TIMEOUT_MS = 30_000
ATTEMPTS = 5
CALLERS = 40
CALL_MS = (0.5, 6.0)
PAUSE_MS = (0.0, 20.0)
AHEAD_MS = 2_000
LIMIT = 5
FAILING = 0.1


class StoredJob(NamedTuple):
    """A pending job; in a heap by when it is due, then by age."""

    due_ms: int
    number: int
    name: str
    body: str
    attempts: int
    enqueued_ms: int


class Shop:
    """Half of the callers enqueue, the others dequeue and ack."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._pending: list[StoredJob] = []
        self._sent = self._stored = self._claims = self._calls = 0
        self._ends: list[tuple[float, int, CallBegin]] = []
        self._held: dict[str, list[tuple[StoredJob, str]]] = {}

    def events(self, number: int) -> Iterator[Event]:
        """About so many, by time; at the end all is drained."""
        turns = [(float(START_MS), each) for each in range(CALLERS)]
        at_ms, made = float(START_MS), 0
        while turns or self._ends:
            if not self._ends or (turns and turns[0][0] <= self._ends[0][0]):
                at_ms, caller = heapq.heappop(turns)
                begin = self._begin(caller, at_ms, is_over=made >= number)
                if begin is None:
                    continue
                heapq.heappush(self._ends, (at_ms + self._random.uniform(*CALL_MS), begin.call, begin))
                yield begin
            else:
                at_ms, _, begin = heapq.heappop(self._ends)
                yield CallEnd(begin.call, at_ms, self._answer(begin, int(at_ms)))
                caller = int(begin.by.rpartition("-")[2])
                heapq.heappush(turns, (at_ms + self._random.uniform(*PAUSE_MS), caller))
            made += 1
        yield Note("end", at_ms + 1)

    def _begin(self, caller: int, at_ms: float, *, is_over: bool) -> CallBegin | None:
        """The next call of a caller; None: it has ended."""
        produces = caller % 2 == 0
        by = f"{'producer' if produces else 'worker'}-{caller}"
        held = self._held.get(by)
        if (produces and is_over) or (not produces and is_over and not held and not self._has_open()):
            return None
        self._calls += 1
        if produces:
            late_ms = self._random.randint(1, AHEAD_MS) if self._random.random() < 0.2 else 0
            self._sent += 1
            job: dict[str, Any] = {"body": digest(b"%d" % self._sent), "numAttemptsAllowed": ATTEMPTS}
            if late_ms:
                job["runAfterTimestampMillis"] = int(at_ms) + late_ms
            return CallBegin(self._calls, by, at_ms, "enqueueJobs", _request(jobs=[job]))
        if held:
            failed = [each for each in held if self._random.random() < FAILING]
            acks = {
                "jobsSucceeded": [_ack(*each) for each in held if each not in failed],
                "jobsFailed": [_ack(*each) for each in failed],
            }
            return CallBegin(self._calls, by, at_ms, "ackJobs", _request(**acks))
        return CallBegin(self._calls, by, at_ms, "dequeueJobs", _request(limit=LIMIT, claimTimeoutMillis=TIMEOUT_MS))

    def _has_open(self) -> bool:
        return bool(self._pending or any(self._held.values()) or any(b.method == "enqueueJobs" for *_, b in self._ends))

    def _answer(self, begin: CallBegin, now_ms: int) -> dict[str, Any]:
        request = begin.args["request"]
        if begin.method == "enqueueJobs":
            return {"jobDescriptors": [self._store(each, now_ms) for each in request["jobs"]]}
        if begin.method == "dequeueJobs":
            return self._claim(begin.by, now_ms)
        held = self._held.pop(begin.by)
        failed = {each["jobDescriptor"] for each in request["jobsFailed"]}
        succeeded = [1] * len(request["jobsSucceeded"])
        return {"outcomes": succeeded + [self._retry(job, now_ms) for job, _ in held if job.name in failed]}

    def _store(self, job: dict[str, Any], now_ms: int) -> str:
        self._stored += 1
        name = f"{QUEUE}:s1:p1:{now_ms * 1000 + self._stored % 1000}"
        due_ms = job.get("runAfterTimestampMillis", now_ms)
        heapq.heappush(self._pending, StoredJob(due_ms, self._stored, name, job["body"], ATTEMPTS, now_ms))
        return name

    def _claim(self, by: str, now_ms: int) -> dict[str, Any]:
        self._claims += 1
        claim = f"q1:1:{self._claims}:{by}"
        taken: list[StoredJob] = []
        while self._pending and self._pending[0].due_ms <= now_ms and len(taken) < LIMIT:
            taken.append(heapq.heappop(self._pending))
        self._held[by] = [(job, claim) for job in taken]
        metadata = {
            job.name: {
                "attemptsAllowed": ATTEMPTS,
                "attemptsRemaining": job.attempts,
                "claimDescriptor": claim,
                "enqueuedAtMillis": job.enqueued_ms,
                "runAfterMillis": job.due_ms,
                "priority": 1,
                "claimExpiresAtMillis": now_ms + TIMEOUT_MS,
            }
            for job in taken
        }
        return {"jobs": {job.name: job.body for job in taken}, "jobMetadata": metadata}

    def _retry(self, job: StoredJob, now_ms: int) -> int:
        """A failed ack: RETRIED, or FAILED with the last attempt."""
        if job.attempts == 1:
            return 3
        heapq.heappush(self._pending, job._replace(due_ms=now_ms, attempts=job.attempts - 1))
        return 2


def _request(**fields: Any) -> dict[str, Any]:
    return {"request": {"queueName": QUEUE, **fields}}


def _ack(job: StoredJob, claim: str) -> dict[str, Any]:
    return {"jobDescriptor": job.name, "claimDescriptor": claim}
