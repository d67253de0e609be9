"""Messages and structs: what goes in comes out, and what is not the contract is refused."""

from __future__ import annotations

from typing import Any

import pytest
import thriftpy2.protocol
import thriftpy2.transport

from pinlater.errors import QueueNameInvalid, RequestInvalid
from pinlater.model import Job, RequestContext
from pinlater.wire import codec, convert, interface
from pinlater.wire.codec import BadCall, RefusedCall, decode_call, decode_reply, encode_call, encode_reply
from pinlater.wire.message import ApplicationErrorKind, Protocol, WireError, WireLimits
from tests.server.raw_thrift import (
    BOOL,
    BYTE,
    CONTEXT,
    I32,
    I64,
    LIST,
    MAP,
    SAMPLES,
    STRING,
    STRUCT,
    WIRE_TYPES,
    enqueue,
    message,
)
from tests.thrift_module import MODULE

PROTOCOLS = [Protocol.BINARY, Protocol.COMPACT, Protocol.BINARY_OLD]
WALKED = WireLimits(walk_over_bytes=0)
BOTH_WAYS = pytest.mark.parametrize("limits", [WireLimits(), WALKED], ids=["decoded first", "walked first"])
EACH_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
CALLER = RequestContext("me", "request-1")


def enqueue_args(*jobs: Job) -> Any:
    return convert.call_args("enqueueJobs", CALLER, request=convert.enqueue_to_wire("mail", jobs))


def job_fields(*fields: Any) -> list[Any]:
    """The arguments of an enqueue call with one job of these fields."""
    return [CONTEXT, (2, STRUCT, [(1, STRING, b"mail"), (2, LIST, (STRUCT, [list(fields)]))])]


@EACH_PROTOCOL
@BOTH_WAYS
def test_a_call_comes_out_as_it_went_in(protocol: Protocol, limits: WireLimits) -> None:
    sent = Job(b"\xff\x00 body", 3, 2**53 - 1, 7, "übergeben")
    call = decode_call(encode_call("enqueueJobs", -5, enqueue_args(sent), protocol), limits)
    job = call.args.request.jobs[0]
    assert (call.name, call.seqid, call.protocol) == ("enqueueJobs", -5, protocol)
    assert (call.args.context.source, call.args.context.request_id) == ("me", "request-1")
    assert (job.body, job.priority, job.run_after_ms, job.attempts_allowed, job.custom_status) == (
        sent.body,
        sent.priority,
        sent.run_after_ms,
        sent.attempts_allowed,
        sent.custom_status,
    )


@EACH_PROTOCOL
def test_an_answer_comes_out_as_it_went_in(protocol: Protocol) -> None:
    reply = decode_reply(encode_reply("getQueueNames", 9, {"mail", "images"}, protocol=protocol))
    assert (reply.name, reply.seqid, reply.success, reply.exception) == ("getQueueNames", 9, {"mail", "images"}, None)
    assert decode_reply(encode_reply("getJobCount", 9, 0, protocol=protocol)).success == 0
    assert decode_reply(encode_reply("createQueue", 9, protocol=protocol)).success is None


@EACH_PROTOCOL
@BOTH_WAYS
def test_fields_that_were_not_sent_are_none(protocol: Protocol, limits: WireLimits) -> None:
    job = decode_call(enqueue([b"x"], protocol), limits).args.request.jobs[0]
    assert (job.body, job.priority, job.run_after_ms, job.custom_status) == (b"x", None, None, None)


@pytest.mark.parametrize("name", sorted(interface.SIGNATURES))
def test_thriftpy2_reads_what_is_encoded_and_the_other_way_round(name: str) -> None:
    args_class = getattr(MODULE.PinLater, f"{name}_args")
    samples = _sample_args(name)
    theirs = args_class(**samples)
    buffer = thriftpy2.transport.TMemoryBuffer()
    writer = thriftpy2.protocol.TBinaryProtocol(buffer)
    writer.write_message_begin(name, 1, 3)
    theirs.write(writer)
    writer.write_message_end()
    call = decode_call(buffer.getvalue())
    again = thriftpy2.transport.TMemoryBuffer(encode_call(name, 3, call.args))
    reader = thriftpy2.protocol.TBinaryProtocol(again)
    assert reader.read_message_begin() == (name, 1, 3)
    back = args_class()
    back.read(reader)
    assert back == theirs


