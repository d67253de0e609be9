"""Bytes that are not UTF-8 where the interface has text: what old clients send, by every way in, and what is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pinlater.model import DequeuedJob, Job, JobFilter, JobState
from pinlater.server.limits import ServerLimits
from pinlater.wire.codec import Reply, decode_reply
from pinlater.wire.framing import Splitter
from pinlater.wire.message import Protocol
from tests.server.raw_thrift import CONTEXT, I32, LIST, STRING, STRUCT, framed, message
from tests.server.serving import PATIENCE_S, Raw, Served, serving
from tests.unit.stand import ME, Stand, stand

CUT = "grüß".encode()[:3]
"""A text that was cut at a byte count, inside a character."""

READ_AS = "gr\ufffd"
EACH_WAY = pytest.mark.parametrize(
    ("protocol", "is_framed"),
    [
        pytest.param(Protocol.BINARY, True, id="binary framed"),
        pytest.param(Protocol.BINARY, False, id="binary"),
        pytest.param(Protocol.BINARY_OLD, True, id="binary without a version, framed"),
        pytest.param(Protocol.COMPACT, True, id="compact framed"),
        pytest.param(Protocol.COMPACT, False, id="compact"),
    ],
)
SMALL_AND_LARGE = pytest.mark.parametrize("padding", [0, 200_000], ids=["small", "large"])


class Caller:
    """One raw connection in one protocol."""

    def __init__(self, raw: Raw, protocol: Protocol, is_framed: bool) -> None:
        self._raw = raw
        self._protocol = protocol
        self._is_framed = is_framed
        self._answers = Splitter(ServerLimits().wire())

    async def __call__(self, method: str, *fields: Any, context: Any = CONTEXT) -> Reply:
        data = message(method, [context, *fields], self._protocol)
        if self._is_framed:
            self._raw.send(framed(data))
            return decode_reply(await self._raw.frame())
        self._raw.send(data)
        answer = b""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer += await self._raw.reader.read(1 << 16)
                try:
                    return decode_reply(answer)
                except Exception as error:
                    if "early" not in str(error):
                        raise


async def caller_of(served: Served, protocol: Protocol, is_framed: bool) -> Caller:
    return Caller(await served.connect(), protocol, is_framed)


async def in_progress(at: Stand, number: int) -> list[DequeuedJob]:
    await at.service.enqueue("mail", [Job(b"%d" % place) for place in range(number)])
    return await at.dequeue(number)


def acked(descriptor: bytes, status: bytes) -> list[Any]:
    return [(1, STRING, descriptor), (2, STRING, status)]


@EACH_WAY
@SMALL_AND_LARGE
async def test_acks_with_a_cut_text_are_carried_out(protocol: Protocol, is_framed: bool, padding: int) -> None:
    async with stand() as at, serving(at.service) as served:
        call = await caller_of(served, protocol, is_framed)
        first, second, third = await in_progress(at, 3)
        done = [acked(first.descriptor.encode(), CUT), acked(second.descriptor.encode(), b"x" * padding)]
        failed = [acked(third.descriptor.encode(), CUT)]
        request = [(1, STRING, b"mail"), (2, LIST, (STRUCT, done)), (3, LIST, (STRUCT, failed))]
        reply = await call("ackDequeuedJobs", (2, STRUCT, request), context=(1, STRUCT, [(1, STRING, CUT)]))
        assert reply.exception is None
        jobs = await at.service.lookup([job.descriptor for job in (first, second, third)])
        states = [JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.PENDING]
        assert [info.state for info in jobs.values()] == states
        assert [info.custom_status[:5] for info in jobs.values()] == [READ_AS, "xxxxx"[:padding], READ_AS]


@EACH_WAY
@SMALL_AND_LARGE
async def test_a_bad_descriptor_loses_no_neighbour_and_a_bad_name_no_connection(
    protocol: Protocol, is_framed: bool, padding: int
) -> None:
    async with stand() as at, serving(at.service) as served:
        call = await caller_of(served, protocol, is_framed)
        (job,) = await in_progress(at, 1)
        good = job.descriptor.encode()
        some_bad = [good[:-1] + b"\xff", b"\xff" + good[1:], good.replace(b":s1", b":s\xff"), good[:-3] + b"\xff01"]
        entries = [acked(bad, b"") for bad in some_bad]
        acks = (2, LIST, (STRUCT, [*entries, acked(good, b"x" * padding), *entries]))
        refused = await call("ackDequeuedJobs", (2, STRUCT, [(1, STRING, b"ma\xefl"), acks]))
        assert refused.exception.reason == "QUEUE_NAME_INVALID"
        assert refused.exception.message == r"queueName is not UTF-8: b'ma\xefl'"
        assert (await at.service.lookup([job.descriptor]))[job.descriptor].state is JobState.IN_PROGRESS
        refused = await call("ackDequeuedJobs", (2, STRUCT, [(1, STRING, b"mail"), acks]))
        assert (refused.exception.reason, refused.exception.acks_applied) == ("REQUEST_INVALID", True)
        assert "8 of 9 acks were not carried out" in refused.exception.message
        beats = (2, LIST, (STRUCT, [[(1, STRING, bad)] for bad in some_bad]))
        refused = await call("checkpointJobs", (2, STRUCT, [(1, STRING, b"mail"), beats]))
        assert "4 of 4 checkpoints" in refused.exception.message
        assert (await at.service.lookup([job.descriptor]))[job.descriptor].state is JobState.SUCCEEDED
        dequeue = [(1, STRING, b"\xff"), (2, I32, 1)]
        assert (await call("dequeueJobs", (2, STRUCT, dequeue))).exception.acks_applied is False
        pattern = [(1, STRING, b"mail"), (2, I32, 0), (4, STRING, b"\xff")]
        assert (await call("deleteJobs", (2, STRUCT, pattern))).exception.reason == "REQUEST_INVALID"
        names = await call("lookupJobs", (2, STRUCT, [(1, LIST, (STRING, [*some_bad, good]))]))
        assert set(names.success) == {job.descriptor}
        assert served.server.counters["malformed_messages"] == served.server.counters["streams_lost"] == 0


@EACH_WAY
@SMALL_AND_LARGE
async def test_a_text_of_a_job_and_of_its_caller_comes_back_as_it_was_read(
    protocol: Protocol, is_framed: bool, padding: int
) -> None:
    """The source binds the claim to its caller: read anew, it must be the same."""
    async with stand() as at, serving(at.service) as served:
        call = await caller_of(served, protocol, is_framed)
        me = (1, STRUCT, [(1, STRING, b"caf\xe9"), (2, STRING, CUT)])
        job = [(1, STRING, b"x" * padding), (5, STRING, CUT)]
        stored = await call("enqueueJobs", (2, STRUCT, [(1, STRING, b"mail"), (2, LIST, (STRUCT, [job]))]), context=me)
        (descriptor,) = stored.success.job_descriptors
        await call("dequeueJobs", (2, STRUCT, [(1, STRING, b"mail"), (2, I32, 1)]), context=me)
        beat = [(1, STRING, descriptor.encode()), (2, STRING, b"\xff new"), (6, STRING, CUT + b" ")]
        await call("checkpointJobs", (2, STRUCT, [(1, STRING, b"mail"), (2, LIST, (STRUCT, [beat]))]), context=me)
        info = (await at.service.lookup([descriptor], include_body=True))[descriptor]
        assert (info.body, info.custom_status) == (b"\xff new", f"{READ_AS} {READ_AS}")
        assert (info.claim_descriptor or "").endswith(":caf\ufffd")
        assert await at.service.count(JobFilter("mail", JobState.IN_PROGRESS), context=ME) == 1
