"""A message of bytes <-> its name, sequence id and struct.

What comes in is decoded by the C codec of Apache's package and then encoded again without the bodies: if that gives the
same length, and no replacement character, the message held nothing but what was decoded. Any other message (a field
unknown to us, a field twice, a wrong type, invalid UTF-8, …) and any large one is walked by the validator, which
decides. So every message is checked, and the usual ones at the cost of an encoding.

The C codec puts U+FFFD where a string is not UTF-8. That is right but for a queue's name and a pattern over bodies:
such a call is refused, with the interface's exception, and the connection goes on.
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct
from typing import Any, NamedTuple, NoReturn

from thrift.protocol import fastbinary

from pinlater.errors import PinLaterError, QueueNameInvalid, RequestInvalid
from pinlater.wire.dequeue_response import DequeueFromQueuesResponse, DequeueResponse
from pinlater.wire.interface import CONTEXT, I32, SIGNATURES, STRING, Field, Layout, Node, Signature, number
from pinlater.wire.message import (
    CALL,
    DEFAULT_LIMITS,
    EXCEPTION,
    REPLY,
    SEQID_BYTES,
    ApplicationErrorKind,
    Header,
    Protocol,
    WireError,
    WireLimits,
    read_header,
    write_header,
)
from pinlater.wire.validator import BinaryValidator, CompactValidator, NotText

_DECODE = (fastbinary.decode_binary, fastbinary.decode_compact, fastbinary.decode_binary)
_ENCODE = (fastbinary.encode_binary, fastbinary.encode_compact, fastbinary.encode_binary)
"""By the number of the Protocol."""


def _ends_early(partial: bytes, needed: int) -> NoReturn:
    raise EOFError("the message ends early")


class _Buffer:
    """What the C codec asks of a transport: a BytesIO, and more bytes, which there never are."""

    __slots__ = ("cstringio_buf",)
    cstringio_buf: BytesIO | None
    cstringio_refill = staticmethod(_ends_early)


class _Source:
    """What the C codec asks of a protocol: bounds, and a transport."""

    __slots__ = ("container_length_limit", "string_length_limit", "trans")

    def __init__(self, limits: WireLimits) -> None:
        self.trans = _Buffer()
        self.string_length_limit = limits.max_message_bytes
        self.container_length_limit = limits.max_container


def decode_struct(data: bytes, start: int, protocol: Protocol, layout: Layout, limits: WireLimits) -> Any:
    """The struct that fills `data` from `start` to the end. WireError for anything else."""
    source = _Source(limits)
    buffer = source.trans.cstringio_buf = BytesIO(data)
    buffer.seek(start)
    try:
        value = _DECODE[protocol](None, source, layout.decode_args)
    except Exception as error:  # EOFError, OverflowError, TypeError, ValueError, TProtocolException and others
        raise WireError(f"{layout.name}: {error}") from error
    if buffer.tell() != len(data):
        raise WireError(f"{layout.name}: {len(data) - buffer.tell()} bytes follow the message")
    return value


def encode_struct(value: Any, protocol: Protocol, args: list[Any]) -> bytes:
    """The bytes of an object that has the attributes of a layout's `encode_args`."""
    return _ENCODE[protocol](value, args)  # type: ignore[no-any-return]


_REPLACED = "\ufffd".encode()
"""Looked for by `find`: `in` makes and drops an error in front, since the left side might be a number."""
_COPIED_BYTES = 1024
"""Shorter messages are encoded again with the bodies in them: to copy those is less than to look for them."""

_BINARY = Protocol.BINARY
_CONTEXT_FIELD = b"\x0c\x00\x01"
_LONGEST_CONTEXT = 512
"""A longer one is not remembered: connections would hold much."""

_APPLICATION_ERROR = Layout(
    "TApplicationException",
    [
        Field(1, "message", "message", Node(STRING, text=True), False, 1),
        Field(2, "type", "type", number(I32), False, 2),
    ],
)


class WireCall(NamedTuple):
    """A decoded call; `args` has the method's arguments as attributes (`context`, `request` or others)."""

    name: str
    seqid: int
    args: Any
    protocol: Protocol


_new_tuple = tuple.__new__
"""Makes a WireCall without a frame of Python."""

_seqid_at = Struct(">i").unpack_from


class Reply(NamedTuple):
    """A decoded answer: `success` (None for a void method) or the declared `exception`, a struct (see faults.py)."""

    name: str
    seqid: int
    success: Any
    exception: Any


class BadCall(WireError):
    """A call that is refused, but whose header was readable, so that it can be answered."""

    def __init__(self, header: Header, error: WireError) -> None:
        super().__init__(error.message, kind=error.kind)
        self.header = header


class RefusedCall(Exception):
    """A call that can be read, but must not be carried out: `error` is the answer."""

    def __init__(self, call: WireCall, error: PinLaterError) -> None:
        super().__init__(error.message)
        self.call = call
        self.error = error


