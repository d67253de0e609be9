"""Frames on raw sockets: cut, forged, mutated; answers in order; other callers are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import struct
import time
from contextvars import ContextVar

import pytest
from structlog.testing import capture_logs

from pinlater.model import DequeueRequest, Job, RequestContext
from pinlater.wire.codec import ApplicationError, decode_reply
from pinlater.wire.message import ApplicationErrorKind, Protocol
from tests.server.memory_api import EchoService
from tests.server.raw_thrift import CONTEXT, STRING, framed, message
from tests.server.serving import Raw, call_dequeue, call_enqueue, call_names, serving

PROTOCOLS = [Protocol.BINARY, Protocol.COMPACT, Protocol.BINARY_OLD]
EACH_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
_caller: ContextVar[str] = ContextVar("caller", default="nobody")
MUTATE_S = float(os.environ.get("PINLATER_MUTATE_S", "6"))
"""Seconds of random mutation per protocol, other ones in each run: a minute in all."""


async def one_by_one(raw: Raw, data: bytes) -> None:
    """Send each byte in a packet of its own."""
    for i in range(len(data)):
        raw.send(data[i : i + 1])
        await raw.writer.drain()
        await asyncio.sleep(0)


@EACH_PROTOCOL
@pytest.mark.parametrize("frames", [True, False], ids=["framed", "unframed"])
async def test_both_protocols_are_answered_framed_and_unframed(protocol: Protocol, frames: bool) -> None:
    if protocol is Protocol.BINARY_OLD and not frames:
        return  # cannot be told from a frame's length
    async with serving() as served:
        raw = await served.connect()
        for seqid in (1, 2):
            raw.send(framed(call_names(seqid, protocol)) if frames else call_names(seqid, protocol))
            answer = await raw.frame() if frames else await raw.reader.read(1000)
            reply = decode_reply(answer)
            assert (reply.seqid, reply.success) == (seqid, {"mail", "images"})
            assert answer[0] == {Protocol.BINARY: 0x80, Protocol.COMPACT: 0x82, Protocol.BINARY_OLD: 0}[protocol]


@EACH_PROTOCOL
@pytest.mark.parametrize("frames", [True, False], ids=["framed", "unframed"])
async def test_calls_that_come_byte_by_byte_are_answered(protocol: Protocol, frames: bool) -> None:
    if protocol is Protocol.BINARY_OLD and not frames:
        return
    async with serving() as served:
        raw = await served.connect()
        data = call_enqueue(1, Job(b"one", 1, 5, 2, "status"), Job(b"two"), protocol=protocol)
        await one_by_one(raw, (framed(data) if frames else data) * 2)
        await served.until(lambda: len(served.service.calls) == 2)
        assert [[job.body for job in jobs] for _, (_, jobs) in served.service.calls] == [[b"one", b"two"]] * 2


@EACH_PROTOCOL
@pytest.mark.parametrize("frames", [True, False], ids=["framed", "unframed"])
async def test_a_frame_cut_at_every_byte_is_never_carried_out(protocol: Protocol, frames: bool) -> None:
    """The connection ends after the cut; and as a whole, shorter frame it is refused."""
    if protocol is Protocol.BINARY_OLD and not frames:
        return
    async with serving() as served:
        data = call_enqueue(1, Job(b"one", 1, 5, 2, "status"), protocol=protocol)
        whole = framed(data) if frames else data
        for cut in range(len(whole)):
            raw = await served.connect()
            raw.send(whole[:cut])
            raw.writer.write_eof()
            assert await raw.until_closed() == b""
            await raw.close()
        for cut in range(1, len(data) if frames else 0):
            raw = await served.connect()
            raw.send_framed(data[:cut])
            raw.writer.write_eof()
            answer = await raw.until_closed()
            if answer:
                with pytest.raises(ApplicationError):
                    decode_reply(answer[4:])
            await raw.close()
        assert served.service.calls == []
        await served.is_well()


@EACH_PROTOCOL
async def test_every_forged_length_is_refused_or_answered_and_nobody_elses_bytes_are_read(protocol: Protocol) -> None:
    """Each four bytes of the call, and each one, are replaced by lengths; secrets of another caller lie around."""
    async with serving() as served:
        secret = b"a secret body of somebody else " * 40
        other = await served.connect()
        other.send_framed(call_enqueue(1, *[Job(secret)] * 50, queue="theirs"))
        await other.reply()
        data = call_enqueue(1, Job(b"body", 1, 5, 2, "status"), protocol=protocol)
        for at in range(len(data)):
            for forged in (-1, 0, 1, 5, 100, 65_536, 2**24, 2**31 - 1):
                as_i32 = data[:at] + struct.pack(">i", forged) + data[at + 4 :]
                as_byte = data[:at] + bytes((forged & 0xFF,)) + data[at + 1 :]
                raw = await served.connect()
                raw.send(framed(as_i32[: len(data)]) + framed(as_byte))
                raw.writer.write_eof()
                assert b"secret" not in await raw.until_closed()
                await raw.close()
        bodies = [job.body for name, what in served.service.calls if name == "enqueue" for job in what[1]]
        assert sum(b"secret" in body for body in bodies) == 50
        await served.is_well()


@pytest.mark.parametrize("length", [0, -1, 2**31 - 1, 16 * 1024 * 1024 + 1, 0x47455420])
async def test_a_frame_with_a_forged_length_closes_the_connection_at_once(length: int) -> None:
    async with serving() as served:
        raw = await served.connect()
        raw.send(struct.pack(">i", length))
        if length == -1:
            raw.send(bytes(8))  # 0xff begins no message
        assert await raw.until_closed() == b""
        assert served.server.counters["streams_lost"] == 1
        await served.is_well()


@EACH_PROTOCOL
async def test_random_mutations_never_stop_the_server(protocol: Protocol) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    async with serving() as served:
        whole = call_enqueue(1, *[Job(b"body", 2, 5, 3, "status")] * 3, protocol=protocol)
        end = time.monotonic() + MUTATE_S
        while time.monotonic() < end:
            raw = await served.connect()
            for _ in range(20):
                raw.send_framed(mutate(dice, whole))
            raw.writer.write_eof()
            answers = await raw.until_closed()
            while answers:
                length = int.from_bytes(answers[:4], "big")
                with contextlib.suppress(ApplicationError):
                    decode_reply(answers[4 : 4 + length])
                answers = answers[4 + length :]
            await raw.close()
            served.open.clear()
            served.service.calls.clear()
            served.service.contexts.clear()
            served.service.jobs.clear()
        await served.is_well()
        assert served.server.counters["unexpected_errors"] == 0


def mutate(dice: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut out, doubled or put in, one to four times."""
    out = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(out) + 1)
        end = min(len(out), at + dice.randint(1, 8))
        match dice.randrange(4):
            case 0 if at < len(out):
                out[at] = dice.randrange(256)
            case 1:
                del out[at:end]
            case 2:
                out[at:at] = out[at:end]
            case _:
                out[at:at] = dice.randbytes(dice.randint(1, 8))
    return bytes(out)


