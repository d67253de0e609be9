"""A job as a store returns it, for tests that need one and no store."""

from __future__ import annotations

from pinlater.model import JobInfo, JobState


def info(descriptor: str, body: bytes | None = None) -> JobInfo:
    return JobInfo(
        descriptor=descriptor,
        state=JobState.PENDING,
        priority=1,
        attempts_allowed=2,
        attempts_remaining=2,
        custom_status="",
        created_at_ms=1,
        run_after_ms=1,
        updated_at_ms=1,
        body=body,
    )
