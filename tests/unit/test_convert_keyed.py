"""What few jobs have through the wire and back, by random values; and garbage in its fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.errors import ProtocolError, RequestInvalid
from pinlater.model import (
    Ack,
    Cancelled,
    CancelOutcome,
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatOutcome,
    Job,
    JobInfo,
    JobProgress,
    JobState,
    KeyRef,
    OnDuplicate,
    RescheduleJob,
    RescheduleOutcome,
)
from pinlater.wire import convert
from pinlater.wire import convert_keyed as keyed
from pinlater.wire.codec import CallReader, RefusedCall, decode_call
from pinlater.wire.interface import LAYOUTS, MODULE
from pinlater.wire.message import Protocol, WireError, WireLimits
from tests.server.raw_thrift import CONTEXT, DOUBLE, I32, I64, LIST, STRING, STRUCT, message
from tests.unit.test_convert import (
    answered,
    body,
    descriptors,
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


@given(protocols, limits, st.lists(descriptors, max_size=3), st.lists(keys, max_size=3), st.booleans(), number)
def test_lookups(
    protocol: Protocol, wire_limits: WireLimits, named: list[str], sent: list[KeyRef], results: bool, wait_ms: int
) -> None:
    request = convert.lookup_to_wire(named, False, results, wait_ms, "mail", sent)
    got = through("lookupJobs", protocol, wire_limits, 1, request=request).request
    assert (got.job_descriptors, list(keyed.keys_from_wire(got.keys))) == (named, sent)
    assert (got.include_result or False, got.wait_ms or 0, got.queue_name) == (results, wait_ms, "mail")


@given(protocols, limits, st.lists(keys, max_size=3), st.booleans(), st.lists(st.sampled_from(CancelOutcome)))
def test_cancels(
    protocol: Protocol, wire_limits: WireLimits, sent: list[KeyRef], running: bool, by_key: list[CancelOutcome]
) -> None:
    request = keyed.cancel_to_wire("mail", [DESCRIPTOR], sent, running)
    got = through("cancelJobs", protocol, wire_limits, 1, request=request).request
    assert (list(keyed.keys_from_wire(got.keys)), keyed.cancels_running(got)) == (sent, running)
    outcomes = Cancelled({DESCRIPTOR: CancelOutcome.REQUESTED}, by_key)
    read = keyed.cancelled_from_wire(answered("cancelJobs", protocol, wire_limits, keyed.cancelled_to_wire(outcomes)))
    assert (read, read.by_key) == (outcomes, by_key)


changes = st.builds(
    RescheduleJob,
    text,
    st.none() | keys,
    st.none() | time_ms,
    st.none() | body,
    st.none() | number,
    st.none() | time_ms,
)


@given(protocols, limits, st.lists(changes, max_size=3), st.lists(st.sampled_from(RescheduleOutcome)))
def test_reschedules(
    protocol: Protocol, wire_limits: WireLimits, sent: list[RescheduleJob], outcomes: list[RescheduleOutcome]
) -> None:
    request = keyed.reschedule_to_wire("mail", sent)
    got = through("rescheduleJobs", protocol, wire_limits, 1, request=request).request
    assert (got.queue_name, keyed.reschedules_from_wire(got.jobs)) == ("mail", sent)
    told = answered("rescheduleJobs", protocol, wire_limits, keyed.rescheduled_to_wire(outcomes))
    assert keyed.rescheduled_from_wire(told) == outcomes


@given(protocols, limits, st.lists(st.tuples(fractions, st.none() | text, st.sampled_from(HeartbeatOutcome), text)))
def test_heartbeats(protocol: Protocol, wire_limits: WireLimits, values: list[Any]) -> None:
    beats = [Heartbeat(f"{DESCRIPTOR}{n}", "a claim", value[0], value[1]) for n, value in enumerate(values)]
    request = keyed.heartbeats_to_wire("mail", beats)
    got = through("heartbeatJobs", protocol, wire_limits, 1, request=request).request
    assert keyed.heartbeats_from_wire(got.heartbeats) == beats
    answers = [HeartbeatAnswer(o, by if o is HeartbeatOutcome.CANCEL else "") for _, _, o, by in values]
    response = answered("heartbeatJobs", protocol, wire_limits, keyed.heartbeat_answers_to_wire(beats, answers))
    assert keyed.heartbeat_answers_from_wire(beats, response) == answers
    with pytest.raises(ProtocolError):
        keyed.heartbeat_answers_from_wire([*beats, Heartbeat(DESCRIPTOR, "")], response)


@given(protocols, limits, st.none() | body, text, fractions, wide)
def test_what_is_known_of_such_a_job(
    protocol: Protocol, wire_limits: WireLimits, result: bytes | None, said: str, fraction: float | None, at_ms: int
) -> None:
    info = JobInfo(DESCRIPTOR, JobState.FAILED, 1, 2, 0, "", 5, 6, 7, result=result, dedupe_key=said, cancelled=True)
    info.serialize_key = info.waits_for = info.cancel_requested_by = said
    info.expires_at_ms, info.claim_timeout_ms = at_ms, 5
    info.progress = JobProgress(fraction, said, at_ms)
    found = answered("lookupJobs", protocol, wire_limits, {DESCRIPTOR: info})
    assert convert.lookup_from_wire(found) == {DESCRIPTOR: info}


@given(protocols, limits, body)
def test_results_of_acks_and_outcomes_of_enqueues(protocol: Protocol, wire_limits: WireLimits, result: bytes) -> None:
    ack = Ack(DESCRIPTOR, result=result)
    got = through("ackJobs", protocol, wire_limits, 1, request=convert.acks_to_wire("mail", [ack], [])).request
    assert convert.acks_from_wire(got.jobs_succeeded) == [ack]
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


def test_numbers_that_name_nothing_are_invalid() -> None:
    args = decode_call(message("enqueueJobs", jobs_with((100, STRING, b"a"), (103, I32, 3)))).args
    with pytest.raises(RequestInvalid, match="onDuplicate is 3"):
        convert.jobs_from_wire(args.request.jobs)
    fields = [(1, STRING, b"mail"), (2, LIST, (STRING, [])), (4, I32, 2)]
    request = decode_call(message("cancelJobs", [CONTEXT, (2, STRUCT, fields)])).args.request
    with pytest.raises(RequestInvalid, match="mode is 2"):
        keyed.cancels_running(request)


@pytest.mark.parametrize("field", [100, 101, 102, 103, 104, 105, 106])
def test_a_field_of_another_type_is_no_message(field: int) -> None:
    wanted = LAYOUTS.of(MODULE.PinLaterJob).fields[field].node.ttype
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
