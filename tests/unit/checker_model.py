"""A server in miniature, as the wire sees it, and callers that ask it by chance: histories that are right by making.

Each call is carried out at one moment between its begin and its end. Some have no end: they are carried out late, or
never.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pinlater.history.call_events import CallBegin, CallEnd, Event
from pinlater.model import AckOutcome, CancelOutcome, EnqueueOutcome, HeartbeatOutcome, JobState, RescheduleOutcome
from tests.unit.checker_stand import QUEUE, START_MS, UNKNOWN

CLAIM_MS = 8_000
SETTINGS = {
    "crash_budget": "3",
    "failed_ttl": "7d",
    "succeeded_ttl": "24h",
    "max_in_progress": "none",
    "max_jobs_per_second": "none",
    "paused": "false",
    "paused_until": "none",
    "flow_items": "false",
}

Request = dict[str, Any]


@dataclass
class ModelJob:
    descriptor: str
    body: str
    due_ms: int
    attempts: int
    allowed: int
    key: str = ""
    chain: str = ""
    over_ms: float = float("inf")
    state: JobState = JobState.PENDING
    claim: str = ""
    expires_ms: int = 0
    crashes: int = 0
    to_stop: bool = False
    cancelled: bool = False
    result: str | None = None

    def is_live(self) -> bool:
        return self.state in (JobState.PENDING, JobState.IN_PROGRESS)

    def end(self, state: JobState) -> None:
        self.state, self.claim = state, ""


class ModelServer:
    """One queue on one shard. Its clock is the one that is given to each call."""

    def __init__(self, rng: random.Random) -> None:
        self.jobs: dict[str, ModelJob] = {}
        self._rng = rng
        self._claims = 0
        self._ids = count(1_790_000_000_000_000)
        self._sent: dict[str, str] = {}
        self.calls: dict[str, Callable[[Request, str, int], Any]] = {
            "getQueues": self._settings,
            "enqueueJobs": self._enqueue,
            "dequeueJobs": self._dequeue,
            "ackJobs": self._ack,
            "heartbeatJobs": self._heartbeat,
            "checkpointJobs": self._checkpoint,
            "lookupJobs": self._lookup,
            "cancelJobs": self._cancel,
            "rescheduleJobs": self._reschedule,
            "retryFailedJobs": self._retry,
            "deleteJobs": self._delete,
            "getJobCount": self._count,
        }

    def answer(self, method: str, request: Request, by: str, now_ms: int) -> Any:
        """What the call answers; maintenance is done before it."""
        self.maintain(now_ms)
        return self.calls[method](request, by, now_ms)

    def maintain(self, now_ms: int) -> None:
        for job in self.jobs.values():
            if job.state is JobState.IN_PROGRESS and job.expires_ms < now_ms:
                job.crashes += 1
                left = 0 if job.crashes >= 3 else job.attempts - 1
                if job.to_stop or left <= 0:
                    job.cancelled = job.to_stop
                    job.end(JobState.FAILED)
                else:
                    job.state, job.claim, job.attempts, job.due_ms = JobState.PENDING, "", left, now_ms
            elif job.state is JobState.PENDING and job.over_ms <= now_ms:
                job.end(JobState.FAILED)

    def _settings(self, request: Request, by: str, now_ms: int) -> Any:
        shown = {key: {"value": value, "source": "server"} for key, value in SETTINGS.items()}
        return {"queues": [{"name": QUEUE, "version": "1", "settings": shown}]}

    def _enqueue(self, request: Request, by: str, now_ms: int) -> Any:
        descriptors, outcomes = [], []
        for job in request["jobs"]:
            descriptor, outcome = self._stored(job, now_ms)
            descriptors.append(descriptor)
            outcomes.append(int(outcome))
        return {"jobDescriptors": descriptors, "outcomes": outcomes}

    def _stored(self, job: Request, now_ms: int) -> tuple[str, EnqueueOutcome]:
        if job.get("sendId") in self._sent:
            return self._sent[job["sendId"]], EnqueueOutcome.STORED
        key, due_ms = job.get("dedupeKey", ""), job.get("runAfterTimestampMillis") or now_ms
        for other in self.jobs.values():
            if key and other.key == key and other.is_live():
                if job.get("onDuplicate") == 1 and other.state is JobState.PENDING:
                    other.body, other.due_ms = job["body"], due_ms
                    other.attempts = other.allowed = job["numAttemptsAllowed"]
                    return other.descriptor, EnqueueOutcome.REPLACED
                return other.descriptor, EnqueueOutcome.KEPT
        descriptor = f"{QUEUE}:s1:p1:{next(self._ids):016d}"
        attempts = job["numAttemptsAllowed"]
        self.jobs[descriptor] = ModelJob(
            descriptor,
            job["body"],
            due_ms,
            attempts,
            attempts,
            key,
            job.get("serializeKey", ""),
            job.get("expiresAtMillis", float("inf")),
        )
        if "sendId" in job:
            self._sent[job["sendId"]] = descriptor
        return descriptor, EnqueueOutcome.STORED

    def _dequeue(self, request: Request, by: str, now_ms: int) -> Any:
        self._claims += 1
        claim = f"model:1:0:{self._claims}:{by}"
        outcomes = self._acks(request["jobAckRequest"], now_ms) if "jobAckRequest" in request else []
        pending = [job for job in self.jobs.values() if job.state is JobState.PENDING]
        eligible = [job for job in pending if job.due_ms <= now_ms < job.over_ms]
        heads = [job for job in eligible if not job.chain or self._is_first(job)]
        jobs, metadata = {}, {}
        for job in sorted(heads, key=lambda job: (job.due_ms, job.descriptor))[: request["limit"]]:
            job.state, job.claim, job.expires_ms = JobState.IN_PROGRESS, claim, now_ms + CLAIM_MS
            jobs[job.descriptor] = job.body
            metadata[job.descriptor] = {
                "attemptsAllowed": job.allowed,
                "attemptsRemaining": job.attempts,
                "claimDescriptor": claim,
                "claimExpiresAtMillis": job.expires_ms,
                "runAfterMillis": job.due_ms,
            }
        answer: dict[str, Any] = {"jobs": jobs, "jobMetadata": metadata}
        if AckOutcome.IGNORED in outcomes:
            answer["ackOutcomes"] = outcomes
        return answer

    def _is_first(self, job: ModelJob) -> bool:
        chain = [other for other in self.jobs.values() if other.chain == job.chain and other.is_live()]
        return chain[0] is job

    def _ack(self, request: Request, by: str, now_ms: int) -> Any:
        return {"outcomes": self._acks(request, now_ms)}

    def _acks(self, request: Request, now_ms: int) -> list[int]:
        succeeded, failed = request.get("jobsSucceeded", ()), request.get("jobsFailed", ())
        return [
            *[int(self._succeeded(ack)) for ack in succeeded],
            *[int(self._failed(ack, now_ms)) for ack in failed],
        ]

    def _held(self, named: Request) -> ModelJob | None:
        job = self.jobs.get(named["jobDescriptor"])
        if job is None or job.state is not JobState.IN_PROGRESS:
            return None
        return job if named.get("claimDescriptor", job.claim) == job.claim else None

    def _succeeded(self, ack: Request) -> AckOutcome:
        job = self._held(ack)
        if job is None:
            return AckOutcome.IGNORED
        job.result = ack.get("result")
        job.end(JobState.SUCCEEDED)
        return AckOutcome.SUCCEEDED

    def _failed(self, ack: Request, now_ms: int) -> AckOutcome:
        job = self._held(ack)
        if job is None:
            return AckOutcome.IGNORED
        if job.to_stop:
            job.cancelled = True
            job.end(JobState.FAILED)
            return AckOutcome.CANCELLED
        if ack.get("permanent") or job.attempts <= 1:
            job.end(JobState.FAILED)
            return AckOutcome.FAILED
        job.state, job.claim, job.attempts = JobState.PENDING, "", job.attempts - 1
        job.due_ms = now_ms + ack.get("retryDelayMillis", 0)
        return AckOutcome.RETRIED

    def _heartbeat(self, request: Request, by: str, now_ms: int) -> Any:
        outcomes = []
        for beat in request["heartbeats"]:
            job = self._held(beat)
            if job is not None:
                job.expires_ms = now_ms + CLAIM_MS
            stands = HeartbeatOutcome.CANCEL if job is not None and job.to_stop else HeartbeatOutcome.OK
            outcomes.append(int(HeartbeatOutcome.LOST if job is None else stands))
        return {"outcomes": outcomes}

    def _checkpoint(self, request: Request, by: str, now_ms: int) -> Any:
        for each in request["requests"]:
            job = self._held(each)
            if job is None:
                continue
            job.body, job.due_ms, job.expires_ms = each.get("newBodyBytes", job.body), now_ms, now_ms + CLAIM_MS
            if each.get("moveToPending") and job.to_stop:
                job.cancelled = True
                job.end(JobState.FAILED)
            elif each.get("moveToPending"):
                job.state, job.claim = JobState.PENDING, ""
        return None

    def _lookup(self, request: Request, by: str, now_ms: int) -> Any:
        found = {}
        for descriptor in request["jobDescriptors"]:
            job = self.jobs.get(descriptor)
            if job is not None:
                found[descriptor] = self._info(job)
        for named in request.get("keys", ()):
            live = [job for job in self.jobs.values() if job.key == named["dedupeKey"] and job.is_live()]
            found.update((job.descriptor, self._info(job)) for job in live)
        return found

    def _info(self, job: ModelJob) -> dict[str, Any]:
        info: dict[str, Any] = {
            "jobDescriptor": job.descriptor,
            "jobState": int(job.state),
            "attemptsAllowed": job.allowed,
            "attemptsRemaining": job.attempts,
            "runAfterTimestampMillis": job.due_ms,
            "body": job.body,
        }
        if job.state is JobState.IN_PROGRESS:
            info |= {"claimDescriptor": job.claim, "claimExpiresAtMillis": job.expires_ms}
        if job.result is not None:
            info["result"] = job.result
        if job.cancelled:
            info["cancelled"] = True
        return info | ({"dedupeKey": job.key} if job.key else {})

    def _cancel(self, request: Request, by: str, now_ms: int) -> Any:
        outcomes = {}
        for descriptor in request["jobDescriptors"]:
            job = self.jobs.get(descriptor)
            if job is None:
                outcome = CancelOutcome.NOT_FOUND
            elif job.state is JobState.PENDING:
                outcome = CancelOutcome.CANCELLED
                del self.jobs[descriptor]
            elif not job.is_live():
                outcome = CancelOutcome.ENDED
            elif request.get("mode"):
                outcome, job.to_stop = CancelOutcome.REQUESTED, True
            else:
                outcome = CancelOutcome.IN_PROGRESS
            outcomes[descriptor] = int(outcome)
        return {"outcomes": outcomes}

    def _reschedule(self, request: Request, by: str, now_ms: int) -> Any:
        outcomes = []
        for change in request["jobs"]:
            job = self.jobs.get(change["jobDescriptor"])
            if job is None:
                outcome = RescheduleOutcome.NOT_FOUND
            elif job.state is JobState.PENDING:
                outcome = RescheduleOutcome.RESCHEDULED
                job.due_ms = change.get("runAfterTimestampMillis", job.due_ms)
                job.body = change.get("body", job.body)
            else:
                outcome = RescheduleOutcome.IN_PROGRESS if job.is_live() else RescheduleOutcome.ENDED
            outcomes.append(int(outcome))
        return {"outcomes": outcomes}

    def _retry(self, request: Request, by: str, now_ms: int) -> Any:
        failed = [job for job in self.jobs.values() if job.state is JobState.FAILED and not job.cancelled]
        retried = 0
        for job in failed:
            if job.key and any(other.key == job.key and other.is_live() for other in self.jobs.values()):
                continue
            retried += 1
            job.state, job.attempts, job.due_ms, job.crashes = JobState.PENDING, request["attemptsToAllow"], now_ms, 0
            del self.jobs[job.descriptor]
            self.jobs[job.descriptor] = job  # its place is at the end
        return retried

    def _delete(self, request: Request, by: str, now_ms: int) -> Any:
        doomed = [job.descriptor for job in self.jobs.values() if int(job.state) == request["jobState"]]
        for descriptor in doomed:
            del self.jobs[descriptor]
        return len(doomed)

    def _count(self, request: Request, by: str, now_ms: int) -> Any:
        future = request.get("countFutureJobs", False)
        return sum(
            int(job.state) == request["jobState"] and (job.due_ms > now_ms) is future for job in self.jobs.values()
        )


@dataclass
class Chances:
    """What callers do, and how often a call has no answer."""

    unknown: float = 0.0
    operators: bool = True
    keys: bool = True
    calls: int = 150
    callers: int = 4


@dataclass
class ModelRun:
    """A run of callers against the model; `events` is its history."""

    rng: random.Random
    chances: Chances
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = ModelServer(self.rng)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._now_ms = START_MS
        self._left = self.chances.calls
        self._known: list[str] = []
        self._held: list[tuple[str, str]] = []
        self._sent: dict[str, Request] = {}

    def run(self) -> list[Event]:
        self._call("operator", "getQueues", {}, lambda: None)
        for number in range(self.chances.callers):
            self._at(1 + number, lambda number=number: self._next(f"caller-{number}"))  # type: ignore[misc]
        while self._agenda:
            self._now_ms, _, step = heapq.heappop(self._agenda)
            step()
        return self.events

    def _at(self, in_ms: float, step: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._agenda, (self._now_ms + in_ms, self._numbers, step))

    def _pause_ms(self) -> float:
        """Often none, so that calls end and begin at one moment."""
        return self.rng.choice((0, 0, 1, 10.5, 100, 1_000, 1_000, 3_000, 9_000))

    def _next(self, by: str) -> None:
        if self._left <= 0:
            return
        self._left -= 1
        method, request = self._drawn()
        self._call(by, method, request, lambda: self._at(self._pause_ms(), lambda: self._next(by)))

    def _call(self, by: str, method: str, request: Request, then: Callable[[], None]) -> None:
        self._numbers += 1
        number = self._numbers
        args = {"request": request}
        self.events.append(CallBegin(number, by, self._now_ms, method, args))
        is_lost = method != "getQueues" and self.rng.random() < self.chances.unknown
        fate = self.rng.choice(("never", "answered", "late")) if is_lost else "answered"

        def carry_out() -> None:
            answer = self.server.answer(method, request, by, int(self._now_ms))
            if not is_lost:
                self._at(self._pause_ms() / 10, lambda: end(answer))

        def end(answer: Any) -> None:
            self.events.append(CallEnd(number, self._now_ms, answer))
            self._learn(method, answer)
            then()

        def give_up() -> None:
            if self.rng.random() < 0.5:
                self.events.append(CallEnd(number, self._now_ms, None, UNKNOWN))
            then()

        if fate != "never":
            self._at(self._pause_ms() / 10 + (self.rng.choice((0, 20_000)) if fate == "late" else 0), carry_out)
        if is_lost:
            self._at(self._pause_ms(), give_up)

    def _learn(self, method: str, answer: Any) -> None:
        if method == "enqueueJobs":
            self._known += answer["jobDescriptors"]
        elif method == "dequeueJobs":
            for descriptor, metadata in answer["jobMetadata"].items():
                self._held.append((descriptor, metadata["claimDescriptor"]))
                if descriptor not in self._known:
                    self._known.append(descriptor)

    def _drawn(self) -> tuple[str, Request]:
        rng = self.rng
        roll = rng.random()
        if roll < 0.25 or not self._known:
            return "enqueueJobs", {"queueName": QUEUE, "jobs": [self._new_job() for _ in range(rng.choice((1, 1, 3)))]}
        if roll < 0.5 or not self._held:
            request: Request = {"queueName": QUEUE, "limit": rng.choice((1, 1, 3))}
            if self._held and rng.random() < 0.3:
                request["jobAckRequest"] = self._acks()
            return "dequeueJobs", request
        if roll < 0.7:
            return "ackJobs", self._acks()
        descriptor, claim = rng.choice(self._held[-6:])
        named = {"jobDescriptor": descriptor, "claimDescriptor": claim}
        if roll < 0.75:
            return "heartbeatJobs", {"queueName": QUEUE, "heartbeats": [named]}
        if roll < 0.8:
            named |= {"newBodyBytes": self._body(), "moveToPending": rng.random() < 0.5}
            return "checkpointJobs", {"queueName": QUEUE, "requests": [named]}
        any_job = rng.choice(self._known[-8:])
        if roll < 0.9 or not self.chances.operators:
            request = {"jobDescriptors": [any_job], "includeBody": True, "includeResult": True, "queueName": QUEUE}
            if rng.random() < 0.3:
                request["keys"] = [{"dedupeKey": "key-1"}]
            return "lookupJobs", request
        if roll < 0.93:
            return "cancelJobs", {"queueName": QUEUE, "jobDescriptors": [any_job], "mode": rng.choice((0, 1))}
        if roll < 0.96:
            change = {"jobDescriptor": any_job, "body": self._body()}
            if rng.random() < 0.5:
                change["runAfterTimestampMillis"] = int(self._now_ms) + rng.choice((0, 2_000))
            return "rescheduleJobs", {"queueName": QUEUE, "jobs": [change]}
        if roll < 0.98:
            return "getJobCount", {"queueName": QUEUE, "jobState": rng.choice((0, 1, 2, 3))}
        if roll < 0.99:
            return "retryFailedJobs", {"queueName": QUEUE, "priority": 1, "attemptsToAllow": rng.choice((1, 2))}
        return "deleteJobs", {"queueName": QUEUE, "priority": 1, "jobState": rng.choice((0, 2, 3))}

    def _body(self) -> str:
        return f"sha256:{self.rng.randrange(10**9):016d}"

    def _new_job(self) -> Request:
        rng = self.rng
        job: Request = {"body": self._body(), "numAttemptsAllowed": rng.choice((1, 2, 3))}
        if rng.random() < 0.2:
            job["runAfterTimestampMillis"] = int(self._now_ms) + rng.choice((1_000, 5_000))
        if rng.random() < 0.1:
            job["expiresAtMillis"] = int(self._now_ms) + 10_000
        if self.chances.keys:
            kind = rng.random()
            if kind < 0.2:
                job |= {"dedupeKey": f"key-{rng.randrange(3)}", "onDuplicate": rng.choice((0, 1))}
            elif kind < 0.4:
                job["serializeKey"] = f"chain-{rng.randrange(2)}"
            elif kind < 0.5:
                send_id = f"send-{rng.randrange(30)}"
                return self._sent.setdefault(send_id, job | {"sendId": send_id})
        return job

    def _acks(self) -> Request:
        rng = self.rng
        descriptor, claim = rng.choice(self._held[-6:])
        ack: Request = {"jobDescriptor": descriptor}
        if rng.random() < 0.9:
            ack["claimDescriptor"] = claim
        if rng.random() < 0.6:
            if rng.random() < 0.3:
                ack["result"] = self._body()
            return {"queueName": QUEUE, "jobsSucceeded": [ack]}
        ack |= {"permanent": rng.random() < 0.2, "retryDelayMillis": rng.choice((0, 500))}
        return {"queueName": QUEUE, "jobsFailed": [ack]}


def model_history(seed: int, **chances: Any) -> list[Event]:
    """A history that is right."""
    return ModelRun(random.Random(seed), Chances(**chances)).run()
