"""Numbers in the requests of the HTTP interface."""

from __future__ import annotations

import msgspec
import pytest

from pinlater.http.encodings import form_decoder
from pinlater.http.forms import JobsForm

decode = form_decoder(JobsForm)


def test_an_integer_may_be_written_with_a_point_and_a_body_stays_as_it_was_sent() -> None:
    (form,) = decode(b'{"jobs": [{"body": {"a": 1.0, "b": "2.0"}, "body_encoding": "json", "priority": 2.0}]}').jobs
    assert (form.priority, type(form.priority), bytes(form.body)) == (2, int, b'{"a": 1.0, "b": "2.0"}')


@pytest.mark.parametrize("priority", [b"1.5", b'"1"', b"128", b"128.0", b"500", b"true", b"1e400", b"null"])
def test_what_is_no_priority_is_refused_by_its_name(priority: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.jobs\[0\]\.priority"):
        decode(b'{"jobs": [{"body": "x", "priority": %s}]}' % priority)


def test_a_point_elsewhere_makes_no_text_a_number() -> None:
    with pytest.raises(msgspec.ValidationError, match="got `str`"):
        decode(b'{"jobs": [{"body": "x", "priority": "1", "attempts_allowed": 2.0}]}')
