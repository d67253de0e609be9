"""The end of a server: what was read is answered; connections are handed over at a boundary, or late calls refused."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from pinlater.model import Ack, DequeueRequest, Job
from pinlater.server.limits import ServerLimits
from pinlater.server.thrift_server import ThriftServer
from tests.server.memory_api import EchoService
from tests.server.raw_thrift import framed
from tests.server.serving import Raw, Served, bound_socket, call_dequeue, call_enqueue, call_names, serving, until

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
with contextlib.suppress(ModuleNotFoundError):
    import uvloop

    LOOPS.append(uvloop.new_event_loop)
ON_EACH_LOOP = pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"][: len(LOOPS)])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


async def stopped(served: Served, timeout_s: float = 5.0) -> None:
    await served.server.drain(None, timeout_s)


async def test_what_was_read_is_answered_and_later_calls_are_refused() -> None:
    async with serving(drain_linger_s=0.3) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        busy, late = await served.connect(), await served.connect()
        busy.send_framed(call_enqueue(1, Job(b"x"), queue="slow"))
        await served.service.held.wait()
        draining = asyncio.ensure_future(stopped(served))
        await served.service.draining.wait()
        late.send_framed(call_names(2))
        refusal = (await late.reply()).exception
        assert (refusal.reason, refusal.retryable, refusal.acks_applied) == ("DRAINING", True, None)
        late.send_framed(call_dequeue(3, DequeueRequest("mail", 1, succeeded=[Ack("mail:s1:p1:1790000000000000")])))
        refusal = (await late.reply()).exception
        assert (refusal.reason, refusal.acks_applied) == ("DRAINING", False)
        assert served.server.refusal is not None
        assert served.server.refusal.__traceback__ is None  # it would hold every call that was refused
        assert await late.until_closed() == b""
        gate.set()
        assert len((await busy.reply()).success.job_descriptors) == 1
        assert await busy.until_closed() == b""
        await draining
        assert [name for name, _ in served.service.calls] == ["enqueue"]


async def test_nobody_can_connect_to_a_stopped_server() -> None:
    async with serving() as served:
        await stopped(served)
        with pytest.raises(OSError, match="Connect call failed"):
            await served.connect()


async def test_an_idle_server_ends_within_its_linger_time() -> None:
    async with serving(drain_linger_s=0.1) as served:
        raw = await served.connect()
        raw.send_framed(call_names(1))
        await raw.reply()
        async with asyncio.timeout(1):
            await stopped(served, 60)
        assert await raw.until_closed() == b""


async def test_a_call_that_takes_longer_than_the_bound_is_broken_off() -> None:
    async with serving() as served:
        served.service.hold["slow"] = asyncio.Event()
        raw = await served.connect()
        raw.send_framed(call_enqueue(1, Job(b"x"), queue="slow"))
        await served.service.held.wait()
        async with asyncio.timeout(2):
            await stopped(served, 0.1)
        assert await raw.until_closed() == b""
        assert (served.server.counters["aborted_at_stop"], served.server.connections) == (1, 0)


async def test_a_long_poll_is_answered_at_once_when_the_server_stops() -> None:
    async with serving() as served:
        served.service.hold["mail"] = asyncio.Event()
        raw = await served.connect()
        raw.send_framed(call_dequeue(1, DequeueRequest("mail", 5, wait_ms=60_000)))
        await served.service.held.wait()
        draining = asyncio.ensure_future(stopped(served))
        assert (await raw.reply()).success.jobs == {}
        await draining


class Relay:
    """An old server whose connections go to a new one."""

    def __init__(
        self, old: ThriftServer, new: ThriftServer, services: tuple[EchoService, EchoService], port: int
    ) -> None:
        self.old, self.new, self.port = old, new, port
        self.old_service, self.new_service = services
        self.handed_over = 0

    def pass_on(self, connection: socket.socket) -> None:
        self.handed_over += 1
        self.new.adopt(connection)

    async def roll(self, timeout_s: float = 5.0) -> None:
        await self.old.drain(self.pass_on, timeout_s)


@contextlib.asynccontextmanager
async def relay() -> AsyncIterator[Relay]:
    services = EchoService(), EchoService()
    old, new = (ThriftServer(service, ServerLimits(drain_linger_s=0)) for service in services)
    with bound_socket() as listener:
        await old.start(listener)
        await new.start(listener)
        yield Relay(old, new, services, listener.getsockname()[1])
    await old.drain(None, 5)
    await new.drain(None, 5)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Raw]:
    raw = Raw(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield raw
    finally:
        await raw.close()


async def only_old(relayed: Relay) -> None:
    """Both accept from one socket; stop the new one from it, so that all connections begin at the old one."""
    relayed.new.stop_accepting()


@ON_EACH_LOOP
def test_an_idle_connection_goes_on_at_the_new_server(new_loop: NewLoop) -> None:
    async def case() -> None:
        async with relay() as relayed:
            await only_old(relayed)
            async with connected(relayed.port) as raw:
                raw.send_framed(call_names(1))
                assert (await raw.reply()).seqid == 1
                await relayed.roll()
                raw.send_framed(call_enqueue(2, Job(b"x")))
                assert (await raw.reply()).seqid == 2
                assert relayed.handed_over == 1
                assert [name for name, _ in relayed.new_service.calls] == ["enqueue"]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(case())


@ON_EACH_LOOP
def test_half_a_frame_is_read_to_its_end_before_the_connection_goes(new_loop: NewLoop) -> None:
    async def case() -> None:
        async with relay() as relayed:
            await only_old(relayed)
            async with connected(relayed.port) as raw:
                call = framed(call_enqueue(1, Job(b"x" * 100)))
                raw.send(call[:50])
                await until(lambda: relayed.old.buffered_bytes > 0)
                rolling = asyncio.ensure_future(relayed.roll())
                await relayed.old_service.draining.wait()
                await until(lambda: relayed.old.is_draining)
                raw.send(call[50:] + framed(call_names(2)))
                assert [(await raw.reply()).seqid for _ in range(2)] == [1, 2]
                await rolling
                raw.send_framed(call_names(3))
                assert (await raw.reply()).seqid == 3
                assert relayed.new_service.calls == [("queue_names", None)]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(case())


@ON_EACH_LOOP
def test_under_load_from_64_connections_no_call_fails(new_loop: NewLoop) -> None:
    async def case() -> None:
        async with relay() as relayed:
            await only_old(relayed)
            answered = [0] * 64
            stop = asyncio.Event()

            async def call_and_call(caller: int) -> None:
                async with connected(relayed.port) as raw:
                    while not stop.is_set():
                        raw.send_framed(call_enqueue(answered[caller], Job(b"x" * (caller * 50)), queue=f"q{caller}"))
                        reply = await raw.reply()
                        assert (reply.seqid, reply.exception) == (answered[caller], None)
                        assert reply.success.job_descriptors[0].startswith(f"q{caller}:")
                        answered[caller] += 1

            callers = [asyncio.ensure_future(call_and_call(caller)) for caller in range(64)]
            await until(lambda: min(answered) >= 5)
            await relayed.roll()
            assert (relayed.old.connections, relayed.handed_over) == (0, 64)
            before = list(answered)
            await until(lambda: all(now >= then + 5 for now, then in zip(answered, before, strict=True)))
            stop.set()
            await asyncio.gather(*callers)
            done = len(relayed.old_service.calls) + len(relayed.new_service.calls)
            assert done == sum(answered)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(case())


async def test_a_connection_that_cannot_be_handed_over_is_closed() -> None:
    async with serving() as served:
        raw = await served.connect()
        raw.send_framed(call_names(1))
        await raw.reply()

        def nobody(connection: socket.socket) -> None:
            raise OSError("the receiver is gone")

        await served.server.drain(nobody, 5)
        assert await raw.until_closed() == b""
