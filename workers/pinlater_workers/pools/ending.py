"""The verdict on a job that a pool ends, or that ended outside of its own function."""

from __future__ import annotations

from contextvars import Context

from pinlater.model import Checkpoint
from pinlater_workers.context import CURRENT, JobContext
from pinlater_workers.errors import ClaimLost
from pinlater_workers.judging import judge, stopped
from pinlater_workers.outcome_log import log_outcome
from pinlater_workers.pools.making import make_context
from pinlater_workers.running import Running, Why
from pinlater_workers.verdict import Verdict


def verdict_on(running: Running, error: BaseException) -> Verdict:
    """By the retry rules of its type."""
    assert running.type is not None
    return _logged(running, judge(running.type.settings, running.job, error))


def cut_short(running: Running, why: Why) -> Verdict:
    """For a job that was ended because of `why`, one of ENDS."""
    assert running.type is not None
    return _logged(running, stopped(running.type.settings, running.job, why))


def has_ended() -> ClaimLost:
    """For what still calls for a checkpoint of a job that has ended as far as its worker is concerned."""
    return ClaimLost("the job has ended")


def _logged(running: Running, verdict: Verdict) -> Verdict:
    Context().run(_log, make_context(running, _Nobody()), verdict)
    return verdict


def _log(context: JobContext, verdict: Verdict) -> None:
    CURRENT.set(context)
    log_outcome(context, verdict)


class _Nobody:
    """The host of a job that has ended."""

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        raise has_ended()

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        raise has_ended()
