"""What all pools do alike, for plain functions and for coroutines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pinlater.errors import QueueNotFound
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.errors import ClaimLost
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import SUCCEEDED, Action
from pinlater_workers.pools.base import JobPool
from pinlater_workers.pools.coroutines import AsyncPool
from pinlater_workers.pools.process_pool import ProcessPool
from pinlater_workers.pools.threads import ThreadPool
from tests.workers.apps.pool_jobs import QUEUE, app
from tests.workers.pool_driver import PoolDriver

SPEC = "tests.workers.apps.pool_jobs:app"
SETTINGS = WorkerSettings(queues={QUEUE: 1}, concurrency=2)
POOLS: dict[str, Callable[..., JobPool]] = {
    "thread": lambda *told: ThreadPool(app, SETTINGS, *told),
    "async": lambda *told: AsyncPool(app, SETTINGS, *told),
    "process": lambda *told: ProcessPool(SPEC, SETTINGS, *told),
}
Named = Callable[[str], JobType]


FORMS = ["thread-plain", "thread-coroutine", "async-coroutine", "process-plain", "process-coroutine"]


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def driver(form: str) -> Iterator[PoolDriver]:
    driver = PoolDriver(app, POOLS[form.split("-")[0]]).open()
    yield driver
    driver.close()


@pytest.fixture
def named(form: str) -> Named:
    """A job type by its name, in the form that is tested."""
    suffix = "_async" if form.endswith("coroutine") else ""
    return lambda name: app.job_types[name + suffix]


def test_job_that_returns_has_succeeded(driver: PoolDriver, named: Named) -> None:
    assert driver.result(named("nothing")) == SUCCEEDED


def test_failure_says_what_and_where_and_is_tried_again_when_the_policy_says(driver: PoolDriver, named: Named) -> None:
    outcome = driver.result(named("raises"), "ValueError")
    assert outcome.action is Action.RETRY
    assert 6_000 <= outcome.delay_ms <= 8_000
    assert outcome.error == "ValueError"
    assert "a bad value" in outcome.status
    assert "pool_jobs.py" in outcome.status


@pytest.mark.parametrize(
    ("what", "action", "delay_ms"),
    [
        ("Retry", Action.RETRY, 3_000),
        ("Fail", Action.FAIL, 0),
        ("Snooze", Action.SNOOZE, 5_000),
        ("Reschedule", Action.RESCHEDULE, 60_000),
    ],
)
def test_job_decides_by_what_it_raises(
    driver: PoolDriver, named: Named, what: str, action: Action, delay_ms: int
) -> None:
    outcome = driver.result(named("raises"), what)
    assert (outcome.action, outcome.delay_ms) == (action, delay_ms)


def test_snooze_is_counted_in_the_body(driver: PoolDriver, named: Named) -> None:
    assert b'"snoozes":1' in (driver.result(named("raises"), "Snooze").body or b"")


@pytest.mark.parametrize("what", ["SystemExit", "KeyboardInterrupt"])
def test_job_that_would_end_the_process_fails_alone(driver: PoolDriver, named: Named, what: str) -> None:
    outcome = driver.result(named("raises"), what)
    assert (outcome.action, outcome.error) == (Action.RETRY, what)
    assert driver.result(named("nothing")) == SUCCEEDED


def test_arguments_that_the_function_does_not_take_fail_the_job(driver: PoolDriver, named: Named) -> None:
    job_type = named("raises")
    outcome = driver.result(job_type, body=job_type.body("x").replace(b'"x"', b"5"))
    assert outcome.error == "ArgumentsInvalid"


@pytest.mark.parametrize("body", [b"no envelope", b"x" * 2_000_000], ids=["short", "long"])
def test_raw_job_takes_the_whole_body(driver: PoolDriver, named: Named, body: bytes) -> None:
    running = driver.submit(named("raw"), body=body)
    assert driver.outcome(running) == SUCCEEDED
    assert [checkpoint.new_body for of, checkpoint in driver.saved if of is running] == [body]


def test_text_that_no_encoding_takes_fails_the_job_alone(driver: PoolDriver, named: Named) -> None:
    assert driver.result(named("raises"), "surrogate").error == "ValueError"


def test_checkpoint_is_carried_out_for_the_job_and_its_claim(driver: PoolDriver, named: Named) -> None:
    running = driver.submit(named("saves"), "half")
    assert driver.outcome(running) == SUCCEEDED
    ((_, checkpoint),) = [saved for saved in driver.saved if saved[0] is running]
    assert checkpoint.descriptor == running.job.descriptor
    assert checkpoint.claim_descriptor == running.job.claim_descriptor
    assert b"half!" in (checkpoint.new_body or b"")


@pytest.mark.parametrize("error", [ClaimLost("another has it"), QueueNotFound("deleted"), OSError("anything")])
def test_what_a_checkpoint_raises_is_raised_in_the_job(driver: PoolDriver, named: Named, error: Exception) -> None:
    driver.refusal = error
    try:
        outcome = driver.result(named("saves"), "half")
    finally:
        driver.refusal = None
    assert type(error).__name__ in outcome.status
    assert str(error) in outcome.status
    assert driver.result(named("saves"), "half") == SUCCEEDED


@pytest.mark.parametrize("why", [StopReason.STOPPING, StopReason.OUT_OF_TOUCH])
def test_job_that_is_told_goes_on_and_knows_why(driver: PoolDriver, named: Named, why: StopReason) -> None:
    running = driver.submit(named("until_told"))
    assert driver.says(running) == "begun"
    driver.stop(running, why)
    assert driver.outcome(running) == SUCCEEDED
    assert driver.statuses(running)[1] == why


@pytest.mark.parametrize(
    ("why", "error"), [(StopReason.TIME_LIMIT, "TimeLimitExceeded"), (StopReason.CLAIM_LOST, "ClaimLost")]
)
def test_job_that_is_ended_fails_for_that_reason(driver: PoolDriver, named: Named, why: StopReason, error: str) -> None:
    running = driver.submit(named("until_told"))
    assert driver.says(running) == "begun"
    driver.stop(running, why)
    outcome = driver.outcome(running)
    assert (outcome.action, outcome.error) == (Action.RETRY, error)
    driver.stop(running, why)
    driver.until(lambda: driver.pool.stuck == 0)
    assert driver.result(named("nothing")) == SUCCEEDED


def test_every_one_of_many_jobs_is_told_once(driver: PoolDriver, named: Named) -> None:
    many = [driver.submit(named("nothing" if number % 3 else "saves"), *["x"][number % 3 :]) for number in range(100)]
    assert {driver.outcome(running) for running in many} == {SUCCEEDED}


@pytest.mark.parametrize("kind", POOLS)
def test_closing_ends_what_runs_and_nothing_is_heard_of_it(kind: str) -> None:
    driver = PoolDriver(app, POOLS[kind]).open()
    try:
        running = driver.submit(app.job_types["until_told_async"])
        assert driver.says(running) == "begun"
    finally:
        driver.close()
    assert not driver.outcomes
