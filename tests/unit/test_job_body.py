"""What the body of a job says: of the framework's all but secrets, of others nothing, and never an error."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater.job_body import SECRET_HEADER, BodyDescription, describe_body
from pinlater_workers.envelope import Encoding, Envelope, write_envelope

JSON = b"PINLATER/1 application/json\n"


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_body_says_type_arguments_headers_and_snoozes(encoding: Encoding) -> None:
    body = write_envelope(Envelope("resize", ["a.jpg"], {"size": 200}, {"traceparent": "00-1"}, 2, encoding))
    found = describe_body(body)
    assert found == BodyDescription("resize", ["a.jpg"], {"size": 200}, {"traceparent": "00-1"}, 2, encoding)
    assert found.traceparent == "00-1"
    assert found.call_text() == "resize('a.jpg', size=200)"


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_secret_arguments_are_masked_unless_they_are_asked_for(encoding: Encoding) -> None:
    headers = {SECRET_HEADER: "1 token", "tenant": "a"}
    body = write_envelope(Envelope("login", ["ada", "hunter2"], {"token": "t0p", "to": "mx"}, headers, 0, encoding))
    found = describe_body(body)
    assert found is not None
    assert (found.args, found.kwargs, found.headers) == (["ada", "***"], {"token": "***", "to": "mx"}, {"tenant": "a"})
    assert found.call_text() == "login('ada', ***, token=***, to='mx')"
    shown = describe_body(body, with_secrets=True)
    assert shown is not None
    assert (shown.args, shown.kwargs["token"]) == (["ada", "hunter2"], "t0p")


def test_values_that_json_lacks_are_shown_as_json_has_them() -> None:
    rest = msgspec.msgpack.encode({"job": "a", "args": [b"\xff", UUID(int=1), {1: 2}, msgspec.msgpack.Ext(5, b"x")]})
    found = describe_body(b"PINLATER/1 application/msgpack\n" + rest)
    assert found is not None
    assert found.args[:3] == ["/w==", "00000000-0000-0000-0000-000000000001", {"1": 2}]
    assert msgspec.json.encode(found.args)


FOREIGN = [b"", b"plain", b"PINLATER/2 application/json\n{}", b"PINLATER/1 text/xml\n<job/>"]
UNREADABLE = [JSON, JSON + b"{}", JSON + b'{"job": 1}', JSON + b'{"job": "a", "args": ' + b"[" * 100_000]


@pytest.mark.parametrize("body", [*FOREIGN, *UNREADABLE], ids=range(8))
def test_other_bodies_say_nothing(body: bytes) -> None:
    assert describe_body(body) is None


def test_a_long_call_is_cut() -> None:
    found = describe_body(write_envelope(Envelope("a", ["x" * 500, "y" * 500])))
    assert found is not None
    assert len(found.call_text(80)) == 80
    assert found.call_text(80).endswith("...")
    nested = describe_body(JSON + b'{"job": "a", "args": ' + b"[" * 900 + b"]" * 900 + b"}")
    assert nested is None or nested.call_text(20).startswith("a(")


@settings(max_examples=150)
@given(st.binary().map(lambda rest: JSON + rest) | st.binary())
def test_no_body_is_an_error(body: bytes) -> None:
    found = describe_body(body)
    assert found is None or found.call_text()
