"""Every limit of the server, reached from a raw socket."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from pinlater.model import DequeueRequest, Job
from pinlater.server.limits import ServerLimits
from pinlater.wire.codec import ApplicationError, decode_reply
from tests.server.raw_thrift import CONTEXT, LIST, STRING, STRUCT, framed, message
from tests.server.serving import call_dequeue, call_enqueue, call_names, connect_from, serving


async def test_a_frame_over_its_bound_is_refused_before_a_byte_of_it_is_kept() -> None:
    async with serving(max_frame_bytes=1000) as served:
        raw = await served.connect()
        raw.send_framed(call_enqueue(1, Job(b"x" * 800)))
        await raw.reply()
        raw.send(struct.pack(">i", 1001))
        assert await raw.until_closed() == b""
        assert (served.server.counters["streams_lost"], served.server.buffered_bytes) == (1, 0)
        await served.is_well()


async def test_an_unframed_message_over_its_bound_closes_the_connection() -> None:
    async with serving(max_unframed_bytes=1000) as served:
        raw = await served.connect()
        raw.send(call_enqueue(1, Job(b"x" * 5000)))
        assert b"send it framed" in await raw.until_closed()
        assert served.service.calls == []
        await served.is_well()


async def test_an_answer_over_the_frame_bound_is_an_error_and_its_jobs_are_requeued() -> None:
    async with serving(max_frame_bytes=1000) as served:
        served.service.jobs["mail"] = [Job(b"x" * 600), Job(b"y" * 600)]
        raw = await served.connect()
        raw.send_framed(call_dequeue(1, DequeueRequest("mail", 10)))
        exception = (await raw.reply()).exception
        assert exception.error_code == 500
        assert "allowed: 1000" in exception.message
        assert len(served.service.given_back) == 2
        assert served.server.counters["answers_too_long"] == 1


async def test_containers_and_fields_are_bounded() -> None:
    descriptors = (STRING, [b"x"] * 101)
    async with serving(max_container=100, max_steps=150) as served:
        raw = await served.connect()
        raw.send_framed(message("lookupJobs", [CONTEXT, (2, STRUCT, [(1, LIST, descriptors)])]))
        with pytest.raises(ApplicationError):
            await raw.reply()
        unknown = [(200 + n, STRING, b"") for n in range(160)]
        raw.send_framed(message("createQueue", [CONTEXT, (2, STRING, b"mail"), *unknown]))
        with pytest.raises(ApplicationError, match="more than 150 fields"):
            await raw.reply()
        await served.is_well()


async def test_one_connection_too_many_is_closed_at_once_and_the_others_are_served() -> None:
    async with serving(max_connections=2, max_peer_connections=2) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        first, second = await served.connect(), await served.connect()
        for raw in (first, second):
            raw.send_framed(call_enqueue(1, Job(b"x"), queue="slow"))
        await served.until(lambda: len(served.service.calls) == 2)
        third = await served.connect()
        assert await third.until_closed() == b""
        assert served.server.counters["peer_connections_refused"] == 1
        gate.set()
        for raw in (first, second):
            assert (await raw.reply()).seqid == 1
        await first.close()
        await served.until(lambda: served.server.connections == 1)
        await served.is_well()


async def test_a_connection_in_silence_is_closed_and_one_with_a_call_in_flight_is_not() -> None:
    async with serving(idle_timeout_s=0.1) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        busy, idle = await served.connect(), await served.connect()
        busy.send_framed(call_enqueue(1, Job(b"x"), queue="slow"))
        assert await idle.until_closed() == b""
        assert served.server.counters["idle_closed"] == 1
        gate.set()
        assert (await busy.reply()).seqid == 1


@pytest.mark.parametrize("half", [framed(call_names(1))[:-1], call_names(1)[:-1], b"\x00", b"\x00\x00\x01\x00"])
async def test_a_half_sent_message_closes_its_connection_even_when_it_drips(half: bytes) -> None:
    async with serving(half_sent_timeout_s=0.2) as served:
        raw = await served.connect()
        raw.send(half[:1])
        closed = asyncio.ensure_future(raw.until_closed())
        for at in range(1, len(half)):
            raw.send(half[at : at + 1])
            if closed.done():
                break
            await asyncio.sleep(0.01)
        assert await closed == b""
        assert served.server.counters["half_sent_closed"] == 1
        assert served.server.buffered_bytes == 0


async def test_a_caller_who_does_not_read_is_not_read_from_and_then_cut_off() -> None:
    async with serving(write_timeout_s=0.3, max_frames_in_flight=4) as served:
        raw = await served.connect()
        raw.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.writer.transport.pause_reading()
        served.service.names = {"x" * 200_000}
        for n in range(500):
            raw.send_framed(call_names(n))
        await served.until(lambda: served.server.counters["slow_readers_closed"] == 1)
        assert len(served.service.calls) < 100
        await served.until(lambda: served.server.connections == 0)
        served.service.names = {"mail", "images"}
        await served.is_well()


async def test_a_slow_reader_gets_all_its_answers() -> None:
    async with serving(max_frames_in_flight=4) as served:
        raw = await served.connect()
        raw.writer.transport.pause_reading()
        served.service.names = {"x" * 100_000}
        for n in range(100):
            raw.send_framed(call_names(n))
        await served.until(lambda: served.server.counters["reads_paused"] > 0)
        raw.writer.transport.resume_reading()
        assert [(await raw.reply()).seqid for _ in range(100)] == list(range(100))


async def test_calls_over_the_buffer_of_the_server_are_refused_and_served_again_later() -> None:
    async with serving(max_buffered_bytes=10_000) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        many = [await connect_from(served, f"127.0.0.{2 + n}") for n in range(3)]
        other = await served.connect()
        for raw in many:
            raw.send_framed(call_enqueue(1, Job(b"x" * 3000), queue="slow"))
        await served.until(lambda: len(served.service.calls) == 3)
        other.send_framed(call_enqueue(9, Job(b"x" * 3000)))
        exception = (await other.reply()).exception
        assert (exception.reason, exception.retryable, exception.error_code) == ("OVERLOADED", True, 500)
        assert len(served.service.calls) == 3
        gate.set()
        assert [(await raw.reply()).seqid for raw in many] == [1, 1, 1]
        other.send_framed(call_enqueue(10, Job(b"x" * 3000)))
        assert len((await other.reply()).success.job_descriptors) == 1
        assert served.server.counters["calls_over_buffer"] == 1


async def test_answers_that_wait_for_an_earlier_one_are_bounded_and_their_jobs_go_back() -> None:
    async with serving(max_buffered_bytes=10_000) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        served.service.jobs["mail"] = [Job(b"x" * 6_000)]
        raw = await served.connect()
        raw.send_framed(call_enqueue(1, Job(b"x"), queue="slow"))
        raw.send_framed(call_dequeue(2, DequeueRequest("mail", 10)))
        await served.until(lambda: served.server.buffered_bytes > 6_000)
        served.service.jobs["mail"] = [Job(b"x" * 6_000)]
        raw.send_framed(call_dequeue(3, DequeueRequest("mail", 10)))
        await served.until(lambda: len(served.service.given_back) == 1)
        gate.set()
        assert (await raw.reply()).seqid == 1
        assert [len((await raw.reply()).success.jobs) for _ in range(2)] == [1, 0]
        assert served.server.buffered_bytes == 0


async def test_answers_that_are_not_taken_are_bounded_over_all_connections() -> None:
    async with serving(max_buffered_bytes=8_000_000, write_timeout_s=5) as served:
        served.service.jobs["mail"] = [Job(b"x" * 1_000_000) for _ in range(7)]
        hog, other = await served.connect(), await served.connect()
        hog.writer.transport.pause_reading()
        hog.send_framed(call_dequeue(1, DequeueRequest("mail", 100)))
        await served.until(lambda: served.server.buffered_bytes > 1_000_000)
        served.service.jobs["mail"] = [Job(b"y" * 1_000_000) for _ in range(8)]
        other.send_framed(call_dequeue(2, DequeueRequest("mail", 100)))
        assert (await other.reply()).success.jobs == {}
        assert len(served.service.given_back) == 8
        hog.writer.transport.resume_reading()
        assert len((await hog.reply()).success.jobs) == 7
        await served.until(lambda: served.server.buffered_bytes == 0)
        await served.is_well()


async def test_half_sent_messages_over_the_buffer_cost_the_largest_its_connection() -> None:
    async with serving(max_buffered_bytes=100_000) as served:
        hog, small = await served.connect(), await served.connect()
        call = framed(call_enqueue(1, Job(b"x" * 90_000)))
        hog.send(call[:-1])
        await served.until(lambda: served.server.buffered_bytes > 89_000)
        small.send(call[:20_000])
        assert await hog.until_closed() == b""
        small.send(call[20_000:])
        assert (await small.reply()).seqid == 1
        assert served.server.counters["half_sent_over_buffer"] == 1
        assert served.server.buffered_bytes == 0


async def test_frames_in_flight_are_bounded() -> None:
    async with serving(max_frames_in_flight=2) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        raw = await served.connect()
        for n in range(5):
            raw.send_framed(call_enqueue(n, Job(b"x"), queue="slow"))
        await served.until(lambda: served.server.counters["reads_paused"] > 0)
        await served.is_well()
        assert sum(name == "enqueue" for name, _ in served.service.calls) == 2
        gate.set()
        assert [(await raw.reply()).seqid for _ in range(5)] == list(range(5))


async def test_answers_are_sent_without_delay() -> None:
    async with serving() as served:
        raw = await served.connect()
        raw.send_framed(call_names(1))
        await raw.reply()
        (connection,) = served.server.open_connections
        sock = connection.socket
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_the_limits_of_a_message_follow_from_those_of_the_server() -> None:
    wire = ServerLimits(max_frame_bytes=5, max_unframed_bytes=4, max_container=3, max_steps=2).wire()
    assert (wire.max_message_bytes, wire.max_unframed_bytes, wire.max_container, wire.max_steps) == (5, 4, 3, 2)


async def test_a_long_answer_reaches_its_caller_whole() -> None:
    async with serving() as served:
        served.service.jobs["mail"] = [Job(bytes([n % 256]) * 100_000) for n in range(100)]
        raw = await served.connect()
        raw.send_framed(call_dequeue(1, DequeueRequest("mail", 1000)))
        reply = decode_reply(await raw.frame())
        assert [body[0] for body in reply.success.jobs.values()] == list(range(100))
        assert served.service.given_back == []
