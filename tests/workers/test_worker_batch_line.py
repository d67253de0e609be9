"""Which jobs make a batch, when it is ready, and how many are asked for: without a server, a pool or a clock."""

from __future__ import annotations

import math

import pytest

from pinlater.model import DequeuedJob
from pinlater_workers import App, Batch, JobType
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.worker.batches import MAX_BYTES, SLOT_WAIT_S, BatchLine, BatchQueues

app = App(servers=["127.0.0.1:1"])


@app.job(queue="first", batch=3, wait="1s", time_limit=60)
def three(batch: Batch[int]) -> None: ...


@app.job(queue="first", batch=5, wait=0)
def five(batch: Batch[int]) -> None: ...


@app.job(queue="second", batch=100)
def hundred(batch: Batch[int]) -> None: ...


@app.job(queue="third", batch=100)
def beside_single(batch: Batch[int]) -> None: ...


@app.job(queue="third")
def single(number: int) -> None: ...


def job(
    number: int, job_type: JobType = three, *, priority: int = 1, size: int = 10, queue: str = "first"
) -> RunningJob:
    claimed = DequeuedJob(f"job-{number}", b"x" * size, priority, 5, 5, number, 0, f"claim-{number}")
    return RunningJob(claimed, queue, job_type, 0.0, 60.0)


def jobs(count: int, job_type: JobType = three) -> list[RunningJob]:
    return [job(number, job_type) for number in range(count)]


def test_a_batch_is_ready_when_it_is_full_and_a_further_one_gathers() -> None:
    line, seven = BatchLine(), jobs(7)
    line.add(seven, 10.0)
    assert (line.ready, line.gathering("first")) == (2, 1)
    assert [list(batch.jobs) for batch in (line.take(), line.take()) if batch] == [seven[:3], seven[3:6]]
    assert line.take() is None
    assert seven[6] in line
    assert seven[0] not in line
    assert line.next_s() == 11.0


def test_a_batch_is_ready_when_its_first_job_has_waited() -> None:
    line, (one, two) = BatchLine(), jobs(2)
    line.add([one], 10.0)
    line.add([two], 10.9)
    line.look(10.99)
    assert line.take() is None
    line.look(11.0)
    batch = line.take()
    assert batch is not None
    assert list(batch.jobs) == [one, two]
    assert line.next_s() == math.inf


def test_without_a_wait_a_batch_is_what_came_together() -> None:
    line, four = BatchLine(), jobs(4, five)
    line.add(four, 10.0)
    batch = line.take()
    assert batch is not None
    assert list(batch.jobs) == four


def test_a_batch_that_waits_for_a_slot_takes_more_until_it_is_full() -> None:
    line, four = BatchLine(), jobs(4)
    line.add(four[:1], 10.0)
    line.look(11.0)
    line.add(four[1:], 11.5)
    assert line.ready == 1
    batch = line.take()
    assert batch is not None
    assert list(batch.jobs) == four[:3]
    assert line.gathering("first") == 1


def test_types_and_queues_are_not_mixed() -> None:
    line = BatchLine()
    mixed = [job(1), job(2, five), job(3), job(4, five), job(5, three, queue="other")]
    line.add(mixed, 10.0)
    line.look(20.0)
    found = [batch for batch in (line.take(), line.take(), line.take()) if batch]
    assert sorted([each.job.descriptor for each in batch.jobs] for batch in found) == [
        ["job-1", "job-3"],
        ["job-2", "job-4"],
        ["job-5"],
    ]


def test_large_bodies_make_smaller_batches() -> None:
    line = BatchLine()
    large = [job(number, hundred, size=MAX_BYTES // 2) for number in range(3)]
    line.add(large, 10.0)
    assert line.ready == 1
    batch = line.take()
    assert batch is not None
    assert list(batch.jobs) == large[:2]
    line.add([job(9, hundred, size=2 * MAX_BYTES)], 10.0)
    assert line.ready == 1


def test_the_batch_with_the_highest_priority_begins_first_and_has_its_jobs_in_that_order() -> None:
    line = BatchLine()
    line.add([job(1, priority=2), job(2, priority=2), job(3, priority=2)], 10.0)
    line.add([job(4, priority=3), job(5, priority=1), job(6, priority=3)], 11.0)
    batch = line.take()
    assert batch is not None
    assert [each.job.descriptor for each in batch.begin(12.0, 5_000).members] == ["job-5", "job-4", "job-6"]


def test_the_time_of_a_batch_begins_with_it() -> None:
    line, (one, two) = BatchLine(), jobs(2)
    line.add([one, two], 10.0)
    assert one.until_s == 60.0 + 1.0 + SLOT_WAIT_S
    line.look(11.0)
    gathered = line.take()
    assert gathered is not None
    batch = gathered.begin(100.0, 5_000)
    assert (batch.began_s, batch.until_s, batch.deadline_ms) == (100.0, 160.0, 65_000)
    assert [(each.began_s, each.until_s, each.deadline_ms) for each in batch.members] == [(100.0, 160.0, 65_000)] * 2


def test_what_finds_no_slot_in_time_is_taken_out() -> None:
    line, three_jobs = BatchLine(), jobs(3)
    line.add(three_jobs, 10.0)
    assert line.next_s() == 10.0 + SLOT_WAIT_S
    assert line.take_overdue(10.0 + SLOT_WAIT_S - 0.01) == []
    assert line.take_overdue(10.0 + SLOT_WAIT_S) == three_jobs
    assert (line.ready, list(line), line.next_s()) == (0, [], math.inf)


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_job_that_is_lost_leaves(is_ready: bool) -> None:
    line, (one, two) = BatchLine(), jobs(2)
    line.add([one, two], 10.0)
    if is_ready:
        line.look(11.0)
    line.discard(one)
    assert list(line) == [two]
    line.discard(two)
    assert (list(line), line.ready, line.next_s()) == ([], 0, math.inf)
    line.discard(two)


def test_all_of_it_can_be_taken_once() -> None:
    line, five_jobs = BatchLine(), jobs(5)
    line.add(five_jobs, 10.0)
    assert line.take_all() == five_jobs
    assert line.take_all() == []


def test_a_slot_takes_a_batch_where_all_types_of_the_queue_have_them() -> None:
    queues = BatchQueues(app.job_types.values())
    assert [queues.is_whole(name) for name in ("first", "second", "third", "other")] == [True, True, False, False]
    assert [queues.slots("first", jobs) for jobs in (0, 1, 3, 4)] == [0, 1, 1, 2]
    assert queues.slots("third", 5) == 5
    gathering = {"first": 1, "second": 50, "third": 0}
    weights = {"first": 1, "second": 3, "third": 4}
    assert queues.extra(8, weights, gathering.__getitem__) == {"first": 1 * 3 - 1 - 1, "second": 3 * 100 - 50 - 3}
    assert queues.extra(8, {"third": 1}, gathering.__getitem__) == {}


def test_one_dequeue_asks_for_so_many_at_most() -> None:
    queues, weights = BatchQueues([hundred]), {"second": 1}
    assert queues.extra(1000, weights, lambda queue: 0) == {"second": 2_000 - 1000}
    assert queues.extra(4000, weights, lambda queue: 0) == {"second": 0}
    assert queues.extra(2, weights, lambda queue: 199) == {"second": 0}
