"""The parser of the filter language: a line, read into conditions, or what is wrong with it and where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from pinlater.job_filters.filter_fields import BY_NAME, FIELDS, STATES, FilterField, ValueKind, states_named
from pinlater.job_filters.job_filter import (
    LENGTH,
    MARKS,
    MAX_NUMBER,
    FilterLine,
    Term,
    in_order,
    in_order_of,
    moment_ms,
    quoted,
)
from pinlater.model import is_descriptor, is_queue_name

MAX_CHARS = 4_000
MAX_TERMS = 40
MAX_NAMES = 100
"""Of one condition; each is compared with each queue that there is."""


class FilterError(ValueError):
    """What is wrong with a line, and from where to where."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end


class FilterPiece(NamedTuple):
    """One condition as it stands in a line, not read yet: `field` ends at `colon`, -1 for none. `value` is without its
    quotes; `is_open`: its quote is not closed.
    """

    start: int
    end: int
    raw: str
    is_not: bool
    field: str
    colon: int
    mark: str
    value: str
    is_quoted: bool
    is_open: bool


_FIELD = re.compile(r"(-?)([A-Za-z_]*)(:?)")
_ESCAPED_CHARS = ('"', "\\")


def pieces(line: str) -> list[FilterPiece]:
    """The conditions of a line, whatever is wrong with them."""
    found = []
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        piece = _piece(line, at)
        found.append(piece)
        at = piece.end
    return found


def _piece(line: str, start: int) -> FilterPiece:
    head = _FIELD.match(line, start)
    assert head is not None
    sign, name, colon = head.groups()
    at = head.end() if colon else start
    mark = ""
    if colon and line[at : at + 1] in MARKS:
        mark = line[at]
        at += 1
    if colon and line[at : at + 1] == '"':
        value, end, is_closed = _read_quoted(line, at + 1)
        while end < len(line) and not line[end].isspace():  # what sticks to the closing quote is a mistake
            end += 1
            is_closed = False
        return FilterPiece(
            start, end, line[start:end], bool(sign), name, head.end() - 1, mark, value, True, not is_closed
        )
    end = at
    while end < len(line) and not line[end].isspace():
        end += 1
    if not colon:
        return FilterPiece(start, end, line[start:end], False, line[start:end], -1, "", "", False, False)
    return FilterPiece(start, end, line[start:end], bool(sign), name, head.end() - 1, mark, line[at:end], False, False)


def _read_quoted(line: str, at: int) -> tuple[str, int, bool]:
    """The text, where it ends, and whether its quote is closed. A backslash stands before a quote or another one; any
    other is itself, as patterns have many.
    """
    chars: list[str] = []
    while at < len(line):
        char = line[at]
        if char == '"':
            return "".join(chars), at + 1, True
        if char == "\\" and line[at + 1 : at + 2] in _ESCAPED_CHARS:
            at += 1
            char = line[at]
        chars.append(char)
        at += 1
    return "".join(chars), at, False


def parse_filter(line: str) -> FilterLine:
    """FilterError."""
    if len(line) > MAX_CHARS:
        raise FilterError(f"the filter has {len(line):,} characters; allowed: {MAX_CHARS:,}", MAX_CHARS, len(line))
    terms: list[Term] = []
    for piece in pieces(line):
        term = _term(piece)
        field = BY_NAME[term.field]
        if field.is_once and any(other.field == term.field for other in terms):
            raise FilterError(f"{term.field} is there twice; no job can have two", piece.start, piece.end)
        if term not in terms:
            terms.append(term)
        if len(terms) > MAX_TERMS:
            raise FilterError(f"more than {MAX_TERMS} conditions", piece.start, piece.end)
    return _possible(FilterLine(in_order(terms)), len(line))


def _possible(line: FilterLine, end: int) -> FilterLine:
    """FilterError: no job can be meant, as the same is wanted and not wanted."""
    if not line.phases:
        raise FilterError("no state is left that a job could be in", 0, end)
    wanted = [each for term in line.of("queue") for each in term.values]
    plain = all("*" not in each for each in wanted)
    if (wanted and plain and not line.named_queues) or (line.descriptors and not line.named_queues):
        raise FilterError("no queue is left that a job could have", 0, end)
    if line.of("priority") and not line.priorities(()):
        raise FilterError("no priority is left that a job could have", 0, end)
    return line


def _term(piece: FilterPiece) -> Term:
    field = BY_NAME.get(piece.field.lower())
    if field is None and is_descriptor(piece.raw):
        return Term("id", (piece.raw,))
    if piece.colon < 0:
        _refuse(
            piece,
            f"{piece.field[:80]!r} is no condition; write status:{quoted(piece.field[:80])} for what the status says, "
            f"or one of {_names()}",
        )
    if field is None:
        _refuse(piece, f"there is no field {piece.field!r}; there are {_names()}", piece.start, piece.colon)
    if piece.is_not and not field.can_negate:
        able = ", ".join(each.name for each in FIELDS if each.can_negate)
        _refuse(piece, f"{field.name} cannot have a - in front; {able} can")
    if piece.is_open:
        _refuse(piece, f'a quote is not closed; write {field.name}:"some text", and \\" for a quote in it')
    if not piece.value and not piece.is_quoted:
        _refuse(piece, f"{field.name} has no value; write it as in {' or '.join(field.examples)}")
    comparison, values = _READ[field.kind](piece, field)
    return Term(field.name, values, comparison, piece.is_not)


