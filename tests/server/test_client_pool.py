"""The connections of a client: how many, who shares one, which are used again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from pinlater import Ack, AsyncClient, DequeueRequest, Job, JobFilter, JobState, errors
from pinlater.client.pool import PoolLimits
from tests.server.serving import Served, serving

PENDING = JobFilter("mail", JobState.PENDING)


@contextlib.asynccontextmanager
async def connected(timeout: float = 10.0, **limits: float) -> AsyncIterator[tuple[Served, AsyncClient]]:
    pool = PoolLimits(**limits)  # type: ignore[arg-type]
    async with serving() as served, AsyncClient(f"127.0.0.1:{served.port}", timeout=timeout, pool=pool) as client:
        yield served, client


async def test_nothing_is_opened_before_it_is_needed() -> None:
    async with connected() as (served, client):
        assert served.server.connections == 0
        await client.queue_names()
        await client.queue_names()
        assert served.server.connections == 1


async def test_connections_are_bounded_and_short_calls_share_them() -> None:
    async with connected(connections=3, depth=2) as (served, client):
        release = served.service.hold["mail"] = asyncio.Event()
        calls = [asyncio.create_task(client.enqueue("mail", [Job(b"")] * 2)) for _ in range(20)]
        await served.until(lambda: len(served.service.calls) == 6)
        await asyncio.sleep(0.05)
        assert (served.server.connections, len(served.service.calls)) == (3, 6)
        release.set()
        assert len(await asyncio.gather(*calls)) == 20
        assert served.server.connections == 3


async def test_a_call_that_may_take_long_shares_its_connection_with_none() -> None:
    async with connected(connections=2, depth=4) as (served, client):
        release = served.service.hold["mail"] = asyncio.Event()
        held = [asyncio.create_task(client.dequeue(DequeueRequest("mail", 1))) for _ in range(2)]
        await served.until(lambda: len(served.service.calls) == 2)
        waiting = [asyncio.create_task(client.ack("mail", [Ack("d")])) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert len(served.service.calls) == 2
        release.set()
        await asyncio.gather(*held, *waiting)


async def test_long_polls_take_no_connection_from_others() -> None:
    async with connected(connections=1) as (served, client):
        release = served.service.hold["mail"] = asyncio.Event()
        polls = [asyncio.create_task(client.dequeue(DequeueRequest("mail", 1, wait_ms=9_000))) for _ in range(5)]
        await served.until(lambda: len(served.service.calls) == 5)
        assert await client.count(PENDING) == 7
        assert served.server.connections == 6
        release.set()
        await asyncio.gather(*polls)


async def test_a_caller_that_stops_waiting_for_a_connection_leaves_it_to_the_next() -> None:
    async with connected(connections=1, depth=1) as (served, client):
        release = served.service.hold["mail"] = asyncio.Event()
        held = asyncio.create_task(client.enqueue("mail", [Job(b"")] * 2))
        await served.service.held.wait()
        waiting = [asyncio.create_task(client.count(PENDING)) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        release.set()
        await held
        waiting[1].cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert results[2:] == [7, 7]


async def test_waiting_for_a_connection_counts_as_time_of_the_call() -> None:
    async with connected(connections=1, depth=1) as (served, client):
        release = served.service.hold["mail"] = asyncio.Event()
        held = asyncio.create_task(client.enqueue("mail", [Job(b"")] * 2))
        await served.service.held.wait()
        with pytest.raises(errors.Overloaded, match=r"was not sent.*no connection became free"):
            await client.enqueue("mail", [Job(b"")] * 2, timeout=0.1)
        release.set()
        await held


async def test_waiting_callers_come_before_newcomers_and_in_their_order() -> None:
    async with connected(connections=2, depth=1, timeout=5.0) as (_, client):
        cycles = [0] * 8

        async def work(number: int) -> None:
            for _ in range(20):
                await client.enqueue("mail", [Job(b"")] * 2)
                await client.count(PENDING)
                cycles[number] += 1
                assert max(cycles) - min(cycles) <= 2, cycles

        await asyncio.gather(*(work(number) for number in range(8)))


async def test_a_call_that_needs_a_connection_alone_is_not_held_off_by_those_that_share() -> None:
    async with connected(connections=1, depth=4) as (_, client):
        ended = asyncio.Event()

        async def share() -> None:
            while not ended.is_set():
                await client.enqueue("mail", [Job(b"")] * 2)

        sharing = [asyncio.create_task(share()) for _ in range(8)]
        await asyncio.sleep(0)
        assert await client.count(PENDING, timeout=2.0) == 7
        ended.set()
        await asyncio.gather(*sharing)


async def test_when_one_that_needs_a_connection_alone_stops_waiting_those_behind_it_share() -> None:
    async with connected(connections=1, depth=2) as (served, client):
        release = served.service.hold["mail"] = asyncio.Event()
        held = asyncio.create_task(client.enqueue("mail", [Job(b"")] * 2))
        await served.service.held.wait()
        alone = asyncio.create_task(client.count(PENDING))
        late = asyncio.create_task(client.count(PENDING, timeout=0.05))
        await asyncio.sleep(0)
        behind = asyncio.create_task(client.enqueue("images", [Job(b"")] * 2))
        await asyncio.sleep(0)
        alone.cancel()
        with pytest.raises(errors.Overloaded):
            await late
        await served.until(lambda: len(served.service.calls) == 2)
        release.set()
        await asyncio.gather(held, behind)


async def test_one_that_waits_opens_a_connection_in_place_of_one_that_broke() -> None:
    async with connected(connections=1, depth=1) as (served, client):
        served.service.hold["mail"] = asyncio.Event()
        held = asyncio.create_task(client.enqueue("mail", [Job(b"")] * 2))
        await served.service.held.wait()
        waiting = [asyncio.create_task(client.count(PENDING)) for _ in range(5)]
        await asyncio.sleep(0)
        for connection in served.server.open_connections:
            connection.abort()
        await asyncio.wait([held])
        waiting[0].cancel()  # it holds the leave to connect
        assert await asyncio.gather(*waiting[1:]) == [7] * 4
        with pytest.raises(errors.OutcomeUnknown):
            await held


async def test_too_many_callers_waiting_for_a_connection_are_refused() -> None:
    async with connected(60.0, connections=1, depth=1, waiting_calls=2) as (served, client):
        release = served.service.hold["mail"] = asyncio.Event()
        held = asyncio.create_task(client.enqueue("mail", [Job(b"")] * 2))
        await served.service.held.wait()
        waiting = [asyncio.create_task(client.queue_names()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(errors.Overloaded, match="waiting for a connection"):
            await client.queue_names(timeout=0.1)
        release.set()
        await asyncio.gather(held, *waiting)


async def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async with connected(idle_s=0.02) as (served, client):
        for _ in range(3):
            await client.queue_names()
            await asyncio.sleep(0.03)
        await client.queue_names()
        await served.until(lambda: served.server.connections == 1)


async def test_a_connection_that_the_server_closed_is_replaced() -> None:
    async with connected() as (served, client):
        for _ in range(3):
            await client.enqueue("mail", Job(b""))
            for connection in served.server.open_connections:
                connection.abort()
            await served.until(lambda: served.server.connections == 0)
            await asyncio.sleep(0)
        assert len(served.service.jobs["mail"]) == 3


async def test_a_closed_client_leaves_no_connection() -> None:
    async with connected() as (served, client):
        await asyncio.gather(*(client.count(PENDING) for _ in range(20)))
        opening = asyncio.create_task(client.dequeue(DequeueRequest("mail", 1, wait_ms=5)))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(errors.PinLaterError, match="client was closed"):
            await opening
        await served.until(lambda: served.server.connections == 0)
