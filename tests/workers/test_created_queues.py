"""Producers that create the queues they find missing: `App(create_queues=True)`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from pinlater.errors import QueueNotFound
from pinlater_workers import App, Flow
from tests.server.running import RunningServer, running

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def apps(server: RunningServer) -> Iterator[list[App]]:
    """Producers that create queues, and one that does not."""
    apps = [App(servers=[f"127.0.0.1:{server.port}"], create_queues=number > 0) for number in range(4)]
    yield apps
    for app in apps:
        app.close()


@pytest.fixture
def queue() -> str:
    return f"created_{next(_numbers)}"


def test_a_queue_that_is_missing_is_created_by_who_is_told_to(apps: list[App], queue: str) -> None:
    for app in apps[:2]:

        @app.job(queue=queue)
        def send(to: str) -> None: ...

        if app is apps[0]:
            with pytest.raises(QueueNotFound):
                send.enqueue("ada")
            assert queue not in app.client.queue_names()
        else:
            app.use(source="web-1")
            assert send.enqueue("ada").state() is not None
            assert send.options(queue=f"{queue}_vip").enqueue_many([("bob",)])[0].state() is not None
            assert {queue, f"{queue}_vip"} <= app.client.queue_names()


def test_many_producers_at_once_create_one_queue_and_lose_no_job(apps: list[App], queue: str) -> None:
    types = [app.job(queue=queue)(print) for app in apps[1:] for _ in range(1)]
    with ThreadPoolExecutor(6) as threads:
        handles = list(threads.map(lambda number: types[number % 3].enqueue(), range(24)))
    assert len(apps[0].client.lookup(handles)) == 24


async def test_the_same_on_an_event_loop(apps: list[App], queue: str) -> None:
    app = apps[1]

    @app.job(queue=queue)
    def send(to: str) -> None: ...

    handles = await asyncio.gather(*(send.enqueue_async(str(number)) for number in range(8)))
    assert len(await app.async_client().lookup(handles)) == 8
    await app.close_async()


def test_a_flow_finds_the_queues_of_its_stages_and_of_its_callback(apps: list[App], queue: str) -> None:
    app = apps[1]

    @app.job(queue=queue)
    def fetch(url: str) -> str:
        return url

    @app.job(queue=f"{queue}_done")
    def done(flow: object) -> None: ...

    flow = Flow(f"flow_{queue}")
    flow.stage(fetch)
    run = flow.start(["a"], on_complete=done)
    assert run.is_new
    assert {queue, f"{queue}_done"} <= app.client.queue_names()
