"""The model through the wire and back, by random values; and the defaults of the interface."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater import errors
from pinlater.errors import ErrorCode, PinLaterError
from pinlater.model import (
    MAX_TIME_MS,
    Ack,
    AckOutcome,
    Checkpoint,
    DequeuedFromQueues,
    DequeuedJob,
    DequeuedJobs,
    DequeueRequest,
    Job,
    JobFilter,
    JobState,
    OutboxReport,
    RequestContext,
    UnknownType,
    WorkerJob,
    WorkerReport,
)
from pinlater.wire import convert
from pinlater.wire.codec import decode_call, decode_reply, encode_call, encode_reply, encode_struct
from pinlater.wire.convert import call_args
from pinlater.wire.faults import error_from_application, error_from_exception, exception_from_error
from pinlater.wire.interface import LAYOUTS, SIGNATURES, struct
from pinlater.wire.message import ApplicationErrorKind, Protocol, WireError, WireLimits
from pinlater.wire.struct_map import list_reader, reader
from tests.server.raw_thrift import CONTEXT, I32, LIST, STRING, STRUCT, message

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
body = st.binary(max_size=300)
time_ms = st.integers(0, MAX_TIME_MS)
number = st.integers(-(2**31), 2**31 - 1)
priority = st.integers(-128, 127)
protocols = st.sampled_from([Protocol.BINARY, Protocol.COMPACT, Protocol.BINARY_OLD])
limits = st.sampled_from([WireLimits(), WireLimits(walk_over_bytes=0)])
seqids = st.integers(-(2**31), 2**31 - 1)
descriptors = st.builds("q:s1:p{}:{}".format, st.integers(1, 3), st.integers(10**15, 10**16 - 1))

jobs = st.builds(Job, body, priority, st.none() | time_ms, number, text)
acks = st.builds(Ack, text, text, st.integers(-(2**63), 2**63 - 1), text, st.booleans())
checkpoints = st.builds(
    Checkpoint, text, st.none() | body, st.booleans(), st.none() | time_ms, st.none() | number, text, text
)
dequeued = st.builds(
    lambda descriptor, *rest: DequeuedJob(descriptor, rest[0], int(descriptor.split(":")[2][1:]), *rest[1:]),
    descriptors,
    body,
    number,
    number,
    time_ms,
    time_ms,
    text,
    time_ms,
)

natural = st.integers(0, 2**31 - 1)
workers = st.builds(
    WorkerReport,
    text,
    text,
    time_ms,
    text,
    natural,
    st.dictionaries(text, natural, max_size=3),
    natural,
    natural,
    natural,
    st.lists(st.builds(WorkerJob, text, text, time_ms), max_size=3),
    st.dictionaries(text, text, max_size=3),
    st.booleans(),
    st.booleans(),
    time_ms,
    outbox=st.none() | st.builds(OutboxReport, text, natural, natural, natural, text),
    unknown_types=st.lists(st.builds(UnknownType, text, text, natural, natural), max_size=3),
)

read_checkpoints = list_reader(Checkpoint, LAYOUTS.of("PinLaterCheckpointJobRequest"))
outcomes = st.lists(st.sampled_from(AckOutcome), max_size=6)
ALIKE = [DequeuedJob(f"q:s1:p1:{10**15 + n}", b"x" * (n % 3), 1, 5, 5, 7, 8, "claim", 9) for n in range(4)]
"""Jobs that differ in their descriptors and bodies only."""


def through(method: str, protocol: Protocol, wire_limits: WireLimits, seqid: int, **arguments: Any) -> Any:
    """The arguments of a call after their way through the wire; its context is checked on the way."""
    context = RequestContext("source ü", "17")
    args = call_args(method, context, **arguments)
    call = decode_call(encode_call(method, seqid, args, protocol), wire_limits)
    assert (call.name, call.seqid) == (method, seqid)
    assert (call.args.context.source, call.args.context.request_id) == ("source ü", "17")
    return call.args


def answered(method: str, protocol: Protocol, wire_limits: WireLimits, success: Any) -> Any:
    return decode_reply(encode_reply(method, 1, success, protocol=protocol), wire_limits).success


@given(protocols, limits, seqids, text, st.lists(jobs, max_size=5))
def test_jobs(protocol: Protocol, wire_limits: WireLimits, seqid: int, queue: str, sent: list[Job]) -> None:
    request = convert.enqueue_to_wire(queue, sent)
    got = through("enqueueJobs", protocol, wire_limits, seqid, request=request).request
    assert (got.queue, convert.jobs_from_wire(got.jobs)) == (queue, sent)


@given(protocols, limits, st.lists(acks, max_size=4), st.lists(acks, max_size=4))
def test_acks(protocol: Protocol, wire_limits: WireLimits, succeeded: list[Ack], failed: list[Ack]) -> None:
    request = convert.acks_to_wire("mail", succeeded, failed)
    got = through("ackDequeuedJobs", protocol, wire_limits, 1, request=request).request
    assert convert.acks_from_wire(got.succeeded or ()) == succeeded
    assert convert.acks_from_wire(got.failed or ()) == failed


@given(protocols, limits, st.lists(checkpoints, max_size=4))
def test_checkpoints(protocol: Protocol, wire_limits: WireLimits, sent: list[Checkpoint]) -> None:
    request = convert.checkpoints_to_wire("mail", sent)
    got = through("checkpointJobs", protocol, wire_limits, 1, request=request).request
    assert (got.queue, read_checkpoints(got.checkpoints)) == ("mail", sent)


@given(protocols, limits, workers)
def test_reports_of_workers(protocol: Protocol, wire_limits: WireLimits, report: WorkerReport) -> None:
    wanted = DequeueRequest("mail", 1, worker=report)
    got = through("dequeueJobs", protocol, wire_limits, 1, request=convert.dequeue_to_wire(wanted)).request
    assert convert.dequeue_from_wire(got).worker == report
    request = convert.checkpoints_to_wire("mail", [], report)
    got = through("checkpointJobs", protocol, wire_limits, 1, request=request).request
    assert reader(WorkerReport, LAYOUTS.of("WorkerReport"))(got.worker) == report


@given(
    protocols,
    limits,
    st.builds(
        DequeueRequest,
        text,
        number,
        st.lists(acks, max_size=3),
        st.lists(acks, max_size=3),
        st.just("other"),
        st.booleans(),
        st.floats(allow_nan=False),
        number,
        st.none() | number,
    ),
)
def test_dequeue_requests(protocol: Protocol, wire_limits: WireLimits, sent: DequeueRequest) -> None:
    request = convert.dequeue_to_wire(sent)
    got = convert.dequeue_from_wire(through("dequeueJobs", protocol, wire_limits, 1, request=request).request)
    if not sent.succeeded and not sent.failed:
        sent.ack_queue, sent.succeeded, sent.failed = "", (), ()
    assert got == sent


@given(
    protocols,
    limits,
    st.lists(dequeued, max_size=6, unique_by=lambda job: job.descriptor),
    st.lists(outcomes, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_jobs_of_many_queues_with_errors_outcomes_and_whether_a_receipt_is_awaited(
    protocol: Protocol,
    wire_limits: WireLimits,
    sent: list[DequeuedJob],
    told: list[list[AckOutcome]],
    has_error: bool,
    awaits_receipt: bool,
) -> None:
    error = errors.DequeueRateLimited("it is paused", reason="QUEUE_PAUSED", retry_after_ms=5)
    dequeued_jobs = DequeuedFromQueues(sent, {"mail": error} if has_error else {}, told)
    wire = convert.dequeued_from_queues_to_wire(dequeued_jobs, awaits_receipt=awaits_receipt)
    response = answered("dequeueFromQueues", protocol, wire_limits, wire)
    assert bool(response.awaits_receipt) is awaits_receipt
    for empty in (False, True):
        if empty:
            response = answered("dequeueFromQueues", protocol, wire_limits, convert.emptied_to_wire(dequeued_jobs))
        got = convert.dequeued_from_queues_from_wire(response)
        assert got == ([] if empty else sent)
        assert [list(each) for each in got.ack_outcomes] == told
        assert set(got.queue_errors) == ({"mail"} if has_error else set())
        for each in got.queue_errors.values():
            assert type(each) is errors.DequeueRateLimited
            assert (each.message, each.reason, each.retryable) == ("it is paused", "QUEUE_PAUSED", True)
            assert each.retry_after_ms == 5


@given(protocols, limits, st.lists(dequeued, max_size=6, unique_by=lambda job: job.descriptor))
def test_dequeued_jobs_in_their_order(protocol: Protocol, wire_limits: WireLimits, sent: list[DequeuedJob]) -> None:
    response = answered("dequeueJobs", protocol, wire_limits, convert.dequeued_to_wire(sent))
    assert convert.dequeued_from_wire(response) == sent


@given(protocols, limits, st.lists(dequeued, max_size=6, unique_by=lambda job: job.descriptor), outcomes)
def test_what_became_of_riding_acks_comes_with_the_jobs(
    protocol: Protocol, wire_limits: WireLimits, sent: list[DequeuedJob], told: list[AckOutcome]
) -> None:
    wire = convert.dequeued_to_wire(DequeuedJobs(sent, told))
    got = convert.dequeued_from_wire(answered("dequeueJobs", protocol, wire_limits, wire))
    assert (got, got.ack_outcomes) == (sent, told)
    empty = convert.emptied_to_wire(DequeuedJobs(sent, told))
    got = convert.dequeued_from_wire(answered("dequeueJobs", protocol, wire_limits, empty))
    assert (got, got.ack_outcomes) == ([], told)


@given(st.lists(st.sampled_from(ALIKE) | dequeued, max_size=6, unique_by=lambda job: job.descriptor), outcomes)
def test_dequeued_jobs_are_put_together_as_the_codec_does_it(sent: list[DequeuedJob], told: list[AckOutcome]) -> None:
    layout = SIGNATURES["dequeueJobs"].result
    result = layout.cls()
    result.success = convert.dequeued_to_wire(DequeuedJobs(sent, told))
    encoded = encode_struct(result, Protocol.BINARY, layout.encode_args)
    assert result.success.binary_result() == encoded


def leaves(cls: type[PinLaterError]) -> list[type[PinLaterError]]:
    return [cls, *(leaf for child in cls.__subclasses__() for leaf in leaves(child))]


LOCAL = {errors.ServerUnreachable, errors.ProtocolError, errors.MethodUnknown, PinLaterError}
BY_REASON = (errors.NothingStored, errors.RequestInvalid, errors.StoreRefused)
"""Whose reason those below them may share, which are more to this server alone."""

SENT = [cls for cls in leaves(PinLaterError) if cls.__module__ == errors.__name__ and cls not in LOCAL]


@pytest.mark.parametrize("cls", SENT, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("protocol", list(Protocol), ids=lambda protocol: protocol.name)
def test_every_error_comes_back_as_itself(cls: type[PinLaterError], protocol: Protocol) -> None:
    sent = cls("what happened", retry_after_ms=250, acks_applied=True)
    data = encode_reply("dequeueJobs", 1, exception=exception_from_error(sent), protocol=protocol)
    got = error_from_exception(decode_reply(data).exception)
    plain = next((each for each in BY_REASON if issubclass(cls, each) and cls.reason == each.reason), cls)
    assert type(got) is plain
    assert (got.code, got.reason, got.retryable) == (sent.code, sent.reason, sent.retryable)
    assert (got.retry_after_ms, got.acks_applied, got.message) == (250, True, sent.wire_message())
    assert got.wire_message() == sent.wire_message()


@pytest.mark.parametrize(
    ("code", "text_", "cls"),
    [
        (ErrorCode.UNKNOWN, "REQUEST_INVALID: limit is 0", errors.RequestInvalid),
        (ErrorCode.UNKNOWN, "boom", errors.UnknownError),
        (ErrorCode.QUEUE_NOT_FOUND, "no queue", errors.QueueNotFound),
        (ErrorCode.DEQUEUE_RATE_LIMITED, "slow down", errors.DequeueRateLimited),
        (ErrorCode.SHARD_CONNECTION_FAILED, "gone", errors.ShardConnectionFailed),
        (999, "new", errors.UnknownError),
    ],
)
def test_an_error_of_a_server_without_our_fields_is_typed_too(code: int, text_: str, cls: type[PinLaterError]) -> None:
    exception = exception_from_error(errors.UnknownError(text_))
    exception.error_code, exception.reason, exception.retryable = code, None, None
    got = error_from_exception(exception)
    assert (type(got), got.retryable, got.message) == (cls, cls.retryable, text_)


def test_an_error_that_says_what_is_stored_is_none_by_which_nothing_is() -> None:
    """Its reason is that of the shard which took none; a caller would take it for an answer about all of them."""
    stored = "mail:s1:p1:1790000000000000"
    for told, cls in (([stored, ""], errors.ShardConnectionFailed), (["", ""], errors.HomeOut)):
        sent = errors.ShardConnectionFailed("one home is out", reason="HOME_OUT", job_descriptors=told)
        got = error_from_exception(exception_from_error(sent))
        assert (type(got), got.reason, got.job_descriptors) == (cls, "HOME_OUT", told)


FINER = {
    errors.ShardsFull: "SHARDS_FULL",
    errors.RecordChanged: "CHANGED",
    errors.FlowNotFound: "FLOW_NOT_FOUND",
    errors.ItemNotFound: "ITEM_NOT_FOUND",
    errors.ShardNotFound: "SHARD_NOT_FOUND",
    errors.StageSealed: "STAGE_SEALED",
    errors.LimitReached: "LIMIT_REACHED",
    errors.FlowsUnavailable: "FLOWS_UNAVAILABLE",
    errors.TierUnavailable: "TIER_UNAVAILABLE",
    errors.BodyGone: "BODY_UNAVAILABLE",
    errors.TagsNotSupported: "TAGS_NOT_SUPPORTED",
    errors.GroupsNotSupported: "GROUPS_NOT_SUPPORTED",
    errors.RequestInvalid: "REQUEST_INVALID",
    errors.BodyTooLarge: "BODY_TOO_LARGE",
    errors.Overloaded: "OVERLOADED",
    errors.Draining: "DRAINING",
    errors.HomesChanged: "HOMES_CHANGED",
    errors.HomeOut: "HOME_OUT",
    errors.HomeMoving: "HOME_MOVING",
    errors.KeysNotYet: "KEYS_NOT_YET",
    errors.TagsNotYet: "TAGS_NOT_YET",
    errors.GroupsNotYet: "GROUPS_NOT_YET",
    errors.BreakersNotYet: "BREAKERS_NOT_YET",
    errors.ReplaceRulesNotYet: "REPLACE_RULES_NOT_YET",
    errors.NothingStored: "NOTHING_STORED",
    errors.OutcomeUnknown: "OUTCOME_UNKNOWN",
    errors.StoreRefused: "STORE_REFUSED",
    errors.Forbidden: "FORBIDDEN",
}
"""What stands instead of the name of the code, also for the errors below these."""


NOT_SENT = (errors.ServerUnreachable, errors.ProtocolError, errors.MethodUnknown)
TOLD = [cls for cls in leaves(PinLaterError) if cls.__module__ == errors.__name__ and not issubclass(cls, NOT_SENT)]


@pytest.mark.parametrize("cls", TOLD, ids=lambda cls: cls.__name__)
def test_every_error_has_a_reason_for_programs_which_stays_the_same(cls: type[PinLaterError]) -> None:
    stable = next((word for parent, word in FINER.items() if issubclass(cls, parent)), cls.code.name)
    assert cls("what happened").reason == exception_from_error(cls("what happened")).reason == stable
    assert exception_from_error(cls("what happened", reason="")).reason == stable
    assert exception_from_error(cls("what happened", reason="OF_ITS_OWN")).reason == "OF_ITS_OWN"


def test_a_reason_that_is_the_name_of_the_code_is_not_said_twice() -> None:
    assert errors.UnknownError("boom").wire_message() == "boom"
    assert errors.UnknownError("boom", reason="DEADLINE_EXCEEDED").wire_message() == "DEADLINE_EXCEEDED: boom"


def test_an_application_exception_becomes_an_error_of_ours() -> None:
    unread = WireError("cut", kind=ApplicationErrorKind.PROTOCOL_ERROR)
    assert isinstance(error_from_application(unread), errors.ProtocolError)
    unknown = WireError("no such method", kind=ApplicationErrorKind.UNKNOWN_METHOD)
    assert isinstance(error_from_application(unknown), errors.UnknownError)


def arguments(method: str, *fields: Any) -> Any:
    return decode_call(message(method, [CONTEXT, (2, STRUCT, list(fields))])).args.request


def test_the_defaults_of_the_interface() -> None:
    queue = (1, STRING, b"mail")
    jobs_field = (2, LIST, (STRUCT, [[(1, STRING, b"x")]]))
    (job,) = convert.jobs_from_wire(arguments("enqueueJobs", queue, jobs_field).jobs)
    assert job == Job(b"x", 1, None, 2, "")
    request = convert.dequeue_from_wire(arguments("dequeueJobs", queue, (2, I32, 10)))
    assert request == DequeueRequest("mail", 10)
    read = list_reader(JobFilter, LAYOUTS.of("PinLaterDeleteJobsRequest"), others=("limit",))
    assert read([arguments("deleteJobs", queue, (2, I32, 3))]) == [JobFilter("mail", JobState.FAILED, 1)]


def test_the_body_in_bytes_counts_before_the_one_in_text() -> None:
    fields = [(1, STRING, b"d"), (2, STRING, b"text"), (101, STRING, b"\xff")]
    request = arguments("checkpointJobs", (1, STRING, b"mail"), (2, LIST, (STRUCT, [fields])))
    assert read_checkpoints(request.checkpoints) == [Checkpoint("d", b"\xff")]


def test_a_dequeue_can_ask_to_have_its_claims_bound_to_its_connection() -> None:
    request = arguments("dequeueJobs", (1, STRING, b"mail"), (2, I32, 1), (102, 2, True))
    assert convert.dequeue_from_wire(request) == DequeueRequest("mail", 1, release_on_disconnect=True)
    request = arguments("dequeueJobs", (1, STRING, b"mail"), (2, I32, 1))
    assert convert.dequeue_from_wire(request) == DequeueRequest("mail", 1)


def test_what_an_older_server_does_not_say_is_filled_in() -> None:
    response = struct("PinLaterDequeueResponse")()
    response.jobs = {"q:s1:p2:1000000000000000": b"x"}
    (job,) = convert.dequeued_from_wire(decode_reply(encode_reply("dequeueJobs", 1, response)).success)
    assert (job.priority, job.claim_descriptor, job.attempts_allowed) == (2, "", 0)
