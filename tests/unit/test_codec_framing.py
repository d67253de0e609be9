"""Cutting a stream into messages: any pieces, linear work, bounds before bytes."""

from __future__ import annotations

import struct
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.model import Job, RequestContext
from pinlater.wire.codec import BadCall, encode_call
from pinlater.wire.convert import call_args, enqueue_to_wire
from pinlater.wire.framing import Splitter, StrangerError
from pinlater.wire.message import Protocol, WireError, WireLimits
from tests.speed import slower


def call(bodies: list[bytes], protocol: Protocol = Protocol.BINARY) -> bytes:
    request = enqueue_to_wire("mail", [Job(body) for body in bodies])
    return encode_call("enqueueJobs", 1, call_args("enqueueJobs", RequestContext("me"), request=request), protocol)


def frame(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def split(splitter: Splitter, pieces: list[bytes]) -> list[bytes]:
    return [message for piece in pieces for message in splitter.feed(piece)]


@given(
    st.lists(st.lists(st.binary(max_size=40), max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(0, 1000), max_size=10),
    st.booleans(),
    st.sampled_from([Protocol.BINARY, Protocol.COMPACT]),
)
def test_messages_come_out_whole_however_they_are_cut(
    batches: list[list[bytes]], cuts: list[int], framed: bool, protocol: Protocol
) -> None:
    messages = [call(bodies, protocol) for bodies in batches]
    stream = b"".join(frame(message) if framed else message for message in messages)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    splitter = Splitter()
    pieces = [stream[start:end] for start, end in pairwise(places)]
    assert split(splitter, pieces) == messages
    assert (splitter.buffered, splitter.framed) == (0, framed)


@pytest.mark.parametrize("protocol", [Protocol.BINARY, Protocol.COMPACT], ids=lambda protocol: protocol.name)
def test_work_on_an_unframed_message_is_linear_in_its_pieces(protocol: Protocol) -> None:
    """40,000 pieces of 20 bytes cost no more than a few microseconds each."""
    data = call([b"x" * 60] * 9_000, protocol)
    splitter = Splitter()
    begun = time.process_time()
    assert split(splitter, [data[at : at + 20] for at in range(0, len(data), 20)]) == [data]
    assert time.process_time() - begun < slower()


def test_a_frame_in_small_pieces_is_linear_too() -> None:
    data = frame(bytes(4_000_000))
    begun = time.process_time()
    assert len(split(Splitter(), [data[at : at + 40] for at in range(0, len(data), 40)])) == 1
    assert time.process_time() - begun < slower()


@pytest.mark.parametrize("length", [0, 1001, 2**31 - 1])
def test_the_length_of_a_frame_is_checked_before_a_byte_of_it_is_kept(length: int) -> None:
    splitter = Splitter(WireLimits(max_message_bytes=1000))
    with pytest.raises(WireError, match=f"a frame of {length} bytes; allowed: 1 to 1000"):
        split(splitter, [struct.pack(">i", length) + b"x" * 100])
    assert splitter.buffered == 0


def test_an_unframed_message_is_bounded_as_soon_as_it_is_known_to_be_long() -> None:
    splitter = Splitter(WireLimits(max_unframed_bytes=1000))
    with pytest.raises(BadCall, match="send it framed"):
        split(splitter, [call([b"x" * 2000])[:200]])


def test_whole_messages_come_out_before_the_error_of_a_broken_one() -> None:
    stream = Splitter().feed(frame(call([b"x"])) + struct.pack(">i", -1))
    assert next(stream) == call([b"x"])
    with pytest.raises(WireError):
        next(stream)


def test_a_frame_that_is_too_long_names_what_bounds_it_and_can_be_answered_where_its_header_is_there() -> None:
    limits = WireLimits(max_message_bytes=1000, frame_setting="--max-frame")
    with pytest.raises(BadCall, match=r"a frame of \d+ bytes; allowed: 1 to 1000 \(--max-frame\)") as caught:
        split(Splitter(limits), [frame(call([b"x" * 2000]))])
    assert caught.value.header.name == "enqueueJobs"


@pytest.mark.parametrize(
    ("data", "protocol"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", "SSH"),
        (b"b\x00\x00\x00\n5.5.5-10.11.6-MariaDB-0+deb12u1\x00", "what MariaDB and MySQL do"),
        (b"220 mail.example.org ESMTP\r\n", "SMTP or FTP"),
    ],
)
def test_other_protocols_are_named(data: bytes, protocol: str) -> None:
    with pytest.raises(StrangerError) as caught:
        split(Splitter(), [data])
    assert caught.value.protocol == protocol
