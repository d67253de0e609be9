"""The tables of docs/performance.md are filled in from what the benchmark wrote."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.document import figure_cell, with_figures, with_instructions
from tests.bench.measures import NAMES, measure_of, what_is

PAGE = """\
# Page

<!-- figures -->
| figure | what it is | goal | before | now |
| --- | --- | --- | --- | --- |
| `some/part` | in words | old goal | 1 x |  |

Between.

<!-- instructions -->
| what | before | now | |
| --- | ---: | ---: | ---: |
| `server: a call` | 1,000 |  |  |

The end.
"""


def figure(name: str, **more: Any) -> dict[str, Any]:
    plain = {"name": name, "value": 2.0, "unit": "x", "ratio": None, "scaled": 2.0, "goals": ["<= 3"], "reached": True}
    return plain | more


def test_a_row_keeps_its_words_and_the_other_column() -> None:
    page = with_figures(PAGE, [figure("some/part")], "now")
    assert "| `some/part` | in words | <= 3 | 1 x | 2 x |\n" in page
    assert page.replace("| <= 3 | 1 x | 2 x |", "| old goal | 1 x |  |") == PAGE


def test_a_figure_without_a_row_gets_one_and_a_second_time_changes_nothing() -> None:
    page = with_figures(PAGE, [figure("cycle"), figure("cycle/part")], "before")
    assert (
        f"| `cycle` | {what_is('cycle').rstrip('.')} | <= 3 | 2 x |  |\n| `cycle/part` |  | <= 3 | 2 x |  |\n" in page
    )
    assert with_figures(page, [figure("cycle")], "before") == page
    assert f"| `idle/redis` | {what_is('idle').rstrip('.')} |" in with_figures(page, [figure("idle/redis")], "now")


def test_instructions_are_held_against_those_before() -> None:
    page = with_instructions(PAGE, {"server: a call": 750.0, "server: another": 5.0}, "now")
    assert "| `server: a call` | 1,000 | 750 | 0.75 |\n| `server: another` |  | 5 |  |\n" in page


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "2 x"),
        ({"ratio": 0.856}, "**0.86**, 2 x"),
        ({"unit": "jobs/s", "scaled": 4000.0}, "2 jobs/s, scaled 4,000"),
        ({"reached": False}, "2 x, not reached"),
        ({"reached": None}, "2 x"),
    ],
)
def test_a_cell_says_a_figure_as_its_goal_does(more: dict[str, Any], said: str) -> None:
    assert figure_cell(figure("some", **more)) == said


@pytest.mark.parametrize("name", NAMES)
def test_every_measure_says_in_a_line_what_it_is(name: str) -> None:
    assert callable(measure_of(name))
    assert what_is(name).endswith(".")
