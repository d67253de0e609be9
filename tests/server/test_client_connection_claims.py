"""Bound claims from a client's side: it reports lost connections, and stays with a server."""

from __future__ import annotations

import asyncio

import pytest

from pinlater import AsyncClient, DequeueRequest, errors
from pinlater.client.pool import PoolLimits
from pinlater.wire.codec import decode_call
from tests.faults.proxy import Proxy
from tests.server.serving import call_dequeue, serving, until
from tests.stores.process import free_port


class Told:
    """Counts how often it was called."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.mark.parametrize("asked", [True, False])
def test_a_dequeue_can_ask_that_its_claims_be_bound(asked: bool) -> None:
    request = DequeueRequest("mail", 1, release_on_disconnect=asked)
    call = decode_call(call_dequeue(1, request))
    assert bool(call.args.request.release_on_disconnect) is asked


async def test_a_connection_that_the_server_or_the_network_ends_is_told() -> None:
    told = Told()
    async with serving() as served:
        with Proxy(served.port) as proxy:
            async with AsyncClient(f"127.0.0.1:{proxy.port}", on_disconnect=told) as client:
                await client.queue_names()
                assert told.times == 0
                proxy.drop_connections()
                await until(lambda: told.times == 1)
                await client.queue_names()
                assert told.times == 1


async def test_a_connection_that_the_client_gives_up_is_told() -> None:
    told = Told()
    async with serving() as served, AsyncClient(f"127.0.0.1:{served.port}", on_disconnect=told) as client:
        served.service.hold["mail"] = asyncio.Event()
        with pytest.raises(errors.OutcomeUnknown):
            await client.dequeue(DequeueRequest("mail", 1), timeout=0.1)
        await until(lambda: told.times == 1)
        poll = asyncio.create_task(client.dequeue(DequeueRequest("mail", 1, wait_ms=9_000)))
        await until(lambda: sum(name == "dequeue" for name, _ in served.service.calls) == 2)
        poll.cancel()
        await until(lambda: told.times == 2)
        served.service.hold["mail"].set()


async def test_a_connection_closed_for_being_idle_is_told() -> None:
    told = Told()
    limits = PoolLimits(idle_s=0.01)
    async with serving() as served, AsyncClient(f"127.0.0.1:{served.port}", on_disconnect=told, pool=limits) as client:
        await client.queue_names()
        await asyncio.sleep(0.02)
        await client.queue_names()
        await until(lambda: told.times == 1)


async def test_neither_the_end_of_the_client_nor_a_connection_that_never_was_is_told() -> None:
    told = Told()
    async with serving() as served:
        client = AsyncClient(f"127.0.0.1:{served.port}", f"127.0.0.1:{free_port()}", on_disconnect=told)
        for _ in range(4):
            await client.queue_names()
        await client.close()
        await served.until(lambda: served.server.connections == 0)
    assert told.times == 0


async def test_one_that_stays_asks_one_server_until_it_fails() -> None:
    async with serving() as one, serving() as two:

        def asked() -> list[int]:
            return [len(served.service.calls) for served in (one, two)]

        with Proxy(one.port) as first, Proxy(two.port) as second:
            addresses = [f"127.0.0.1:{proxy.port}" for proxy in (first, second)]
            async with AsyncClient(*addresses, sticky_s=600.0) as client:
                for _ in range(6):
                    await client.queue_names()
                assert sorted(asked()) == [0, 6]
                (first if asked()[0] else second).cut()
                await client.queue_names()
                assert sorted(asked()) == [1, 6]
                (first if asked()[0] == 6 else second).heal()
                for _ in range(5):
                    await client.queue_names()
                assert sorted(asked()) == [6, 6]
