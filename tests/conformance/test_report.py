"""The report finds empty cells, and only a whole run may fail for one."""

from __future__ import annotations

import pytest

from tests.conformance.bindings import DEPTHS, KINDS
from tests.conformance.report import CELLS, HERE, Cells, pytest_sessionfinish, suite_is_whole
from tests.parts import ABOVE_IN_CI


def full() -> Cells:
    cells = Cells()
    cells.counts.update((kind, depth) for kind in KINDS for depth in DEPTHS)
    return cells


def test_a_cell_without_a_case_is_empty() -> None:
    assert full().empty([]) == []
    cells = full()
    cells.counts[KINDS[0], DEPTHS[1]] = 0
    assert cells.empty([]) == [(KINDS[0], DEPTHS[1])]
    assert "EMPTY" in cells.table()


def test_a_cell_that_is_left_to_a_release_is_not_empty_without_it() -> None:
    cells = Cells()
    cells.counts.update((kind, "bare") for kind in KINDS)
    cells.counts.update((kind, "chain") for kind in ABOVE_IN_CI)
    assert cells.empty([], release=False) == []
    assert "EMPTY" not in cells.table(release=False)
    assert cells.empty([]) == [(kind, "chain") for kind in KINDS if kind not in ABOVE_IN_CI]


def test_a_store_that_is_left_out_on_purpose_has_no_cells() -> None:
    cells = full()
    for depth in DEPTHS:
        cells.counts[KINDS[1], depth] = 0
    assert cells.empty([KINDS[1]]) == []


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ([str(HERE)], True),
        ([str(HERE.parent)], True),
        ([str(HERE / "test_report.py")], False),
        ([str(HERE.parent / "unit")], False),
        ([str(HERE), "-k", "claim"], False),
        ([str(HERE), "-m", "store"], False),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else str(value),
)
def test_only_a_run_of_the_whole_suite_may_fail_for_an_empty_cell(
    pytestconfig: pytest.Config, arguments: list[str], whole: bool
) -> None:
    config = pytestconfig.__class__.fromdictargs({}, [*arguments, "-s"])  # else it holds files that nobody closes
    session = pytest.Session.from_config(config)
    assert suite_is_whole(session) is whole


@pytest.mark.parametrize(("options", "fails"), [([], True), (["--fast"], False)], ids=["all", "fast"])
def test_a_fast_run_does_not_fail_for_the_stores_it_leaves_out(
    pytestconfig: pytest.Config, options: list[str], fails: bool
) -> None:
    config = pytestconfig.__class__.fromdictargs({}, [str(HERE), *options, "-s"])
    session = pytest.Session.from_config(config)
    config.stash[CELLS] = Cells()
    config.stash[CELLS].counts.update(("sqlite", depth) for depth in DEPTHS)
    session.exitstatus = pytest.ExitCode.OK
    pytest_sessionfinish(session)
    assert (session.exitstatus == pytest.ExitCode.TESTS_FAILED) is fails
