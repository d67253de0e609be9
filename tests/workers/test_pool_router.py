"""Each job runs in the pool of its type."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.jobs.settings import PoolName
from pinlater_workers.pools.router import PoolRouter
from tests.workers.apps.pool_places import QUEUE, app
from tests.workers.pool_driver import PoolDriver

SPEC = "tests.workers.apps.pool_places:app"
PLACES = {
    # job: (in a worker of threads, of processes, of the loop)
    "plain": ("thread", "process", "thread"),
    "coroutine": ("loop", "process", "loop"),
    "plain_in_process": ("process", "process", "process"),
    "coroutine_in_process": ("process", "process", "process"),
    "plain_in_thread": ("thread", "thread", "thread"),
    "coroutine_in_thread": ("thread", "thread", "thread"),
    "plain_on_loop": ("thread", "thread", "thread"),
    "coroutine_on_loop": ("loop", "loop", "loop"),
}
WORKERS: tuple[PoolName, ...] = ("thread", "process", "async")


def mixed(pool: PoolName, *queues: str) -> PoolDriver:
    settings = WorkerSettings(queues=dict.fromkeys(queues, 1), concurrency=1, pool=pool)
    return PoolDriver(app, lambda *told: PoolRouter(app, SPEC, settings, *told)).open()


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(scope="module", params=WORKERS)
def worker(request: pytest.FixtureRequest) -> Iterator[tuple[int, PoolDriver]]:
    driver = mixed(request.param, QUEUE)
    yield WORKERS.index(request.param), driver
    driver.close()


@pytest.mark.parametrize("name", PLACES)
def test_place_of_a_job_is_that_of_its_type_else_the_workers(worker: tuple[int, PoolDriver], name: str) -> None:
    column, driver = worker
    assert driver.says(driver.submit(app.job_types[name])) == PLACES[name][column]


@pytest.mark.parametrize(
    ("queue", "pool", "processes"),
    [(QUEUE, "thread", 0), (QUEUE, "async", 0), (QUEUE, "process", 1), (f"{QUEUE}_process", "thread", 1)],
)
def test_processes_are_there_from_the_start_where_a_served_queue_needs_them(
    queue: str, pool: PoolName, processes: int
) -> None:
    before = children()
    driver = mixed(pool, queue)
    try:
        assert len(children() - before) == processes
    finally:
        driver.close()
    assert children() <= before
