"""Tables of text as a terminal shows them."""

from __future__ import annotations

import pytest

from pinlater.text_table import Column, TextTable, text_width

COLUMNS = (Column("name", 9), Column("jobs", 8, True), Column("store", 2), Column("why", 7), Column("seen", 3))
LONG = "the store answers, and not in time " * 40


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mail", "mail"),
        ("日本語", "日本語"),
        ("e\u0301te\u0301", "e\u0301te\u0301"),
        ("\u1112\u1161\u11ab", "\u1112\u1161\u11ab"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\u202eexe.pdf", r"\u202eexe.pdf"),
        (None, "-"),
        (True, "yes"),
        (["a", "b"], "a,b"),
        (["a", "\x07"], r"a,\x07"),
    ],
)
def test_the_second_column_begins_in_one_cell_whatever_the_first_has(name: object, shown: str) -> None:
    heading, *lines = TextTable(["name", "state"]).lines([(name, "in"), ("plain", "in"), ("x" * 20, "in")])
    assert lines[0].startswith(f"{shown}  ")
    assert {text_width(line.removesuffix("in")) for line in lines} == {22}
    assert text_width(heading.removesuffix("STATE")) == 22


def test_later_rows_may_make_a_column_wider_and_none_narrower() -> None:
    table = TextTable(["name", "state"])
    assert table.lines([("a", "in")]) == ["NAME  STATE", "a     in"]
    assert table.lines([("a" * 8, "in"), ("b", "in")]) == ["aaaaaaaa  in", "b         in"]
    assert table.lines([("c", "in")]) == ["c         in"]


def test_one_column_has_no_heading() -> None:
    assert TextTable(["name"]).lines([("a",), ("b\n",)]) == ["a", r"b\n"]


@pytest.mark.parametrize("width", [1, 3, 20, 60, 80, 120])
@pytest.mark.parametrize("why", ["", "out", LONG, "日本" * 200, "\x1b" * 200])
def test_the_longest_text_is_cut_before_a_column_goes(width: int, why: str) -> None:
    rows = [("mail", "1,234", "redis://10.0.0.1", why, "3s"), ("images", "7", "", "", "2m")]
    heading, first, second = TextTable(COLUMNS).lines(rows, width)
    if width >= 60:
        assert max(map(text_width, (heading, first, second))) <= width
        assert heading.split() == ["NAME", "JOBS", "STORE", "WHY", "SEEN"] if width >= 80 else "WHY" in heading
        assert first.startswith("mail    1,234")
        assert second.startswith("images      7")
    assert "\x1b" not in first
    if len(why) > 100 and width >= 80:
        assert "..." in first


def test_a_column_that_matters_little_and_has_nothing_but_dashes_goes_first() -> None:
    table = TextTable(["server", Column("overflow_jobs", 4), "trouble"])
    assert table.lines([["web-1", None, ""], ["web-2", "", None]], 80)[0].split() == ["SERVER", "TROUBLE"]


def test_a_column_that_matters_little_and_is_empty_goes_first() -> None:
    heading, _ = TextTable(COLUMNS).lines([("mail", "1", "", "", "3s")], 200)
    assert heading.split() == ["NAME", "JOBS", "WHY", "SEEN"]


@pytest.mark.parametrize("width", [60, 70, 80, 100])
def test_a_long_text_takes_no_number_away(width: int) -> None:
    numbers = ("READY", "SCHEDULED", "RUNNING", "FAILED")
    columns = (Column("QUEUE", 9), *(Column(each, 4, is_number=True) for each in numbers), Column("FLAGS"))
    lines = TextTable(columns).lines([("mail", "5", "1,234,567", "0", "2", f"paused {LONG}")], width)
    assert lines[0].split() == ["QUEUE", *numbers, "FLAGS"]
    assert "paused" in lines[1]
    assert max(map(text_width, lines)) <= width


def test_names_and_times_are_whole_where_texts_are_cut() -> None:
    columns = (Column("job", is_whole=True), Column("at", is_whole=True), Column("why"))
    (_, line) = TextTable(columns).lines([("mail:s1:p1:1790000000000000", "2026-11-23T00:23:35Z", LONG)], 60)
    assert line.startswith("mail:s1:p1:1790000000000000  2026-11-23T00:23:35Z  the st...")


def test_integers_are_right_and_other_columns_left() -> None:
    lines = TextTable(["queue", "priority", "jobs"]).lines([("mail", "all", 7), ("sms", 1, 1_000), ("fax", 2, None)])
    assert lines == [
        "QUEUE  PRIORITY  JOBS",
        "mail        all     7",
        "sms           1  1000",
        "fax           2     -",
    ]


def test_what_is_left_out_is_decided_with_the_headings() -> None:
    table = TextTable((Column("name", 9), Column("seen", 2), "why"))
    heading, _ = table.lines([("mail", "2026-11-23", "none")], 24)
    assert heading.split() == ["NAME", "SEEN", "WHY"]
    (line,) = table.lines([("mail", "2026-11-23", LONG)], 24)
    assert line.split()[:2] == ["mail", "2026-1..."]