def _refuse(piece: FilterPiece, message: str, start: int | None = None, end: int | None = None) -> NoReturn:
    raise FilterError(message, piece.start if start is None else start, piece.end if end is None else end)


def _names() -> str:
    return ", ".join(field.name for field in FIELDS)


def _read_names(piece: FilterPiece, field: FilterField) -> tuple[str, tuple[str, ...]]:
    _no_mark(piece, field)
    found: list[str] = []
    words = piece.value.split(",")
    if len(words) > MAX_NAMES:
        _refuse(piece, f"{field.name} has {len(words)} values; allowed: {MAX_NAMES}, and * for any characters")
    for word in words:
        if not word:
            _refuse(piece, f"a value of {field.name} is empty; write it as in {' or '.join(field.examples)}")
        found += _NAMES[field.name](piece, word)
    return "", tuple(in_order_of(field.name, found))


def _queue_name(piece: FilterPiece, word: str) -> tuple[str, ...]:
    if not is_queue_name(word.replace("*", "x")):
        _refuse(piece, f"{word[:80]!r} is no name of a queue; * stands for any characters")
    return (word,)


def _state_name(piece: FilterPiece, word: str) -> tuple[str, ...]:
    states = states_named(word)
    if not states:
        _refuse(piece, f"{word[:80]!r} is no state; there are {', '.join(STATES)}, pending and ended")
    return states


def _priority_name(piece: FilterPiece, word: str) -> tuple[str, ...]:
    if not (word.isascii() and word.isdecimal() and len(word) <= 4 and 1 <= int(word) <= 127):
        _refuse(piece, f"{word[:80]!r} is no priority; allowed: 1 (the highest) to 127")
    return (str(int(word)),)


_NAMES = {"queue": _queue_name, "state": _state_name, "priority": _priority_name}


def _read_text(piece: FilterPiece, field: FilterField) -> tuple[str, tuple[str, ...]]:
    if piece.mark in ("<", ">"):
        _refuse(piece, f"{field.name} has no {piece.mark}; write it as in {' or '.join(field.examples)}")
    if not piece.value:
        _refuse(piece, f"{field.name} looks for nothing; write it as in {' or '.join(field.examples)}")
    return piece.mark, (piece.value,)


def _read_exact(piece: FilterPiece, field: FilterField) -> tuple[str, tuple[str, ...]]:
    _no_mark(piece, field)
    if not piece.value:
        _refuse(piece, f"{field.name} has no value; write it as in {' or '.join(field.examples)}")
    if field.name == "id" and not is_descriptor(piece.value):
        _refuse(piece, f"{piece.value[:80]!r} is no descriptor; they are such as {field.examples[0].partition(':')[2]}")
    if field.name == "origin" and not is_queue_name(piece.value):
        _refuse(piece, f"{piece.value[:80]!r} is no name of a queue")
    return "", (piece.value,)


def _no_mark(piece: FilterPiece, field: FilterField) -> None:
    if piece.mark:
        _refuse(piece, f"{field.name} has no {piece.mark}; write it as in {' or '.join(field.examples)}")


def _read_time(piece: FilterPiece, field: FilterField) -> tuple[str, tuple[str, ...]]:
    if piece.mark in ("<", ">") and not piece.is_quoted:
        try:
            LENGTH.parse(piece.value)
        except ValueError:
            _refuse(piece, f"{piece.value[:80]!r} is no length of time; allowed: {LENGTH.allowed}")
        return piece.mark, (piece.value,)
    ends = piece.value.split("..")
    if piece.mark or len(ends) != 2 or not any(ends):
        _refuse(piece, f"{field.name} is written as in {' or '.join(field.examples)}")
    for end in ends:
        if end and moment_ms(end) is None:
            _refuse(piece, f"{end[:80]!r} is no time; write it as in 2026-11-25T10:00, in UTC unless it names a zone")
    _refuse_backwards(piece, [moment_ms(end) for end in ends])
    return "..", (ends[0], ends[1])


def _read_number(piece: FilterPiece, field: FilterField) -> tuple[str, tuple[str, ...]]:
    ends = piece.value.split("..")
    is_range = len(ends) == 2 and any(ends) and not piece.mark
    if piece.mark == "~" or piece.is_quoted or not (is_range or len(ends) == 1):
        _refuse(piece, f"{field.name} is written as in {' or '.join(field.examples)}")
    for end in ends:
        if end and not (end.isascii() and end.isdecimal() and len(end) <= 10 and int(end) <= MAX_NUMBER):
            _refuse(piece, f"{end[:80]!r} is no whole number up to {MAX_NUMBER:,}")
    if not is_range:
        return piece.mark, (str(int(ends[0])),)
    _refuse_backwards(piece, [int(end) if end else None for end in ends])
    return "..", tuple(str(int(end)) if end else "" for end in ends)


def _refuse_backwards(piece: FilterPiece, ends: Sequence[int | None]) -> None:
    low, high = ends
    if low is not None and high is not None and low > high:
        _refuse(piece, "the range ends before it begins: turn its ends round")


_READ = {
    ValueKind.NAMES: _read_names,
    ValueKind.TEXT: _read_text,
    ValueKind.PATTERN: _read_exact,
    ValueKind.EXACT: _read_exact,
    ValueKind.TIME: _read_time,
    ValueKind.NUMBER: _read_number,
}
