"""The completion of filter lines: what can come next at a place in a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pinlater.job_filters.filter_fields import BY_NAME, FIELDS, STATE_GROUPS, STATES, FilterField, ValueKind
from pinlater.job_filters.filter_parser import FilterPiece, pieces

MAX_OPTIONS = 12

_LENGTHS = (("<5m", "in the last 5 minutes"), ("<1h", "in the last hour"), ("<1d", "in the last day"))
_LONGER = ((">1h", "more than an hour ago"), (">1d", "more than a day ago"), (">7d", "more than a week ago"))
_ATTEMPTS = (("0", "none yet"), (">0", "one at least"), (">2", "more than two"))


class CompletionOption(NamedTuple):
    """`text` stands in place of the part of the line that is completed."""

    text: str
    note: str = ""


class Completion(NamedTuple):
    """What may stand in the line from `start` to `end`, instead of what is there."""

    start: int
    end: int
    options: list[CompletionOption]


def complete(line: str, cursor: int, known: Mapping[str, Mapping[str, str]]) -> Completion:
    """`known`: for fields such as queue and priority, the values that there are, with a note for each."""
    cursor = max(0, min(cursor, len(line)))
    piece = next((each for each in pieces(line) if each.start < cursor <= each.end), None)
    if piece is None:
        return _fields(FilterPiece(cursor, cursor, "", False, "", -1, "", "", False, False), line, cursor)
    if piece.colon < 0 or cursor <= piece.colon:
        return _fields(piece, line, cursor)
    field = BY_NAME.get(piece.field.lower())
    if field is None or piece.is_quoted:
        return Completion(cursor, cursor, [])
    begin = piece.colon + 1
    if field.kind is ValueKind.NAMES:
        begin = max(begin, line.rfind(",", begin, cursor) + 1)
    end = piece.end
    if field.kind is ValueKind.NAMES:
        comma = line.find(",", cursor, piece.end)
        end = piece.end if comma < 0 else comma
    typed = line[begin:cursor].lower()
    options = _best(typed, _values(field, known.get("queue" if field.name == "origin" else field.name, {})))
    if len(options) == 1 and options[0].text == line[begin:end]:
        options = []  # it is there already
    return Completion(begin, end, options)


def _fields(piece: FilterPiece, line: str, cursor: int) -> Completion:
    typed = line[piece.start : cursor].lower()
    sign = "-" if typed.startswith("-") else ""
    fields = [field for field in FIELDS if field.can_negate or not sign]
    options = [CompletionOption(f"{sign}{field.name}:", field.help) for field in fields]
    end = piece.end if piece.colon < 0 else piece.colon + 1
    return Completion(piece.start, end, _best(typed, options)[:MAX_OPTIONS] if typed else options)


def _values(field: FilterField, known: Mapping[str, str]) -> Sequence[CompletionOption]:
    if field.name == "state":
        states = [CompletionOption(word, note) for word, (_, note) in STATES.items()]
        return states + [CompletionOption(word, ", ".join(words)) for word, words in STATE_GROUPS.items()]
    if field.kind is ValueKind.TIME:
        return [CompletionOption(*each) for each in (*_LENGTHS, *_LONGER)]
    if field.kind is ValueKind.NUMBER:
        return [CompletionOption(*each) for each in _ATTEMPTS]
    options = [CompletionOption(*each) for each in known.items()]
    return (
        options
        if options or field.kind is not ValueKind.TEXT
        else [CompletionOption("~", "a pattern (RE2) instead of a text")]
    )


def _best(typed: str, options: Iterable[CompletionOption]) -> list[CompletionOption]:
    """Those that begin with what was typed, then those that have it."""
    found = [option for option in options if typed in option.text.lower()]
    found.sort(key=lambda option: not option.text.lower().startswith(typed))
    return found[:MAX_OPTIONS]
