"""Thrift in this process: calls that a server reads, answers that a client or another server reads, and streams."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pinlater.client.connection import METHOD_CODECS
from pinlater.errors import PinLaterError
from pinlater.wire.codec import (
    BadCall,
    CallReader,
    RefusedCall,
    Reply,
    WireCall,
    decode_call,
    decode_reply,
    encode_application_exception,
    encode_call,
    encode_reply,
)
from pinlater.wire.faults import error_from_exception, exception_from_error
from pinlater.wire.framing import Splitter
from pinlater.wire.interface import Struct
from pinlater.wire.message import DEFAULT_LIMITS, WireError, WireLimits, read_header
from pinlater.wire.methods import METHODS
from tests.fuzz.faults import FaultFound
from tests.fuzz.messages import answers, calls, changed_message
from tests.fuzz.target import Run, Target
from tests.server.raw_thrift import framed

_ALWAYS_WALKED = WireLimits(walk_over_bytes=0)
"""Messages of any size go the way of large ones."""


def _outcome(read: Callable[[bytes], WireCall], data: bytes) -> tuple[object, ...]:
    """What came of a call; of one that cannot be read only that, as readers word it in their own ways."""
    try:
        return ("read", *read(data))
    except RefusedCall as refused:
        return ("refused", *refused.call, type(refused.error))
    except BadCall as error:
        answer = encode_application_exception(error.header.name, error.header.seqid, error.kind, error.message)
        try:
            decode_reply(answer)
        except WireError as read_back:
            return ("bad", error.kind, read_back.message == error.message)
        return ("bad", error.kind, "its answer is none")
    except WireError as error:
        return ("lost", error.kind)


@contextmanager
def _calls() -> Iterator[Run]:
    reader = CallReader()
    for data in calls():
        reader.read(data)

    def run(data: bytes) -> None:
        plain = _outcome(decode_call, data)
        for name, other in (
            ("by its head", _outcome(reader.read, data)),
            ("by the walk", _outcome(lambda each: decode_call(each, _ALWAYS_WALKED), data)),
        ):
            if not _same(plain, other):
                raise FaultFound(f"a call is read otherwise {name}: {plain} and {other}")
        if plain[0] == "read":
            _read_again(WireCall(*plain[1:]))  # type: ignore[arg-type]

    yield run


def _read_again(call: WireCall) -> None:
    """What was read can be written, and is then read as the same."""
    written = encode_call(call.name, call.seqid, call.args, call.protocol)
    again = decode_call(written)
    if not _same(call, again):
        raise FaultFound(f"a call that is written again is another one: {call} and {again}")


def _same(one: object, other: object) -> bool:
    return repr(_plain(one)) == repr(_plain(other))  # by their texts, as no number that is none equals itself


def _plain(value: Any) -> Any:
    """The same where structs have their fields in one order, and lack what is None."""
    if isinstance(value, Struct):
        return [(name, _plain(each)) for name, each in sorted(vars(value).items()) if each is not None]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, set):
        return sorted(map(repr, value))
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value


@contextmanager
def _answers() -> Iterator[Run]:
    def run(data: bytes) -> None:
        header = read_header(data)
        codec = METHOD_CODECS.get(header.name)
        reply = decode_reply(data)
        if codec is not None and header.seqid >= 0:  # as in every call of a client
            codec.result(data, codec.due(header.seqid), header.seqid, DEFAULT_LIMITS)
        _model_of(reply)

    yield run


def _model_of(reply: Reply) -> None:
    """What a client makes of it. PinLaterError: it is no answer of a server."""
    if reply.exception is not None:
        encode_reply(reply.name, 1, exception=exception_from_error(error_from_exception(reply.exception)))
    else:
        METHODS[reply.name].result(reply.success)


@contextmanager
def _streams() -> Iterator[Run]:
    def run(data: bytes) -> None:
        """The same bytes at once, byte by byte and in pieces come to the same messages."""
        whole = _cut(data, len(data) or 1)
        for size in (1, 1 + zlib.crc32(data) % 97):
            pieces = _cut(data, size)
            if pieces != whole:
                raise FaultFound(f"a stream in pieces of {size} bytes has other messages: {whole} and {pieces}")

    yield run


def _cut(data: bytes, size: int) -> tuple[list[bytes], bool]:
    """The messages, and whether the stream was lost behind them."""
    splitter = Splitter()
    found: list[bytes] = []
    try:
        for at in range(0, len(data), size):
            for message in splitter.feed(data[at : at + size]):
                found.append(message)  # those before an error are found too
    except WireError:
        return found, True
    return found, False


def _streams_of_calls() -> Iterator[bytes]:
    every = list(calls())
    for one, other in zip(every[::5], every[2::5], strict=False):
        yield framed(one) + framed(other)
        yield one + one


def _changed_stream(data: bytes, dice: Any) -> bytes:
    """Unframed messages are changed by their structure, with what follows them; frames by their bytes."""
    if data[:4] == b"\x00\x00\x00\x00" or data[:1] != b"\x00":
        return changed_message(data, dice)
    size = int.from_bytes(data[:4], "big")
    return framed(changed_message(data[4 : 4 + size], dice)) + data[4 + size :]


TARGETS = (
    Target(
        "thrift-calls",
        "calls, read in three ways that must agree, written again and read as the same",
        _calls,
        calls,
        changed_message,
        (),
    ),
    Target(
        "thrift-answers",
        "answers, as clients and the other servers of a cluster read them",
        _answers,
        answers,
        changed_message,
        (WireError, PinLaterError),
    ),
    Target(
        "thrift-streams",
        "streams of messages, framed and not, which must fall into the same messages however they come",
        _streams,
        _streams_of_calls,
        _changed_stream,
        (),
    ),
)
