"""Bodies and results as pages show them."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.dashboard.body_view import MAX_NODES, MAX_TEXT_BYTES, BodyView, JsonNode, body_view, hex_text, value_view
from pinlater.dashboard.job_rows import call_text
from pinlater.model import JobInfo, JobState

FIRST_LINE = b"PINLATER/1 application/json\n"


def call(**entries: object) -> bytes:
    return FIRST_LINE + json.dumps({"job": "resize", **entries}).encode()


def keys(nodes: list[JsonNode] | None) -> list[tuple[str, str]]:
    return [(node.key, node.kind) for node in nodes or ()]


def test_a_body_of_the_framework_is_a_call_whose_arguments_fold() -> None:
    view = body_view(call(args=["a.jpg"], kwargs={"size": 200, "crop": {"x": [1, 2]}}))
    assert view.kind == "call"
    assert view.call is not None
    assert view.call.job == "resize"
    assert keys(view.nodes) == [("", "text"), ("size", "number"), ("crop", "map")]
    assert not view.is_editable


def test_secret_arguments_are_masked() -> None:
    view = body_view(call(args=["ada", "hunter22"], headers={"pinlater-secret": "1"}))
    assert view.nodes is not None
    assert view.nodes[0].text == "ada"
    assert "hunter22" not in repr(view)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "nothing"),
        (b'{"a": [1, null]}', "json"),
        (b"[1]", "json"),
        (b'"text"', "json"),
        (b"true", "json"),
        (b"-1.5", "json"),
        (b"true story", "text"),
        (b"{broken", "text"),
        ("Grüße".encode(), "text"),
        (b"\x89PNG\x00", "hex"),
        (b"\xff\xfe", "hex"),
        (b"PINLATER/9 application/json\n{}", "json"),
        (b"PINLATER/1 text/plain\nx", "text"),
        (FIRST_LINE + b'{"id": 17}', "json"),
    ],
)
def test_each_kind_is_told(body: bytes, kind: str) -> None:
    assert body_view(body).kind == kind
    assert body_view(body).size == len(body)


def test_what_is_long_is_cut_and_says_so() -> None:
    text = value_view(b"a" * (MAX_TEXT_BYTES + 1))
    assert (text.kind, len(text.text), text.is_cut) == ("text", MAX_TEXT_BYTES, True)
    split = value_view("ä".encode() * MAX_TEXT_BYTES)
    assert (split.kind, split.is_cut) == ("text", True)
    assert value_view(bytes(range(256)) * 100).is_cut
    many = body_view(call(args=[list(range(5_000))]))
    assert many.is_cut
    assert many.nodes is not None
    assert many.nodes[0].entries is not None
    assert len(many.nodes[0].entries) <= MAX_NODES
    assert many.nodes[0].amount == 5_000
    deep = value_view(b"[" * 200 + b"]" * 200)
    assert deep.is_cut
    assert value_view(b"[" * 50_000 + b"]" * 50_000).kind in ("json", "text")
    long = value_view(json.dumps({"a": "x" * 9_000}).encode())
    assert long.is_cut


def test_a_number_of_thousands_of_digits_is_shown_as_that() -> None:
    assert isinstance(value_view(b"[" + b"9" * 6_000 + b"]"), BodyView)


def test_bytes_are_rows_of_sixteen() -> None:
    rows = hex_text(bytes(range(40))).split("\n")
    assert [row[:8] for row in rows] == ["00000000", "00000010", "00000020"]
    assert all(row[60:] for row in rows)


@given(st.binary(max_size=400))
def test_any_bytes_can_be_shown(body: bytes) -> None:
    for view in (body_view(body), value_view(body), body_view(FIRST_LINE + body)):
        assert view.kind in ("call", "json", "text", "hex", "nothing")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_any_json_can_be_shown(value: object) -> None:
    assert value_view(b" " + msgspec.json.encode(value)).kind in ("json", "text")
    assert body_view(call(args=[value])).kind == "call"


@pytest.mark.parametrize(
    ("body", "text", "is_call"),
    [
        (call(args=["a.jpg"]), "resize('a.jpg')", True),
        (b"to: ada\n  now", "to: ada now", False),
        (b"\x00\xff", "2 bytes", False),
        (b"", "no body", False),
        (None, "a large body", False),
        (FIRST_LINE + b"\x00", f"{len(FIRST_LINE) + 1} bytes", False),
    ],
)
def test_a_row_says_what_a_job_does(body: bytes | None, text: str, is_call: bool) -> None:
    info = JobInfo("q:s1:p1:1790000000000000", JobState.PENDING, 1, 2, 2, "", 5, 5, 5, body=body)
    assert call_text(info, sees_bodies=True) == (text, is_call)
    assert call_text(info, sees_bodies=False) == ("", False)
