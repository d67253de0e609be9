"""The pages that a worker serves, over a real socket."""

from __future__ import annotations

import asyncio
import logging
import socket

import aiohttp
import pytest

from pinlater_workers.observability.metrics import QueueSummary, WorkerMetrics, WorkerView
from pinlater_workers.observability.web import MAX_CONNECTIONS, SICK_AFTER_S, is_healthy, worker_site

POLL_WAIT_S = 20.0
LIMIT_S = SICK_AFTER_S + POLL_WAIT_S


class Asked:
    """A site whose worker says what the test wants it to say."""

    def __init__(self) -> None:
        self.view = WorkerView(0.5, slots=8, running=2, queues={"mail": QueueSummary(3, "polling", running=2)})
        self.metrics = WorkerMetrics()
        self.site = worker_site(lambda: self.view, lambda: self.metrics.read(self.view), POLL_WAIT_S)

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.site.bound}{path}") as answer:
            return answer.status, await answer.text()


async def test_healthz_says_how_the_worker_is() -> None:
    asked = Asked()
    await asked.site.serve("127.0.0.1:0", MAX_CONNECTIONS)
    try:
        status, text = await asked.get("/healthz")
        assert status == 200
        assert '"seconds_since_last_good_poll": 0.5' in text
        assert '"mail": {"weight": 3, "state": "polling", "running": 2, "trouble": ""}' in text
        asked.view = WorkerView(LIMIT_S + 1, slots=8)
        status, text = await asked.get("/healthz")
        assert status == 503
        assert '"healthy": false' in text
    finally:
        await asked.site.close()


async def test_metrics_are_those_of_the_moment() -> None:
    asked = Asked()
    await asked.site.serve("127.0.0.1:0", MAX_CONNECTIONS)
    try:
        asked.metrics.started("thumbnail", wait_s=0)
        status, text = await asked.get("/metrics")
        assert status == 200
        assert 'pinlater_worker_started_total{type="thumbnail"} 1.0' in text
        assert "pinlater_worker_slots_busy 2.0" in text
    finally:
        await asked.site.close()


@pytest.mark.parametrize(
    ("view", "healthy"),
    [
        (WorkerView(LIMIT_S - 1, slots=8), True),
        (WorkerView(LIMIT_S + 1, slots=8), False),
        (WorkerView(LIMIT_S + 1, slots=8, is_stopping=True), True),
    ],
)
def test_health_goes_by_the_last_good_poll_but_for_a_worker_that_ends(view: WorkerView, healthy: bool) -> None:
    assert is_healthy(view, LIMIT_S) is healthy


async def test_an_address_that_is_taken_is_served_when_it_is_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pinlater.process_site.RETRY_S", 0.01)
    asked = Asked()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with caplog.at_level(logging.ERROR):
            await asked.site.serve(address, MAX_CONNECTIONS)
        assert asked.site.bound == ""
        assert "choose another --http" in caplog.text
    try:
        async with asyncio.timeout(60):
            while not asked.site.bound:
                await asyncio.sleep(0.01)
        assert (await asked.get("/healthz"))[0] == 200
    finally:
        await asked.site.close()
