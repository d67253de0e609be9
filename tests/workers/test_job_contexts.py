"""What a job leaves behind in its context, its arithmetic and its loop: no other job sees any of it, in any pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

import pytest

from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Outcome
from pinlater_workers.jobs.running_job import RunningBatch, RunningJob
from pinlater_workers.pools.base import JobPool
from pinlater_workers.pools.coroutines import AsyncPool
from pinlater_workers.pools.process_pool import ProcessPool
from pinlater_workers.pools.threads import ThreadPool
from pinlater_workers.testing import in_memory
from tests.workers.apps import pool_traces
from tests.workers.apps.pool_traces import app
from tests.workers.pool_driver import PoolDriver

SPEC = "tests.workers.apps.pool_traces_start:app"
START = "nobody home 50 ROUND_HALF_EVEN"
JOBS = 5
SETTINGS = WorkerSettings(queues={pool_traces.QUEUE: 1}, concurrency=1)
POOLS: dict[str, Callable[..., JobPool]] = {
    "thread": lambda *told: ThreadPool(app, SETTINGS, *told),
    "async": lambda *told: AsyncPool(app, SETTINGS, *told),
    "process": lambda *told: ProcessPool(SPEC, SETTINGS, *told),
}
FORMS = [
    ("thread", "plain"),
    ("thread", "coroutine"),
    ("thread", "plain_batch"),
    ("thread", "coroutine_batch"),
    ("async", "coroutine"),
    ("async", "coroutine_batch"),
    ("process", "plain"),
    ("process", "coroutine"),
    ("process", "plain_batch"),
    ("process", "coroutine_batch"),
]


class OneSlot:
    """A pool whose next job begins when one ends, as in a worker with one slot."""

    def __init__(self, kind: str, name: str) -> None:
        """To be made in the context that is the worker's start."""
        self._type: JobType = app.job_types[name]
        self._waiting: deque[RunningJob] = deque()
        self.driver = PoolDriver(app, lambda ended, *told: POOLS[kind](self._then_next(ended), *told))

    def reports(self, *arguments: object) -> list[str]:
        jobs = [self._job(arguments) for _ in range(JOBS)]
        self._waiting += jobs[1:]
        self.driver.open()
        try:
            self.driver.run(self._submit(jobs[0]))
            outcomes = [self.driver.outcome(each) for each in jobs]
            assert {str(outcome.error) for outcome in outcomes} == {""}
            return [self.driver.statuses(each)[0] for each in jobs]
        finally:
            self.driver.close()

    async def _submit(self, running: RunningJob) -> None:
        self.driver.pool.submit(running)

    def _then_next(self, ended: Any) -> Any:
        def told(results: Sequence[tuple[RunningJob, Outcome]]) -> None:
            ended(results)
            if self._waiting:
                self.driver.pool.submit(self._waiting.popleft())

        return told

    def _job(self, arguments: Sequence[object]) -> RunningJob:
        if not self._type.is_batch:
            return self.driver.running(self._type, *arguments)
        first, *others = members = [self.driver.running(self._type, *arguments) for _ in range(3)]
        assert others
        began_s, until_s, deadline_ms = first.began_s, first.until_s, first.deadline_ms
        return RunningBatch(first.job, first.queue, self._type, began_s, until_s, None, deadline_ms, members=members)


@pytest.mark.parametrize(("kind", "name"), FORMS)
def test_each_of_many_jobs_in_one_slot_finds_what_the_first_one_found(kind: str, name: str) -> None:
    def reports() -> list[str]:
        pool_traces.set_up()
        own_loop = kind != "async" and name == "coroutine"
        return OneSlot(kind, name).reports(own_loop)

    said = copy_context().run(reports)
    assert said == said[:1] * JOBS
    assert said[0].startswith(START)


async def test_batch_that_is_tested_in_memory_leaves_nothing_in_the_test() -> None:
    pool_traces.set_up()
    with in_memory(app) as jobs:
        await app.job_types["coroutine_batch"].enqueue_async(True)
        await jobs.run_all_async()
    assert pool_traces.found().startswith(START)
