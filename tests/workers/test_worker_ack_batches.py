"""How much travels in one call: a server breaks the connection over one that is too large, however often it is sent."""

from __future__ import annotations

import pytest

from pinlater.model import DequeuedJob
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.worker.ack_batches import MAX_BODY_BYTES, MAX_RESULTS, AckQueue, Result


def put_off(number: int, body_bytes: int) -> Result:
    job = DequeuedJob(f"mail:s1:p1:{number}", b"", 1, 5, 5, run_after_ms=0, enqueued_at_ms=0)
    return RunningJob(job, "mail", None, 0.0, 0.0), Outcome(Action.SNOOZE, body=bytes(body_bytes))


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([10] * (MAX_RESULTS + 1), [MAX_RESULTS, 1]),
        ([MAX_BODY_BYTES // 2] * 5, [2, 2, 1]),
        ([MAX_BODY_BYTES * 8, 10, MAX_BODY_BYTES * 8], [1, 1, 1]),
        ([0] * 3, [3]),
    ],
)
def test_moves_with_large_bodies_go_in_several_calls_in_order(sizes: list[int], batches: list[int]) -> None:
    queue = AckQueue()
    requeues = [put_off(number, size) for number, size in enumerate(sizes)]
    queue.put(requeues, 0.0)
    taken = []
    while (batch := queue.take_requeues("mail")) is not None:
        taken.append(batch.results)
    assert [len(results) for results in taken] == batches
    assert [result for results in taken for result in results] == requeues
    assert queue.count == 0
