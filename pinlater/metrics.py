"""The metrics of one process: a dictionary per kind, so that counting costs next to nothing. Pure, and never fails.

FAMILIES is the table of all metrics: names, labels and help for Prometheus, statsd and the docs come from it. A key is
`(name, label values)`; other processes and the formats are the business of whoever reads `snapshot`. Where every call
passes, keep the Histogram that `histogram` returns: it makes no key and looks nothing up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.metric_family import Family, Key, Series, bucket_bound

PREFIX = "pinlater_"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_JOBS = ("queue", "priority")
_GROUP = ("queue", "group")

FAMILIES: dict[str, Family] = {
    "jobs_enqueued": Family("counter", _JOBS, "Jobs stored."),
    "jobs_dequeued": Family("counter", _JOBS, "Jobs handed out."),
    "group_jobs_dequeued": Family(
        "counter",
        _GROUP,
        "Jobs handed out of queues whose jobs have groups. Groups are those with settings of their own, up to 100 of a "
        "queue; `other` is the rest.",
    ),
    "jobs_acked": Family(
        "counter",
        (*_JOBS, "outcome"),
        "Acks by what became of the job: succeeded, retried, failed, cancelled, ignored.",
    ),
    "acks_without_effect": Family(
        "counter",
        ("queue", "reason"),
        "Acks that changed nothing. claim: the job is not under the claim they name; job: they name none, and the job "
        "is not running; not_here: no shard here has such a job of that queue.",
    ),
    "flows_created": Family("counter", (), "Flows made."),
    "flow_items_added": Family("counter", (), "Items that callers added to flows; those of applets are not counted."),
    "flow_items_queued": Family("counter", ("queue",), "Jobs of items that came into their queues."),
    "flow_items_lost": Family("counter", (), "Jobs of items that were gone with their shard, and enqueued again."),
    "flow_expressions": Family(
        "counter",
        ("outcome",),
        "Items whose children took more than 2,000 steps to make: made, too_dear, or no_turn, where the call was "
        "refused after 20 s.",
    ),
    "flow_callbacks": Family("counter", ("outcome",), "Completion callbacks: made, failed or given_up."),
    "claims_expired": Family("counter", ("queue", "outcome"), "Claims that timed out: retried, failed or cancelled."),
    "claims_released": Family(
        "counter",
        ("queue", "outcome"),
        "Bound claims that expired because their connection broke: retried, failed or cancelled.",
    ),
    "jobs_deduplicated": Family(
        "counter",
        ("queue", "outcome"),
        "Jobs that were not stored, since their dedupe key or send id stands: kept, replaced or rejected.",
    ),
    "schedule_firings": Family(
        "counter",
        ("queue", "outcome"),
        "Firings of schedules: stored, kept (another server was faster), or failed (it is tried again).",
    ),
    "schedule_lateness": Family(
        "histogram", ("queue",), "How long after its time a schedule fired, in seconds.", _SECONDS
    ),
    "jobs_expired": Family("counter", ("queue",), "Jobs that failed because they were not handed out in time."),
    "jobs_cancelled": Family("counter", ("queue",), "Running jobs that ended because they were to stop."),
    "jobs_asked_to_stop": Family("counter", ("queue",), "Running jobs that were requested to stop."),
    "results_kept": Family("counter", ("queue",), "Results that workers left with a success."),
    "jobs_undelivered": Family(
        "counter",
        ("queue",),
        "Jobs that were requeued with all attempts: it was proved that nobody received their answer.",
    ),
    "jobs_given_back": Family("counter", ("queue",), "Jobs that were requeued with all attempts: nobody took them."),
    "jobs_collected": Family("counter", ("queue",), "Jobs pruned: their time to live was over."),
    "jobs_buried": Family("counter", ("queue",), "Jobs copied to their queue's dead-letter queue."),
    "letters_stored": Family("counter", ("queue",), "Dead letters that came into the queue."),
    "jobs_retried_by_operator": Family("counter", ("queue",), "FAILED jobs sent back by a command."),
    "jobs_deleted_by_operator": Family("counter", ("queue",), "Jobs deleted or cancelled by a command."),
    "dequeues_limited": Family(
        "counter", ("queue", "reason"), "Dequeues that got fewer jobs than they could: rate, paused, in_progress."
    ),
    "breakers_opened": Family("counter", ("queue",), "How often the circuit breaker of the queue opened."),
    "enqueues_rejected": Family(
        "counter", ("queue", "reason"), "Enqueue calls refused: draining, pending, attempts, body, priority, invalid."
    ),
    "overflow_jobs_taken": Family("counter", ("queue",), "Jobs stored in the overflow shard: no shard took them."),
    "overflow_jobs_moved": Family("counter", ("queue",), "Of those, jobs moved to a shard since."),
    "shard_call_seconds": Family("histogram", ("shard", "call"), "Calls to a store, as the store took.", _SECONDS),
    "shard_call_errors": Family("counter", ("shard", "call", "error"), "Calls to a store that failed."),
    "shard_batch_jobs": Family("histogram", ("shard", "call"), "Jobs in one call to a store, as batched.", _SIZES),
    "call_seconds": Family("histogram", ("method",), "Calls of the interface, long polls left out.", _SECONDS),
    "call_errors": Family("counter", ("method", "reason"), "Calls of the interface answered with an error."),
    "limits_hit": Family("counter", ("limit",), "How often a bound of the server was reached."),
    "queue_jobs": Family(
        "gauge",
        ("shard", "queue", "priority", "state"),
        "Jobs by state: ready, scheduled, waiting, in_progress, succeeded, failed, cancelled, replayed; as of the last "
        "count.",
        merge="max",
    ),
    "queue_ready_limited_jobs": Family(
        "gauge",
        ("shard", "queue", "priority"),
        "Those of the ready jobs whose groups are paused or at their limits, as claims found them.",
        merge="max",
    ),
    "group_ready_jobs": Family(
        "gauge",
        _GROUP,
        "Ready jobs of queues where groups have settings of their own, in the whole cluster; of the server that counts "
        "them.",
        merge="max",
    ),
    "group_ready_limited_jobs": Family(
        "gauge", _GROUP, "Those of them whose groups are paused or at their limits.", merge="max"
    ),
    "group_running_jobs": Family(
        "gauge", _GROUP, "Their jobs in progress; a group without a maximum is among `other`.", merge="max"
    ),
    "queue_oldest_ready_seconds": Family(
        "gauge", ("shard", "queue", "priority"), "How long the oldest job that may run has waited.", merge="max"
    ),
    "queue_count_age_seconds": Family(
        "gauge", ("shard",), "How old the oldest count of a shard's live jobs is.", merge="max"
    ),
    "queue_ended_count_age_seconds": Family(
        "gauge", ("shard",), "How old its oldest count is, jobs that ended among them.", merge="max"
    ),
    "alarms": Family(
        "gauge",
        ("condition", "severity", "subject", "queue"),
        "1: an alarm stands, and nobody has muted it; of the server that judges.",
        merge="max",
    ),
    "alarms_judged_at_seconds": Family(
        "gauge", (), "When alarms were judged last, in seconds since 1970; of the server that judges.", merge="max"
    ),
    "blocked_chains": Family(
        "gauge",
        ("shard",),
        "Serialize keys whose first job keeps too many others waiting, or for too long; no more than 100 are counted "
        "of each.",
        merge="max",
    ),
    "shard_in": Family(
        "gauge", ("shard",), "1: the shard is in use; 0: it is ejected, by a process at least.", merge="min"
    ),
    "shard_full": Family(
        "gauge", ("shard",), "1: the shard has no room for new jobs, for a process at least; else 0.", merge="max"
    ),
    "shard_clock_skew_seconds": Family(
        "gauge", ("shard",), "How far the store's clock is ahead of this server's.", merge="max"
    ),
    "clock_uncertainty_seconds": Family(
        "gauge",
        (),
        "How far the earliest and the latest time are apart that it may be; 0 while clocks agree.",
        merge="max",
    ),
    "clock_correction_seconds": Family(
        "gauge", (), "How far the time that counts is ahead of this server's clock; 0 while that is right.", merge="max"
    ),
    "overflow_jobs": Family("gauge", (), "Jobs in this server's overflow shard that wait to be moved."),
    "cluster_workers": Family(
        "gauge", (), "Workers that reported in the last minute, in the whole cluster.", merge="max"
    ),
    "cluster_worker_slots": Family(
        "gauge", ("state",), "Their slots by state: free, busy, stuck; in the whole cluster.", merge="max"
    ),
    "queue_workers": Family(
        "gauge", ("queue",), "Workers that take jobs from the queue, in the whole cluster.", merge="max"
    ),
    "body_seconds": Family("histogram", ("tier", "call"), "Puts and gets of bodies, as their tier took.", _SECONDS),
    "body_failures": Family("counter", ("tier", "call"), "Puts and gets of bodies that failed."),
    "body_fallbacks": Family(
        "counter", ("tier",), "Bodies that stayed in their shard: their tier could not take them."
    ),
    "bodies_unread": Family("counter", ("tier",), "Dequeued jobs that went back: their body could not be read."),
    "bodies_deleted": Family("counter", ("tier",), "Objects deleted: no job refers to them any more."),
    "connections": Family("gauge", (), "Open connections."),
    "waiting_dequeues": Family("gauge", (), "Dequeues that wait for jobs."),
    "dequeue_round_seconds": Family(
        "gauge",
        (),
        "How long the oldest poll or claim for dequeues that wait has been under way; 0: none is.",
        merge="max",
    ),
    "waiting_lookups": Family("gauge", (), "Lookups that wait for the end of a job."),
    "http_requests": Family("counter", ("route", "status"), "Requests to the HTTP interface that were answered."),
    "http_request_seconds": Family(
        "histogram", ("route",), "The same, as long as they took: waits for jobs too, event streams left out.", _SECONDS
    ),
    "http_requests_refused": Family(
        "counter", ("reason",), "Requests to the HTTP interface that were answered with an error."
    ),
    "http_requests_under_way": Family("gauge", (), "Requests to the HTTP interface that are not answered yet."),
    "http_connections": Family("gauge", (), "Open connections to the HTTP interface."),
    "http_event_streams": Family("gauge", (), "Streams of server-sent events."),
}

OUTCOME_AT = {
    name: 1 + FAMILIES[name].labels.index("outcome") for name in ("jobs_acked", "claims_expired", "claims_released")
}
"""The families that count ends of attempts, and where their keys have what became of the job."""

Snapshot = Sequence[tuple[Sequence[str], Sequence[float]]]
_MERGES: dict[str, Callable[[float, float], float]] = {
    "sum": lambda one, other: one + other,
    "min": min,
    "max": lambda one, other: max(one, other, key=abs),
}


class Histogram:
    """The observations of one key: how many are in each bucket and above all of them, and last their sum."""

    __slots__ = ("_buckets", "slots")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self._buckets = buckets
        self.slots = [0.0] * (len(buckets) + 2)

    def observe(self, value: float) -> None:
        """One more value."""
        slots = self.slots
        slots[bisect_left(self._buckets, value)] += 1
        slots[-1] += value

    def quantile_ms(self, part: float) -> float | None:
        """The bound below which such a part of the observations of seconds lies, in milliseconds; None without any."""
        bound = bucket_bound(self._buckets, self.slots, part)
        return None if bound is None else bound * 1000


class Metrics:
    """The counts of one process. Label values are given in the order of the family; numbers become text when read."""

    def __init__(self) -> None:
        self.counters: defaultdict[tuple[Any, ...], float] = defaultdict(float)
        self.gauges: dict[tuple[Any, ...], float] = {}
        self._histograms: dict[tuple[Any, ...], Histogram] = {}

    def add(self, amount: float, *key: object) -> None:
        """Count: `add(3, "jobs_enqueued", "mail", 1)`."""
        self.counters[key] += amount

    def observe(self, value: float, *key: object) -> None:
        """One more value of a histogram; for where few calls pass."""
        self.histogram(*key).observe(value)

    def histogram(self, *key: object) -> Histogram:
        """The histogram of a key, for as long as the process runs; in `snapshot` from now on."""
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = Histogram(FAMILIES[str(key[0])].buckets)
        return histogram

    def set_gauges(self, prefix: Sequence[object], values: dict[tuple[Any, ...], float]) -> None:
        """Replace all gauges whose key begins so, so that what is gone does not stay."""
        begin = tuple(prefix)
        for key in [key for key in self.gauges if key[: len(begin)] == begin]:
            del self.gauges[key]
        self.gauges.update(values)

    def snapshot(self) -> list[tuple[Key, list[float]]]:
        """All of it: per key one value, or for a histogram its buckets, what lies above them, and the sum."""
        counted = [(key, [value]) for source in (self.counters, self.gauges) for key, value in source.items()]
        counted += [(key, list(histogram.slots)) for key, histogram in self._histograms.items()]
        return [(tuple(map(str, key)), values) for key, values in counted]


def merge(into: Series, snapshot: Snapshot, *, ended: bool = False) -> None:
    """Add the counts of one more process. Of one that has `ended`, gauges say nothing any more.

    A process of a newer version, started by an older supervisor, counts what this one does not know: that is left out.
    """
    for parts, values in snapshot:
        key = tuple(parts)
        family = FAMILIES.get(key[0])
        if family is None or (ended and family.kind == "gauge"):
            continue
        known = into.get(key)
        if known is None:
            into[key] = list(values)
        else:
            rule = _MERGES[family.merge]
            into[key] = [rule(one, other) for one, other in zip(known, values, strict=True)]