def _sample_args(name: str) -> dict[str, Any]:
    module = MODULE
    samples: dict[str, Any] = {"context": module.RequestContext(source="me", requestId="1")}
    for spec in getattr(module.PinLater, f"{name}_args").thrift_spec.values():
        if spec[1] != "context":
            samples[spec[1]] = "text" if spec[0] == STRING else _sample_struct(spec[2])
    return samples


def _sample_struct(cls: Any) -> Any:
    values = {spec[1]: _sample(spec[0], spec[2] if len(spec) == 4 else None) for spec in cls.thrift_spec.values()}
    return cls(**values)


def _sample(ttype: int, inner: Any) -> Any:
    if ttype == STRUCT:
        return _sample_struct(inner)
    if ttype == LIST:
        ttype, inner = inner if isinstance(inner, tuple) else (inner, None)
        return [_sample(ttype, inner)] * 2
    if ttype == MAP:
        return {_sample(inner[0], None): _sample(inner[1], None)}
    return {18: b"\xfe", STRING: "ü", BOOL: True, BYTE: 3, I32: 4, I64: 5, 4: 0.25}[ttype]


@EACH_PROTOCOL
@BOTH_WAYS
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([CONTEXT], "request is missing"),
        ([(2, STRUCT, [(1, STRING, b"mail"), (2, LIST, (STRUCT, []))])], "context is missing"),
        ([(1, STRUCT, []), (2, STRUCT, [(1, STRING, b"q"), (2, LIST, (STRUCT, []))])], "source is missing"),
        ([CONTEXT, (2, STRUCT, [(1, STRING, b"mail")])], "jobs is missing"),
        ([CONTEXT, (2, STRUCT, [(2, LIST, (STRUCT, []))])], "queueName is missing"),
        (job_fields((2, BYTE, 1)), "body is missing"),
        (job_fields(), "body is missing"),
    ],
)
def test_a_missing_required_field_is_refused(protocol: Protocol, limits: WireLimits, fields: Any, says: str) -> None:
    with pytest.raises(BadCall, match=says) as caught:
        decode_call(message("enqueueJobs", fields, protocol), limits)
    assert caught.value.kind is ApplicationErrorKind.PROTOCOL_ERROR
    assert (caught.value.header.name, caught.value.header.seqid) == ("enqueueJobs", 7)


@EACH_PROTOCOL
@BOTH_WAYS
@pytest.mark.parametrize(("field_id", "right"), [(1, STRING), (2, BYTE), (3, I64), (4, I32), (5, STRING)])
def test_a_wrong_type_is_refused(protocol: Protocol, limits: WireLimits, field_id: int, right: int) -> None:
    for ttype in WIRE_TYPES:
        fields = [] if field_id == 1 else [(1, STRING, b"x")]
        data = message("enqueueJobs", job_fields(*fields, (field_id, ttype, SAMPLES[ttype])), protocol)
        if ttype == right:
            decode_call(data, limits)
        else:
            with pytest.raises(BadCall, match="wire type"):
                decode_call(data, limits)


@EACH_PROTOCOL
@BOTH_WAYS
@pytest.mark.parametrize("wrong", [ttype for ttype in WIRE_TYPES if ttype != STRUCT])
def test_a_list_of_a_wrong_type_is_refused(protocol: Protocol, limits: WireLimits, wrong: int) -> None:
    fields = [CONTEXT, (2, STRUCT, [(1, STRING, b"mail"), (2, LIST, (wrong, [SAMPLES[wrong]]))])]
    with pytest.raises(BadCall):
        decode_call(message("enqueueJobs", fields, protocol), limits)


