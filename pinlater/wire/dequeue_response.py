"""The answer to a dequeue.

In the binary protocol it is put together here: the C codec takes ten instructions for every byte that it writes, and
asks every job for seven fields, 9,000 instructions per job. Jobs of one answer mostly differ in their descriptors
and bodies only, so what they have in common is made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from pinlater.model import AckOutcome, DequeuedJob
from pinlater.wire.interface import BYTE, I32, I64, LIST, MAP, STRING, STRUCT

_START = b"\x0c\x00\x00\x0d\x00\x01\x0b\x0b"
"""The field `success`, a struct, and in it the field `jobs`, a map of texts to bytes."""

_map = Struct(">bhbbi").pack
_list = Struct(">bhbi").pack
_length = Struct(">i").pack
_attempts = Struct(">bhibhibhi").pack
_times = Struct(">bhqbhqbhbbhqb").pack
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
        count = len(jobs)
        bodies = [_START, _length(count)]
        metadata = [_map(MAP, 2, STRING, STRUCT, count)]
        last: tuple[object, ...] | None = None
        about = b""
        name_bytes = body_bytes = -1
        name_length = body_length = b""
        for job in jobs:
            name, body = job.descriptor.encode(), job.body
            common = (
                job.run_after_ms,
                job.enqueued_at_ms,
                job.attempts_remaining,
                job.attempts_allowed,
                job.priority,
                job.claim_descriptor,
                job.claim_expires_at_ms,
            )
            if common != last:
                last, about = common, _metadata(*common)
            if len(name) != name_bytes:
                name_bytes = len(name)
                name_length = _length(name_bytes)
            if len(body) != body_bytes:
                body_bytes = len(body)
                body_length = _length(body_bytes)
            bodies += (name_length, name, body_length, body)
            metadata += (name_length, name, about)
        if self.ack_outcomes:
            metadata += (_list(LIST, 100, I32, len(self.ack_outcomes)), *map(_length, self.ack_outcomes))
        if self.awaits_receipt:
            metadata.append(_AWAITS_RECEIPT)
        return b"".join([*bodies, *metadata, b"\0\0"])


def _metadata(
    run_after_ms: int,
    enqueued_at_ms: int,
    attempts_remaining: int,
    attempts_allowed: int,
    priority: int,
    claim_descriptor: str,
    claim_expires_at_ms: int,
) -> bytes:
    """A PinLaterDequeueMetadata, its fields by their numbers."""
    claim = claim_descriptor.encode()
    attempts = _attempts(I32, 1, attempts_allowed, I32, 2, attempts_remaining, STRING, 100, len(claim))
    times = _times(
        *(I64, 101, enqueued_at_ms),
        *(I64, 102, run_after_ms),
        *(BYTE, 103, priority),
        *(I64, 104, claim_expires_at_ms),
        0,
    )
    return attempts + claim + times
