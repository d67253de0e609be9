"""The pages about kits agree with the trial: the table has each row and column, and each rule is tried by a row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kits.columns import ROOT
from tests.kits.table import NO, PAGE, YES, cells, columns, page_with, states_of, table
from tests.kits.trial import all_rows

PROTOCOL = ROOT / "docs" / "worker-protocol.md"
RULE = re.compile(r"^\d+\. .+?(?=^\d+\. |^#|\Z)", re.MULTILINE | re.DOTALL)
TRIED = re.compile(r"^   Tried by (.+)\.$", re.MULTILINE)


def rules() -> list[str]:
    return RULE.findall(PROTOCOL.read_text(encoding="utf-8"))


def rows_that_try(rule: str) -> list[str]:
    return [name for line in TRIED.findall(rule) for name in re.findall(r"`([\w-]+)`", line)]


def test_the_table_has_each_row_and_each_column() -> None:
    found = cells(PAGE.read_text(encoding="utf-8"))
    titles = [title.partition(",")[0] for title in found.pop("row")]
    assert titles == [column.title for column in columns()], "python -m tests.kits"
    assert list(found) == [row.name for row in all_rows()], "python -m tests.kits"


def test_the_table_is_of_a_whole_run() -> None:
    found = cells(PAGE.read_text(encoding="utf-8"))
    assert {state for row in all_rows() for state in found[row.name]} <= {YES, NO}, "python -m tests.kits"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.split("**")[1])
def test_each_rule_of_the_protocol_is_tried_by_rows_of_the_trial(rule: str) -> None:
    names = rows_that_try(rule)
    assert names != [], rule
    assert set(names) <= {row.name for row in all_rows()}


def test_each_row_tries_a_rule_of_the_protocol() -> None:
    tried = {name for rule in rules() for name in rows_that_try(rule)}
    assert [row.name for row in all_rows() if row.name not in tried] == []


def test_a_report_becomes_a_table(tmp_path: Path) -> None:
    first, second, *_ = all_rows()
    (tmp_path / "report.xml").write_text(
        f'<testsuites><testsuite><testcase name="test_row[python-{first.name}]"/>'
        f'<testcase name="test_long_row[python-{second.name}]"><failure/></testcase>'
        "</testsuite></testsuites>"
    )
    made = table(states_of(tmp_path / "report.xml"), "2026-01-01")
    found = cells(page_with("# Page\n<!-- the last trial -->\nold\n<!-- end of the last trial -->\n", made))
    assert (found[first.name][0], found[second.name][0]) == (YES, NO)
