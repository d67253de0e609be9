"""What few jobs have through the wire and back, by random values; and garbage in its fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.errors import ProtocolError, RequestInvalid
from pinlater.model import (
    Ack,
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatOutcome,
    Job,
    KeyRef,
    OnDuplicate,
    ReplaceRunning,
)
from pinlater.wire import convert
from pinlater.wire.codec import CallReader, RefusedCall, decode_call
from pinlater.wire.interface import LAYOUTS
from pinlater.wire.message import Protocol, WireError, WireLimits
from tests.server.raw_thrift import CONTEXT, DOUBLE, I32, I64, LIST, STRING, STRUCT, message
from tests.unit.test_convert import (
    answered,
    body,
    limits,
    number,
    priority,
    protocols,
    text,
    through,
    time_ms,
)

wide = st.integers(-(2**63), 2**63 - 1)
extended = st.builds(
    ExtendedJob,
    body,
    priority,
    st.none() | time_ms,
    number,
    text,
    text,
    text,
    st.none() | number,
    st.sampled_from(OnDuplicate),
    wide,
    st.none() | wide,
    text,
    replace_running=st.sampled_from(ReplaceRunning),
    replace_within_ms=st.none() | wide,
)
plain = st.builds(Job, body, priority, st.none() | time_ms, number, text)
keys = st.builds(KeyRef, text, text)
fractions = st.none() | st.floats(allow_nan=False)
DESCRIPTOR = "mail:s1:p1:1790000000000000"


def as_read(job: Job) -> Job:
    """A job of which nothing is extended is a plain one."""
    fields = (job.body, job.priority, job.run_after_ms, job.attempts_allowed, job.custom_status)
    return Job(*fields) if job == ExtendedJob(*fields) else job


@given(protocols, limits, st.lists(plain | extended, max_size=5))
def test_jobs(protocol: Protocol, wire_limits: WireLimits, sent: list[Job]) -> None:
    got = through("enqueueJobs", protocol, wire_limits, 1, request=convert.enqueue_to_wire("mail", sent)).request
    assert convert.jobs_from_wire(got.jobs) == [as_read(job) for job in sent]


@given(protocols, limits, st.lists(st.tuples(fractions, st.none() | text, st.sampled_from(HeartbeatOutcome), text)))
def test_heartbeats(protocol: Protocol, wire_limits: WireLimits, values: list[Any]) -> None:
    beats = [Heartbeat(f"{DESCRIPTOR}{n}", "a claim", value[0], value[1]) for n, value in enumerate(values)]
    answers = [HeartbeatAnswer(o, by if o is HeartbeatOutcome.CANCEL else "") for _, _, o, by in values]
    response = answered("heartbeatJobs", protocol, wire_limits, convert.heartbeat_answers_to_wire(beats, answers))
    assert convert.heartbeat_answers_from_wire(beats, response) == answers
    with pytest.raises(ProtocolError):
        convert.heartbeat_answers_from_wire([*beats, Heartbeat(DESCRIPTOR, "")], response)


@given(protocols, limits, body)
def test_results_of_acks_and_outcomes_of_enqueues(protocol: Protocol, wire_limits: WireLimits, result: bytes) -> None:
    ack = Ack(DESCRIPTOR, result=result)
    got = through("ackJobs", protocol, wire_limits, 1, request=convert.acks_to_wire("mail", [ack], [])).request
    assert convert.acks_from_wire(got.succeeded) == [ack]
    for outcomes in ([], [EnqueueOutcome.STORED, EnqueueOutcome.KEPT]):
        told = convert.enqueued_to_wire(EnqueuedJobs(["a", "b"], outcomes))
        read = convert.enqueued_from_wire(answered("enqueueJobs", protocol, wire_limits, told))
        assert (read, getattr(read, "outcomes", [])) == (["a", "b"], outcomes)


# -- garbage -----------------------------------------------------------------------------------------------------------


def jobs_with(*fields: Any) -> list[Any]:
    return [CONTEXT, (2, STRUCT, [(1, STRING, b"mail"), (2, LIST, (STRUCT, [[(1, STRING, b"x"), *fields]]))])]


@pytest.mark.parametrize("field", [100, 101, 105])
@pytest.mark.parametrize("size", [1, 200_000])
@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_key_that_is_no_utf8_is_refused_and_the_connection_goes_on(field: int, size: int, protocol: Protocol) -> None:
    data = message("enqueueJobs", jobs_with((5, STRING, b"s" * size), (field, STRING, b"gr\xc3")), protocol)
    for read in (decode_call, CallReader().read):
        with pytest.raises(RefusedCall) as refused:
            read(data)
        assert isinstance(refused.value.error, RequestInvalid)
        assert "is not UTF-8" in refused.value.error.message


@pytest.mark.parametrize("name", ["lookupJobs", "cancelJobs"])
def test_so_is_one_that_names_a_job(name: str) -> None:
    at = 100 if name == "lookupJobs" else 3
    queue, named = (101, (1, LIST, (STRING, []))) if name == "lookupJobs" else (1, (2, LIST, (STRING, [])))
    fields = sorted([(queue, STRING, b"mail"), named, (at, LIST, (STRUCT, [[(1, STRING, b"\xff")]]))])
    with pytest.raises(RefusedCall, match="dedupeKey"):
        decode_call(message(name, [CONTEXT, (2, STRUCT, fields)]))


def test_a_number_that_names_nothing_is_invalid() -> None:
    args = decode_call(message("enqueueJobs", jobs_with((100, STRING, b"a"), (103, I32, 3)))).args
    with pytest.raises(RequestInvalid, match="onDuplicate is 3"):
        convert.jobs_from_wire(args.request.jobs)


@pytest.mark.parametrize("field", [100, 101, 102, 103, 104, 105, 106])
def test_a_field_of_another_type_is_no_message(field: int) -> None:
    wanted = LAYOUTS.of("PinLaterJob").fields[field].node.ttype
    for ttype, value in ((DOUBLE, 0.5), (STRING, b"a"), (I64, 1)):
        if ttype != wanted:
            data = message("enqueueJobs", jobs_with((field, ttype, value)))
            for read in (decode_call, CallReader().read):
                with pytest.raises(WireError, match="wire type"):
                    read(data)


def test_fields_that_say_nothing_make_a_plain_job() -> None:
    nothing = [(100, STRING, b""), (101, STRING, b""), (103, I32, 0), (104, I64, 0), (105, STRING, b"")]
    args = decode_call(message("enqueueJobs", jobs_with(*nothing))).args
    assert [type(job) for job in convert.jobs_from_wire(args.request.jobs)] == [Job]
