"""A network between workers and server that stalls, with the workers' long polls open behind it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pinlater import AsyncClient, DequeueRequest
from pinlater.errors import PinLaterError
from pinlater.model import JobState
from tests.faults.proxy import Proxy
from tests.server.running import RunningServer, running
from tests.stores.places import Places
from tests.workers.site import Site, until

LEASE_S = 3.0
HANDED_OUT = 3
"""So often to callers that are gone: with the true expiry before, more than the crash budget allows."""

WITHIN_S = 60.0


def undelivered(server: RunningServer) -> int:
    return sum(event["event"] == "jobs_undelivered" for event in server.events)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "redis", "mysql", "postgres"])
async def test_a_job_that_a_stalled_network_hides_from_its_workers_succeeds_with_attempts_left(
    tmp_path: Path, request: pytest.FixtureRequest, store: str
) -> None:
    places: Places = request.getfixturevalue(f"{store}_places")
    began, may_end, runs = threading.Event(), threading.Event(), []
    with running(tmp_path, "--store", f"1={places.fresh()}") as server, Proxy(server.port) as proxy:
        async with AsyncExitStack() as stack:
            site = await stack.enter_async_context(Site(proxy.port, seen_port=server.port))

            @site.app.job(queue=site.queue, attempts=3)
            def work() -> None:
                runs.append(1)
                began.set()
                may_end.wait(WITHIN_S)

            for _ in range(4):
                await stack.enter_async_context(site.working(lease_s=LEASE_S, concurrency=1))
            descriptor = await work.enqueue_async()
            await until(began.is_set)
            gone = [await stack.enter_async_context(AsyncClient(f"127.0.0.1:{proxy.port}")) for _ in range(HANDED_OUT)]
            wants = DequeueRequest(
                site.queue, 1, wait_ms=60_000, claim_timeout_ms=int(LEASE_S * 1000), confirms_receipt=True
            )
            polls = [asyncio.create_task(client.dequeue(wants)) for client in gone]
            await asyncio.sleep(0.5)
            proxy.black_hole()
            may_end.set()
            async with asyncio.timeout(WITHIN_S):
                while undelivered(server) < HANDED_OUT:
                    await asyncio.sleep(0.1)
            for poll in polls:
                poll.cancel()
                with contextlib.suppress(asyncio.CancelledError, PinLaterError):
                    await poll
            proxy.heal()
            async with asyncio.timeout(WITHIN_S):
                while (info := await site.info(descriptor)).state is not JobState.SUCCEEDED:
                    assert info.state is not JobState.FAILED, info.custom_status
                    await asyncio.sleep(0.1)
            assert info.attempts_remaining >= 1
            assert info.crashes <= 1
            assert len(runs) <= 2
