"""What the state machine compares: all that docs/semantics.md speaks of, seen on a shard and in the reference.

When a claim that has ended was made, and when it would have expired, is not among it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import ExpiryCounts, JobKey
from pinlater.model import DequeuedJob, JobInfo, JobState
from tests.conformance.reference_job import RefJob
from tests.conformance.subject import key_of


def total(counts: Sequence[ExpiryCounts]) -> ExpiryCounts:
    return ExpiryCounts(*map(sum, zip(*counts, strict=True))) if counts else ExpiryCounts(0, 0)


def dequeued(job: DequeuedJob) -> tuple[object, ...]:
    return (
        key_of(job.descriptor),
        job.body,
        job.attempts_allowed,
        job.attempts_remaining,
        job.run_after_ms,
        job.enqueued_at_ms,
        job.claim_descriptor,
        job.claim_expires_at_ms,
    )


def handed_out(job: RefJob) -> tuple[object, ...]:
    return (
        JobKey(job.priority, job.id),
        job.body,
        job.attempts_allowed,
        job.attempts_remaining,
        job.run_after_ms,
        job.created_at_ms,
        job.claim,
        job.expires_at_ms,
    )


def looked_up(info: JobInfo) -> dict[str, object]:
    ended = info.state in (JobState.SUCCEEDED, JobState.FAILED)
    return {
        "key": key_of(info.descriptor),
        "body": info.body,
        "state": info.state,
        "attempts": (info.attempts_allowed, info.attempts_remaining, info.crashes),
        "status": info.custom_status,
        "times": (info.created_at_ms, info.run_after_ms, info.updated_at_ms, info.finished_at_ms),
        "kin": (info.origin, info.moved_to, info.replayed_to),
        "claim": (info.claim_descriptor, *((None, None) if ended else (info.claimed_at_ms, info.claim_expires_at_ms))),
        "keys": (info.dedupe_key, info.serialize_key, info.waits_for, info.dedupe_key and info.dedupe_for_ms),
        "successor": info.successor,
        "stop": (info.cancelled, info.cancel_requested_by),
        "own times": (info.expires_at_ms, info.claim_timeout_ms),
        "progress": info.progress,
        "tags": info.tags,
    }


def stored(job: RefJob, waits_for: str | None, successor: str | None) -> dict[str, object]:
    ended = job.finished_at_ms is not None
    changed_at_ms = max(job.updated_at_ms, (job.finished_at_ms if ended else job.claimed_at_ms) or 0)
    return {
        "key": JobKey(job.priority, job.id),
        "body": job.body,
        "state": job.state,
        "attempts": (job.attempts_allowed, job.attempts_remaining, job.crashes),
        "status": job.custom_status,
        "times": (job.created_at_ms, job.run_after_ms, changed_at_ms, job.finished_at_ms),
        "kin": (job.origin, job.moved_to, job.replayed_to),
        "claim": (job.claim, *((None, None) if ended else (job.claimed_at_ms, job.expires_at_ms))),
        "keys": (
            job.dedupe_key or None,
            job.serialize_key or None,
            waits_for,
            (job.dedupe_key or None) and job.dedupe_for_ms,
        ),
        "successor": successor,
        "stop": (job.cancelled or None, job.stop_by),
        "own times": (job.over_at_ms, job.claim_timeout_ms),
        "progress": job.progress,
        "tags": [*job.tags] or None,
    }
