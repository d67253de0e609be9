"""One address cannot take every connection, and what it has too many of are its own idle ones."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from pinlater.model import DequeueRequest, Job
from pinlater.model.connection_ref import host_of
from tests.server.running import Plain, every, running
from tests.server.serving import Raw, call_dequeue, call_enqueue, call_names, connect_from, serving


async def answers(raw: Raw) -> bool:
    """False where the server has closed the connection."""
    try:
        raw.send_framed(call_names(1))
        await raw.reply()
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return True


async def test_an_address_that_has_its_share_loses_its_longest_idle_connection() -> None:
    async with serving(max_connections=6) as served:
        mine = []
        for number in range(3):
            mine.append(await served.connect())
            await served.until(lambda number=number: served.server.connections == number + 1)  # type: ignore[misc]
        late = await served.connect()
        assert await mine[0].until_closed() == b""
        assert [await answers(raw) for raw in [*mine[1:], late]] == [True, True, True]
        assert served.server.counters["idle_closed_for_peer"] == 1


@pytest.mark.parametrize("how", ["a call in flight", "half a message", "an answer not taken"])
async def test_a_connection_that_is_at_work_is_not_idle(how: str) -> None:
    async with serving(max_connections=4) as served:
        busy, idle = await served.connect(), await served.connect()
        gate = served.service.hold["slow"] = asyncio.Event()
        if how == "a call in flight":
            busy.send_framed(call_enqueue(1, Job(b"x"), queue="slow"))
            await served.until(lambda: len(served.service.calls) == 1)
        elif how == "half a message":
            busy.send(b"\x00\x00")
            await served.until(lambda: served.server.buffered_bytes > 0)
        else:
            served.service.jobs["mail"] = [Job(bytes(1_000_000)) for _ in range(10)]
            busy.writer.transport.pause_reading()  # type: ignore[attr-defined]
            busy.send_framed(call_dequeue(1, DequeueRequest("mail", 10)))
            await served.until(lambda: served.server.buffered_bytes > 1_000_000)
        late = await served.connect()
        assert await idle.until_closed() == b""
        assert await answers(late)
        assert served.server.connections == 2
        gate.set()


async def test_who_is_sending_stays_where_no_rules_tell_callers_apart() -> None:
    async with serving(max_connections=10, max_peer_connections=1) as served:
        whole = len(call_names(1)).to_bytes(4, "big") + call_names(1)
        sending = await served.connect()
        sending.send(whole[:6])
        await served.until(lambda: served.server.buffered_bytes > 0)
        assert await (await served.connect()).until_closed() == b""
        sending.send(whole[6:])
        assert (await sending.reply()).success == {"mail", "images"}


async def test_where_none_is_idle_the_newcomer_is_refused() -> None:
    async with serving(max_connections=10, max_peer_connections=2) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        busy = [await served.connect() for _ in range(2)]
        for raw in busy:
            raw.send_framed(call_enqueue(1, Job(b"x"), queue="slow"))
        await served.until(lambda: len(served.service.calls) == 2)
        assert await (await served.connect()).until_closed() == b""
        assert served.server.counters["peer_connections_refused"] == 1
        assert await answers(await connect_from(served, "127.0.0.2"))
        gate.set()
        assert [(await raw.reply()).seqid for raw in busy] == [1, 1]


async def test_another_address_gets_in_although_all_room_is_taken() -> None:
    async with serving(max_connections=6, max_peer_connections=5) as served:
        many = [await served.connect() for _ in range(5)]
        other = await connect_from(served, "127.0.0.2")
        await served.until(lambda: served.server.connections == 6)
        third = await connect_from(served, "127.0.0.3")
        assert await answers(third)
        assert await answers(other)
        assert await many[0].until_closed() == b""
        assert served.server.counters["idle_closed_for_others"] == 1


async def test_what_an_address_has_is_forgotten_when_its_last_connection_is_gone() -> None:
    async with serving(max_connections=4) as served:
        for _ in range(5):
            raw = await served.connect()
            assert await answers(raw)
            await raw.close()
            await served.until(lambda: served.server.connections == 0)
        assert served.server.counters["idle_closed_for_peer"] == 0


async def test_one_address_leaves_room_for_others_over_all_processes_of_a_server(tmp_path: Path, redis_places) -> None:  # type: ignore[no-untyped-def]
    arguments = ["--store", f"s1={redis_places.fresh()}", "--processes", "2", "--max-connections", "20"]
    with running(tmp_path, *arguments) as server:
        socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
        for sock in socks:
            sock.setblocking(False)

        def still_open() -> int:
            def is_open(sock: socket.socket) -> bool:
                try:
                    return sock.recv(1, socket.MSG_PEEK) != b""
                except BlockingIOError:
                    return True
                except OSError:
                    return False

            return sum(map(is_open, socks))

        await every(0.05, lambda: still_open() == 20)
        other = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
        plain = Plain(*other)
        await plain.create_queue("mail")
        await plain.enqueue("mail", b"x")
        assert len(await plain.dequeue("mail")) == 1
        assert still_open() == 20
        await plain.close()
        for sock in socks:
            sock.close()


def test_addresses_are_those_that_a_caller_cannot_choose() -> None:
    assert host_of(("10.0.0.1", 5)) == "10.0.0.1"
    assert host_of(("2001:db8::1", 5, 0, 0)) == host_of(("2001:db8::2:3", 6, 0, 0))
    assert host_of(("fe80::1%eth0", 5, 0, 2)) == "fe80::/64"
    assert host_of(None) == "unknown"