class ApplicationError(WireError):
    """A TApplicationException that a server sent: an unknown method, or a message that it could not read."""


def walk_struct(data: bytes | bytearray, header: Header, limits: WireLimits) -> BinaryValidator:
    """A walk that stands at the struct behind `header`."""
    walk = CompactValidator if header.protocol is Protocol.COMPACT else BinaryValidator
    return walk(data, header.body, limits)


def check_struct(data: bytes, header: Header, layout: Layout, limits: WireLimits) -> NotText | None:
    """Walk a whole struct that ends with the data; the strict text that is not UTF-8, if there is one. WireError."""
    walk = walk_struct(data, header, limits)
    for _ in walk.struct(layout):
        raise WireError(f"{layout.name}: the message ends early")
    if walk.at != len(data):
        raise WireError(f"{layout.name}: {len(data) - walk.at} bytes follow the message")
    return walk.not_text


def decode_call(data: bytes, limits: WireLimits = DEFAULT_LIMITS) -> WireCall:
    """The call that fills `data`, in any protocol.

    BadCall where it can be answered, UNKNOWN_METHOD among its kinds; RefusedCall where its answer is an error of the
    interface; WireError where not even the header can be read.
    """
    header = read_header(data)
    try:
        if header.kind != CALL:
            raise WireError(
                f"a message of type {header.kind}; a call is {CALL}", kind=ApplicationErrorKind.INVALID_MESSAGE_TYPE
            )
        args = _decode_args(data, header, _method(header.name), limits)
    except WireError as error:
        raise BadCall(header, error) from error
    return WireCall(header.name, header.seqid, args, header.protocol)


class _Head(NamedTuple):
    """What calls of one caller begin with, checked byte for byte: all up to the other arguments but the sequence id.

    `at` is where the struct begins, with `context_bytes`, and `body` what follows these.
    """

    signature: Signature
    forms: tuple[Layout, ...]
    at: int
    context_bytes: bytes
    body: int
    context: Any


