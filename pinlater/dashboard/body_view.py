"""Bodies, payloads and results as pages show them: a call of the worker framework, JSON, text, or bytes in hexadecimal.

The literals of JSON stay as they were sent. Arguments that a body marks as secret are never shown.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import msgspec

from pinlater.job_body import BodyDescription, describe_body, secret_values
from pinlater.printable import json_text

MAX_CHARS = 4_000
"""Of a text among others; a page of one thing shows more."""

MAX_HEX_BYTES = 512
PREVIEW_CHARS = 140
MAX_DEPTH = 32
"""Of JSON that is written in lines: each level indents all below it."""

_HEX_ROW = 16
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class BodyView(NamedTuple):
    """`text` is empty for "hidden" and "empty". `is_cut`: there is more of it."""

    kind: Literal["hidden", "empty", "call", "json", "text", "binary"]
    size: int = 0
    text: str = ""
    is_cut: bool = False
    call: BodyDescription | None = None


HIDDEN = BodyView("hidden")


def view_of(body: bytes, max_chars: int = MAX_CHARS) -> BodyView:
    if not body:
        return BodyView("empty")
    call = describe_body(body)
    if call is not None:
        arguments = {name: value for name, value in (("args", call.args), ("kwargs", call.kwargs)) if value}
        text = json_text(arguments, indent=2, default=str) if arguments else ""
        return BodyView("call", len(body), text[:max_chars], len(text) > max_chars, call)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return BodyView("binary", len(body), _hex_rows(body[:MAX_HEX_BYTES]), len(body) > MAX_HEX_BYTES)
    is_json = _is_json(body)
    if is_json and _depth(text) <= MAX_DEPTH:
        text = msgspec.json.format(body, indent=2).decode()
    return BodyView("json" if is_json else "text", len(body), text[:max_chars], len(text) > max_chars)


def preview_of(body: bytes) -> str:
    """Its beginning, in a line.

    >>> preview_of(b'{"user": 1,\\n "hours": 2}'), preview_of(bytes([255, 0]))
    ('{"user": 1, "hours": 2}', '2 bytes that are no text')
    """
    call = describe_body(body)
    if call is not None:
        return call.call_text(PREVIEW_CHARS)
    try:
        text = body[: 4 * PREVIEW_CHARS].decode(errors="strict" if len(body) <= 4 * PREVIEW_CHARS else "ignore")
    except UnicodeDecodeError:
        return f"{len(body):,} bytes that are no text"
    text = " ".join(text.split())
    return text if len(text) <= PREVIEW_CHARS else text[: PREVIEW_CHARS - 1] + "…"


def editable_text(body: bytes) -> str | None:
    """What a form can show and send back as it was; None: it holds more than a text of lines, or secrets.

    >>> editable_text(b"a\\n\\tb"), editable_text(b"a\\r\\nb"), editable_text(bytes([255]))
    ('a\\n\\tb', None, None)
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    is_plain = all(each.isprintable() for line in text.split("\n") for each in line.split("\t"))
    return text if is_plain and not secret_values(body) else None


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _depth(text: str) -> int:
    """How deep lists and objects of JSON lie in each other.

    >>> _depth('{"a": [1, "]]"]}'), _depth("1")
    (2, 0)
    """
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        deepest = max(deepest, depth)
    return deepest


def _hex_rows(data: bytes) -> str:
    rows = []
    for at in range(0, len(data), _HEX_ROW):
        part = data[at : at + _HEX_ROW]
        text = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in part)
        rows.append(f"{at:04x}  {part.hex(' '):<{3 * _HEX_ROW - 1}}  {text}")
    return "\n".join(rows)
