"""Servers behind a name: looked up again and again, those that vanish left, new ones found."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from pinlater import AsyncClient, Client, DequeueRequest, errors
from pinlater.client import server_list
from pinlater.client.addresses import Address, DnsName
from tests.server.serving import Served, serving, until
from tests.stores.process import free_port

pytestmark = pytest.mark.usefixtures("way")


class Names:
    """A resolver that says what the test wants; counts how often it is asked."""

    def __init__(self, *ports: int) -> None:
        self.ports = ports
        self.fails = False
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, name: str, port: int) -> Iterable[Address]:
        self.asked.append((name, port))
        if self.fails:
            raise OSError(-2, "Name or service not known")
        return [Address("127.0.0.1", each) for each in self.ports]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is looked up by every call."""
    monkeypatch.setattr(server_list, "LOOK_UP_EVERY_S", 0.0)


def asked(*servers: Served) -> list[int]:
    return [len(served.service.calls) for served in servers]


async def test_a_name_of_this_machine_leads_to_its_server() -> None:
    async with serving() as served, AsyncClient(f"dns:localhost:{served.port}") as client:
        for _ in range(5):
            assert await client.queue_names() == {"mail", "images"}
        assert client.servers == [DnsName("localhost", served.port)]


async def test_every_address_of_a_name_is_a_server_and_the_name_is_looked_up_once() -> None:
    async with serving() as one, serving() as two:
        names = Names(one.port, two.port, one.port)
        async with AsyncClient("dns:queue.internal:77", resolve=names) as client:
            await asyncio.gather(*(client.queue_names() for _ in range(10)))
            for _ in range(10):
                await client.queue_names()
            assert asked(one, two) == [10, 10]
            assert names.asked == [("queue.internal", 77)]


async def test_servers_join_and_vanish_with_the_name(often: None) -> None:
    async with serving() as one, serving() as two, serving() as three:
        names = Names(one.port, two.port)
        async with AsyncClient("dns:queue", f"127.0.0.1:{one.port}", resolve=names) as client:
            for _ in range(4):
                await client.queue_names()
            await until(lambda: 0 not in asked(one, two))
            names.ports = (three.port,)
            await looked_up(client, names)
            await until(lambda: two.server.connections == 0)
            before = asked(two)
            for _ in range(6):
                await client.queue_names()
            assert asked(two) == before
            assert asked(three)[0] > 0
            assert one.server.connections == 1, "its own address was given too"


async def test_a_call_under_way_at_a_server_that_vanishes_is_answered(often: None) -> None:
    async with serving() as one, serving() as two:
        names = Names(one.port)
        async with AsyncClient("dns:queue", resolve=names) as client:
            one.service.hold["mail"] = asyncio.Event()
            poll = asyncio.create_task(client.dequeue(DequeueRequest("mail", 1, wait_ms=9_000)))
            await one.service.held.wait()
            names.ports = (two.port,)
            await until_asked(client, two)
            assert one.server.connections == 1
            one.service.hold["mail"].set()
            assert await poll == []
            await one.until(lambda: one.server.connections == 0)


async def looked_up(client: AsyncClient, names: Names) -> None:
    """Once more, and the answer is known to the client. A look-up may be under way that asked before."""
    times = len(names.asked)
    while len(names.asked) < times + 2:
        await client.queue_names()


async def until_asked(client: AsyncClient, served: Served) -> None:
    while asked(served) == [0]:
        await client.queue_names()


async def test_a_name_without_an_answer_is_unreachable_and_named_and_later_the_last_answer_counts(often: None) -> None:
    async with serving() as served:
        names = Names(served.port)
        names.fails = True
        async with AsyncClient("dns:queue.internal:77", resolve=names) as client:
            with pytest.raises(errors.ServerUnreachable, match=r"dns:queue\.internal:77: Name or service not known"):
                await client.queue_names()
            names.fails = False
            await client.queue_names()
            names.fails = True
            await looked_up(client, names)
            names.fails, names.ports = False, ()
            await looked_up(client, names)
            await client.queue_names()


async def test_a_name_that_nobody_knows_is_unreachable() -> None:
    async with AsyncClient("dns:no-such-host.invalid") as client:
        with pytest.raises(errors.ServerUnreachable, match=r"dns:no-such-host\.invalid:9010: "):
            await client.queue_names()


async def test_a_server_that_fails_has_its_name_looked_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_list, "STALE_S", 0.0)
    async with serving() as served:
        names = Names(free_port())
        async with AsyncClient("dns:queue", resolve=names) as client:
            with pytest.raises(errors.ServerUnreachable):
                await client.queue_names(timeout=0.2)
            names.ports = (served.port,)
            assert await client.queue_names() == {"mail", "images"}


async def test_a_client_that_is_closed_leaves_no_look_up_behind() -> None:
    forever = asyncio.Event()

    async def silent(name: str, port: int) -> Iterable[Address]:
        await forever.wait()
        return []

    client = AsyncClient("dns:queue", resolve=silent)
    with pytest.raises(errors.ServerUnreachable, match="dns:queue:9010: no answer in time"):
        await client.queue_names(timeout=0.01)
    await client.close()


def test_clients_of_programs_without_asyncio_know_names_too() -> None:
    with Client("dns:localhost:1", "a") as client:
        assert [str(each) for each in client.servers] == ["dns:localhost:1", "a:9010"]
