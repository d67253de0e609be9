"""One line in the log for how an attempt ended: a success at debug, a failure as a warning, with the status it leaves.

The traceback is there when no attempt follows, and at debug always: a job that fails ten times shows it once.
"""

from __future__ import annotations

import contextlib
import logging

from pinlater.printable import printable
from pinlater_workers.context import JobContext
from pinlater_workers.verdict import SUCCEEDED, Action, Verdict

_log = logging.getLogger("pinlater_workers.jobs")
_QUIET = {
    Action.SUCCEED: "succeeded",
    Action.SNOOZE: "is put off",
    Action.RESCHEDULE: "is done for now",
    Action.GIVE_BACK: "is given back",
}


def log_outcome(context: JobContext, verdict: Verdict, error: BaseException | None = None) -> None:
    """Called where the job ran, with its context set. `error` is what it raised. Raises nothing: a filter or a handler
    of the app that fails does not change what became of the attempt.
    """
    if verdict is SUCCEEDED and not _log.isEnabledFor(logging.DEBUG):
        return
    with contextlib.suppress(Exception):
        _log_outcome(context, verdict, error)


def _log_outcome(context: JobContext, verdict: Verdict, error: BaseException | None) -> None:
    # also for an app with handlers of its own, which know nothing of names that are made to move a cursor
    job, status = printable(context.job), printable(verdict.status.rstrip())
    if verdict.action in _QUIET:
        if _log.isEnabledFor(logging.DEBUG):
            more = f": {status}" if status else ""
            _log.debug("%s %s%s", job, _QUIET[verdict.action], more)
        return
    is_last = verdict.action is Action.FAIL or context.attempts_left == 0
    end = "no attempt follows" if is_last else f"again in {verdict.delay_ms / 1000:g} s"
    shown = error if is_last or _log.isEnabledFor(logging.DEBUG) else None
    _log.warning("%s failed, %s: %s", job, end, status, exc_info=shown)
