"""The trail of a job, its attempts and log lines, which a store keeps apart from the job; and how far it is."""

from __future__ import annotations

from typing import NamedTuple

from pinlater.model.word_enum import WordEnum

MAX_ATTEMPTS_KEPT = 20
"""So many attempts of a job are kept, the last ones."""

MAX_LOG_LINES, MAX_LOG_BYTES = 100, 16 * 1024
"""So many log lines of a job are kept, and so many bytes of their texts: the last ones."""

MAX_LOG_LINE_BYTES = 1024
"""Of one line, as UTF-8. What is longer is cut."""


class AttemptOutcome(WordEnum):
    """How an attempt ended. The numbers are those of the wire contract and of the stores."""

    SUCCEEDED = 1
    FAILED = 2
    EXPIRED = 3
    """Its claim expired, or its worker's connection broke."""

    CANCELLED = 4
    """It ended otherwise than by a success, when the job was to stop."""


class JobAttempt(NamedTuple):
    """One attempt, the first of which has the number 1. It became eligible at the run_after that the job had;
    `ended_at_ms` and `outcome` are None while it runs. `worker` is the source that its claim names.
    """

    number: int
    eligible_at_ms: int
    claimed_at_ms: int
    ended_at_ms: int | None
    outcome: AttemptOutcome | None
    worker: str

    @property
    def wait_ms(self) -> int:
        """From when it was eligible to its claim; 0 where a checkpoint set a later run_after."""
        return max(0, self.claimed_at_ms - self.eligible_at_ms)

    @property
    def run_ms(self) -> int | None:
        """From its claim to its end; None while it runs."""
        return None if self.ended_at_ms is None else max(0, self.ended_at_ms - self.claimed_at_ms)


class JobProgress(NamedTuple):
    """The progress of a job by its worker's report of `at_ms`: a fraction from 0 to 1, or None, and a short text."""

    fraction: float | None = None
    text: str = ""
    at_ms: int = 0


MAX_PROGRESS_CHARS = 200


class LogLine(NamedTuple):
    """A line that the worker of a job logged, in the attempt of that number. Of one that is sent `at_ms` 0 means now,
    and the attempt is the one that runs.
    """

    text: str
    at_ms: int = 0
    attempt: int = 0


class JobTrail(NamedTuple):
    """The last attempts and log lines of a job, in order. Without attempts it was never claimed, or its store keeps
    none.
    """

    attempts: tuple[JobAttempt, ...] = ()
    log: tuple[LogLine, ...] = ()
