"""Connections that hold claims, and the ways in which they end: a server and its service in this process."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from pinlater.model import Ack, DequeueRequest, Job, JobState
from pinlater.server.limits import ServerLimits
from pinlater.server.thrift_server import ThriftServer
from pinlater.service import ServiceSettings
from pinlater.wire.convert import acks_to_wire, dequeue_to_wire
from tests.server.binding import beat, enqueue, fall_silent, info, is_held, take, take_one
from tests.server.running import Plain
from tests.server.serving import Served, serving, until
from tests.unit.breaking import settled
from tests.unit.stand import Stand, stand

NEVER_ENDS = ServiceSettings(release_grace_ms=600_000)
AT_ONCE = ServiceSettings(release_grace_ms=0)


@dataclass
class Bench:
    """A server over a whole service, and somebody who looks on."""

    stand: Stand
    served: Served
    onlooker: Plain
    callers: list[Plain]

    @property
    def bound(self) -> int:
        return self.stand.service.bound_claims

    @property
    def graces(self) -> int:
        """Connections that broke and whose grace is not over."""
        return self.stand.service.connection_claims.in_grace

    async def caller(self) -> Plain:
        caller = await Plain.to(self.served.port)
        self.callers.append(caller)
        return caller

    async def worker(self, jobs: int = 1) -> tuple[Plain, list[Any]]:
        """A connection that holds so many new jobs."""
        caller = await self.caller()
        await enqueue(caller, *[Job(b"", attempts_allowed=3)] * jobs)
        return caller, await take(caller, jobs)

    def sockets(self) -> list[Any]:
        """The server's ends, without that of the onlooker."""
        port = self.onlooker.writer.get_extra_info("sockname")[1]
        ends = [each.socket for each in self.served.server.open_connections]
        return [end for end in ends if end.getpeername()[1] != port]


@asynccontextmanager
async def bench(settings: ServiceSettings = NEVER_ENDS, **limits: Any) -> AsyncIterator[Bench]:
    async with stand(settings=settings) as at, serving(at.service, at.clock, **limits) as served:
        it = Bench(at, served, await Plain.to(served.port), [])
        try:
            yield it
        finally:
            for caller in (it.onlooker, *it.callers):
                await caller.close()


def end(caller: Plain) -> None:
    """As the kernel does it for a process that is killed and had read everything."""
    caller.writer.close()


def reset(caller: Plain) -> None:
    """As the kernel does it for a process that is killed and had not."""
    sock = caller.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.writer.close()


@pytest.mark.parametrize("how", [end, reset, Plain.half_close], ids=["end", "reset", "half an end"])
async def test_the_claims_of_a_connection_that_ends_are_released(how: Any) -> None:
    async with bench(AT_ONCE) as at:
        caller, jobs = await at.worker(3)
        assert at.bound == 3
        how(caller)
        for job in jobs:
            while (await info(at.onlooker, job)).state is not JobState.PENDING:
                await asyncio.sleep(0.01)
            assert (await info(at.onlooker, job)).attempts_remaining == 2
        assert at.bound == 0


async def test_nothing_is_released_while_the_connection_lives_or_the_grace_lasts() -> None:
    async with bench() as at:
        caller, (job,) = await at.worker()
        await beat(caller, job)
        assert at.graces == 0
        end(caller)
        await at.served.until(lambda: at.graces == 1)
        assert await is_held(at.onlooker, job)


async def test_the_grace_begins_when_the_caller_ends_and_not_when_its_last_call_does() -> None:
    async with bench() as at:
        caller, _ = await at.worker()
        gate = at.stand.stores[0].hold("ack")
        await caller.send("ackDequeuedJobs", request=acks_to_wire("mail", [Ack("mail:s1:p1:1000000000000000")], []))
        await at.stand.stores[0].until_begun("ack")
        caller.half_close()
        await at.served.until(lambda: at.graces == 1)
        gate.set()
        assert (await caller.answer()).exception is None


async def test_jobs_that_were_acked_are_not_touched() -> None:
    async with bench(AT_ONCE) as at:
        caller, (one, two, three) = await at.worker(3)
        await caller.call("ackDequeuedJobs", request=acks_to_wire("mail", [Ack(one.descriptor)], []))
        riding = DequeueRequest("mail", 1, failed=[Ack(two.descriptor, permanent=True)])
        await caller.call("dequeueJobs", request=dequeue_to_wire(riding))
        assert at.bound == 1
        end(caller)
        while (await info(at.onlooker, three)).state is not JobState.PENDING:
            await asyncio.sleep(0.01)
        assert (await info(at.onlooker, one)).state is JobState.SUCCEEDED
        assert (await info(at.onlooker, two)).crashes == 0


