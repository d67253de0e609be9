"""Counts per type of job, and the view of a worker. A job costs about a microsecond here, and nothing fails.

FAMILIES is the table of all metrics: names, labels and help for Prometheus, statsd and the docs come from it. Gauges
are not counted: they are read from the worker's view when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pinlater.metric_family import Family, Series
from pinlater_workers.jobs.outcome import Action

PREFIX = "pinlater_worker_"
BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""Upper bounds, in seconds: jobs take from a millisecond to an hour."""
_JOB = ("type",)
"""Not `job`: that is what Prometheus calls the scrape it came by."""
OTHER = "other"
ERRORS_MAX = 50
"""So many types of exceptions are told apart per job; the others are counted together."""
_ENDS = {
    Action.SUCCEED: "succeeded",
    Action.RETRY: "retried",
    Action.FAIL: "failed",
    Action.SNOOZE: "snoozed",
    Action.RESCHEDULE: "rescheduled",
    Action.GIVE_BACK: "given_back",
    Action.CANCEL: "cancelled",
}
_STARTED = len(_ENDS)
_DROPPED = _STARTED + 1
_IGNORED = _DROPPED + 1


FAMILIES: dict[str, Family] = {
    "started": Family("counter", _JOB, "Attempts that began."),
    "succeeded": Family("counter", _JOB, "Attempts that succeeded."),
    "failed": Family("counter", _JOB, "Attempts that failed with none to follow."),
    "retried": Family("counter", _JOB, "Attempts that failed with another to follow."),
    "snoozed": Family("counter", _JOB, "Attempts that ended in Snooze."),
    "rescheduled": Family("counter", _JOB, "Attempts that ended in Reschedule."),
    "given_back": Family(
        "counter", _JOB, "Jobs requeued without an attempt spent: the worker stopped, or had no place to run them."
    ),
    "cancelled": Family(
        "counter", _JOB, "Jobs that were asked to stop while they ran, or were about to, and did not succeed."
    ),
    "dropped_results": Family(
        "counter", _JOB, "Results that no server took: the claim was lost or over, or the server refused them."
    ),
    "ignored_results": Family(
        "counter",
        _JOB,
        "Results that had no effect: the claim was lost, and the job may run again, or somebody else had ended it.",
    ),
    "errors": Family("counter", ("type", "error"), "Attempts that failed, by the exception's type."),
    "unknown_types": Family(
        "counter",
        ("queue", "kind"),
        "Jobs that this worker could not run, each time it got one: an unknown type, a body that is not the "
        "framework's, or one of a later version.",
    ),
    "unknown_failed": Family(
        "counter", ("queue", "kind"), "Those of them that were ended, as no worker knew them for so long."
    ),
    "unreadable": Family(
        "counter", ("queue",), "Jobs failed for good without having run: the body says it is ours and cannot be read."
    ),
    "run_seconds": Family("histogram", _JOB, "How long attempts ran.", BUCKETS),
    "wait_seconds": Family("histogram", _JOB, "From when a job was due to when it began.", BUCKETS),
    "slots": Family("gauge", (), "Jobs that may run at once."),
    "slots_busy": Family("gauge", (), "Jobs that run."),
    "slots_stuck": Family(
        "gauge", (), "Slots of threads and coroutines that did not stop when their job was over its limit."
    ),
    "at_hand": Family("gauge", (), "Jobs that are claimed and wait here for a slot, or for others of their batch."),
    "unacked": Family("gauge", (), "Results that the server has not confirmed yet."),
    "last_good_poll_seconds": Family("gauge", (), "Seconds since a server last answered a dequeue."),
}


class _OfType:
    """`counts` has a place per Action, by its number, then started, dropped and ignored results."""

    __slots__ = ("counts", "errors", "run", "wait")

    def __init__(self) -> None:
        self.counts = [0] * (_IGNORED + 1)
        self.errors: dict[str, int] = {}
        self.run = [0.0] * (len(BUCKETS) + 2)
        self.wait = [0.0] * (len(BUCKETS) + 2)


