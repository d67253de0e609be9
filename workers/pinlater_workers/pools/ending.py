"""The verdict on a job that a pool ends, or that ended outside of its own function."""

from __future__ import annotations

from pinlater_workers.judging import judge, stopped
from pinlater_workers.running import Running, Why
from pinlater_workers.verdict import Verdict

ENDS = frozenset({Why.TIME_LIMIT, Why.CLAIM_LOST})
"""The reasons that end a job; of the others it is only told."""


def verdict_on(running: Running, error: BaseException) -> Verdict:
    """By the retry rules of its type."""
    assert running.type is not None
    return judge(running.type.settings, running.job, error)


def cut_short(running: Running, why: Why) -> Verdict:
    """For a job that was ended because of `why`, one of ENDS; for others: it is given back."""
    assert running.type is not None
    return stopped(running.type.settings, running.job, why)
