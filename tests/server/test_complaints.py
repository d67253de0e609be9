"""What the log says of callers who do wrong."""

from __future__ import annotations

import struct

import pytest
from structlog.testing import capture_logs

from pinlater.server.complaints import LINES_PER_S, Complaints, address
from pinlater.wire.codec import ApplicationError
from tests.server.raw_thrift import message
from tests.server.serving import Raw, Served, serving

PEER = ("10.0.0.1", 5)


def its_address(raw: Raw) -> str:
    return address(raw.writer.get_extra_info("sockname"))


async def lose_stream(served: Served) -> str:
    raw = await served.connect()
    raw.send(struct.pack(">i", 2**31 - 1))
    await raw.until_closed()
    return its_address(raw)


async def test_a_lost_stream_a_malformed_message_and_a_time_out_are_logged_with_who_it_was() -> None:
    with capture_logs() as lines:
        async with serving(half_sent_timeout_s=0.05) as served:
            lost = await lose_stream(served)
            malformed, slow = await served.connect(), await served.connect()
            malformed.send_framed(message("createQueue", [(1, 12, [(1, 2, True)])]))
            with pytest.raises(ApplicationError):
                await malformed.reply()
            slow.send(b"\x00\x00")
            await slow.until_closed()
            expected = {
                ("stream_lost", lost),
                ("malformed_message", its_address(malformed)),
                ("connection_timed_out", its_address(slow)),
            }
    assert {(line["event"], line["peer"]) for line in lines} == expected


async def test_one_caller_cannot_fill_the_log() -> None:
    with capture_logs() as lines:
        async with serving() as served:
            for _ in range(LINES_PER_S * 3):
                await lose_stream(served)
            assert served.server.counters["streams_lost"] == LINES_PER_S * 3
    told = [line for line in lines if line["event"] == "stream_lost"]
    left_out = sum(line["lines"] for line in lines if line["event"] == "lines_left_out")
    assert left_out > 0
    assert len(told) + left_out == LINES_PER_S * 3


def test_every_second_has_its_own_lines() -> None:
    complaints = Complaints()
    with capture_logs() as lines:
        for now_s in (100.0, 100.9, 101.0, 102.0):
            complaints.renew(now_s)
            for _ in range(LINES_PER_S):
                complaints.note("stream_lost", PEER)
    events = [line["event"] for line in lines]
    assert events.count("stream_lost") == 3 * LINES_PER_S
    assert [line["lines"] for line in lines if line["event"] == "lines_left_out"] == [LINES_PER_S]


def test_addresses_are_written_as_clients_write_them() -> None:
    assert address(PEER) == "10.0.0.1:5"
    assert address(("::1", 5, 0, 0)) == "[::1]:5"
    assert address(None) == "unknown"