async def test_an_unknown_method_is_answered_and_the_connection_lives_on() -> None:
    async with serving() as served:
        raw = await served.connect()
        raw.send_framed(message("__can__finagle__trace__v3__", [], seqid=11))
        with pytest.raises(ApplicationError) as caught:
            await raw.reply()
        assert caught.value.kind is ApplicationErrorKind.UNKNOWN_METHOD
        raw.send_framed(call_names(12))
        assert (await raw.reply()).seqid == 12


async def test_a_malformed_call_is_answered_and_the_connection_lives_on() -> None:
    async with serving() as served:
        raw = await served.connect()
        raw.send_framed(message("createQueue", [CONTEXT, CONTEXT, (2, STRING, b"mail")]))
        with pytest.raises(ApplicationError, match="is there twice"):
            await raw.reply()
        raw.send_framed(call_names(12))
        assert (await raw.reply()).seqid == 12
        assert served.service.calls == [("queue_names", None)]
        assert served.server.counters["malformed_messages"] == 1


async def test_a_malformed_unframed_call_is_answered_then_the_connection_closed() -> None:
    async with serving() as served:
        raw = await served.connect()
        raw.send(call_names(1) + message("createQueue", [CONTEXT, CONTEXT], seqid=2) + call_names(3))
        answers = await raw.until_closed()
        assert answers.count(b"getQueueNames") == 1
        assert b"is there twice" in answers


async def test_answers_leave_in_the_order_of_the_calls() -> None:
    """The first call ends last, and the answers of the others wait for it."""
    async with serving() as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        raw = await served.connect()
        raw.send(
            framed(call_enqueue(1, Job(b"x"), queue="slow"))
            + framed(call_names(2))
            + framed(call_enqueue(3, Job(b"y")))
        )
        await served.until(lambda: len(served.service.calls) == 3)
        raw.send_framed(message("ping", [], seqid=4))
        gate.set()
        assert [(await raw.reply()).seqid for _ in range(3)] == [1, 2, 3]
        with pytest.raises(ApplicationError):
            await raw.reply()


