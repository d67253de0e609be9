"""The C codec of Apache's package, fed from one bounded buffer."""

from __future__ import annotations

from io import BytesIO
from typing import Any, NoReturn

from thrift.protocol import fastbinary

from pinlater.wire.header import Protocol
from pinlater.wire.layout import Layout
from pinlater.wire.limits import WireLimits
from pinlater.wire.malformed import WireError

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


class Decoder:
    """Structs from bytes, one after the other. It is what the C codec asks of a protocol: bounds, and a transport."""

    __slots__ = ("container_length_limit", "string_length_limit", "trans")

    def __init__(self, limits: WireLimits) -> None:
        self.trans = _Buffer()
        self.string_length_limit = limits.max_message_bytes
        self.container_length_limit = limits.max_container

    def decode(self, data: bytes, start: int, protocol: Protocol, layout: Layout) -> Any:
        """The struct that fills `data` from `start` to the end. WireError for anything else."""
        buffer = self.trans.cstringio_buf = BytesIO(data)
        buffer.seek(start)
        try:
            value = _DECODE[protocol](None, self, layout.decode_args)
        except Exception as error:  # EOFError, OverflowError, TypeError, ValueError, TProtocolException and others
            raise WireError(f"{layout.name}: {error}") from error
        finally:
            self.trans.cstringio_buf = None
        if buffer.tell() != len(data):
            raise WireError(f"{layout.name}: {len(data) - buffer.tell()} bytes follow the message")
        return value


def decode_struct(data: bytes, start: int, protocol: Protocol, layout: Layout, limits: WireLimits) -> Any:
    """See `Decoder.decode`."""
    return Decoder(limits).decode(data, start, protocol, layout)


def encode_struct(value: Any, protocol: Protocol, args: list[Any]) -> bytes:
    """The bytes of an object that has the attributes of a layout's `encode_args`."""
    return _ENCODE[protocol](value, args)  # type: ignore[no-any-return]