class CallReader:
    """Reads the calls of one connection. A caller sends the same name and context with each call of a method, so these
    are read once, and compared from then on.
    """

    __slots__ = ("_heads", "_limits", "_source")

    def __init__(self, limits: WireLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._source = _Source(limits)
        self._heads: dict[bytes, _Head] = {}

    def read(self, data: bytes) -> WireCall:
        """The call that fills `data`; see `decode_call`."""
        size = len(data)
        if 8 < size <= self._limits.walk_over_bytes:
            head = self._heads.get(data[: 8 + data[7]])
            if head is not None and data.startswith(head.context_bytes, head.at):
                signature, forms, at, _, body, context = head
                buffer = self._source.trans.cstringio_buf = BytesIO(data)
                try:
                    for form in forms:
                        buffer.seek(body)
                        args = fastbinary.decode_binary(None, self._source, form.decode_args)
                        if size < _COPIED_BYTES or signature.bodies is None:
                            hidden, again = 0, fastbinary.encode_binary(args, form.encode_args)
                        else:
                            hidden = sum(map(len, signature.bodies(args)))
                            again = fastbinary.encode_binary(args, form.bodiless_args)
                        if len(again) + hidden == size - body and again.find(_REPLACED) < 0 and buffer.tell() == size:
                            args.context = context
                            (seqid,) = _seqid_at(data, at - SEQID_BYTES)
                            return _new_tuple(WireCall, (signature.name, seqid, args, _BINARY))
                except Exception:  # as in decode_struct
                    pass  # the careful reader says what is wrong
                finally:
                    self._source.trans.cstringio_buf = None
        call = decode_call(data, self._limits)
        self._learn(data, call)
        return call

    def _learn(self, data: bytes, call: WireCall) -> None:
        """Remember the head of a call, where its context comes first and has no unusual form."""
        if call.protocol is not _BINARY or data[2]:  # a byte that means nothing: heads that differ there would pile up
            return
        signature = SIGNATURES[call.name]
        name_end = 8 + data[7]
        at = name_end + SEQID_BYTES
        context_bytes = _CONTEXT_FIELD + encode_struct(call.args.context, _BINARY, CONTEXT.encode_args)
        if len(context_bytes) <= _LONGEST_CONTEXT and data.startswith(context_bytes, at):
            body = at + len(context_bytes)
            self._heads[data[:name_end]] = _Head(signature, signature.forms, at, context_bytes, body, call.args.context)


def decode_reply(data: bytes, limits: WireLimits = DEFAULT_LIMITS) -> Reply:
    """The answer that fills `data`. ApplicationError where the server sent one; WireError."""
    header = read_header(data)
    if header.kind == EXCEPTION:
        error = decode_struct(data, header.body, header.protocol, _APPLICATION_ERROR, limits)
        raise ApplicationError(error.message or "", kind=_kind(error.type))
    if header.kind != REPLY:
        raise WireError(f"a message of type {header.kind}; an answer is {REPLY}")
    method = _method(header.name)
    result = decode_result(data, header, method, limits)
    return Reply(header.name, header.seqid, None if method.void else result.success, result.e)


def decode_result(data: bytes, header: Header, method: Signature, limits: WireLimits) -> Any:
    """What follows the header of an answer: a struct with `success` (but for a void method) and `e`. WireError."""
    if len(data) > limits.walk_over_bytes:
        check_struct(data, header, method.result, limits)
    result = decode_struct(data, header.body, header.protocol, method.result, limits)
    lacking = method.result.missing([result])
    if lacking is not None:
        raise WireError(f"{lacking} is missing")
    if result.e is None and not method.void and result.success is None:
        raise WireError(f"the answer to {method.name} is empty")
    return result


def encode_call(name: str, seqid: int, args: Any, protocol: Protocol = Protocol.BINARY) -> bytes:
    """A call. `args` is any object with the method's arguments as attributes, `SIGNATURES[name].args.cls` for one."""
    return write_header(protocol, CALL, name, seqid) + encode_struct(args, protocol, SIGNATURES[name].encode_args(args))


def encode_reply(
    name: str, seqid: int, success: Any = None, exception: Any = None, protocol: Protocol = Protocol.BINARY
) -> bytes:
    """An answer: `success`, or the declared exception (see faults.py)."""
    signature = SIGNATURES[name]
    layout = signature.result
    if protocol is _BINARY:
        head = signature.reply_head + seqid.to_bytes(SEQID_BYTES, "big", signed=True)
    else:
        head = write_header(protocol, REPLY, name, seqid)
    if type(success) is DequeueResponse and protocol is not Protocol.COMPACT:
        return head + success.binary_result()
    if type(success) is DequeueFromQueuesResponse:
        if protocol is not Protocol.COMPACT:
            return head + success.binary_result()
        success = success.whole()
    result = layout.cls()
    if exception is not None:
        result.e = exception
    elif success is not None:
        result.success = success
    return head + encode_struct(result, protocol, layout.encode_args)


def encode_application_exception(
    name: str, seqid: int, kind: ApplicationErrorKind, text: str, protocol: Protocol = Protocol.BINARY
) -> bytes:
    """An answer that no method declares."""
    error = _APPLICATION_ERROR.cls()
    error.message, error.type = text, int(kind)
    return write_header(protocol, EXCEPTION, name, seqid) + encode_struct(
        error, protocol, _APPLICATION_ERROR.encode_args
    )


def _decode_args(data: bytes, header: Header, method: Signature, limits: WireLimits) -> Any:
    not_text = None
    large = len(data) > limits.walk_over_bytes
    if large:
        not_text = check_struct(data, header, method.args, limits)
    args = decode_struct(data, header.body, header.protocol, method.args, limits)
    if not large and not _is_whole(data, header, method, args):
        not_text = check_struct(data, header, method.args, limits)
    if not_text is not None:
        raise RefusedCall(WireCall(header.name, header.seqid, args, header.protocol), _text_error(not_text))
    return args


def _text_error(not_text: NotText) -> PinLaterError:
    text = f"{not_text.field} is not UTF-8: {not_text.raw[:100]!r}"
    return QueueNameInvalid(text) if not_text.field in ("queueName", "name") else RequestInvalid(text)


def _is_whole(data: bytes, header: Header, method: Signature, args: Any) -> bool:
    """Whether the decoded arguments, encoded again, are the message, and lack nothing."""
    try:
        again, hidden = _encode_again(header.protocol, method, args, len(data))
    except (TypeError, AttributeError):  # something is MISSING
        return False
    return len(again) + hidden == len(data) - header.body and again.find(_REPLACED) < 0


def _encode_again(protocol: Protocol, method: Signature, args: Any, size: int) -> tuple[bytes, int]:
    """The arguments, but for the bodies of jobs in a longer message of the binary protocol, which are only counted."""
    if size < _COPIED_BYTES or method.bodies is None or protocol is Protocol.COMPACT:
        return encode_struct(args, protocol, method.args.encode_args), 0
    return encode_struct(args, protocol, method.args.bodiless_args), sum(map(len, method.bodies(args)))


def _method(name: str) -> Signature:
    method = SIGNATURES.get(name)
    if method is None:
        raise WireError(f"there is no method {name[:80]!r}", kind=ApplicationErrorKind.UNKNOWN_METHOD)
    return method


def _kind(number: int | None) -> ApplicationErrorKind:
    try:
        return ApplicationErrorKind(number or 0)
    except ValueError:
        return ApplicationErrorKind.INTERNAL_ERROR