async def test_a_checkpoint_by_another_connection_holds_the_claim_from_then_on() -> None:
    async with bench() as at:
        first, (job,) = await at.worker()
        second = await at.caller()
        end(first)
        await at.served.until(lambda: at.graces == 1)
        at.stand.clock.tick(1)
        await beat(second, job)
        end(second)
        await at.served.until(lambda: at.graces == 2)
        assert at.bound == 1


async def test_a_connection_that_was_silent_for_too_long_for_the_server_is_a_broken_one() -> None:
    async with bench(AT_ONCE, idle_timeout_s=0.2) as at:
        caller, (job,) = await at.worker()
        assert await caller.reader.read() == b""
        again = await at.caller()
        while not (jobs := await take(again)):
            await asyncio.sleep(0.01)
        assert jobs[0].descriptor == job.descriptor


async def test_jobs_whose_answer_could_not_be_given_go_back_with_all_attempts_and_are_not_released() -> None:
    async with bench(AT_ONCE) as at:
        caller = await at.caller()
        await enqueue(caller, Job(b""))
        gate = at.stand.stores[0].hold("claim")
        request = dequeue_to_wire(DequeueRequest("mail", 1, release_on_disconnect=True))
        await caller.send("dequeueJobs", request=request)
        await at.stand.stores[0].until_begun("claim")
        reset(caller)
        await at.served.until(lambda: at.served.server.connections == 1)
        gate.set()
        await at.stand.stores[0].until_begun("requeue")
        again = await at.caller()
        while not (jobs := await take(again)):
            await asyncio.sleep(0.01)
        assert (jobs[0].attempts_remaining, (await info(again, jobs[0])).crashes) == (2, 0)
        assert at.stand.stores[0].begun["expire_disconnected"] == 0


async def test_a_server_that_ends_leaves_its_claims_to_their_time_outs() -> None:
    async with stand(settings=AT_ONCE) as at:
        async with serving(at.service) as served:
            caller = await Plain.to(served.port)
            await enqueue(caller, Job(b""))
            job = await take_one(caller)
        await settled()
        assert at.service.bound_claims == 0
        assert at.stores[0].begun["expire_disconnected"] == 0
        assert (await at.service.lookup([job.descriptor]))[job.descriptor].state is JobState.IN_PROGRESS
        await caller.close()


async def test_a_connection_that_is_handed_over_keeps_its_claims_and_a_checkpoint_binds_them_anew() -> None:
    """As between the processes of a server; here both have the same service."""
    async with stand(settings=AT_ONCE) as at:
        heir = ThriftServer(at.service, ServerLimits(drain_linger_s=0.0))
        await heir.start()
        async with serving(at.service) as served:
            caller = await Plain.to(served.port)
            await enqueue(caller, Job(b""))
            job = await take_one(caller)
            await served.server.drain(heir.adopt, 10)
            await settled()
            assert at.service.bound_claims == 0
            assert at.stores[0].begun["expire_disconnected"] == 0
            at.clock.tick(1)
            await beat(caller, job)
            assert at.service.bound_claims == 1
            await caller.close()
            await until(lambda: at.service.bound_claims == 0)
            async with asyncio.timeout(60):
                while not await at.dequeue():
                    await asyncio.sleep(0.01)
        await heir.drain(None, 10)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux can be told")
async def test_only_connections_that_hold_claims_are_probed() -> None:
    async with bench() as at:
        caller = await at.caller()
        await enqueue(caller, Job(b""), Job(b""))
        await take(caller, release_on_disconnect=False)
        (sock,) = at.sockets()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
        await take_one(caller)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        assert [sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names] == [1, 1, 2, 3_000]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux can be told")
async def test_a_machine_that_loses_its_power_breaks_its_connections_and_has_a_part_of_its_grace_behind_it() -> None:
    """With a grace of a second nothing is left of it when the kernel reports that nobody answers."""
    async with bench(ServiceSettings(release_grace_ms=1_000)) as at:
        caller, (job,) = await at.worker()
        fall_silent(caller)
        await at.served.until(lambda: at.served.server.connections == 1)
        await at.served.until(lambda: at.bound == 0)
        while (await info(at.onlooker, job)).state is not JobState.PENDING:
            await asyncio.sleep(0.01)
