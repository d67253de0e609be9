"""Answers made to take long or much memory: a client decodes them without a look first, up to a size, and at a bound.

What a server sends is trusted more than what a caller sends: its worst answer may hold one client up for a moment.
"""

from __future__ import annotations

import contextlib
import struct
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from pinlater.client.connection import METHOD_CODECS
from pinlater.client.pool import ANSWER_LIMITS
from pinlater.wire.message import WireError
from tests.speed import slower

MOST_CPU_S = 2.0
"""The worst, a quarter of a million empty structs, takes 0.1 s, and several times that beside busy neighbours."""

MOST_BYTES = 24 * 1024 * 1024
"""65,536 empty jobs take 305 bytes each, in a process that has seen one with all its fields; else fewer."""

SEQID = 7
BOOL, I32, STRING, STRUCT, MAP, SET, LIST = 2, 8, 11, 12, 13, 14, 15


def field(number: int, ttype: int) -> bytes:
    return struct.pack(">bh", ttype, number)


def elements(ttype: int, count: int) -> bytes:
    return struct.pack(">bi", ttype, count)


def pairs(key: int, value: int, count: int) -> bytes:
    return struct.pack(">bbi", key, value, count)


def pieces() -> Iterator[tuple[str, str, bytes, bytes]]:
    """A method, what is hostile, what the answer begins with, and what then comes again and again."""
    names = field(0, SET)
    yield "getQueueNames", "as many names as there may be", names + elements(STRING, 65_536), bytes(4)
    yield "getQueueNames", "more names than there may be", names + elements(STRING, 2**31 - 1), bytes(4)
    yield "getQueueNames", "a negative number of names", names + elements(STRING, -1), bytes(4)
    yield (
        "getQueueNames",
        "different names",
        b"",
        names
        + elements(STRING, 200)
        + b"".join(struct.pack(">i", 2) + struct.pack(">h", number) for number in range(200)),
    )
    yield "getQueueNames", "no names, again and again", b"", names + elements(STRING, 0)
    yield "getQueueNames", "structs nested without end", field(99, STRUCT), field(1, STRUCT)
    yield "getQueueNames", "lists nested without end", field(99, LIST), elements(LIST, 1)
    yield "getQueueNames", "unknown flags", b"", field(99, BOOL) + b"\x01"
    yield "getQueueNames", "unknown lists of flags", b"", field(99, LIST) + elements(BOOL, 65_536) + bytes(65_536)
    empties = elements(BOOL, 0) * 65_536
    yield "getQueueNames", "unknown lists of lists", b"", field(99, LIST) + elements(LIST, 65_536) + empties
    yield "getQueueNames", "a string of 2 GiB", field(99, STRING) + struct.pack(">i", 2**31 - 1), bytes(4)
    page = field(0, STRUCT)
    jobs = field(1, LIST) + elements(STRUCT, 65_536)
    yield "scanJobs", "empty jobs", page + jobs, bytes(1)
    yield "scanJobs", "empty jobs, again and again", page, field(1, LIST) + elements(STRUCT, 10_000) + bytes(10_000)
    yield "scanJobs", "no jobs, again and again", page, field(1, LIST) + elements(STRUCT, 0)
    yield "scanJobs", "missing shards", page, field(100, LIST) + elements(STRING, 60_000) + bytes(4 * 60_000)
    yield "scanJobs", "pages, again and again", b"", page + b"\x00"
    yield "lookupJobs", "jobs without a field", field(0, MAP) + pairs(STRING, STRUCT, 65_536), bytes(5)
    bodies = field(1, MAP) + pairs(STRING, STRING, 60_000)
    yield "dequeueJobs", "empty bodies", page + bodies, bytes(8)
    yield "dequeueJobs", "no bodies, again and again", page, field(1, MAP) + pairs(STRING, STRING, 0)
    yield "dequeueJobs", "jobs of nothing known", page + field(2, MAP) + pairs(STRING, STRUCT, 65_536), bytes(5)
    yield "getClusterStatus", "queues of nothing known", page + field(4, LIST) + elements(STRUCT, 65_536), bytes(1)
    yield "createQueue", "errors, again and again", b"", field(1, STRUCT) + b"\x00"


def answers(size: int) -> Iterator[tuple[str, str, bytes]]:
    """Of that many bytes, broken off, and with an end."""
    for method, what, first, again in pieces():
        head = METHOD_CODECS[method].due(SEQID) + first
        whole = head + again * ((size - len(head) - 2) // len(again))
        yield method, what, whole.ljust(size, b"\x00")
        yield method, f"{what}, and the end", whole + b"\x00\x00"


def decode(method: str, answer: bytes) -> None:
    with contextlib.suppress(WireError):
        METHOD_CODECS[method].result(answer, METHOD_CODECS[method].due(SEQID), SEQID, ANSWER_LIMITS)


def cpu_s(method: str, answer: bytes) -> float:
    first = time.process_time()
    decode(method, answer)
    return time.process_time() - first


def most_bytes(method: str, answer: bytes) -> int:
    tracemalloc.start()
    try:
        decode(method, answer)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("size", [128 * 1024, ANSWER_LIMITS.walk_over_bytes, 1024 * 1024])
def test_a_hostile_answer_is_decoded_or_refused_at_a_bound(size: int) -> None:
    most_cpu_s = MOST_CPU_S * slower()
    for method, what, answer in answers(size):
        tries: list[float] = []
        while not any(each < most_cpu_s for each in tries):
            assert len(tries) < 3, (method, what, tries)  # the first use of a path is dearer, and so is a cold cache
            tries.append(cpu_s(method, answer))
        assert most_bytes(method, answer) < MOST_BYTES, (method, what)
