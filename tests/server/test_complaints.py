"""What the log says of callers who do wrong."""

from __future__ import annotations

import struct

import pytest
from structlog.testing import capture_logs

from pinlater.listener import RateLimitedLog
from pinlater.listener import peer_text as address
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
            for _ in range(30):
                await lose_stream(served)
            assert served.server.counters["streams_lost"] == 30
    assert len([line for line in lines if line["event"] == "stream_lost"]) == 1
    assert [line["lines"] for line in lines if line["event"] == "lines_left_out"] == [29]


def test_every_kind_of_trouble_has_a_line_a_minute() -> None:
    now_s = [100.0]
    written: list[dict[str, object]] = []
    log = RateLimitedLog(lambda event, **fields: written.append({"event": event, **fields}), lambda: now_s[0])
    for now_s[0] in (100.0, 101.0, 159.9, 160.0, 161.0):
        log.note("stream_lost", peer="a")
        log.note("connection_timed_out", "idle_closed", reason="idle_closed")
        log.note("connection_timed_out", "half_sent_closed", reason="half_sent_closed")
    assert [line for line in written if line["event"] == "stream_lost"] == [
        {"event": "stream_lost", "peer": "a"},
        {"event": "stream_lost", "peer": "a", "left_out": 2},
    ]
    assert len(written) == 6
    log.say_rest()
    assert [line["lines"] for line in written[6:]] == [1, 1, 1]
    log.say_rest()
    assert len(written) == 9


def test_addresses_are_written_as_clients_write_them() -> None:
    assert address(PEER) == "10.0.0.1:5"
    assert address(("::1", 5, 0, 0)) == "[::1]:5"
    assert address(None) == "unknown"
