"""The trails of jobs as scripts take and answer them (lua/_trails.lua)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from pinlater.backends.base import JobKey
from pinlater.backends.packed_trails import (
    ATTEMPT,
    ENDS_JOB,
    LINE,
    MAX_WORKER_BYTES,
    attempts_of,
    lines_of,
    packed_attempts,
    packed_lines,
)
from pinlater.backends.redis.key_records import lua_format
from pinlater.backends.redis.records import CANCELLED, CLAIM, ID, STATES, Args
from pinlater.model import MAX_ATTEMPTS_KEPT, MAX_LOG_BYTES, MAX_LOG_LINES, JobTrail, LogLine

LENGTH = Struct(">I")

TRAIL_LAYOUT = {
    "ATTEMPT": lua_format(ATTEMPT),
    "ATTEMPT_BYTES": str(ATTEMPT.size),
    "LINE": lua_format(LINE),
    "LINE_BYTES": str(LINE.size),
    "MAX_LOG_LINES": str(MAX_LOG_LINES),
    "MAX_LOG_BYTES": str(MAX_LOG_BYTES),
    "ENDS_JOB": str(ENDS_JOB),
    "MAX_WORKER_BYTES": str(MAX_WORKER_BYTES),
    "MAX_ATTEMPTS_KEPT": str(MAX_ATTEMPTS_KEPT),
}
"""What scripts have in place of `$NAME` beside records.LUA_LAYOUT."""


def trails(flat: Sequence[Any], amount: int) -> list[JobTrail | None]:
    """So many trails, by place, from seven values per job that is there (see read_trails.lua)."""
    found: list[JobTrail | None] = [None] * amount
    parts = iter(flat)
    for place, state, run_after_ms, claim, ended_at_ms, record, log in zip(*[parts] * 7, strict=True):
        found[place] = JobTrail(
            attempts_of(
                record,
                STATES[state],
                max(0, int(run_after_ms)),
                CLAIM.unpack_from(claim)[0] if claim else None,
                int(ended_at_ms) if ended_at_ms else None,
                claim[CLAIM.size :].decode(),
                cancelled=state == CANCELLED,
            ),
            lines_of(log),
        )
    return found


def with_log(progress: bytes, lines: Sequence[LogLine]) -> bytes:
    """What heartbeat.lua takes of one that logs."""
    return LENGTH.pack(len(progress)) + progress + packed_lines(lines, 0)


def trail_args(trails: Sequence[tuple[JobKey, JobTrail]]) -> Args:
    """What put_trails.lua takes."""
    args: Args = []
    for job, trail in trails:
        args += (job.priority, ID.pack(job.id), packed_attempts(trail.attempts), packed_lines(trail.log))
    return args
