"""Batches in every pool: one call, one slot, an outcome for each job, and what ends them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.jobs.batch import MemberOutcomes
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.running_job import RunningBatch
from pinlater_workers.pools.router import PoolRouter
from tests.workers.apps.pool_batches import QUEUE, app
from tests.workers.pool_driver import PoolDriver

SPEC = "tests.workers.apps.pool_batches:app"
POOLS: list[Any] = ["thread", "async", "process"]


@pytest.fixture(scope="module", params=POOLS)
def driver(request: pytest.FixtureRequest) -> Iterator[PoolDriver]:
    settings = WorkerSettings(queues={QUEUE: 1}, concurrency=2, pool=request.param)
    driver = PoolDriver(app, lambda *told: PoolRouter(app, SPEC, settings, *told)).open()
    driver.kind = request.param  # type: ignore[attr-defined]
    yield driver
    driver.close()


def job(driver: PoolDriver, name: str) -> JobType:
    is_async = driver.kind == "async"  # type: ignore[attr-defined]
    return app.job_types[name + "_async" if is_async else name]


def batch(driver: PoolDriver, job_type: JobType, *arguments: object) -> RunningBatch:
    """Not submitted yet."""
    members = [driver.running(job_type, each) for each in arguments]
    first = members[0]
    return RunningBatch(
        first.job, first.queue, job_type, first.began_s, first.until_s, None, first.deadline_ms, members=members
    )


def submitted(driver: PoolDriver, job_type: JobType, *arguments: object) -> RunningBatch:
    running = batch(driver, job_type, *arguments)

    async def submit() -> None:
        driver.pool.submit(running)

    driver.run(submit())
    return running


def outcomes(driver: PoolDriver, running: RunningBatch) -> list[Outcome]:
    outcome = driver.outcome(running)
    assert isinstance(outcome, MemberOutcomes)
    assert len(outcome.members) == len(running.members)
    return list(outcome.members)


def test_each_job_has_its_own_outcome(driver: PoolDriver) -> None:
    running = submitted(driver, job(driver, "mixed"), "", "fail", "snooze", "succeed")
    plain, failed, snoozed, succeeded = outcomes(driver, running)
    assert (plain.action, succeeded.action) == (Action.SUCCEED, Action.SUCCEED)
    assert failed.action is Action.FAIL
    assert failed.status.startswith("attempt 1 of 2: Fail: never")
    assert (snoozed.action, snoozed.delay_ms, snoozed.status) == (Action.SNOOZE, 5000, "snooze 1 of 100: later\n")
    assert snoozed.body is not None


@pytest.mark.parametrize("what", ["raise", "interrupt"])
def test_what_the_function_raises_fails_all(driver: PoolDriver, what: str) -> None:
    found = outcomes(driver, submitted(driver, job(driver, "mixed"), "", what))
    assert [each.action for each in found] == [Action.RETRY] * 2
    assert all(6300 <= each.delay_ms <= 7700 for each in found)
    assert {each.error for each in found} == {"ValueError" if what == "raise" else "KeyboardInterrupt"}


def test_outcomes_that_were_set_before_an_exception_count(driver: PoolDriver) -> None:
    found = outcomes(driver, submitted(driver, job(driver, "mixed"), "succeed", "snooze", "fail", "raise"))
    assert [each.action for each in found] == [Action.SUCCEED, Action.SNOOZE, Action.FAIL, Action.RETRY]


def test_raw_jobs_come_in_batches(driver: PoolDriver) -> None:
    found = outcomes(driver, submitted(driver, app.job_types["raw"], b"well", b"ill"))
    assert [each.action for each in found] == [Action.SUCCEED, Action.FAIL]


def test_a_batch_over_its_time_limit_fails_its_jobs(driver: PoolDriver) -> None:
    running = submitted(driver, job(driver, "long"), "", "snooze", "")
    driver.until(lambda: driver.statuses(running) == ["begun"])
    driver.stop(running, StopReason.TIME_LIMIT)
    first, snoozed, last = outcomes(driver, running)
    assert (first.error, last.error) == ("TimeLimitExceeded", "TimeLimitExceeded")
    killed = driver.kind == "process"  # type: ignore[attr-defined]
    assert snoozed.error == ("TimeLimitExceeded" if killed else "Snooze")


def test_a_batch_that_is_to_stop_is_told(driver: PoolDriver) -> None:
    running = submitted(driver, job(driver, "long"), "", "")
    driver.until(lambda: driver.statuses(running) == ["begun"])
    driver.stop(running, StopReason.STOPPING)
    assert [each.action for each in outcomes(driver, running)] == [Action.SUCCEED] * 2
    assert driver.statuses(running) == ["begun", "told: the worker stops"]


def test_one_job_whose_claim_is_lost_is_told_alone(driver: PoolDriver) -> None:
    running = submitted(driver, job(driver, "long"), "", "")
    driver.until(lambda: driver.statuses(running) == ["begun"])

    assert isinstance(running, RunningBatch)
    running.members[0].stop_reason = StopReason.CLAIM_LOST

    async def lose() -> None:
        driver.pool.stop_member(running, 0)

    driver.run(lose())
    outcomes(driver, running)
    assert driver.statuses(running) == ["begun", "lost: claim lost"]


def test_checkpoints_name_the_job_that_makes_them(driver: PoolDriver) -> None:
    name = "mixed" if driver.kind != "async" else "long_async"  # type: ignore[attr-defined]
    running = submitted(driver, app.job_types[name], "", "save" if name == "mixed" else "")
    driver.until(lambda: any(of is running for of, _ in driver.saved))
    saved = [checkpoint for of, checkpoint in driver.saved if of is running]
    assert saved[0].descriptor == running.members[1].job.descriptor
    assert saved[0].claim_descriptor == running.members[1].job.claim_descriptor
    if name != "mixed":
        driver.stop(running, StopReason.CLAIM_LOST)
    outcomes(driver, running)


@pytest.mark.parametrize("driver", ["process"], indirect=True)
def test_a_process_that_dies_fails_all_jobs_of_its_batch(driver: PoolDriver) -> None:
    found = outcomes(driver, submitted(driver, app.job_types["mixed"], "", "succeed", "die"))
    assert {each.error for each in found} == {"ProcessDied"}
    assert all("ended with exit code 3" in each.status for each in found)


@pytest.mark.parametrize("driver", ["process"], indirect=True)
def test_a_batch_that_waits_for_a_process_is_requeued_whole_when_it_is_stopped(driver: PoolDriver) -> None:
    long = [submitted(driver, app.job_types["long"], "", "") for _ in range(2)]
    for each in long:
        driver.until(lambda each=each: driver.statuses(each) == ["begun"])  # type: ignore[misc]
    waiting = submitted(driver, app.job_types["mixed"], "")
    driver.stop(waiting, StopReason.STOPPING)
    assert driver.outcome(waiting) == Outcome(Action.GIVE_BACK)
    for each in long:
        driver.stop(each, StopReason.STOPPING)
        outcomes(driver, each)
