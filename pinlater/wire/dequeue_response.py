"""The answers to dequeues, which are put together here in the binary protocol.

The C codec takes ten instructions for every byte that it writes, and asks every job for seven fields, 9,000
instructions per job. Jobs of one answer mostly differ in their descriptors and bodies only, so what they have in common
is made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

from thrift.protocol import fastbinary

from pinlater.model import AckOutcome, DequeuedFromQueues, DequeuedJob
from pinlater.wire.faults import error_of_queue
from pinlater.wire.interface import I32, LAYOUTS, LIST

_JOBS = b"\x0c\x00\x00\x0d\x00\x01\x0b\x0b"
"""The field `success`, a struct, and in it the field `jobs`, a map of texts to bytes."""

_JOB_METADATA = b"\x0d\x00\x02\x0b\x0c"
_ALLOWED, _REMAINING, _CLAIM = b"\x08\x00\x01", b"\x08\x00\x02", b"\x0b\x00\x64"
_ENQUEUED, _RUN_AFTER, _PRIORITY, _EXPIRES = b"\x0a\x00\x65", b"\x0a\x00\x66", b"\x03\x00\x67", b"\x0a\x00\x68"
"""The type and the number of each field of a job's metadata."""

_list = Struct(">bhbi").pack
_length = Struct(">i").pack
_two = Struct(">3si3si3s").pack
_times = Struct(">3sq3sq3sb3sqb").pack
_AWAITS_RECEIPT = b"\x02\x00\x65\x01"


class DequeueResponse:
    """The interface's PinLaterDequeueResponse; both maps have the order in which the jobs were handed out.

    `ack_outcomes` of the acks that rode on the call; None where it is not sent.
    """

    __slots__ = ("_jobs", "ack_outcomes", "awaits_receipt")

    def __init__(
        self,
        jobs: Sequence[DequeuedJob],
        ack_outcomes: Sequence[AckOutcome] | None = None,
        *,
        awaits_receipt: bool = False,
    ) -> None:
        self._jobs = jobs
        self.ack_outcomes = ack_outcomes
        self.awaits_receipt = awaits_receipt or None

    @property
    def jobs(self) -> dict[str, bytes]:
        return {job.descriptor: job.body for job in self._jobs}

    @property
    def job_metadata(self) -> dict[str, DequeuedJob]:
        return {job.descriptor: job for job in self._jobs}

    def binary_result(self) -> bytes:
        """The result struct of the call as the codec encodes it in the binary protocol."""
        jobs = self._jobs
        count = _length(len(jobs))
        parts = [_JOBS, count]
        metadata = [_JOB_METADATA, count]
        last: tuple[object, ...] | None = None
        name_bytes = body_bytes = -1
        name_length = body_length = about = b""
        for job in jobs:
            name, body = job.descriptor.encode(), job.body
            if len(name) != name_bytes:
                name_bytes = len(name)
                name_length = _length(name_bytes)
            if len(body) != body_bytes:
                body_bytes = len(body)
                body_length = _length(body_bytes)
            common = (
                job.attempts_allowed,
                job.attempts_remaining,
                job.claim_descriptor,
                job.enqueued_at_ms,
                job.run_after_ms,
                job.priority,
                job.claim_expires_at_ms,
            )
            if common != last:
                last, about = common, _metadata(*common)
            parts += (name_length, name, body_length, body)
            metadata += (name_length, name, about)
        parts += metadata
        if self.ack_outcomes:
            parts += (_list(LIST, 100, I32, len(self.ack_outcomes)), *map(_length, self.ack_outcomes))
        if self.awaits_receipt:
            parts.append(_AWAITS_RECEIPT)
        parts.append(b"\0\0")
        return b"".join(parts)


_FROM_QUEUES = LAYOUTS.of("DequeueFromQueuesResponse")


class DequeueFromQueuesResponse(DequeueResponse):
    """The interface's struct of that name. Its first two fields are those of a plain dequeue's answer, with the same
    ids.
    """

    __slots__ = ("_dequeued", "_receipt")

    def __init__(self, dequeued: DequeuedFromQueues, *, with_jobs: bool = True, awaits_receipt: bool = False) -> None:
        super().__init__(dequeued if with_jobs else ())
        self._dequeued = dequeued
        self._receipt = awaits_receipt or None

    def whole(self) -> Any:
        """All fields, for the codec."""
        response = self._others()
        response.jobs, response.job_metadata = self.jobs, self.job_metadata
        return response

    def binary_result(self) -> bytes:
        result = super().binary_result()
        if not self._receipt and not self._dequeued.queue_errors and not self._dequeued.ack_outcomes:
            return result
        others: bytes = fastbinary.encode_binary(self._others(), _FROM_QUEUES.encode_args)
        return result[:-2] + others + b"\0"

    def _others(self) -> Any:
        """The fields that a plain dequeue's answer lacks, or has under another id."""
        dequeued = self._dequeued
        response = _FROM_QUEUES.cls()
        response.queue_errors = [error_of_queue(*each) for each in dequeued.queue_errors.items()] or None
        response.ack_outcomes = [list(outcomes) for outcomes in dequeued.ack_outcomes] or None
        response.awaits_receipt = self._receipt
        return response


def _metadata(
    attempts_allowed: int,
    attempts_remaining: int,
    claim_descriptor: str,
    enqueued_ms: int,
    run_after_ms: int,
    priority: int,
    expires_ms: int,
) -> bytes:
    """A PinLaterDequeueMetadata."""
    claim = claim_descriptor.encode()
    return b"".join(
        (
            _attempts(attempts_allowed, attempts_remaining),
            _length(len(claim)),
            claim,
            _times(_ENQUEUED, enqueued_ms, _RUN_AFTER, run_after_ms, _PRIORITY, priority, _EXPIRES, expires_ms, 0),
        )
    )


@lru_cache(maxsize=1024)
def _attempts(allowed: int, remaining: int) -> bytes:
    return _two(_ALLOWED, allowed, _REMAINING, remaining, _CLAIM)
