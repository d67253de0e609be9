"""A job of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pinlater.model import MAX_STATUS_CHARS, JobProgress, JobState


@dataclass(slots=True)
class RefJob:
    id: int
    body: bytes
    priority: int
    run_after_ms: int
    attempts_allowed: int
    attempts_remaining: int
    custom_status: str
    created_at_ms: int
    updated_at_ms: int
    state: JobState = JobState.PENDING
    claim: str | None = None
    claimed_at_ms: int | None = None
    timeout_ms: int = 0
    last_seen_ms: int = 0
    """When the claim was made, or last renewed by a checkpoint."""

    expires_at_ms: int | None = None
    finished_at_ms: int | None = None
    crashes: int = 0
    origin: str | None = None
    moved_to: str | None = None
    replayed_to: str | None = None
    is_dead_letter_pending: bool = False
    """To be copied as a dead letter."""

    attempts_of_origin: int | None = None
    """Of a dead letter: how many attempts the job was allowed of which this is the copy."""

    undelivered: tuple[int, int, int] = (0, 0, 0)
    """How often in a row nobody received it, and its attempts and run_after meanwhile."""

    dedupe_key: str = ""
    serialize_key: str = ""
    send_id: str = ""
    slot: int = 0
    dedupe_for_ms: int = 0
    claim_timeout_ms: int | None = None
    over_at_ms: int | None = None
    """Not handed out from then on."""

    in_chain: bool = False
    follows: tuple[str, int] | None = None
    """Queue and id of the running job whose successor it is."""

    stop_by: str | None = None
    """Who asked it to stop."""

    cancelled: bool = False
    progress: JobProgress | None = None
    tags: tuple[str, ...] = ()

    @property
    def is_letter(self) -> bool:
        """Its keys are to show alone."""
        return self.attempts_of_origin is not None

    def is_over(self, now_ms: int) -> bool:
        return self.over_at_ms is not None and self.over_at_ms <= now_ms

    def unclaim(self) -> None:
        self.state = JobState.PENDING
        self.claim = self.claimed_at_ms = self.expires_at_ms = None

    def renew(self, now_ms: int, expires_at_ms: int) -> None:
        last_ms = max(self.updated_at_ms, self.claimed_at_ms or 0)
        if 0 < last_ms - now_ms <= 60_000:  # a late one: it takes nothing from the claim
            now_ms, expires_at_ms = last_ms + 1, max(expires_at_ms, (self.expires_at_ms or 0) + 1)
        self.updated_at_ms = self.last_seen_ms = now_ms
        self.expires_at_ms = expires_at_ms

    def finish(self, state: JobState, now_ms: int) -> None:
        self.state, self.finished_at_ms, self.expires_at_ms = state, now_ms, None

    def held_by(self, claim: str) -> bool:
        return self.state is JobState.IN_PROGRESS and self.claim == claim

    def retry(self, attempts: int, run_after_ms: int, now_ms: int) -> None:
        self.unclaim()
        self.attempts_remaining, self.crashes, self.finished_at_ms = attempts, 0, None
        self.run_after_ms, self.updated_at_ms = run_after_ms, now_ms
        self.moved_to, self.is_dead_letter_pending = None, False
        self.cancelled, self.stop_by = False, None


def cut(status: str) -> str:
    """Python counts whole characters, as the wire contract does."""
    return status[:MAX_STATUS_CHARS]


def appended(status: str, text: str) -> str:
    """The newest text survives, and what is left of the bound is for the front; a mark of two stands between."""
    text = text[: MAX_STATUS_CHARS - 2]
    if not text or len(status) + len(text) <= MAX_STATUS_CHARS - 2:
        return status + text
    return status[: MAX_STATUS_CHARS - 2 - len(text)] + "…\n" + text


def new_job(
    job_id: int, body: bytes, priority: int, run_after_ms: int, attempts: int, status: str, now_ms: int
) -> RefJob:
    """A pending job that comes to its queue now."""
    return RefJob(job_id, body, priority, run_after_ms, attempts, attempts, cut(status), now_ms, now_ms)


def fitting(jobs: Sequence[RefJob], max_bytes: int) -> list[RefJob]:
    """The first jobs whose bodies fit together, and always the very first."""
    taken: list[RefJob] = []
    room = max_bytes
    for job in jobs:
        room -= len(job.body)
        if room < 0 and taken:
            break
        taken.append(job)
    return taken
