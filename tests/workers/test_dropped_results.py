"""What a job returns is dropped, which is said once for each type, however many processes run it."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import Client
from pinlater_workers import App, Middleware
from pinlater_workers.jobs.context import JobContext
from tests.server.running import running
from tests.workers.command import working
from tests.workers.site import Site

SAID = "which is dropped: say keep_result=True"
PROGRAM = """
from pinlater_workers import App

app = App(servers=["127.0.0.1:PORT"])

@app.job(queue="dropped")
def double(number: int) -> int:
    print("doubled", number)
    return 2 * number

@app.job(queue="dropped")
def count(number: int) -> dict[str, int]:
    print("counted", number)
    return {"number": number}

@app.job(queue="dropped")
def nothing() -> None:
    print("nothing")
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server.port


def said_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if SAID in record.getMessage()]


@pytest.mark.parametrize("pool", ["thread", "async"])
async def test_a_dropped_result_is_said_once(port: int, pool: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Site(port) as site:

        @site.app.job(queue=site.queue)
        def plain(number: int) -> int | None:
            return number or None

        @site.app.job(queue=site.queue)
        async def coroutine(number: int) -> list[int]:
            return [number]

        @site.app.job(queue=site.queue)
        def nothing(number: int) -> None: ...

        async with site.working(pool=pool):
            for job in (plain, coroutine, nothing):
                await job.enqueue_many_async([(number,) for number in range(20)])
            await site.all_succeeded(60)
    assert sorted(said_of(caplog)) == [
        f"job {name} returned a value of type {kind}, which is dropped: say keep_result=True to keep it for those "
        "who ask, store it where it belongs, or have the method `after` of middleware take it (said once for each "
        "type of job)"
        for name, kind in (("coroutine", "list"), ("plain", "int"))
    ]


class Quiet(Middleware):
    """Has no part in results."""


class Keeping(Middleware):
    """Has the results."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def after(self, context: JobContext, result: Any) -> None:
        self.results.append(result)


@pytest.mark.parametrize(("middleware", "times"), [(Quiet(), 1), (Keeping(), 0)], ids=["quiet", "keeping"])
async def test_what_middleware_takes_is_not_dropped(
    port: int, middleware: Middleware, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Site(port) as site:
        site.app.middleware = (middleware,)

        @site.app.job(queue=site.queue)
        def double(number: int) -> int:
            return 2 * number

        async with site.working():
            await double.enqueue_many_async([(1,), (2,)])
            await site.all_succeeded(2)
    assert len(said_of(caplog)) == times
    if isinstance(middleware, Keeping):
        assert sorted(middleware.results) == [2, 4]


def test_a_process_for_each_job_says_it_once_in_all(port: int, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(PROGRAM.replace("PORT", str(port)), encoding="utf-8")
    with Client(f"127.0.0.1:{port}") as client:
        client.create_queue("dropped")
    arguments = ("--app", "jobs:app", "--pool", "process", "--concurrency", "2", "--recycle-jobs", "1")
    app = App(servers=[f"127.0.0.1:{port}"])
    for name in ("double", "count"):
        named = app.job(queue="dropped", name=name)(lambda number: None)
        named.enqueue_many([(number,) for number in range(3)])
    app.job(queue="dropped", name="nothing")(lambda: None).enqueue()
    app.close()
    with working(tmp_path, *arguments) as worker:
        for text, times in (("doubled", 3), ("counted", 3), ("nothing", 1), (SAID, 2)):
            worker.wait_for(text, times=times)
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
    lines = [line for line in worker.lines if SAID in line]
    assert sorted("job double" in line for line in lines) == [False, True]
