"""The counts of one process, and their sum over several."""

from __future__ import annotations

from pinlater.metric_family import Series
from pinlater.metrics import FAMILIES, Metrics, merge

KEY = ("call_seconds", "dequeueJobs")


def test_a_histogram_that_is_kept_is_the_one_that_observations_by_key_go_to() -> None:
    metrics = Metrics()
    kept = metrics.histogram(*KEY)
    kept.observe(0.0004)
    metrics.observe(99.0, *KEY)
    kept.observe(0.0005)
    ((key, values),) = metrics.snapshot()
    assert key == KEY
    assert values == [2, *[0] * (len(FAMILIES["call_seconds"].buckets) - 1), 1, 0.0004 + 99.0 + 0.0005]


def test_a_snapshot_does_not_change_with_what_is_counted_after_it() -> None:
    metrics = Metrics()
    metrics.observe(1.0, *KEY)
    before = metrics.snapshot()
    metrics.observe(1.0, *KEY)
    assert before != metrics.snapshot()
    total: Series = {}
    for each in (before, metrics.snapshot()):
        merge(total, each)
    assert sum(total[KEY][:-1]) == total[KEY][-1] == 3
