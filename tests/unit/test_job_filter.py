"""The filter language: reading, writing back, what it selects, what it refuses, and completion."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from pinlater.dashboard.filter_completion import complete
from pinlater.job_filters.filter_fields import FIELDS, STATES, ValueKind, reference_table
from pinlater.job_filters.filter_parser import FilterError, parse_filter, pieces
from pinlater.job_filters.job_filter import FilterLine, Term, error_regex, in_order, type_regex
from pinlater.model.job_selection import JobPhase, JobSelection, TextCondition

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
EVERY_PHASE = tuple(JobPhase)


def selected(line: str, queue: str = "mail") -> JobSelection:
    found = parse_filter(line).selection(queue, NOW_MS)
    assert found is not None
    return found


def refused(line: str) -> FilterError:
    with pytest.raises(FilterError) as error:
        parse_filter(line)
    return error.value


# -- reading and writing back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "canonical"),
    [
        ("", ""),
        ("   ", ""),
        ("state:failed queue:mail", "queue:mail state:failed"),
        ("STATE:Failed", "state:failed"),
        ("state:failed state:ready", "state:ready,failed"),
        ("state:failed,ready,failed", "state:ready,failed"),
        ("state:pending", "state:ready,scheduled,waiting"),
        ("state:in_progress", "state:running"),
        ("queue:b queue:a,b", "queue:b,a"),
        ("priority:3 priority:01", "priority:1,3"),
        ('status:"a b"', 'status:"a b"'),
        ('status:"ab"', "status:ab"),
        ('status:~"a b"', 'status:~"a b"'),
        (r'status:"a \"b\" \\ c"', r'status:"a \"b\" \\ c"'),
        (r'status:~"\d+ x"', r'status:~"\\d+ x"'),
        (r"status:~\d+", r"status:~\d+"),
        ('status:"~x"', 'status:"~x"'),
        ("created:>1h", "age:>1h"),
        ("age:2026-11-25T10:00..", "age:2026-11-25T10:00.."),
        ("attempts:2..4", "attempts:2..4"),
        ("attempts:007", "attempts:7"),
        ("-state:failed -queue:x*", "-queue:x* -state:failed"),
        ("key:a:b", "key:a:b"),
        ("mail:s1:p1:1790000000000000", "id:mail:s1:p1:1790000000000000"),
        ("id:mail:s1:p1:1790000000000000", "id:mail:s1:p1:1790000000000000"),
        ("status:a status:a status:b", "status:a status:b"),
        ("\tstate:failed\n", "state:failed"),
    ],
)
def test_a_line_is_written_in_one_way(line: str, canonical: str) -> None:
    found = parse_filter(line)
    assert found.text() == canonical
    assert parse_filter(canonical) == found


texts = st.text(min_size=1, max_size=12)
words = st.text("abcXYZ019_-", min_size=1, max_size=8).filter(lambda text: not text.startswith("-"))
times = st.sampled_from(["5m", "1h", "30d", "90s", "10ms"])
moments = st.sampled_from(["", "2026-11-25T10:00", "2026-11-25", "2026-11-25T10:00:30+02:00"])
numbers = st.integers(0, 2**31 - 1).map(str)


def _names(field: str, values: st.SearchStrategy[str], *, negates: bool = True) -> st.SearchStrategy[Term]:
    listed = st.lists(values, min_size=1, max_size=3).map(tuple)
    return st.builds(Term, st.just(field), listed, st.just(""), st.booleans() if negates else st.just(False))


def _one(field: str, values: st.SearchStrategy[str], marks: list[str], *, negates: bool) -> st.SearchStrategy[Term]:
    value = values.map(lambda text: (text,))
    return st.builds(Term, st.just(field), value, st.sampled_from(marks), st.booleans() if negates else st.just(False))


def _range(field: str, ends: st.SearchStrategy[str]) -> st.SearchStrategy[Term]:
    pairs = st.tuples(ends, st.just("")) | st.tuples(st.just(""), ends)
    return st.builds(Term, st.just(field), pairs.filter(any), st.just(".."), st.just(False))


terms = st.one_of(
    _names("queue", words | words.map(lambda name: f"{name}*")),
    _names("state", st.sampled_from(list(STATES))),
    _names("priority", st.integers(1, 127).map(str)),
    _one("status", texts, ["", "~"], negates=True),
    _one("body", texts, ["", "~"], negates=True),
    _one("type", texts, [""], negates=True),
    _one("error", texts, [""], negates=True),
    _one("key", texts, [""], negates=False),
    _one("serialize", texts, [""], negates=False),
    _one("age", times, ["<", ">"], negates=False),
    _one("ended", times, ["<", ">"], negates=False),
    _range("updated", moments),
    _one("attempts", numbers, ["", "<", ">"], negates=False),
    _range("attempts", numbers),
)


def read(line: str) -> FilterLine | FilterError:
    try:
        return parse_filter(line)
    except FilterError as error:
        return error


@given(st.lists(terms, max_size=6))
def test_what_is_written_is_read_as_it_was(conditions: list[Term]) -> None:
    once = {term.field: term for term in conditions if term.field in ("key", "serialize")}
    others = [term for term in conditions if term.field not in once]
    line = FilterLine(in_order(list(dict.fromkeys([*others, *once.values()]))))
    found = read(line.text())
    if isinstance(found, FilterError):
        assert "is left that a job could" in found.message  # it asks for what it excludes
    else:
        assert found == line
        assert found.text() == line.text()


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_place_in_it(text: str) -> None:
    found = read(text)
    if isinstance(found, FilterError):
        assert found.message
        assert 0 <= found.start <= found.end <= len(text)
    else:
        assert parse_filter(found.text()) == found
        found.selection("mail", NOW_MS)
    kept = "".join(text[each.start : each.end] for each in pieces(text))
    assert "".join(kept.split()) == "".join(text.split())
    for cursor in range(len(text) + 1):
        completion = complete(text, cursor, {"queue": {"mail": ""}})
        assert 0 <= completion.start <= cursor <= completion.end <= len(text) or not completion.options


# -- what is selected --------------------------------------------------------------------------------------------------


def test_a_line_of_every_field_selects_by_all_of_them() -> None:
    found = selected(
        'queue:mail state:failed status:~"time(d )?out" body:~"ADA@" priority:2 attempts:>2 age:>1h updated:<5m '
        "ended:2026-11-25T10:00..2026-11-25T11:00Z key:k serialize:s "
        'group:"acme \\"b"'
    )
    assert found == JobSelection(
        "mail",
        (JobPhase.FAILED,),
        (2,),
        (TextCondition("ADA@"),),
        (TextCondition("(?i)time(d )?out"),),
        created_before_ms=NOW_MS - HOUR_MS,
        updated_after_ms=NOW_MS - 300_000,
        ended_after_ms=1_795_600_800_000,
        ended_before_ms=1_795_604_400_000,
        min_attempts=3,
        dedupe_key="k",
        serialize_key="s",
        group='acme "b',
    )


def test_an_empty_line_selects_every_job() -> None:
    assert selected("") == JobSelection("mail")


def test_states_priorities_and_queues_can_be_left_out() -> None:
    others = tuple(each for each in JobPhase if each not in (JobPhase.SUCCEEDED, JobPhase.FAILED))
    assert selected("-state:succeeded,failed").phases == others
    assert selected("state:pending -state:waiting").phases == (JobPhase.READY, JobPhase.SCHEDULED)
    assert selected("-priority:2").priorities == (1, 3)
    assert selected("priority:1,2 -priority:2").priorities == (1,)
    line = parse_filter("queue:mail-* queue:sms -queue:mail-x")
    assert line.queues(["mail-a", "mail-x", "mail", "sms"]) == ["sms", "mail-a"]
    assert line.named_queues == ["sms"]
    assert parse_filter("-queue:a*").queues(["a", "ab", "b"]) == ["b"]
    assert parse_filter("queue:a,b -queue:a").queues(["a", "b"]) == ["b"]
    assert parse_filter("queue:a,b,c -queue:b*").named_queues == ["a", "c"]
    assert parse_filter("id:sms:s1:p1:1790000000000000").queues(["a", "b"]) == ["sms"]


def test_what_no_job_can_meet_selects_nothing_instead_of_everything() -> None:
    assert parse_filter("-priority:1,2,3").selection("mail", NOW_MS) is None
    assert parse_filter("id:sms:s1:p1:1790000000000000").selection("mail", NOW_MS) is None
    assert parse_filter("attempts:>3 attempts:<2").selection("mail", NOW_MS) is None
    assert parse_filter("attempts:<0").selection("mail", NOW_MS) is None
    assert parse_filter("attempts:>2147483647").selection("mail", NOW_MS) is None
    assert selected("id:sms:s1:p1:1790000000000000", "sms").descriptors == ("sms:s1:p1:1790000000000000",)


def test_several_times_and_numbers_narrow_each_other() -> None:
    found = selected("age:<1h age:<5m age:>1m attempts:>1 attempts:<9 attempts:3..")
    assert (found.created_after_ms, found.created_before_ms) == (NOW_MS - 300_000, NOW_MS - 60_000)
    assert (found.min_attempts, found.max_attempts) == (3, 8)


def test_small_letters_stand_for_large_ones_unless_one_is_large() -> None:
    assert selected("status:timeout").status_conditions == (TextCondition("(?i)timeout"),)
    assert selected("status:Timeout").status_conditions == (TextCondition("Timeout"),)
    assert selected(r"status:~\Stimeout").status_conditions == (TextCondition(r"(?i)\Stimeout"),)
    assert selected("-status:a.b").status_conditions == (TextCondition(r"(?i)a\.b", True),)


ENVELOPE = {"job": "shop.resize", "args": ['{"job": "other"}'], "kwargs": {"job": "third"}}
FIRST = b"PINLATER/1 application/"


@pytest.mark.parametrize("encoding", ["json", "msgpack", "spaced"])
@pytest.mark.parametrize(
    ("types", "matches"),
    [
        (["shop.resize"], True),
        (["other", "shop.resize"], True),
        (["shop.*"], True),
        (["*resize"], True),
        (["shop.resiz"], False),
        (["hop.resize"], False),
        (["other"], False),
        (["third"], False),
        (["shopxresize"], False),
    ],
)
def test_a_type_is_found_in_both_encodings_and_not_among_arguments(
    encoding: str, types: list[str], matches: bool
) -> None:
    written = {
        "json": b"json\n" + msgspec.json.encode(ENVELOPE),
        "msgpack": b"msgpack\n" + msgspec.msgpack.encode(ENVELOPE),
        "spaced": b"json; charset=utf-8\r\n" + msgspec.json.format(msgspec.json.encode(ENVELOPE), indent=2),
    }
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    pattern = re2.compile(type_regex(types).encode(), options)
    assert (pattern.search(FIRST + written[encoding]) is not None) is matches


def test_a_long_type_is_found_in_messagepack() -> None:
    name = "a" * 200
    body = FIRST + b"msgpack\n" + msgspec.msgpack.encode({"job": name, "args": []})
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    assert re2.compile(type_regex([name]).encode(), options).search(body)


STATUS = """note of a worker: ValueError: not this
attempt 1 of 3: shop.errors.ValueError: no (mail.py:42 in send) [2026-11-23T00:09:12Z, 1.2s, web-1:4711]
attempt 2 of 3: TimeoutError [2026-11-23T00:09:22Z, 30.1s, web-2:913]
"""


@pytest.mark.parametrize(
    ("errors", "matches"),
    [
        (["TimeoutError"], True),
        (["shop.errors.ValueError"], True),
        (["*ValueError"], True),
        (["ValueError"], False),
        (["Timeout"], False),
        (["Timeout*", "KeyError"], True),
        (["*"], True),
    ],
)
def test_an_error_is_that_of_an_attempt(errors: list[str], matches: bool) -> None:
    assert (re2.compile(error_regex(errors)).search(STATUS) is not None) is matches


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says", "place"),
    [
        ("timeout", "'timeout' is no condition; write status:timeout", "timeout"),
        ("state:failed timeout", "is no condition", "timeout"),
        ("colour:red", "there is no field 'colour'; there are queue, state", "colour"),
        ("state:over", "'over' is no state; there are ready, scheduled", "state:over"),
        ("state:failed,", "a value of state is empty", "state:failed,"),
        ("state:", "state has no value; write it as in state:failed", "state:"),
        ("state:~f", "state has no ~", "state:~f"),
        ("queue:a/b", "is no name of a queue", "queue:a/b"),
        ("priority:0", "allowed: 1 (the highest) to 127", "priority:0"),
        ("priority:high", "is no priority", "priority:high"),
        ('status:"open', "a quote is not closed", 'status:"open'),
        ('status:"a"b', "a quote is not closed", 'status:"a"b'),
        ('status:""', "looks for nothing", 'status:""'),
        ("status:>5", "status has no >", "status:>5"),
        ("age:1h", "age is written as in age:>1h", "age:1h"),
        ("age:>soon", "'soon' is no length of time; allowed: 1ms to", "age:>soon"),
        ("age:>", "age has no value", "age:>"),
        ("age:..", "age is written as in", "age:.."),
        ("age:17..18", "'17' is no time", "age:17..18"),
        ("age:2026-11-26..2026-11-25", "ends before it begins", "age:2026-11-26..2026-11-25"),
        ("-age:>1h", "age cannot have a - in front; queue, state", "-age:>1h"),
        ("attempts:many", "'many' is no whole number", "attempts:many"),
        ("attempts:~2", "attempts is written as in", "attempts:~2"),
        ("attempts:4..2", "ends before it begins", "attempts:4..2"),
        ("attempts:99999999999", "no whole number up to 2,147,483,647", "attempts:99999999999"),
        ("key:a key:b", "key is there twice", "key:b"),
        ("id:nonsense", "is no descriptor; they are such as mail:s1:p1:", "id:nonsense"),
        ("state:failed -state:failed", "no state is left", "state:failed -state:failed"),
        ("queue:a -queue:a", "no queue is left", "queue:a -queue:a"),
        ("priority:1 -priority:1", "no priority is left", "priority:1 -priority:1"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(line: str, says: str, place: str) -> None:
    error = refused(line)
    assert says in error.message
    assert line[error.start : error.end] == place


def test_a_line_has_bounds() -> None:
    assert "allowed: 4,000" in refused("status:" + "x" * 4_000).message
    assert "more than 40 conditions" in refused(" ".join(f"status:{number}" for number in range(41))).message


# -- completion --------------------------------------------------------------------------------------------------------

KNOWN = {
    "queue": {"mail": "12 jobs", "mail-out": "", "sms": ""},
    "type": {"resize": ""},
    "priority": {"1": "", "2": ""},
}


def completed(marked: str) -> tuple[str, list[str]]:
    """What is replaced in a line whose cursor is at `|`, and by what."""
    cursor = marked.index("|")
    line = marked.replace("|", "")
    found = complete(line, cursor, KNOWN)
    return line[found.start : found.end], [option.text for option in found.options]


@pytest.mark.parametrize(
    ("marked", "replaced", "first"),
    [
        ("|", "", ["queue:", "state:", "status:"]),
        ("sta|", "sta", ["state:", "status:"]),
        ("-sta|", "-sta", ["-state:", "-status:"]),
        ("state:failed |", "", ["queue:", "state:"]),
        ("state:failed qu|", "qu", ["queue:"]),
        ("st|ate:failed", "state:", ["state:", "status:"]),
        ("queue:|", "", ["mail", "mail-out", "sms"]),
        ("queue:s|", "s", ["sms"]),
        ("queue:out|", "out", ["mail-out"]),
        ("queue:sms,mai|", "mai", ["mail", "mail-out"]),
        ("queue:m|,sms", "m", ["mail", "mail-out", "sms"]),
        ("state:|", "", ["ready", "scheduled", "waiting", "running"]),
        ("state:fa|", "fa", ["failed"]),
        ("state:failed|", "failed", []),
        ("-state:en|", "en", ["ended"]),
        ("age:|", "", ["<5m", "<1h"]),
        ("attempts:>|", ">", [">0", ">2"]),
        ("status:|", "", ["~"]),
        ("type:r|", "r", ["resize"]),
        ("error:|", "", []),
        ('status:"a |b"', "", []),
        ("colour:|", "", []),
    ],
)
def test_completion_offers_what_can_come_next(marked: str, replaced: str, first: list[str]) -> None:
    part, options = completed(marked)
    assert (part, options[: len(first)]) == (replaced, first)
    assert bool(options) is bool(first)


def test_only_fields_that_can_be_turned_round_are_offered_behind_a_dash() -> None:
    assert [text.strip("-:") for text in completed("-|")[1]] == [field.name for field in FIELDS if field.can_negate]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_the_examples_of_every_field_can_be_read(field: object) -> None:
    assert hasattr(field, "examples")
    for example in field.examples:
        line = parse_filter(example)
        assert [term.field for term in line.terms] == [field.name]  # type: ignore[attr-defined]
        assert parse_filter(f"-{example}") if field.can_negate else refused(f"-{example}")  # type: ignore[attr-defined]
    assert field.kind in ValueKind  # type: ignore[attr-defined]
    assert re.fullmatch(r"[A-Z~<].*\.", field.help)  # type: ignore[attr-defined]


def test_the_page_about_filters_has_the_table_of_fields() -> None:
    page = Path(__file__).parents[2] / "docs" / "dashboard-filters.md"
    made = "python -m pinlater.job_filters.filter_fields prints it"
    assert reference_table() in page.read_text(encoding="utf-8"), made


@pytest.mark.parametrize(
    ("line", "is_counted"),
    [("", True), ("queue:a state:failed -priority:1", True), ("age:>1h", False)],
)
def test_filters_by_what_is_counted_are_told_apart(line: str, is_counted: bool) -> None:
    assert parse_filter(line).is_counted is is_counted