@EACH_PROTOCOL
@BOTH_WAYS
@pytest.mark.parametrize(
    "twice",
    [(1, STRING, b"y"), (2, BYTE, 2), (3, I64, 3), (4, I32, 4), (5, STRING, b"")],
    ids=lambda field: f"field {field[0]}",
)
def test_a_field_that_comes_twice_is_refused(protocol: Protocol, limits: WireLimits, twice: Any) -> None:
    first = [] if twice[0] == 1 else [(1, STRING, b"x")]
    with pytest.raises(BadCall, match="is there twice"):
        decode_call(message("enqueueJobs", job_fields(*first, twice, twice), protocol), limits)
    request = (2, STRUCT, [(1, STRING, b"mail"), (2, LIST, (STRUCT, []))])
    for fields in ([CONTEXT, CONTEXT, request], [CONTEXT, request, request]):
        with pytest.raises(BadCall, match="is there twice"):
            decode_call(message("enqueueJobs", fields, protocol), limits)


INVALID_UTF8 = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"ab\x80cd"]


@EACH_PROTOCOL
@BOTH_WAYS
@pytest.mark.parametrize("raw", INVALID_UTF8)
def test_text_that_is_not_utf8_has_replacement_characters(protocol: Protocol, limits: WireLimits, raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    call = decode_call(message("enqueueJobs", job_fields((1, STRING, b"x"), (5, STRING, raw)), protocol), limits)
    assert call.args.request.jobs[0].custom_status == text
    caller = (1, STRUCT, [(1, STRING, raw), (2, STRING, raw)])
    call = decode_call(message("createQueue", [caller, (2, STRING, b"mail")], protocol), limits)
    assert (call.args.context.source, call.args.context.request_id, call.args.name) == (text, text, "mail")
    names = message("lookupJobs", [CONTEXT, (2, STRUCT, [(1, LIST, (STRING, [b"a", raw]))])], protocol)
    assert decode_call(names, limits).args.request.descriptors == ["a", text]


@EACH_PROTOCOL
@BOTH_WAYS
@pytest.mark.parametrize("raw", [*INVALID_UTF8, b"x" * 200 + b"\xff"])
def test_a_queue_s_name_and_a_pattern_must_be_utf8(protocol: Protocol, limits: WireLimits, raw: bytes) -> None:
    counted = (2, STRUCT, [(1, STRING, b"mail"), (2, I32, 0), (5, STRING, raw)])
    riding = (2, STRUCT, [(1, STRING, b"mail"), (2, I32, 1), (3, STRUCT, [(1, STRING, raw)])])
    for method, fields, error, field in (
        ("createQueue", [CONTEXT, (2, STRING, raw)], QueueNameInvalid, "name"),
        ("ackDequeuedJobs", [CONTEXT, (2, STRUCT, [(1, STRING, raw)])], QueueNameInvalid, "queueName"),
        ("dequeueJobs", [CONTEXT, riding], QueueNameInvalid, "queueName"),
        ("getJobCount", [CONTEXT, counted], RequestInvalid, "bodyRegexToMatch"),
    ):
        with pytest.raises(RefusedCall, match=f"^{field} is not UTF-8") as refused:
            decode_call(message(method, fields, protocol), limits)
        assert type(refused.value.error) is error
        assert (refused.value.call.name, refused.value.call.seqid) == (method, 7)


@EACH_PROTOCOL
@BOTH_WAYS
def test_bodies_and_the_replacement_character_itself_are_taken(protocol: Protocol, limits: WireLimits) -> None:
    for raw in INVALID_UTF8:
        assert decode_call(enqueue([raw], protocol), limits).args.request.jobs[0].body == raw
    data = message("createQueue", [CONTEXT, (2, STRING, "\ufffd".encode())], protocol)
    assert decode_call(data, limits).args.name == "\ufffd"


@EACH_PROTOCOL
@BOTH_WAYS
@pytest.mark.parametrize("raw", [*INVALID_UTF8, "Grüße".encode()])
def test_a_new_body_keeps_its_bytes(protocol: Protocol, limits: WireLimits, raw: bytes) -> None:
    requests = (2, LIST, (STRUCT, [[(1, STRING, b"d"), (2, STRING, raw)]]))
    data = message("checkpointJobs", [CONTEXT, (2, STRUCT, [(1, STRING, b"mail"), requests])], protocol)
    assert decode_call(data, limits).args.request.checkpoints[0].new_text == raw


@EACH_PROTOCOL
@BOTH_WAYS
def test_unknown_fields_are_skipped_whatever_they_hold(protocol: Protocol, limits: WireLimits) -> None:
    deep: Any = [(5, STRING, b"\xff")]
    for _ in range(10):
        deep = [(1, STRUCT, deep), (2, LIST, (STRUCT, [deep][:0]))]
    strange = [(200 + ttype, ttype, SAMPLES[ttype]) for ttype in WIRE_TYPES]
    strange += [(-1, I32, 5), (300, LIST, (BOOL, [True] * 20)), (301, MAP, (I32, STRUCT, [(1, deep)]))]
    strange += [(302, LIST, (MAP, [(STRING, I64, [(b"k", 1)])])), (32767, LIST, (LIST, [(I64, [1, -1])]))]
    fields = job_fields((1, STRING, b"x"), *strange)
    assert decode_call(message("enqueueJobs", [*fields, *strange], protocol), limits).args.request.jobs[0].body == b"x"


@EACH_PROTOCOL
@BOTH_WAYS
def test_every_cut_message_and_every_trailing_byte_is_refused(protocol: Protocol, limits: WireLimits) -> None:
    args = enqueue_args(Job(b"body", 1, 5, 2, "status"), Job(b""))
    data = encode_call("enqueueJobs", 5, args, protocol)
    for cut in range(len(data)):
        with pytest.raises(WireError):
            decode_call(data[:cut], limits)
    for more in (b"\x00", b"\xff", data):
        with pytest.raises(BadCall, match="follow the message"):
            decode_call(data + more, limits)


@EACH_PROTOCOL
def test_an_unknown_method_and_a_wrong_kind_of_message_have_kinds_of_their_own(protocol: Protocol) -> None:
    with pytest.raises(BadCall, match="no method 'ping'") as caught:
        decode_call(message("ping", [], protocol))
    assert caught.value.kind is ApplicationErrorKind.UNKNOWN_METHOD
    for kind in (2, 3, 4):
        with pytest.raises(BadCall) as caught:
            decode_call(message("createQueue", [CONTEXT, (2, STRING, b"mail")], protocol, kind=kind))
        assert caught.value.kind is ApplicationErrorKind.INVALID_MESSAGE_TYPE


@EACH_PROTOCOL
def test_an_application_exception_reaches_the_client(protocol: Protocol) -> None:
    data = codec.encode_application_exception("ping", 4, ApplicationErrorKind.UNKNOWN_METHOD, "no ping", protocol)
    with pytest.raises(codec.ApplicationError, match="no ping") as caught:
        decode_reply(data)
    assert caught.value.kind is ApplicationErrorKind.UNKNOWN_METHOD


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n", b"\x81\x01\x00\x01", b"\x80\x02\x00\x01\x00\x00\x00\x00", b"\x82\x22aa"]
)
def test_what_is_no_thrift_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_call(data)


def test_large_answers_are_walked_too() -> None:
    descriptors = [f"mail:s1:p1:{1_790_000_000_000_000 + i}" for i in range(10)]
    reply = encode_reply("enqueueJobs", 1, convert.enqueued_to_wire(descriptors))
    assert decode_reply(reply, WALKED).success.job_descriptors == descriptors
    with pytest.raises(WireError, match="is there twice"):
        decode_reply(reply[:-1] + b"\x0c\x00\x00\x00\x00", WALKED)
