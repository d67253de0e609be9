"""The filter language: a line of conditions, read into what a search looks for, and written back.

    queue:mail state:failed status:~"time(d )?out" age:>1h -type:resize

A line is conditions with spaces between: a field, a colon, and a value, in double quotes where it has spaces; `-` in
front turns a condition round. Conditions on several fields hold together. Several on the queue, state, priority, type,
error or id widen what is found: one of them is enough. Several on a status, a body or tags narrow it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from pinlater.job_filters.filter_fields import BY_NAME, FIELDS, SERVER_ERRORS, STATES, ValueKind
from pinlater.model import MAX_TIME_MS
from pinlater.model.callers import matches
from pinlater.model.job_selection import JobPhase, JobSelection, TextCondition
from pinlater.setting_kinds import Duration

_DAY_MS = 86_400_000
MARKS = ("~", "<", ">")
"""What may stand before a value: a pattern, less, more."""

LENGTH = Duration(1, 36_500 * _DAY_MS)
MAX_NUMBER = 2**31 - 1
_TYPE_CHARS = "[A-Za-z0-9_.:-]"


class Term(NamedTuple):
    """One condition. `comparison` is "", "~", "<", ">" or ".."; `values` are several of ValueKind.NAMES, else one, or
    the two ends of a range.
    """

    field: str
    values: tuple[str, ...]
    comparison: str = ""
    is_not: bool = False

    def text(self) -> str:
        """As it is written."""
        sign = "-" if self.is_not else ""
        if self.comparison == "..":
            return f"{sign}{self.field}:{'..'.join(self.values)}"
        if BY_NAME[self.field].kind is ValueKind.NAMES:
            return f"{sign}{self.field}:{','.join(self.values)}"
        return f"{sign}{self.field}:{self.comparison}{quoted(self.values[0])}"


@dataclass(frozen=True, slots=True)
class FilterLine:
    """The conditions of a line, in the order of their fields."""

    terms: tuple[Term, ...] = ()

    def text(self) -> str:
        """The line, always written in one way; read again it is the same."""
        return " ".join(term.text() for term in self.terms)

    def of(self, field: str, *, is_not: bool = False) -> list[Term]:
        return [term for term in self.terms if term.field == field and term.is_not is is_not]

    def with_values(self, field: str, *values: str) -> FilterLine:
        """The same line with this instead of what it says of a field; without values, with nothing of it."""
        others = [term for term in self.terms if term.field != field]
        return FilterLine(in_order([*others, Term(field, values)] if values else others))

    @property
    def reads_texts(self) -> bool:
        """It tells of what is hidden from who may see no bodies."""
        return any(term.field in ("body", "type", "status") for term in self.terms)

    @property
    def is_counted(self) -> bool:
        """Whether it means as many jobs as are counted by queue, state and priority."""
        return {term.field for term in self.terms} <= {"queue", "state", "priority"}

    @property
    def descriptors(self) -> list[str]:
        return list(dict.fromkeys(term.values[0] for term in self.of("id")))

    @property
    def phases(self) -> list[JobPhase]:
        """Those that are meant; all of them where the line does not say."""
        named = {STATES[word][0] for term in self.of("state") for word in term.values} or set(JobPhase)
        return sorted(named - {STATES[word][0] for term in self.of("state", is_not=True) for word in term.values})

    def queues(self, counted: Iterable[str]) -> list[str]:
        """The queues that are meant, of those that somebody has counted, and of those that the line names."""
        return self._meant((*self.named_queues, *counted))

    @property
    def named_queues(self) -> list[str]:
        """The queues that the line names, without a * or by a descriptor: they may be looked at although nobody has
        counted them yet.
        """
        return self._meant(self._queues_of_ids() or [each for each in self._values("queue") if "*" not in each])

    def _meant(self, names: Iterable[str]) -> list[str]:
        """Those of the names that the line wants and does not leave out."""
        wanted, others, of_ids = self._values("queue"), self._values("queue", is_not=True), self._queues_of_ids()
        return [
            name
            for name in dict.fromkeys(names)
            if (not of_ids or name in of_ids)
            and (not wanted or any(matches(each, name) for each in wanted))
            and not any(matches(each, name) for each in others)
        ]

    def _queues_of_ids(self) -> list[str]:
        return [each.partition(":")[0] for each in self.descriptors]

    def priorities(self, known: Iterable[int]) -> tuple[int, ...] | None:
        """Those that are meant, of the `known` ones where the line only leaves some out; None: all."""
        wanted = {int(each) for each in self._values("priority")}
        excluded = {int(each) for each in self._values("priority", is_not=True)}
        return tuple(sorted((wanted or set(known)) - excluded)) if wanted or excluded else None

    def _values(self, field: str, *, is_not: bool = False) -> list[str]:
        return [each for term in self.of(field, is_not=is_not) for each in term.values]

    def selection(self, queue: str, now_ms: int, priorities: Sequence[int] = (1, 2, 3)) -> JobSelection | None:
        """What to look for in one queue; lengths of time count from `now_ms`. `priorities`: those that jobs have.
        None: no job of it can be meant.
        """
        descriptors = tuple(each for each in self.descriptors if each.partition(":")[0] == queue)
        selection = JobSelection(
            queue,
            None if len(self.phases) == len(JobPhase) else tuple(self.phases),  # older servers do not know all
            self.priorities(priorities),
            (*self._texts("body"), *self._patterns("type", type_regex)),
            (*self._texts("status"), *self._patterns("error", error_regex)),
            dedupe_key=self._exact("key"),
            serialize_key=self._exact("serialize"),
            descriptors=descriptors if self.descriptors else None,
            tags=tuple(dict.fromkeys(term.values[0] for term in self.of("tag"))),
            origin_queue=self._exact("origin"),
            group=self._exact("group"),
        )
        for field, name in (("age", "created"), ("updated", "updated"), ("ended", "ended")):
            for term in self.of(field):
                after_ms, before_ms = _times(term, now_ms)
                _narrow(selection, f"{name}_after_ms", after_ms, max)
                _narrow(selection, f"{name}_before_ms", before_ms, min)
        for term in self.of("attempts"):
            least, most = _numbers(term)
            _narrow(selection, "min_attempts", least, max)
            _narrow(selection, "max_attempts", most, min)
        least, most = selection.min_attempts or 0, selection.max_attempts
        is_possible = least <= MAX_NUMBER and (most is None or most >= least)
        return selection if is_possible and not selection.selects_nothing else None

    def _exact(self, field: str) -> str | None:
        terms = self.of(field)
        return terms[0].values[0] if terms else None

    def _texts(self, field: str) -> list[TextCondition]:
        return [
            TextCondition(
                _smart_case(term.values[0]) if term.comparison else _smart_case(re.escape(term.values[0])), term.is_not
            )
            for term in self.terms
            if term.field == field
        ]

    def _patterns(self, field: str, regex_of: Callable[[Sequence[str]], str]) -> list[TextCondition]:
        """One of those that are wanted, and none of the others."""
        wanted = [term.values[0] for term in self.of(field)]
        conditions = [TextCondition(regex_of(wanted))] if wanted else []
        return conditions + [TextCondition(regex_of(list(term.values)), True) for term in self.of(field, is_not=True)]


def _narrow(selection: JobSelection, name: str, value: int | None, stricter: Callable[[int, int], int]) -> None:
    if value is not None:
        before = getattr(selection, name)
        setattr(selection, name, value if before is None else stricter(before, value))


# -- patterns ----------------------------------------------------------------------------------------------------------

_ESCAPES = re.compile(r"\\.", re.DOTALL)


def _smart_case(regex: str) -> str:
    """Small letters stand for large ones too, unless there is a large one.

    >>> _smart_case("timeout"), _smart_case("Timeout"), _smart_case(r"\\S+ out")
    ('(?i)timeout', 'Timeout', '(?i)\\\\S+ out')
    """
    plain = _ESCAPES.sub("", regex)
    return regex if plain != plain.lower() else f"(?i){regex}"


def type_regex(types: Sequence[str]) -> str:
    """For bodies of the framework with one of these types: the type is the first entry of the map."""
    names = [re.escape(each).replace(r"\*", f"{_TYPE_CHARS}*") for each in types]
    either = "|".join(names)
    as_json = rf'\s*\{{\s*"job"\s*:\s*"(?:{either})"'
    as_msgpack = rf"(?:[\x80-\x8f]|\xde..|\xdf....)\xa3job(?:[\xa0-\xbf]|\xd9.)(?:{either})(?:[^A-Za-z0-9_.:-]|$)"
    return rf"(?s)^PINLATER/[0-9]+ [^\n]*\n(?:{as_json}|{as_msgpack})"


def error_regex(errors: Sequence[str]) -> str:
    """For statuses with the line of an attempt that one of these exceptions ended, or with that of a server."""
    names = [re.escape(each).replace(r"\*", r"[^\s:(]*") for each in errors if each not in SERVER_ERRORS]
    lines = [rf"\[{SERVER_ERRORS[each]}" for each in errors if each in SERVER_ERRORS]
    if names:
        lines.append(rf"(?:attempt [0-9]+(?: of [0-9]+)?: )?(?:{'|'.join(names)})(?:[\s:(,;]|$)")
    return rf"(?m)^(?:{'|'.join(lines)})"


def quoted(text: str) -> str:
    if text and text[0] not in ('"', *MARKS) and not any(char.isspace() for char in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def in_order(terms: Iterable[Term]) -> tuple[Term, ...]:
    """By field; those that name several values, as one."""
    joined: dict[tuple[str, bool], Term] = {}
    found: list[Term] = []
    for term in terms:
        if BY_NAME[term.field].kind is not ValueKind.NAMES:
            found.append(term)
            continue
        before = joined.get((term.field, term.is_not))
        values = (*(before.values if before else ()), *term.values)
        joined[term.field, term.is_not] = Term(term.field, tuple(in_order_of(term.field, values)), "", term.is_not)
    order = [field.name for field in FIELDS]
    found += joined.values()
    return tuple(sorted(found, key=lambda term: (order.index(term.field), term.is_not)))


def in_order_of(field: str, values: Iterable[str]) -> list[str]:
    once = list(dict.fromkeys(values))
    if field == "state":
        return sorted(once, key=list(STATES).index)
    return sorted(once, key=int) if field == "priority" else once


# -- values ------------------------------------------------------------------------------------------------------------


def moment_ms(text: str) -> int | None:
    """None: it is no time."""
    if text.isdecimal():
        return None  # a bare number is as likely a mistake as a date
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        at_ms = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
    return at_ms if 0 <= at_ms <= MAX_TIME_MS else None


def _times(term: Term, now_ms: int) -> tuple[int | None, int | None]:
    """From when on, and before when."""
    if term.comparison == "..":
        begin, end = [moment_ms(each) if each else None for each in term.values]
        return begin, end
    at_ms = max(0, now_ms - LENGTH.parse(term.values[0]))
    return (None, at_ms) if term.comparison == ">" else (at_ms, None)


def _numbers(term: Term) -> tuple[int | None, int | None]:
    """The least and the most."""
    if term.comparison == "..":
        low, high = [int(each) if each else None for each in term.values]
        return low, high
    value = int(term.values[0])
    if term.comparison == ">":
        return value + 1, None
    return (None, value - 1) if term.comparison == "<" else (value, value)
