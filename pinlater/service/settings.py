"""Settings of a service: limits and times of its calls."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.job_limits import MAX_BODY_BYTES, MAX_JOBS, PRIORITY_LEVELS
from pinlater.queues.settings import QueueSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Bounds and times of the calls; checked where they are configured."""

    num_priority_levels: int = PRIORITY_LEVELS
    """Priorities 1 (highest) to this."""

    max_jobs: int = MAX_JOBS
    """The most in one request: jobs enqueued, acks, checkpoints, descriptors; and the most that a dequeue or scan
    gives.
    """

    max_body_bytes: int = MAX_BODY_BYTES
    """A larger body is refused. At most half of what a frame may hold."""

    max_answer_bytes: int = 16 * 1024 * 1024 - 64 * 1024
    """What an answer may hold: the bound of a frame, less a margin."""

    max_source_chars: int = 200
    """The caller's source becomes part of every claim."""

    claim_timeout_ms: int = 300_000
    """The time-out of a claim that names none."""

    max_claim_timeout_ms: int = 86_400_000
    """A claim's own time-out is cut to this."""

    release_grace_ms: int = 2_000
    """How long after its connection broke a claim that is bound to it may be renewed before it is released."""

    succeeded_ttl_ms: int = 86_400_000
    """0: a job that succeeded is removed at once."""

    failed_ttl_ms: int = 7 * 86_400_000
    """0: a job that failed for good is removed at once."""

    crash_budget: int = 3
    """A job whose workers were lost so often fails whatever attempts remain; 0: no bound."""

    admin_password_hash: str = ""
    """As `hash_password` writes it; "": nobody can delete a queue."""

    max_wait_ms: int = 60_000
    """A long poll's wait is cut to this."""

    max_waiters: int = 10_000
    """Long polls that wait in this process; one more is refused as Overloaded."""

    poll_min_ms: int = 5
    poll_max_ms: int = 40
    """The pauses, at first and later, between polls of a queue that is waited for: other processes may bring jobs."""

    poll_subscribed_ms: int = 1_500
    """The pause between polls of such a queue where the stores report its jobs."""

    page_jobs: int = 1_000
    """Jobs per step of a call over many jobs (patterns, retry, delete)."""

    page_bytes: int = 4 * 1024 * 1024
    """Bodies per step of a search with a pattern."""

    long_call_ms: int = 5_000
    """A call over many jobs begins no further step after so long: it answers what it has, or fails clearly."""


def queue_defaults(settings: ServiceSettings) -> QueueSettings:
    """The settings of a queue for which nothing is set."""
    return QueueSettings(
        claim_timeout_ms=settings.claim_timeout_ms,
        succeeded_ttl_ms=settings.succeeded_ttl_ms,
        failed_ttl_ms=settings.failed_ttl_ms,
        max_body_bytes=settings.max_body_bytes,
        crash_budget=settings.crash_budget,
    )
