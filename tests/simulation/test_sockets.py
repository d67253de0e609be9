"""Simulated connections: what each end learns, and when; and what a client and a server of the product make of it."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest
import structlog

from pinlater.errors import OutcomeUnknown, PinLaterError, ServerUnreachable
from pinlater.history.recorder import Recorder
from pinlater.model import Ack, AckOutcome, DequeueRequest, ExtendedJob, Job
from tests.simulation import virtual_time
from tests.simulation.caller_network import CallerFault, CallerNetwork, FaultKind
from tests.simulation.callers import Callers
from tests.simulation.served_cluster import ServedCluster
from tests.simulation.sockets import GIVEN_UP_S, KEPT_ALIVE_S, Connection, ConnectionEnd
from tests.simulation.virtual_time import as_process, virtual_loop

ONE_WAY_S = 0.001


class Heard(asyncio.Protocol):
    """What one end learns, each with its time in milliseconds."""

    def __init__(self) -> None:
        self.all: list[tuple[int, object]] = []

    def _note(self, what: object) -> None:
        self.all.append((round(asyncio.get_running_loop().time() * 1000), what))

    def data_received(self, data: bytes) -> None:
        self._note(data)

    def eof_received(self) -> bool:
        self._note("end")
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._note(type(error).__name__ if error else "closed")


class Ends:
    """A connection whose ends are taken, that of the server by the process q1/1. `late_s`: how late writes come."""

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self.over = 0
        self.connection = Connection("me", "q1", ("10.0.0.1", 1024), ONE_WAY_S, self._on_send, self._on_over)
        self.client, self.server = self.connection.client_end, self.connection.server_end
        self.at_client, self.at_server = Heard(), Heard()
        self.client.take(self.at_client)
        as_process("q1/1").run(self.server.take, self.at_server)

    def _on_send(self, end: ConnectionEnd, data: bytes) -> float:
        return self.late_s.pop(0) if self.late_s else 0.0

    def _on_over(self, connection: Connection) -> None:
        self.over += 1


def in_virtual_time(work: Callable[[Ends], Awaitable[None]]) -> Ends:
    async def run() -> Ends:
        ends = Ends()
        await work(ends)
        await asyncio.sleep(GIVEN_UP_S)
        return ends

    return virtual_time.run(run(), 1)


def test_what_is_sent_comes_in_order_also_where_it_is_late() -> None:
    async def send(ends: Ends) -> None:
        ends.late_s = [2.0, 0.0]
        ends.client.write(b"first")
        ends.client.write(b"second")
        ends.client.close()

    ends = in_virtual_time(send)
    assert ends.at_server.all == [(2001, b"first"), (2001, b"second"), (2001, "end")]
    assert ends.at_client.all == [(0, "closed")]


def test_who_sends_no_more_can_still_be_answered() -> None:
    async def send(ends: Ends) -> None:
        ends.client.write_eof()
        await asyncio.sleep(0.01)
        ends.server.write(b"answer")
        ends.server.close()

    ends = in_virtual_time(send)
    assert ends.at_client.all == [(11, b"answer"), (11, "end")]


def test_a_frozen_process_reads_nothing_and_its_kernel_acknowledges() -> None:
    async def send(ends: Ends) -> None:
        virtual_loop().freeze("q1/1")
        ends.client.write(b"call")
        await asyncio.sleep(5)
        assert ends.at_server.all == []
        assert ends.client.acknowledged == len(b"call")
        virtual_loop().thaw("q1/1")

    assert in_virtual_time(send).at_server.all == [(5000, b"call")]


def test_a_process_that_is_killed_learns_nothing_and_its_kernel_ends_the_connection() -> None:
    async def send(ends: Ends) -> None:
        ends.server.die()
        await asyncio.sleep(0.01)
        ends.client.write(b"call")

    ends = in_virtual_time(send)
    assert ends.at_server.all == []
    assert ends.at_client.all == [(1, "end"), (12, "ConnectionResetError")]
    assert ends.client.is_broken


def test_a_connection_that_breaks_does_so_behind_what_is_on_its_way() -> None:
    async def send(ends: Ends) -> None:
        ends.server.write(b"half an ans")
        ends.connection.break_off()

    ends = in_virtual_time(send)
    assert ends.at_client.all == [(1, b"half an ans"), (1, "ConnectionResetError")]
    assert ends.at_server.all == [(1, "ConnectionResetError")]
    assert ends.over == 1


@pytest.mark.parametrize(("is_kept_alive", "seconds"), [(True, KEPT_ALIVE_S), (False, GIVEN_UP_S)])
def test_a_silent_connection_brings_nothing_and_is_given_up_by_its_kernel(is_kept_alive: bool, seconds: float) -> None:
    async def send(ends: Ends) -> None:
        if is_kept_alive:
            ends.server.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        ends.client.write(b"call")
        ends.connection.fall_silent()
        ends.server.write(b"answer")

    ends = in_virtual_time(send)
    assert ends.at_server.all == [(seconds * 1000, "TimeoutError")]
    assert ends.at_client.all == [(GIVEN_UP_S * 1000, "TimeoutError")]
    assert ends.server.acknowledged == 0


# -- a client and a server ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def enqueued_under(kind: FaultKind, *, seconds: float, job: Job, most_s: float = 3.0) -> tuple[object, float, int]:
    """What an enqueue brings while a fault befalls each request or answer for a time: its descriptor or error, how long
    it took, and how many jobs there are in the end.
    """

    async def run() -> tuple[object, float, int]:
        loop = asyncio.get_running_loop()
        with CallerNetwork(random.Random(1)) as network:
            cluster = ServedCluster(network, 1)
            await cluster.start("q1")
            callers = Callers(network, "1", Recorder(lambda line: None, loop.time))
            caller = callers.start("me")
            await caller.client.create_queue("mail")
            if kind is FaultKind.REFUSED:
                caller = callers.start("newcomer")
            began_s = loop.time()
            network.add(CallerFault(kind, began_s, began_s + seconds, most_s=most_s))
            try:
                brought: object = await caller.client.enqueue("mail", job, timeout=4.0)
            except PinLaterError as error:
                brought = error
            took_s = loop.time() - began_s
            network.heal()
            await asyncio.sleep(5)
            count = await callers.start("counter").client.count("mail")
            await callers.close_all()
            await cluster.close()
            return brought, took_s, count

    return virtual_time.run(run(), 1)


PLAIN, SENT_ONCE = Job(b"x"), ExtendedJob(b"x", send_id="once")


@pytest.mark.parametrize(("kind", "least_s", "most_s"), [(FaultKind.LOST, 3.9, 4.1), (FaultKind.HALF, 0.0, 0.1)])
def test_an_enqueue_without_an_answer_has_an_unknown_outcome(kind: FaultKind, least_s: float, most_s: float) -> None:
    brought, took_s, _ = enqueued_under(kind, seconds=10.0, job=PLAIN)
    assert isinstance(brought, OutcomeUnknown)
    assert least_s <= took_s <= most_s


@pytest.mark.parametrize("kind", [FaultKind.LOST, FaultKind.HALF, FaultKind.RESET])
def test_what_has_a_send_id_is_sent_again_and_stored_once(kind: FaultKind) -> None:
    brought, _, count = enqueued_under(kind, seconds=1.0, job=SENT_ONCE)
    assert isinstance(brought, str)
    assert count == 1


def test_a_server_that_refuses_connections_was_not_reached() -> None:
    brought, _, count = enqueued_under(FaultKind.REFUSED, seconds=10.0, job=PLAIN)
    assert isinstance(brought, ServerUnreachable)
    assert count == 0


def test_what_is_late_is_answered_late() -> None:
    brought, took_s, count = enqueued_under(FaultKind.LATE, seconds=10.0, job=PLAIN, most_s=1.5)
    assert isinstance(brought, str)
    assert 0.1 < took_s < 3.1
    assert count == 1


def test_what_is_cut_off_comes_when_the_cut_is_over() -> None:
    brought, took_s, count = enqueued_under(FaultKind.CUT, seconds=2.0, job=PLAIN)
    assert isinstance(brought, str)
    assert 1.9 < took_s < 2.1
    assert count == 1


def test_a_call_that_comes_twice_is_carried_out_once() -> None:
    brought, _, count = enqueued_under(FaultKind.TWICE, seconds=10.0, job=SENT_ONCE)
    assert isinstance(brought, str)
    assert count == 1


def test_claims_of_a_caller_that_dies_are_released_where_they_are_bound_to_its_connection() -> None:
    async def run() -> tuple[float, AckOutcome]:
        loop = asyncio.get_running_loop()
        with CallerNetwork(random.Random(1)) as network:
            cluster = ServedCluster(network, 1)
            await cluster.start("q1")
            callers = Callers(network, "1", Recorder(lambda line: None, loop.time))
            first, second = callers.start("first"), callers.start("second")
            await first.client.create_queue("mail")
            await first.client.enqueue("mail", Job(b"x"))
            request = DequeueRequest("mail", 1, wait_ms=1_000, release_on_disconnect=True)
            assert len(await first.client.dequeue(request)) == 1
            callers.kill(first)
            died_s = loop.time()
            (job,) = await second.client.dequeue("mail", wait=30)
            after_s = loop.time() - died_s
            (outcome,) = await second.client.ack("mail", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
            await callers.close_all()
            await cluster.close()
            return after_s, outcome

    after_s, outcome = virtual_time.run(run(), 1)
    assert 1.9 < after_s < 4.0
    assert outcome is AckOutcome.SUCCEEDED
