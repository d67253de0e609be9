"""The C codec of Apache's package, fed from one bounded buffer."""

from __future__ import annotations

from io import BytesIO
from typing import Any, NoReturn

from thrift.protocol import fastbinary

from pinlater.wire.header import Protocol
from pinlater.wire.layout import Layout
from pinlater.wire.limits import WireLimits
from pinlater.wire.malformed import WireError

_DECODE = {
    Protocol.BINARY: fastbinary.decode_binary,
    Protocol.COMPACT: fastbinary.decode_compact,
    Protocol.BINARY_OLD: fastbinary.decode_binary,
}
_ENCODE = {
    Protocol.BINARY: fastbinary.encode_binary,
    Protocol.COMPACT: fastbinary.encode_compact,
    Protocol.BINARY_OLD: fastbinary.encode_binary,
}


def _ends_early(partial: bytes, needed: int) -> NoReturn:
    raise EOFError("the message ends early")


class _Source:
    """What the C codec asks of a protocol, and of its transport: bounds, a BytesIO, and more bytes, which there never
    are.
    """

    __slots__ = ("container_length_limit", "cstringio_buf", "string_length_limit")
    cstringio_refill = staticmethod(_ends_early)

    def __init__(self, buffer: BytesIO, limits: WireLimits) -> None:
        self.cstringio_buf = buffer
        self.string_length_limit = limits.max_message_bytes
        self.container_length_limit = limits.max_container

    @property
    def trans(self) -> _Source:
        return self


def decode_struct(data: bytes, start: int, protocol: Protocol, layout: Layout, limits: WireLimits) -> Any:
    """The struct that fills `data` from `start` to the end. WireError for anything else."""
    buffer = BytesIO(data)
    buffer.seek(start)
    try:
        value = _DECODE[protocol](None, _Source(buffer, limits), layout.decode_args)
    except Exception as error:  # EOFError, OverflowError, TypeError, ValueError, TProtocolException and others
        raise WireError(f"{layout.name}: {error}") from error
    if buffer.tell() != len(data):
        raise WireError(f"{layout.name}: {len(data) - buffer.tell()} bytes follow the message")
    return value


def encode_struct(value: Any, protocol: Protocol, args: list[Any]) -> bytes:
    """The bytes of an object that has the attributes of a layout's `encode_args`."""
    return _ENCODE[protocol](value, args)  # type: ignore[no-any-return]
