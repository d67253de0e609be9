"""The trial of the kit in Python: tests/kits/__init__.py."""

from __future__ import annotations

import pytest

from tests.kits.trial import Row, Trial, rows_of

COLUMN = "python"
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("row", rows_of(COLUMN))
def test_row(trial: Trial, row: Row) -> None:
    trial.judge(row)


@pytest.mark.parametrize("row", rows_of(COLUMN, long=True))
def test_long_row(trial: Trial, row: Row) -> None:
    trial.judge(row)
