"""The parts of a call that are about single jobs: what was asked of each, and what was answered.

Answers name jobs in three ways: by descriptor, in the order of the request, or not at all where all is as asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from pinlater.history.call_events import CallBegin, CallEnd
from pinlater.wire.interface import INTERFACE

Plain = dict[str, Any]
NOT_THERE = "NOT_THERE"
"""The outcome of a lookup that found no such job."""


class JobPart(NamedTuple):
    """What one call is to one job."""

    job: str
    """Its descriptor."""

    action: str
    """A verb of the product; "success" and "failure" are acks, "found" is what a lookup or a scan shows."""

    details: Plain
    """By the names of the interface: what was asked, or of what was claimed or found what was answered."""

    outcome: str = ""
    """The word of the interface, or NOT_THERE; "" where nothing is said."""


def job_parts(begin: CallBegin, end: CallEnd | None) -> Iterator[JobPart]:
    """Those of one call; without `end`, or with an error, only what was asked, and what the error says is stored."""
    parts = _PARTS.get(begin.method)
    if parts is None:
        return iter(())
    answer = _UNANSWERED if end is None or end.error is not None else end.answer or {}
    if end is not None and end.resent and begin.method in _DEQUEUES:
        answer = {**answer, _RESENT: True}
    if end is not None and end.error is not None and begin.method == "enqueueJobs":
        answer = {"jobDescriptors": end.error.job_descriptors or []}
    return parts(begin.args["request"], answer)


_UNANSWERED: Plain = {}
_DEQUEUES = {"dequeueFromQueues", "dequeueJobs"}
_RESENT = "(resent)"
"""In an answer: it does not speak of what an earlier copy of the call did."""


def word(enum: str, number: int | None) -> str:
    """The word of a number of the interface; "" for none, and the number where only a newer interface knows it."""
    if number is None:
        return ""
    return next((name for name, value in INTERFACE.enums[enum].items() if value == number), str(number))


def _without(details: Plain, *names: str) -> Plain:
    return {name: value for name, value in details.items() if name not in names}


def _enqueued(request: Plain, answer: Plain) -> Iterator[JobPart]:
    descriptors = answer.get("jobDescriptors", [])
    outcomes = answer.get("outcomes") or [0] * len(descriptors)
    for job, descriptor, outcome in zip(request["jobs"], descriptors, outcomes, strict=False):
        if descriptor:
            yield JobPart(descriptor, "enqueue", job, word("EnqueueOutcome", outcome))


def _acks(request: Plain, outcomes: Sequence[int] | None) -> Iterator[JobPart]:
    listed = [("success", each) for each in request.get("jobsSucceeded") or ()]
    listed += [("failure", each) for each in request.get("jobsFailed") or ()]
    for (action, ack), outcome in zip_longest(listed, (outcomes or ())[: len(listed)]):
        yield JobPart(ack["jobDescriptor"], action, _without(ack, "jobDescriptor"), word("AckOutcome", outcome))


def _acked(request: Plain, answer: Plain) -> Iterator[JobPart]:
    return _acks(request, answer.get("outcomes"))


def _claims(answer: Plain) -> Iterator[JobPart]:
    metadata = answer.get("jobMetadata") or {}
    for descriptor, body in (answer.get("jobs") or {}).items():
        yield JobPart(descriptor, "claim", {"body": body, **metadata.get(descriptor, {})})


def _riding_acks(acks: Plain, outcomes: Sequence[int] | None, answer: Plain) -> Iterator[JobPart]:
    """An answer that says nothing of them says that all had an effect."""
    all_done = outcomes is None and answer is not _UNANSWERED and _RESENT not in answer
    for part in _acks(acks, outcomes):
        yield part._replace(outcome="SUCCEEDED") if all_done and part.action == "success" else part


def _dequeued(request: Plain, answer: Plain) -> Iterator[JobPart]:
    acks = request.get("jobAckRequest") or {}
    return chain(_riding_acks(acks, answer.get("ackOutcomes"), answer), _claims(answer))


def _dequeued_from_queues(request: Plain, answer: Plain) -> Iterator[JobPart]:
    outcomes = answer.get("ackOutcomes") or ()
    for acks, each in zip_longest(request.get("acks") or (), outcomes):
        yield from _riding_acks(acks, each, answer)
    yield from _claims(answer)


def _assigned(request: Plain, answer: Plain) -> Iterator[JobPart]:
    if answer.get("jobDescriptor"):
        yield JobPart(answer["jobDescriptor"], "claim", _without(answer, "jobDescriptor", "outcome"))


def _checkpointed(request: Plain, answer: Plain) -> Iterator[JobPart]:
    for each in request["requests"]:
        yield JobPart(each["jobDescriptor"], "checkpoint", _without(each, "jobDescriptor"))


def _heartbeats(request: Plain, answer: Plain) -> Iterator[JobPart]:
    for each, outcome in zip_longest(request["heartbeats"], answer.get("outcomes", ())):
        details = _without(each, "jobDescriptor")
        yield JobPart(each["jobDescriptor"], "heartbeat", details, word("HeartbeatOutcome", outcome))


def _cancelled(request: Plain, answer: Plain) -> Iterator[JobPart]:
    outcomes = answer.get("outcomes", {})
    for descriptor in request["jobDescriptors"]:
        details = {"mode": word("CancelMode", request.get("mode", 0))}
        yield JobPart(descriptor, "cancel", details, word("CancelOutcome", outcomes.get(descriptor)))


def _rescheduled(request: Plain, answer: Plain) -> Iterator[JobPart]:
    for each, outcome in zip_longest(request["jobs"], answer.get("outcomes", ())):
        if "jobDescriptor" in each:
            details = _without(each, "jobDescriptor")
            yield JobPart(each["jobDescriptor"], "reschedule", details, word("RescheduleOutcome", outcome))


def _found(infos: Sequence[Plain]) -> Iterator[JobPart]:
    for info in infos:
        state = "CANCELLED" if info.get("cancelled") else word("PinLaterJobState", info["jobState"])
        yield JobPart(info["jobDescriptor"], "found", _without(info, "jobDescriptor", "jobState", "cancelled"), state)


def _lookups(request: Plain, answer: Plain) -> Iterator[JobPart]:
    yield from _found(list(answer.values()))
    for descriptor in request["jobDescriptors"]:
        if descriptor not in answer:
            yield JobPart(descriptor, "lookup", {}, "" if answer is _UNANSWERED else NOT_THERE)


def _scanned(request: Plain, answer: Plain) -> Iterator[JobPart]:
    return _found(answer.get("scannedJobs", ()))


def _searched(request: Plain, answer: Plain) -> Iterator[JobPart]:
    return _found(answer.get("jobs", ()))


_PARTS: dict[str, Callable[[Plain, Plain], Iterator[JobPart]]] = {
    "ackDequeuedJobs": _acked,
    "ackJobs": _acked,
    "assignItem": _assigned,
    "cancelJobs": _cancelled,
    "checkpointJobs": _checkpointed,
    "dequeueFromQueues": _dequeued_from_queues,
    "dequeueJobs": _dequeued,
    "enqueueJobs": _enqueued,
    "heartbeatJobs": _heartbeats,
    "lookupJobs": _lookups,
    "rescheduleJobs": _rescheduled,
    "scanJobs": _scanned,
    "searchJobs": _searched,
}
