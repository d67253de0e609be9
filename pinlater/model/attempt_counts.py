"""The number of attempts of a job, as far as what is known of it says so: a permanent failure uses up all that were
left, so of a job that failed the attempts that remain do not tell.
"""

from __future__ import annotations

import re

from pinlater.model.jobs import JobInfo, JobState
from pinlater.model.trail import AttemptOutcome

ATTEMPT_BEGINS = r"attempt (?P<number>[0-9]{1,10})(?: of (?P<allowed>[0-9]{1,10}))?: "
"""A line by which a worker of the framework says how an attempt failed."""

ATTEMPTS_LEFT = r", attempts remaining (?P<left>[0-9]{1,10})\]"
"""The end of a line by which a server says that a claim expired, or was released."""

_BEGINS = re.compile(ATTEMPT_BEGINS)
_LEFT = re.compile(rf"\[claim (?:expired|released) at .*{ATTEMPTS_LEFT}")
_AT_WORK_OR_DONE = (JobState.IN_PROGRESS, JobState.SUCCEEDED)


def failed_attempts(info: JobInfo) -> int | None:
    """How many have failed. None: as many as were allowed, or fewer.

    Its attempts tell where they are known; else what remains, and of a job that failed its status.
    """
    if info.attempts:
        last = info.attempts[-1]
        return last.number - (last.outcome in (None, AttemptOutcome.SUCCEEDED))
    if info.state is not JobState.FAILED or info.attempts_remaining > 0:
        return max(0, info.attempts_allowed - info.attempts_remaining)
    number = _last_number(info)
    return number if number is not None and number <= info.attempts_allowed else None


def begun_attempts(info: JobInfo) -> int | None:
    """The one under way, or that succeeded, included. None as above."""
    if info.attempts:
        return info.attempts[-1].number
    failed = failed_attempts(info)
    if failed is not None and info.state in _AT_WORK_OR_DONE:
        return min(failed + 1, info.attempts_allowed)
    return failed


def counted_attempts(count: int | None, allowed: int) -> str:
    """
    >>> counted_attempts(1, 6), counted_attempts(None, 6)
    ('1 of 6', 'up to 6')
    """
    return f"up to {allowed}" if count is None else f"{count} of {allowed}"


def _last_number(info: JobInfo) -> int | None:
    """By the last line of the status that says it."""
    for line in reversed(info.custom_status.splitlines()):
        if (begun := _BEGINS.match(line)) is not None:
            return int(begun["number"])
        if (left := _LEFT.match(line)) is not None:
            return info.attempts_allowed - int(left["left"])
    return None
