"""How much of a frame an answer takes, and how much of it fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pinlater.model import JobInfo

_FIELDS_BYTES = 160
"""Of one job in an answer: its numbers, and the headers of its fields; on the safe side."""

_ID_BYTES = 45
"""Of a descriptor, beside the queue's name."""


class DequeueRoom(NamedTuple):
    """How many jobs, and bytes of their bodies, a dequeue may give."""

    limit: int
    max_bytes: int


def dequeue_room(max_answer_bytes: int, queue: str, claim_descriptor: str, limit: int) -> DequeueRoom:
    """At most half of the answer goes to all that is not body."""
    claim_bytes = len(claim_descriptor) * (1 if claim_descriptor.isascii() else 4)
    per_job = 2 * (len(queue) + _ID_BYTES) + claim_bytes + _FIELDS_BYTES
    limit = min(limit, max(1, max_answer_bytes // 2 // per_job))
    return DequeueRoom(limit, max_answer_bytes - limit * per_job)


def info_bytes(job: JobInfo) -> int:
    """What one job of a scan or lookup takes."""
    size = _FIELDS_BYTES + 2 * len(job.descriptor) + _bytes(job.custom_status)
    if job.claim_descriptor:
        size += _bytes(job.claim_descriptor)
    return size if job.body is None else size + len(job.body)


def fitting_infos(jobs: Sequence[JobInfo], max_answer_bytes: int) -> int:
    """How many of the first jobs fit; at least one."""
    size = 0
    for index, job in enumerate(jobs):
        size += info_bytes(job)
        if size > max_answer_bytes and index:
            return index
    return len(jobs)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
