"""The record of the jobs that have begun: one fixed line each, in the file BENCH_RECORD, which all processes share."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BROKER = os.environ.get("BENCH_BROKER", "")
"""The address of the Redis, or of PinLater's server."""

QUEUES = os.environ.get("BENCH_QUEUES", "").split(",")

RATES = {
    name: int(rate)
    for name, _, rate in (each.partition("=") for each in os.environ.get("BENCH_RATES", "").split(","))
    if rate
}
"""Jobs per second of the queues that are limited."""

AT_ONCE = 100
"""Jobs that a program takes at a time, where the product has no workers."""

_LINE = struct.Struct("<iqq")
_BODY = struct.Struct("<iq188x")
"""200 bytes, in which are the number of the queue and when the job was sent."""


class Begun(NamedTuple):
    """One job. Times are nanoseconds of the machine's clock."""

    queue: str
    sent_ns: int
    begun_ns: int


def write_begun(queue: str, sent_ns: int) -> None:
    """What each job does: one write, which no other process can split."""
    global _file
    if _file < 0:
        _file = os.open(os.environ["BENCH_RECORD"], os.O_WRONLY | os.O_APPEND)
    os.write(_file, _LINE.pack(QUEUES.index(queue), sent_ns, time.time_ns()))


_file = -1


def body_of(queue: str, sent_ns: int) -> bytes:
    return _BODY.pack(QUEUES.index(queue), sent_ns)


def write_begun_of(body: bytes) -> None:
    """What a job does whose body that is."""
    number, sent_ns = _BODY.unpack(body)
    write_begun(QUEUES[number], sent_ns)


def count_begun(path: Path) -> int:
    return path.stat().st_size // _LINE.size


def read_begun(path: Path, queues: list[str]) -> Iterator[Begun]:
    """In the order in which they began."""
    for number, sent_ns, begun_ns in sorted(_LINE.iter_unpack(path.read_bytes()), key=lambda line: line[2]):
        yield Begun(queues[number], sent_ns, begun_ns)
