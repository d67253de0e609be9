"""Every row and every decision of docs/semantics.md has a test, and none stands for a row that is gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

import pytest

from tests.conformance.rows import DECISIONS, DISAGREEMENTS, EXTENDED, STATES, Tests

SEMANTICS = (Path(__file__).parents[2] / "docs" / "semantics.md").read_text("utf-8")


def rows_under(header: str) -> list[str]:
    """The first cells of a table."""
    _, _, rest = SEMANTICS.partition(f"| {header} |")
    table = takewhile(bool, rest.splitlines()[2:])
    return [line.split("|")[1].strip() for line in table]


@pytest.mark.parametrize(
    ("header", "tests"), [("call", STATES), ("call about such a job", EXTENDED), ("behaviour", DISAGREEMENTS)]
)
def test_every_row_of_a_table_has_its_tests_in_the_same_order(header: str, tests: Mapping[str, Tests]) -> None:
    for row, begins in zip(rows_under(header), tests, strict=True):
        assert row.startswith(begins)


def test_every_decision_has_its_tests() -> None:
    assert re.findall(r"^### ([0-9]+)\. ", SEMANTICS, re.MULTILINE) == list(DECISIONS)
