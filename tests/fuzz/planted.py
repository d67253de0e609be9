"""Faults that are planted in the process of a test, each of which the loops must find.

Each exchanges one function of the product for one with a mistake that people make.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch
from zoneinfo import ZoneInfo

from pinlater import timetable
from pinlater.job_filters import filter_parser
from pinlater.wire import codec
from pinlater.wire.interface import Layout
from pinlater.wire.message import Protocol, WireError, WireLimits
from pinlater.wire.validator import BinaryValidator
from pinlater_workers import envelope
from tests.fuzz import stored_targets
from tests.fuzz.faults import LARGE, SLOW


class Planted(NamedTuple):
    """`target` finds it as `kind`, a part of what the fault is called."""

    what: str
    target: str
    kind: str
    place: object
    name: str
    mistaken: Callable[..., Any]


def _signed_string(self: BinaryValidator) -> Iterator[int]:
    """As if a negative length were none: the reader goes back to what it has read."""
    at = self.at + 4
    while len(self.data) < at:
        yield at
    end = at + int.from_bytes(self.data[at - 4 : at], "big", signed=True)
    while len(self.data) < end:
        yield end
    self.at = end


def _leaking_decode(
    data: bytes, start: int, protocol: Protocol, layout: Layout, limits: WireLimits, _decode: Any = codec.decode_struct
) -> Any:
    """As if the codec in C had no other error than that of a message which ends early."""
    try:
        return _decode(data, start, protocol, layout, limits)
    except WireError as error:
        if error.__cause__ is None or isinstance(error.__cause__, EOFError):
            raise
        raise error.__cause__ from None


def _counting_pieces(line: str, _pieces: Any = filter_parser.pieces) -> Sequence[Any]:
    """Each number in a filter is counted up to."""
    for number in re.findall(r"[0-9]{1,30}", line, re.ASCII):
        for _ in range(min(int(number), _COUNT)):
            pass
    return _pieces(line)  # type: ignore[no-any-return]


_COUNT = 4 * 10**7
_ROOM = 2**26


def _trusting_envelope(body: bytes, _read: Any = envelope.read_envelope) -> Any:
    """Room is made for as much as the first line says."""
    match = re.match(rb"PINLATER/([0-9]{1,9})", body)
    bytearray(min(int(match[1]), _ROOM) if match else 0)
    return _read(body)


def _plain_use(entry: Any) -> bool:
    """Nobody thought of an entry of another form."""
    return json.loads(entry.text)["dequeue_only"] is True


def _plain_zone(name: str) -> ZoneInfo:
    """Nobody thought of a zone that is not there."""
    return ZoneInfo(name)


PLANTED = {
    "negative length": Planted(
        "a negative length of a string is taken",
        "thrift-calls",
        "validator.py",
        BinaryValidator,
        "string",
        _signed_string,
    ),
    "unknown type": Planted(
        "what the codec in C raises for a type that it does not know is no refusal",
        "thrift-calls",
        "Error at ",
        codec,
        "decode_struct",
        _leaking_decode,
    ),
    "counted number": Planted(
        "a filter takes longer with a higher number in it", "texts", SLOW, filter_parser, "pieces", _counting_pieces
    ),
    "trusted size": Planted(
        "room is made for as much as a body says", "bodies", LARGE, stored_targets, "read_envelope", _trusting_envelope
    ),
    "unread entry": Planted(
        "an entry of another form ends its reader",
        "stored-entries",
        "a shard's use raises",
        stored_targets,
        "is_dequeue_only",
        _plain_use,
    ),
    "unknown zone": Planted(
        "a time zone that is not there fails the call",
        "thrift-service",
        "ZoneInfoNotFoundError",
        timetable,
        "zone_named",
        _plain_zone,
    ),
}


@contextmanager
def planted(name: str) -> Iterator[Planted]:
    """For as long as this lasts."""
    each = PLANTED[name]
    with patch.object(each.place, each.name, each.mistaken):
        yield each


def plant(name: str) -> None:
    """For the rest of the process."""
    each = PLANTED[name]
    setattr(each.place, each.name, each.mistaken)
