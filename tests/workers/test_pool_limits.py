"""Jobs in threads and on the loop that do not end when they are ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from pinlater.model import DequeuedJob
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import SUCCEEDED, Action, Outcome
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.pools.base import CompletionBatch
from pinlater_workers.pools.coroutines import AsyncPool
from pinlater_workers.pools.threads import ThreadPool
from tests.workers.apps import pool_stubborn
from tests.workers.apps.pool_stubborn import QUEUE, app
from tests.workers.pool_driver import WITHIN_S, PoolDriver

SETTINGS = WorkerSettings(queues={QUEUE: 1}, concurrency=2)


@pytest.fixture
def threads() -> Iterator[PoolDriver]:
    pool_stubborn.let_go.clear()
    pool_stubborn.errors.clear()
    driver = PoolDriver(app, lambda *told: ThreadPool(app, SETTINGS, *told)).open()
    yield driver
    pool_stubborn.let_go.set()
    driver.close()


@pytest.fixture
def coroutines() -> Iterator[PoolDriver]:
    pool_stubborn.let_go_async.clear()
    pool_stubborn.errors.clear()
    driver = PoolDriver(app, lambda *told: AsyncPool(app, SETTINGS, *told)).open()
    yield driver
    pool_stubborn.let_go_async.set()
    driver.close()


def job(name: str) -> JobType:
    return app.job_types[name]


def test_thread_over_its_limit_is_stuck_until_it_returns_and_then_runs_jobs_again(threads: PoolDriver) -> None:
    stuck = [threads.submit(job("holds_thread")) for _ in range(2)]
    for running in stuck:
        threads.says(running)
        threads.stop(running, StopReason.TIME_LIMIT)
    assert [threads.outcome(running).error for running in stuck] == ["TimeLimitExceeded"] * 2
    assert threads.pool.stuck == 2
    assert set(threads.pool.stuck_jobs()) == set(stuck)
    pool_stubborn.let_go.set()
    threads.until(lambda: threads.pool.stuck == 0)
    names = {threads.says(threads.submit(job("names_thread"))) for _ in range(4)}
    assert names <= {"job-1", "job-2"}


def test_thread_whose_job_has_ended_makes_no_checkpoint(threads: PoolDriver) -> None:
    running = threads.submit(job("holds_thread"))
    threads.says(running)
    threads.stop(running, StopReason.TIME_LIMIT)
    pool_stubborn.let_go.set()
    threads.until(lambda: pool_stubborn.errors == ["ClaimLost"])
    assert threads.statuses(running) == ["begun"]


def test_job_for_which_no_thread_can_be_started_is_requeued(
    threads: PoolDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        outcome = threads.result(job("names_thread"))
    assert (outcome.action, outcome.delay_ms) == (Action.GIVE_BACK, 10_000)
    assert threads.result(job("names_thread")) == SUCCEEDED


def test_threads_report_together_what_ended_while_the_loop_was_busy(threads: PoolDriver) -> None:
    async def at_once() -> None:
        for each in running:
            threads.pool.submit(each)
        assert pool_stubborn.fifty.wait(WITHIN_S)

    running = [threads.running(job("counts")) for _ in range(50)]
    threads.run(at_once())
    assert {threads.outcome(each) for each in running} == {SUCCEEDED}
    assert len(threads.reports) <= 3, "but for the last of each thread"


def test_closing_tells_of_what_has_ended_and_of_nothing_after_it() -> None:
    async def at_once() -> None:
        report = CompletionBatch(told.append)
        report.add(first, SUCCEEDED)
        report.close()
        report.add(second, SUCCEEDED)

    told: list[Sequence[tuple[RunningJob, Outcome]]] = []
    first, second = (
        RunningJob(DequeuedJob(name, b"", 1, 2, 2, 0, 0), QUEUE, None, 0, 0) for name in ("first", "second")
    )
    asyncio.run(at_once())
    assert told == [[(first, SUCCEEDED)]]


def test_coroutine_that_swallows_its_cancellation_is_stuck_and_cancelled_again(coroutines: PoolDriver) -> None:
    running = coroutines.submit(job("holds_loop"))
    coroutines.says(running)
    coroutines.stop(running, StopReason.TIME_LIMIT)
    assert coroutines.outcome(running).error == "TimeLimitExceeded"
    assert coroutines.pool.stuck == 1
    assert list(coroutines.pool.stuck_jobs()) == [running]
    coroutines.until(lambda: pool_stubborn.errors.count("CancelledError") >= 2)
    pool_stubborn.let_go_async.set()
    coroutines.until(lambda: coroutines.pool.stuck == 0)
    assert pool_stubborn.errors[-1] == "ClaimLost", "it has ended, and can make no checkpoint"
    assert coroutines.statuses(running) == ["begun"]


def test_coroutine_has_time_to_clean_up(coroutines: PoolDriver) -> None:
    running = coroutines.submit(job("cleans_up"))
    coroutines.says(running)
    coroutines.stop(running, StopReason.TIME_LIMIT)
    assert coroutines.outcome(running).error == "TimeLimitExceeded"
    assert coroutines.statuses(running) == ["begun", "cleaned up"]
    assert coroutines.pool.stuck == 0


def test_coroutine_that_is_ended_before_it_began_is_reported(coroutines: PoolDriver) -> None:
    async def at_once() -> None:
        coroutines.pool.submit(running)
        coroutines.pool.stop(running, StopReason.CLAIM_LOST)

    running = coroutines.running(job("nothing_async"))
    coroutines.run(at_once())
    assert coroutines.outcome(running).error == "ClaimLost"


def test_coroutines_of_one_turn_of_the_loop_are_reported_together(coroutines: PoolDriver) -> None:
    async def at_once() -> None:
        for each in running:
            coroutines.pool.submit(each)

    async_nothing = job("nothing_async")
    running = [coroutines.running(async_nothing) for _ in range(50)]
    coroutines.run(at_once())
    assert {coroutines.outcome(each) for each in running} == {SUCCEEDED}
    assert len(coroutines.reports) == 1


def test_coroutine_that_would_block_its_loop_fails(coroutines: PoolDriver) -> None:
    outcome = coroutines.result(job("blocks_for_checkpoint"))
    assert (outcome.action, outcome.error) == (Action.RETRY, "RuntimeError")