class WorkerMetrics:
    """The counts of one worker. Called from its event loop alone. `job` is the name of a known type: a bounded set."""

    def __init__(self) -> None:
        self._types: defaultdict[str, _OfType] = defaultdict(_OfType)
        self._unknown: dict[tuple[str, str, str], int] = {}
        self._unreadable: dict[str, int] = {}

    def started(self, job: str, wait_s: float) -> None:
        """An attempt begins; it was due `wait_s` ago (clocks of two machines: below 0 counts as 0)."""
        of_type = self._types[job]
        of_type.counts[_STARTED] += 1
        of_type.wait[bisect_left(BUCKETS, wait_s)] += 1
        if wait_s > 0:
            of_type.wait[-1] += wait_s

    def ended(
        self, job: str, action: Action, run_s: float, *, is_last: bool = False, error: str = "", times: int = 1
    ) -> None:
        """`is_last`: no attempt is left, so that RETRY means FAILED. `error`: the type of the exception, where there is
        one, of one attempt. `times`: so many attempts that ended so.
        """
        of_type = self._types[job]
        of_type.counts[Action.FAIL if is_last and action is Action.RETRY else action] += times
        of_type.run[bisect_left(BUCKETS, run_s)] += times
        of_type.run[-1] += run_s * times
        if error:
            kinds = of_type.errors
            name = error if error in kinds or len(kinds) < ERRORS_MAX else OTHER
            kinds[name] = kinds.get(name, 0) + 1

    def handed_back(self, job: str) -> None:
        """A job was requeued that had not begun."""
        self._types[job].counts[Action.GIVE_BACK] += 1

    def cancelled_at_hand(self, job: str) -> None:
        """A job was cancelled that had not begun."""
        self._types[job].counts[Action.CANCEL] += 1

    def dropped(self, job: str) -> None:
        """No server took the result of an attempt."""
        self._types[job].counts[_DROPPED] += 1

    def ignored(self, job: str) -> None:
        """The result of an attempt had no effect."""
        self._types[job].counts[_IGNORED] += 1

    def unknown(self, queue: str, kind: str) -> None:
        """A job that cannot be run here: counted by queue and kind, as what names bodies hold is not bounded."""
        self._count_unknown("unknown_types", queue, kind)

    def unknown_failed(self, queue: str, kind: str) -> None:
        """Such a job was ended."""
        self._count_unknown("unknown_failed", queue, kind)

    def _count_unknown(self, *counted: str) -> None:
        family, queue, kind = counted
        self._unknown[family, queue, kind] = self._unknown.get((family, queue, kind), 0) + 1

    def unreadable(self, queue: str) -> None:
        """A body that is ours and cannot be read: what type of job it was nobody knows."""
        self._unreadable[queue] = self._unreadable.get(queue, 0) + 1

    def read(self, view: WorkerView) -> Series:
        """All of it, with the gauges of this moment."""
        series: Series = {labels: [amount] for labels, amount in self._unknown.items()}
        series.update({("unreadable", queue): [amount] for queue, amount in self._unreadable.items()})
        for job, of_type in self._types.items():
            series.update(_of_type(job, of_type))
        for name, value in _gauges(view):
            series[(name,)] = [value]
        return series


def _of_type(job: str, of_type: _OfType) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    yield ("started", job), [of_type.counts[_STARTED]]
    for action, name in _ENDS.items():
        yield (name, job), [of_type.counts[action]]
    yield ("dropped_results", job), [of_type.counts[_DROPPED]]
    yield ("ignored_results", job), [of_type.counts[_IGNORED]]
    for error, amount in of_type.errors.items():
        yield ("errors", job, error), [amount]
    yield ("run_seconds", job), list(of_type.run)
    yield ("wait_seconds", job), list(of_type.wait)


def _gauges(view: WorkerView) -> Iterator[tuple[str, float]]:
    yield "slots", view.slots
    yield "slots_busy", view.running
    yield "slots_stuck", view.stuck
    yield "at_hand", view.at_hand
    yield "unacked", view.unacked
    yield "last_good_poll_seconds", view.since_good_poll_s


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """`state` is a word or two for a person: polling, full, paused, not found, no server. `trouble`: the last error."""

    weight: int
    state: str
    running: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """`since_good_poll_s`: seconds since a server last answered a dequeue; since the start where none has yet.

    Any answer counts, one of a paused or unknown queue too. While all slots are taken there is nothing to poll for: it
    is 0 then, and counts again from when a slot became free.

    `running` are the jobs that run; `stuck` the slots beside these whose thread or coroutine goes on although its job
    has ended; what is left of `slots` is free. `at_hand` are claimed and wait for a slot, or for others of
    their batch. `unacked` are the results that no server has confirmed yet.
    """

    since_good_poll_s: float
    slots: int
    running: int = 0
    stuck: int = 0
    unacked: int = 0
    is_stopping: bool = False
    queues: Mapping[str, QueueSummary] = field(default_factory=dict)
    at_hand: int = 0
