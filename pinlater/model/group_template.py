"""The groups of a flow's items, each made from the item's payload by the template of its stage.

A template is a text with fields of the payload in braces, as in `{tenant}` or `eu-{order.account}`; `{{` and `}}` are
braces themselves. A field is a text or a whole number there.
"""

from __future__ import annotations

import re
from functools import lru_cache
from string import Formatter

import msgspec

from pinlater.model.jobs import CONTROL_CHAR, MAX_GROUP_BYTES

TEMPLATE = f"up to {MAX_GROUP_BYTES} bytes of text with fields of the payload, as in {{tenant}} or eu-{{order.account}}"
WITHOUT_GROUP = ("",)
"""The groups of jobs that have none."""

MAX_NAMES = 16
"""In all fields together: a payload, which may be large, is read once for each."""

_FIELD = re.compile(r"[^.\s\[\]]+(?:\.[^.\s\[\]]+)*")
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUE = msgspec.json.Decoder(str | int)


class _NoField(Exception):
    """The payload has no such field, or it is neither a text nor a whole number."""


@lru_cache(maxsize=1_000)
def template_parts(template: str) -> tuple[tuple[str, str | None], ...]:
    """Each text with the path of the field behind it; None: nothing is. ValueError: it is no template.

    >>> template_parts("eu-{order.account}")
    (('eu-', 'order.account'),)
    """
    if len(template.encode()) > MAX_GROUP_BYTES or CONTROL_CHAR.search(template):
        raise ValueError("it is too long, or has control characters")
    parts = []
    for text, path, spec, conversion in Formatter().parse(template):
        if path is not None and (spec or conversion or not _FIELD.fullmatch(path)):
            raise ValueError(f"{{{path}}} is no field")
        parts.append((text, path))
    names = sum(path.count(".") + 1 for _, path in parts if path is not None)
    if names > MAX_NAMES:
        raise ValueError(f"its fields have {names} names, and more than {MAX_NAMES} are too many")
    return tuple(parts)


def group_of(template: str, payload: bytes) -> str:
    """The group of an item; "" where its payload lacks a field, or where a group cannot be such a text.

    >>> group_of("eu-{order.account}", b'{"order": {"account": 7}}'), group_of("{tenant}", b"[1]")
    ('eu-7', '')
    """
    parts = template_parts(template)
    try:
        group = "".join([text + ("" if path is None else _field(payload, path)) for text, path in parts])
        size = len(group.encode())
    except (_NoField, UnicodeEncodeError):
        return ""
    return "" if size > MAX_GROUP_BYTES or CONTROL_CHAR.search(group) else group


def groups_possible(template: str) -> tuple[str, ...]:
    """The groups that items of a stage with this template may get: a * stands for any text, "" for none.

    >>> groups_possible("acme"), groups_possible("eu-{order.account}"), groups_possible("")
    (('acme',), ('eu-*', ''), ('',))
    """
    parts = template_parts(template)
    group = "".join([text + ("" if path is None else "*") for text, path in parts])
    has_field = any(path is not None for _, path in parts)
    return (group, *WITHOUT_GROUP) if has_field else (group,)


def _field(payload: bytes, path: str) -> str:
    """_NoField. What it does not name is skipped and not read: a payload may be large."""
    found = msgspec.Raw(payload)
    try:
        for name in path.split("."):
            found = _OBJECT.decode(found)[name]
        return str(_VALUE.decode(found))
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise _NoField from error
