"""Records of queues: what their packed form keeps, and how near percentiles are to those of the durations."""

from __future__ import annotations

from random import Random
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.counter_ledger import spread
from pinlater.dashboard.duration_buckets import GROWTH, HIGHEST, buckets_of, percentile_ms
from pinlater.dashboard.queue_record import (
    UNREADABLE,
    QueueRecord,
    expanded,
    fewer_words,
    pack,
    pack_series,
    scaled,
    unpack,
    unpack_series,
)

counts = st.integers(0, 2**40)
small = st.integers(0, 255)
words = st.dictionaries(st.text(max_size=5), st.integers(1, 2**30), max_size=2)
buckets = st.dictionaries(st.integers(0, HIGHEST), st.integers(1, 255), max_size=3)
records = st.builds(
    QueueRecord,
    enqueued=counts,
    failed=small,
    ready=counts,
    oldest_s=small,
    waits=buckets,
    runs=buckets,
    reasons=words,
    types=words,
    sampled=small,
    minutes=small,
)
series = st.lists(st.tuples(st.integers(0, 59), records), max_size=3, unique_by=lambda each: each[0])


@given(records)
def test_a_record_is_what_was_packed(record: QueueRecord) -> None:
    assert unpack(pack(record)) == record


@given(series)
def test_so_are_the_records_of_an_hour(of_hour: list[tuple[int, QueueRecord]]) -> None:
    assert unpack_series(pack_series(of_hour)) == of_hour


@given(st.binary(max_size=60))
def test_bytes_that_are_no_records_are_told_from_those_that_are(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        unpack_series(data)


@pytest.mark.parametrize("part", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("shape", ["lognormal", "uniform", "two"])
def test_percentiles_are_within_ten_percent(part: float, shape: str) -> None:
    rng = Random(f"{shape} {part}")
    durations_ms = {
        "lognormal": [rng.lognormvariate(5, 1.5) for _ in range(5_000)],
        "uniform": [rng.uniform(20, 40_000) for _ in range(5_000)],
        "two": [rng.gauss(100, 5) if rng.random() < 0.8 else rng.gauss(90_000, 900) for _ in range(5_000)],
    }[shape]
    exact = quantiles(durations_ms, n=100)[round(part * 100) - 1]
    found = percentile_ms(buckets_of(durations_ms), part)
    assert found == pytest.approx(exact, rel=GROWTH**0.5 - 1 + 0.01)


def test_an_hour_has_the_percentiles_of_its_minutes_together_also_when_it_is_packed() -> None:
    rng = Random(3)
    whole, every = QueueRecord(), []
    for _ in range(60):
        some = [rng.lognormvariate(6, 1) for _ in range(200)]
        every += some
        whole.merge(QueueRecord(runs=buckets_of(some)))
    ((_, packed),) = unpack_series(pack_series([(5, whole)]))
    for part in (0.5, 0.95, 0.99):
        exact = quantiles(every, n=100)[round(part * 100) - 1]
        assert percentile_ms(whole.runs, part) == pytest.approx(exact, rel=0.11)
        assert percentile_ms(packed.runs, part) == pytest.approx(exact, rel=0.22)  # one bucket beside it at most


def test_minutes_without_a_record_are_as_the_one_before_and_those_nobody_recorded_are_not_there() -> None:
    busy = QueueRecord(enqueued=3, ready=2, oldest_s=10)
    found = dict(expanded([(2, busy)], [0, 1, 2, 3, 5]))
    assert found[2] is busy
    assert found[0] == QueueRecord()
    assert (found[3].enqueued, found[3].ready, found[3].oldest_s) == (0, 2, 70)
    assert found[5].oldest_s == 190
    assert 4 not in found


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 100), min_size=1), st.integers(0, 100_000))
def test_scaled_words_are_as_many_as_the_jobs(seen: dict[str, int], total: int) -> None:
    found = scaled(seen, total)
    assert sum(found.values()) == max(total, sum(seen.values()))
    assert all(found[word] >= jobs for word, jobs in seen.items())
    assert sum(fewer_words(found, 3).values()) == sum(found.values())
    assert len(fewer_words(found, 3)) <= 4


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=5), st.integers(0, 10**7), st.integers(0, 600_000))
def test_what_is_shared_among_minutes_is_all_there(numbers: list[int], from_ms: int, length_ms: int) -> None:
    parts = spread(numbers, from_ms, from_ms + length_ms, 60_000)
    assert [sum(column) for column in zip(*parts.values(), strict=True)] == numbers
    assert all(each >= 0 for part in parts.values() for each in part)
