"""The reader of a connection, which compares heads that it knows, against the reader of single messages."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.model import Ack, DequeueRequest, ExtendedJob, Job, OnDuplicate, ReplaceRunning, RequestContext
from pinlater.wire.codec import BadCall, CallReader, RefusedCall, decode_call, encode_call
from pinlater.wire.convert import call_args, dequeue_to_wire, enqueue_to_wire, jobs_from_wire
from pinlater.wire.message import Protocol, WireError, WireLimits
from pinlater.wire.methods import LOOKUP
from tests.server.raw_thrift import I32, LIST, STRING, STRUCT, message

CALLER = RequestContext("worker-1", "request")
LIMITS = WireLimits(max_container=50, walk_over_bytes=5_000)


def encoded(method: str, seqid: int = 1, context: RequestContext = CALLER, **arguments: Any) -> bytes:
    return encode_call(method, seqid, call_args(method, context, **arguments))


def enqueue(*bodies: bytes, seqid: int = 1) -> bytes:
    return encoded("enqueueJobs", seqid, request=enqueue_to_wire("mail", [Job(body) for body in bodies]))


KEYED = ExtendedJob(b"x", dedupe_key="grün", serialize_key="s", on_duplicate=OnDuplicate.REPLACE, send_id="1")
RULED = replace(KEYED, replace_running=ReplaceRunning.CANCEL, replace_within_ms=7)
GROUPED = replace(KEYED, group="acme")

MESSAGES = (
    enqueue(),
    enqueue(b"x" * 200),
    enqueue(b"x" * 700, b"y" * 700, b"\xef\xbf\xbd"),
    encoded("enqueueJobs", request=enqueue_to_wire("mail", [KEYED, Job(b"y" * 1_100)])),
    encoded("enqueueJobs", request=enqueue_to_wire("mail", [KEYED, RULED, Job(b"y" * 1_100)])),
    encoded("dequeueJobs", request=dequeue_to_wire(DequeueRequest("mail", 1, [Ack("mail:s1:p1:1", "ok")], wait_ms=5))),
    encoded("lookupJobs", request=LOOKUP.request(["a", "b"], include_body=True)),
    encoded("getQueueNames"),
    encoded("createQueue", name="mail"),
    encoded("deleteQueue", name="mail", password="geheim"),
)


def outcome(read: Callable[[bytes], Any], data: bytes) -> tuple[object, ...]:
    try:
        return ("read", *read(data))
    except RefusedCall as refused:
        return ("refused", *refused.call, type(refused.error), refused.error.message)
    except BadCall as error:
        return ("bad", error.header, error.kind, error.message)
    except WireError as error:
        return ("lost", error.kind, error.message)


def knowing() -> CallReader:
    """A reader that knows the head of every message here."""
    reader = CallReader(LIMITS)
    for data in MESSAGES:
        reader.read(data)
    return reader


def assert_same(reader: CallReader, data: bytes) -> None:
    assert outcome(reader.read, data) == outcome(lambda data: decode_call(data, LIMITS), data)


@given(st.sampled_from(MESSAGES), st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=3))
def test_changed_bytes_are_read_or_refused_alike(data: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    assert_same(knowing(), bytes(changed))


@given(st.sampled_from(MESSAGES), st.integers(0, 2_000), st.binary(max_size=20), st.integers(0, 20))
def test_pieces_cut_out_or_put_in_are_read_or_refused_alike(data: bytes, at: int, piece: bytes, cut: int) -> None:
    at %= len(data) + 1
    assert_same(knowing(), data[:at] + piece + data[at + cut :])


@pytest.mark.parametrize("data", MESSAGES, ids=range(len(MESSAGES)))
def test_what_was_read_once_is_read_again(data: bytes) -> None:
    reader = knowing()
    for _ in range(2):
        assert_same(reader, data)


@pytest.mark.parametrize(
    "jobs", [[KEYED], [RULED], [GROUPED], [KEYED, Job(b"y"), RULED]], ids=["keyed", "ruled", "grouped", "all"]
)
def test_jobs_with_whatever_few_have_are_read_whole(jobs: list[Job]) -> None:
    reader, data = knowing(), encoded("enqueueJobs", request=enqueue_to_wire("mail", jobs))
    assert jobs_from_wire(reader.read(data).args.request.jobs) == jobs


def test_each_call_has_its_own_sequence_id() -> None:
    reader = knowing()
    assert [reader.read(enqueue(b"x", seqid=seqid)).seqid for seqid in (-5, 0, 2**31 - 1)] == [-5, 0, 2**31 - 1]


def test_another_context_is_another_caller() -> None:
    reader = knowing()
    for source in ("worker-2", "worker-1", "worker-10", "", "w" * 5_000, "w" * 5_000):
        data = encoded("getQueueNames", context=RequestContext(source))
        assert reader.read(data).args.context.source == source


def test_a_byte_that_means_nothing_makes_no_further_heads() -> None:
    """Else one connection could make the server keep 256 heads of each method."""
    data = bytearray(encoded("getQueueNames", context=RequestContext("w" * 400)))
    reader = CallReader(LIMITS)
    reader.read(bytes(data))
    tracemalloc.start()
    try:
        for data[2] in range(256):
            assert reader.read(bytes(data)).args.context.source == "w" * 400
        assert tracemalloc.get_traced_memory()[0] < 64 * 1024
    finally:
        tracemalloc.stop()


QUEUE = (1, STRING, b"mail")
NO_JOBS = (2, LIST, (STRUCT, []))
CONTEXT = (1, STRUCT, [(1, STRING, b"worker-1"), (2, STRING, b"request")])


@pytest.mark.parametrize(
    "fields",
    [
        [CONTEXT, CONTEXT, (2, STRUCT, [QUEUE, NO_JOBS])],
        [CONTEXT, (2, STRUCT, [QUEUE, NO_JOBS]), CONTEXT],
        [CONTEXT, (2, STRUCT, [QUEUE, NO_JOBS]), (2, STRUCT, [QUEUE, NO_JOBS])],
        [CONTEXT, (2, STRUCT, [QUEUE, QUEUE, NO_JOBS])],
        [CONTEXT, (2, STRUCT, [QUEUE])],
        [CONTEXT],
        [CONTEXT, (2, STRUCT, [(1, I32, 7), NO_JOBS])],
        [CONTEXT, (2, STRUCT, [(1, STRING, b"\xff"), NO_JOBS])],
        [CONTEXT, (2, STRUCT, [QUEUE, NO_JOBS, (7, STRING, b"unknown")]), (9, I32, 1)],
        [CONTEXT, (2, STRUCT, [QUEUE, (2, LIST, (STRUCT, [[(1, STRING, b"")]] * 51))])],
        [(1, STRUCT, [(2, STRING, b"request"), (1, STRING, b"worker-1")]), (2, STRUCT, [QUEUE, NO_JOBS])],
        [(2, STRUCT, [QUEUE, NO_JOBS]), CONTEXT],
    ],
)
@pytest.mark.parametrize("protocol", Protocol)
def test_unusual_messages_behind_a_head_that_is_known_are_walked(fields: list[Any], protocol: Protocol) -> None:
    reader = knowing()
    for _ in range(2):
        assert_same(reader, message("enqueueJobs", fields, protocol))
