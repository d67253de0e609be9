"""The body of a job: what is written is read again, what others write is read, what is foreign is told apart."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater_workers.envelope import Encoding, Envelope, read_envelope, write_envelope
from pinlater_workers.errors import BodyInvalid

ENCODINGS: list[Encoding] = ["json", "msgpack"]
JSON = b"PINLATER/1 application/json\n"

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ENVELOPES = st.builds(
    Envelope,
    st.text(),
    st.lists(VALUES, max_size=3),
    st.dictionaries(st.text(), VALUES, max_size=3),
    st.dictionaries(st.text(), st.text(), max_size=3),
    st.integers(0, 2**31),
    st.sampled_from(ENCODINGS),
    st.integers(0, 2**31),
)


@settings(max_examples=150)
@given(ENVELOPES)
def test_what_is_written_is_read_again(envelope: Envelope) -> None:
    assert read_envelope(write_envelope(envelope)) == envelope


@settings(max_examples=150)
@given(st.binary() | st.binary().map(lambda rest: JSON + rest) | st.binary().map(lambda rest: b"PINLATER/" + rest))
def test_any_bytes_are_a_body_a_foreign_one_or_refused(body: bytes) -> None:
    try:
        envelope = read_envelope(body)
    except BodyInvalid:
        return
    assert envelope is None or isinstance(envelope, Envelope)


def test_the_bytes_are_those_of_the_page() -> None:
    written = write_envelope(Envelope("thumbnail", ["a.jpg"], {"size": 200}))
    line, rest = written.split(b"\n", 1)
    assert line == b"PINLATER/1 application/json"
    assert json.loads(rest) == {"job": "thumbnail", "args": ["a.jpg"], "kwargs": {"size": 200}}
    packed = write_envelope(Envelope("thumbnail", headers={"a": "b"}, snoozes=2, encoding="msgpack"))
    line, rest = packed.split(b"\n", 1)
    assert line == b"PINLATER/1 application/msgpack"
    assert msgspec.msgpack.decode(rest) == {"job": "thumbnail", "headers": {"a": "b"}, "snoozes": 2}


@pytest.mark.parametrize(
    "rest",
    [
        b'{"job": "a"}',
        b'{"job":"a","args":null,"kwargs":null,"headers":null}',
        b'{"job":"a","args":[],"kwargs":{},"headers":{},"snoozes":0,"of another version":[1,{}]}',
        b' \n {"snoozes": 0, "job": "a"} \n',
    ],
)
def test_what_may_be_missing_may_be_null_or_missing_and_what_is_unknown_is_left_alone(rest: bytes) -> None:
    assert read_envelope(JSON + rest) == Envelope("a")


@pytest.mark.parametrize("line", [b"PINLATER/1  application/json; charset=utf-8\n", b"PINLATER/1 Application/JSON\r\n"])
def test_a_first_line_may_be_written_as_headers_are(line: bytes) -> None:
    assert read_envelope(line + b'{"job":"a"}') == Envelope("a")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"plain text", b"PINLATER", b"PINLATER/1", b"PINLATER/x application/json\n{}", b"\x00\xff", b"\n"],
)
def test_a_body_without_the_first_line_is_foreign(body: bytes) -> None:
    assert read_envelope(body) is None


@pytest.mark.parametrize(
    "body",
    [
        JSON,
        JSON + b"{",
        JSON + b"[]",
        JSON + b"{}",
        JSON + b'{"job": 1}',
        JSON + b'{"job": "a", "args": {}}',
        JSON + b'{"job": "a", "headers": {"a": 1}}',
        JSON + b'{"job": "a", "snoozes": -1}',
        JSON + b'{"job": "\xff"}',
        JSON + b'{"job": "a", "args": ' + b"[" * 100_000,
        b"PINLATER/1 application/msgpack\n" + b"\x91" * 100_000,
        b"PINLATER/1 application/msgpack\n\xdd\xff\xff\xff\xff",
        b"PINLATER/1 text/xml\n<job/>",
        b'PINLATER/0 application/json\n{"job":"a"}',
    ],
    ids=range(14),
)
def test_a_body_of_ours_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(BodyInvalid):
        read_envelope(body)


@pytest.mark.parametrize("rest", [b" application/cbor\nanything", b' application/json\n{"task": "a"}'])
def test_a_body_of_a_later_version_is_a_job_that_nobody_here_knows(rest: bytes) -> None:
    envelope = read_envelope(b"PINLATER/2" + rest)
    assert envelope is not None
    assert envelope.job == "PINLATER/2"