async def test_calls_of_one_connection_run_together_up_to_the_bound_and_all_are_answered() -> None:
    async with serving(max_frames_in_flight=4) as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        raw = await served.connect()
        raw.send(b"".join(framed(call_enqueue(n, Job(b"x"), queue="slow")) for n in range(50)))
        await served.until(lambda: len(served.service.calls) == 4)
        await served.is_well()
        assert len([call for call in served.service.calls if call[0] == "enqueue"]) == 4
        gate.set()
        assert [(await raw.reply()).seqid for _ in range(50)] == list(range(50))
        assert served.server.counters["reads_paused"] > 0
        assert served.server.buffered_bytes == 0


async def test_many_calls_in_one_packet_are_all_answered() -> None:
    async with serving() as served:
        for frames in (True, False):
            raw = await served.connect()
            calls = [call_enqueue(n, Job(b"x" * n)) for n in range(100)]
            raw.send(b"".join(framed(call) if frames else call for call in calls))
            if frames:
                assert [(await raw.reply()).seqid for _ in range(100)] == list(range(100))
            else:
                await served.until(lambda: len(served.service.calls) == 200)


async def test_after_a_half_close_what_was_sent_is_answered() -> None:
    async with serving() as served:
        gate = served.service.hold["slow"] = asyncio.Event()
        raw = await served.connect()
        raw.send(framed(call_enqueue(1, Job(b"x"), queue="slow")) + framed(call_names(2)))
        raw.writer.write_eof()
        await served.service.held.wait()
        gate.set()
        answers = await raw.until_closed()
        assert (answers.count(b"enqueueJobs"), answers.count(b"getQueueNames")) == (1, 1)


async def test_jobs_for_a_connection_that_broke_are_requeued() -> None:
    async with serving() as served:
        served.service.jobs["mail"] = [Job(b"one"), Job(b"two")]
        gate = served.service.hold["mail"] = asyncio.Event()
        raw = await served.connect()
        raw.send_framed(call_dequeue(1, DequeueRequest("mail", 10)))
        await served.service.held.wait()
        raw.writer.transport.abort()
        await served.is_well()
        gate.set()
        await asyncio.wait_for(served.service.returned.wait(), 60)
        assert [job.body for job in served.service.given_back] == [b"one", b"two"]


async def test_a_long_poll_ends_when_its_connection_breaks() -> None:
    async with serving() as served:
        served.service.hold["mail"] = asyncio.Event()
        raw = await served.connect()
        raw.send_framed(call_dequeue(1, DequeueRequest("mail", 10, wait_ms=60_000)))
        await served.service.held.wait()
        await raw.close()
        await served.until(lambda: served.service.cancelled == 1)
        assert served.service.given_back == []


async def test_jobs_whose_answer_waits_behind_another_are_requeued_when_the_connection_breaks() -> None:
    async with serving() as served:
        served.service.jobs["mail"] = [Job(b"one")]
        gate = served.service.hold["slow"] = asyncio.Event()
        raw = await served.connect()
        raw.send_framed(call_enqueue(1, Job(b"x"), queue="slow"))
        raw.send_framed(call_dequeue(2, DequeueRequest("mail", 10)))
        await served.until(lambda: served.service.jobs == {})
        raw.writer.transport.abort()
        await asyncio.wait_for(served.service.returned.wait(), 60)
        assert [job.body for job in served.service.given_back] == [b"one"]
        gate.set()


async def test_an_unexpected_error_is_an_answer_not_a_closed_connection() -> None:
    service = EchoService()
    async with serving(service) as served:
        raw = await served.connect()
        service.fail_with = ZeroDivisionError("surprise")
        with capture_logs() as logs:
            raw.send_framed(call_names(1))
            reply = await raw.reply()
        assert (reply.exception.error_code, reply.exception.retryable) == (500, False)
        (failed,) = [each for each in logs if each["event"] == "call_failed"]
        assert "ZeroDivision" not in reply.exception.message
        assert "surprise" not in reply.exception.message
        assert f"fault {failed['fault']}" in reply.exception.message
        service.fail_with = None
        raw.send_framed(call_names(2))
        assert (await raw.reply()).success == {"mail", "images"}
        assert served.server.counters["unexpected_errors"] == 1


async def test_what_a_call_sets_in_its_context_is_not_there_for_the_next_one_of_its_connection() -> None:
    """The next one begins at the end of the one before it, where no more may be in flight."""
    async with serving(max_frames_in_flight=1) as served:
        seen: list[str] = []

        async def queue_names(*, context: RequestContext | None = None) -> set[str]:
            seen.append(_caller.get())
            _caller.set("another")
            await asyncio.sleep(0)
            return set()

        served.service.queue_names = queue_names  # type: ignore[method-assign]
        raw = await served.connect()
        raw.send(b"".join(framed(call_names(seqid)) for seqid in (1, 2, 3)))
        for _ in range(3):
            await raw.reply()
        assert seen == ["nobody"] * 3
