"""What a job does to its process, and what becomes of that."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import SUCCEEDED, Action
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.pools.process_pool import ProcessPool
from tests.workers.apps.pool_harm import QUEUE, app
from tests.workers.pool_driver import PoolDriver, is_gone

SPEC = "tests.workers.apps.pool_harm:app"


def opened(**settings: int) -> PoolDriver:
    one = WorkerSettings(queues={QUEUE: 1}, **{"concurrency": 1, **settings})
    return PoolDriver(app, lambda *told: ProcessPool(SPEC, one, *told)).open()


@pytest.fixture(scope="module")
def driver() -> Iterator[PoolDriver]:
    """One process, so that a job finds what the one before it has left."""
    driver = opened()
    yield driver
    driver.close()


def job(name: str) -> JobType:
    return app.job_types[name]


def process_id(driver: PoolDriver) -> int:
    return int(driver.says(driver.submit(job("own_id"))))


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("exits", (3,), "ended with exit code 3"),
        ("exits", (0,), "ended with exit code 0"),
        ("crashes", (), "was killed by signal 11 (SIGSEGV)"),
        ("is_killed", (), "was killed by signal 9 (SIGKILL)"),
    ],
)
def test_process_that_ends_fails_its_job_and_is_replaced(
    driver: PoolDriver, name: str, args: tuple[int, ...], reason: str
) -> None:
    process = process_id(driver)
    outcome = driver.result(job(name), *args)
    assert (outcome.action, outcome.error) == (Action.RETRY, "ProcessDied")
    assert f"process {process} {reason}" in outcome.status
    assert process_id(driver) != process


def test_process_that_is_killed_between_two_jobs_is_replaced(driver: PoolDriver) -> None:
    process = process_id(driver)
    os.kill(process, signal.SIGKILL)
    driver.until(lambda: not Path(f"/proc/{process}").exists())
    assert process_id(driver) != process


def ended_by_limit(driver: PoolDriver, running: RunningJob) -> None:
    driver.stop(running, StopReason.TIME_LIMIT)
    assert driver.outcome(running).error == "TimeLimitExceeded"


def test_job_that_never_lets_go_of_the_interpreter_is_ended(driver: PoolDriver) -> None:
    running = driver.submit(job("holds_interpreter"))
    process = int(driver.says(running))
    ended_by_limit(driver, running)
    assert is_gone(process), "another attempt might begin while this one still runs"


def test_programs_that_a_job_started_end_with_it(driver: PoolDriver) -> None:
    running = driver.submit(job("starts_program"))
    program = int(driver.says(running))
    ended_by_limit(driver, running)
    driver.until(lambda: is_gone(program))


def test_death_is_seen_though_a_copy_of_the_process_holds_its_connections(driver: PoolDriver) -> None:
    running = driver.submit(job("copies_itself_and_exits"))
    assert "ended with exit code 7" in driver.outcome(running).status
    copy = int(driver.says(running))
    driver.until(lambda: is_gone(copy))


@pytest.mark.parametrize("name", ["ends_program", "ends_fork"])
def test_what_a_job_starts_can_be_asked_to_end(driver: PoolDriver, name: str) -> None:
    running = driver.submit(job(name))
    assert driver.outcome(running) == SUCCEEDED
    assert driver.says(running) == "-15"


def test_fork_that_returns_is_not_a_second_process_of_the_pool(driver: PoolDriver) -> None:
    process = process_id(driver)
    for _ in range(3):
        assert driver.result(job("forks")) == SUCCEEDED
    assert process_id(driver) == process


@pytest.mark.parametrize("name", ["closes_all", "closes_all_and_goes_on"])
def test_job_that_closes_the_connection_to_the_worker_fails(driver: PoolDriver, name: str) -> None:
    process = process_id(driver)
    assert driver.result(job(name)).error == "ProcessDied"
    assert is_gone(process)
    assert driver.result(job("own_id")) == SUCCEEDED


def test_nothing_is_written_to_what_a_job_opened_in_place_of_the_connection(driver: PoolDriver, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert driver.result(job("opens_in_its_place"), str(tmp_path / "file")).error == "ProcessDied"
    assert (tmp_path / "file").read_bytes() == b""


def test_signals_to_the_process_are_left_to_the_worker(driver: PoolDriver) -> None:
    assert driver.result(job("is_signalled")) == SUCCEEDED


def test_thread_that_outlives_its_job_has_no_part_in_the_next(driver: PoolDriver) -> None:
    late = driver.submit(job("leaves_thread"))
    assert driver.outcome(late) == SUCCEEDED
    said = len(driver.statuses(late))
    for _ in range(20):
        running = driver.submit(job("own_id"))
        assert driver.outcome(running) == SUCCEEDED
        assert len(driver.statuses(running)) == 1
    assert len(driver.statuses(late)) == said


def test_job_that_waits_for_a_process_is_requeued_when_it_is_stopped(driver: PoolDriver) -> None:
    first, second, third = (driver.submit(job(name)) for name in ("starts_program", "own_id", "own_id"))
    driver.stop(second, StopReason.OUT_OF_TOUCH)
    driver.stop(third, StopReason.STOPPING)
    assert driver.outcome(third).action is Action.GIVE_BACK
    driver.says(first)
    ended_by_limit(driver, first)
    assert driver.outcome(second) == SUCCEEDED


def test_type_that_the_processes_do_not_know_is_requeued(driver: PoolDriver) -> None:
    known = job("own_id")
    unknown = JobType(app, known.function, "unknown", known.settings)
    outcome = driver.result(unknown)
    assert (outcome.action, outcome.delay_ms) == (Action.GIVE_BACK, 10_000)


def test_output_of_a_job_is_that_of_the_worker_and_out_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    driver = opened()
    try:
        assert driver.result(job("prints"), "hello").error == "ProcessDied"
    finally:
        driver.close()
    out, err = capfd.readouterr()
    assert (out, err) == ("hello\n", "hello\n")


def test_process_is_replaced_after_so_many_jobs() -> None:
    driver = opened(recycle_jobs=2)
    try:
        first, again, second, _ = [process_id(driver) for _ in range(4)]
        assert first == again != second
        driver.until(lambda: is_gone(first))
    finally:
        driver.close()


def test_process_is_replaced_when_it_holds_too_much_memory() -> None:
    driver = opened(recycle_mib=200)
    try:
        process = process_id(driver)
        assert int(driver.says(driver.submit(job("keeps"), 1))) == process
        assert int(driver.says(driver.submit(job("keeps"), 200))) == process
        assert process_id(driver) != process
    finally:
        driver.close()


def test_closing_leaves_no_process() -> None:
    driver = opened(concurrency=2)
    process = process_id(driver)
    busy = driver.submit(job("holds_interpreter"))
    processes = {process, int(driver.says(busy))}
    driver.close()
    assert all(is_gone(each) for each in processes)
    assert busy not in driver.outcomes


def test_processes_are_apart_from_the_test() -> None:
    """They are made by exec, in groups of their own."""
    driver = opened()
    try:
        assert os.getpgid(process_id(driver)) != os.getpgrp()
    finally:
        driver.close()
