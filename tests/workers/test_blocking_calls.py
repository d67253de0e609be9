"""Blocking calls where an event loop runs: they are carried out as ever, and said once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.client import background
from pinlater_workers import App
from tests.server.running import running


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with running(tmp_path_factory.mktemp("server")) as server:
        app = App(servers=[f"127.0.0.1:{server.port}"])
        app.client.create_queue("mail")
        yield app
        app.close()


def test_a_blocking_enqueue_in_a_coroutine_names_the_one_to_await_and_where_it_stands(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job(queue="mail")
    def send(to: str) -> None: ...

    async def page() -> None:
        assert send.enqueue("ada") != send.options(delay=5).enqueue("bob")
        assert send.enqueue_many([("cy",)])
        assert await asyncio.to_thread(send.enqueue, "dan")

    monkeypatch.setattr(background, "SAID", set())
    assert send.enqueue("eve")
    assert not caplog.messages
    asyncio.run(page())
    asyncio.run(page())
    (said,) = caplog.messages
    assert "await job.enqueue_async(...)" in said
    assert f"{Path(__file__)}:" in said
    assert ", in page: " in said


def test_each_blocking_call_of_a_client_is_said_by_its_name(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def page() -> None:
        assert "mail" in app.client.queue_names()
        app.client.lookup(["mail:s1:p1:1790000000000000"])

    monkeypatch.setattr(background, "SAID", set())
    asyncio.run(page())
    assert [text.partition(" of a Client")[0] for text in caplog.messages] == ["queue_names()", "lookup()"]
