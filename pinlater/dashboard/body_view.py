"""Bodies and results as pages show them: a call of the framework, JSON that folds, text, or bytes as hexadecimal.

All of it is bounded: a page shows the beginning of what is long, and a link brings all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from pinlater.job_body import FIRST_LINE, UNREADABLE, BodyDescription, describe_body, named_encoding

MAX_TEXT_BYTES = 32 * 1024
MAX_HEX_BYTES = 2 * 1024
MAX_NODES = 2_000
MAX_DEPTH = 30
MAX_STRING_CHARS = 2_000
PREVIEW_CHARS = 140
_ROW = 16
_FOLDED_FROM = 12
"""Entries; a longer list or map is folded at first."""


@dataclass(slots=True)
class JsonNode:
    """A value: `entries` of a list or map, else its text. `key` is its name in a map, "" for none."""

    key: str
    kind: str
    text: str = ""
    entries: list[JsonNode] | None = None
    amount: int = 0
    is_open: bool = True


@dataclass(slots=True)
class BodyView:
    """What of a body is shown. `kind`: call, json, text, hex or nothing. `is_cut`: there is more than is shown."""

    kind: str
    size: int
    call: BodyDescription | None = None
    nodes: list[JsonNode] | None = None
    text: str = ""
    is_cut: bool = False

    @property
    def is_editable(self) -> bool:
        """As text, in a form."""
        return self.kind in ("json", "text", "nothing") and not self.is_cut


def body_view(body: bytes) -> BodyView:
    """Of a job's body."""
    size = len(body)
    if not body:
        return BodyView("nothing", 0)
    call = describe_body(body)
    if call is not None:
        budget = _Budget()
        arguments = [budget.node("", each) for each in call.args]
        arguments += [budget.node(name, each) for name, each in call.kwargs.items()]
        return BodyView("call", size, call, arguments, is_cut=budget.is_over)
    return value_view(body)


def value_view(value: bytes) -> BodyView:
    """Of a result, or of any other bytes."""
    size = len(value)
    plain = value
    first = FIRST_LINE.match(value)
    if first is not None and named_encoding(first) == "json":
        plain = value[first.end() :]
    if (size <= 4 * MAX_TEXT_BYTES and plain[:1] in (b"{", b"[", b'"')) or _is_scalar(plain):
        try:
            read = msgspec.json.decode(plain)
        except UNREADABLE:
            pass
        else:
            budget = _Budget()
            return BodyView("json", size, nodes=[budget.node("", read)], is_cut=budget.is_over)
    begin = value[:MAX_TEXT_BYTES]
    try:
        text = begin.decode("utf-8", "strict" if len(begin) == size else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return BodyView("text", size, text=text, is_cut=len(begin) < size)
    return BodyView("hex", size, text=hex_text(value[:MAX_HEX_BYTES]), is_cut=size > MAX_HEX_BYTES)


def preview_of(value: bytes) -> str:
    """Its beginning, in a line.

    >>> preview_of(b'{"user": 1,\\n "hours": 2}'), preview_of(bytes([255, 0]))
    ('{"user": 1, "hours": 2}', '2 bytes that are no text')
    """
    begin = value[: 4 * PREVIEW_CHARS]
    try:
        text = begin.decode("utf-8", "strict" if len(begin) == len(value) else "ignore")
    except UnicodeDecodeError:
        return f"{len(value):,} bytes that are no text"
    text = " ".join(text.split())
    return text if len(text) <= PREVIEW_CHARS else text[: PREVIEW_CHARS - 1] + "…"


def _is_scalar(plain: bytes) -> bool:
    return len(plain) < 40 and plain[:1] in (b"t", b"f", b"n", b"-", *(b"%d" % digit for digit in range(10)))


def hex_text(data: bytes) -> str:
    """Rows of sixteen bytes: where they stand, the bytes, and those that are letters.

    >>> hex_text(b"PK\\x03\\x04\\xff")
    '00000000  50 4b 03 04 ff                                    PK...'
    """
    rows = []
    for at in range(0, len(data), _ROW):
        row = data[at : at + _ROW]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {left:<23}  {right:<23}  {letters}")
    return "\n".join(rows)


class _Budget:
    """How much of a value is shown."""

    def __init__(self) -> None:
        self._left = MAX_NODES
        self.is_over = False

    def node(self, key: str, value: Any, depth: int = 0) -> JsonNode:
        self._left -= 1
        if isinstance(value, dict | list):
            return self._entries(key, value, depth)
        if isinstance(value, str):
            if len(value) > MAX_STRING_CHARS:
                self.is_over = True
                value = f"{value[:MAX_STRING_CHARS]}…"
            return JsonNode(key, "text", value)
        if value is None or isinstance(value, bool):
            return JsonNode(key, "word", msgspec.json.encode(value).decode())
        try:
            return JsonNode(key, "number", str(value))
        except ValueError:  # of more digits than Python writes
            return JsonNode(key, "word", "a number of thousands of digits")

    def _entries(self, key: str, value: dict[Any, Any] | list[Any], depth: int) -> JsonNode:
        kind = "map" if isinstance(value, dict) else "list"
        pairs = list(value.items()) if isinstance(value, dict) else [("", each) for each in value]
        node = JsonNode(key, kind, entries=[], amount=len(pairs), is_open=depth < 2 and len(pairs) < _FOLDED_FROM)
        assert node.entries is not None
        for name, each in pairs:
            if self._left <= 0 or depth >= MAX_DEPTH:
                self.is_over = True
                break
            node.entries.append(self.node(str(name), each, depth + 1))
        return node
