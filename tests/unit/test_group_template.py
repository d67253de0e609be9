"""Templates of groups, and the groups that they make of payloads."""

from __future__ import annotations

import pytest

from pinlater.model import MAX_GROUP_BYTES
from pinlater.model.group_template import MAX_NAMES, group_of, template_parts


@pytest.mark.parametrize(
    ("template", "payload", "group"),
    [
        ("{tenant}", b'{"tenant": "acme"}', "acme"),
        ("{tenant}", b'{"tenant": 7}', "7"),
        ("{n}", b'{"n": 123456789012345678901234567890}', "123456789012345678901234567890"),
        ("eu-{order.account}/{kind}", b'{"order": {"account": 7}, "kind": "x"}', "eu-7/x"),
        ("{payload.tenant-id}", '{"payload": {"tenant-id": "ö"}}'.encode(), "ö"),
        ("{{{tenant}}}", b'{"tenant": "acme"}', "{acme}"),
        ("all", b"[1]", "all"),
        ("{a.b}" * (MAX_NAMES // 2), b'{"a": {"b": 1}}', "1" * (MAX_NAMES // 2)),
        ("{a}", b'{"a": "%b"}' % (b"x" * MAX_GROUP_BYTES), "x" * MAX_GROUP_BYTES),
    ],
)
def test_a_template_makes_a_group_of_fields(template: str, payload: bytes, group: str) -> None:
    assert group_of(template, payload) == group


@pytest.mark.parametrize(
    "payload",
    [
        *(b"7", b"[]", b"null", b'"acme"', b"{}", b'{"tenant": null}', b'{"tenant": true}', b'{"tenant": 1.5}'),
        *(b'{"tenant": ""}', b'{"tenant": {"name": "acme"}}', b'{"tenant": "a\\nb"}', b'{"tenant": "\\ud800"}'),
        b'{"tenant": "%b"}' % (b"x" * (MAX_GROUP_BYTES + 1)),
        b'{"tenant": ' * 50_000,
    ],
)
def test_an_item_without_what_makes_a_group_has_none(payload: bytes) -> None:
    assert group_of("{tenant}", payload) == ""


@pytest.mark.parametrize(
    "template",
    [
        *("{", "}", "{}", "{0[a]}", "{a!r}", "{a:3}", "{a.}", "{.a}", "{a b}", "{a{b}}"),
        *("{a}" * (MAX_NAMES + 1), "{a" + ".a" * MAX_NAMES + "}", "ö" * 128, "a\nb", "\ud800"),
    ],
)
def test_what_is_no_template_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"field|format|brace|too long|surrogates"):
        template_parts(template)
