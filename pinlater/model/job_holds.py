"""The reason why a pending job does not run: a word for programs, and a sentence for people."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.model.word_enum import WordEnum


class HoldReason(WordEnum):
    """Why a job does not run now. The numbers are those of the wire contract; a newer server may know more."""

    UNKNOWN = 0
    SHARD_OUT = 1
    NOT_DUE = 2
    BEHIND_JOB = 3
    PAUSED = 4
    MAX_IN_PROGRESS = 5
    NO_WORKER = 6
    RATE_LIMITED = 7
    IN_LINE = 8
    """Nothing holds it back: workers take jobs, and its turn comes."""


@dataclass(slots=True)
class JobHold:
    """Why a job does not run. `text` is the sentence that every face shows; `until_ms`: when that ends, as far as it is
    known; `behind`: the job that is to end first; `jobs_before`: how many of its queue are about to run before it.
    """

    descriptor: str
    reason: HoldReason
    text: str
    until_ms: int | None = None
    behind: str | None = None
    jobs_before: int | None = None
