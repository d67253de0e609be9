"""The trial, a row and a column at a time: tests/kits/__init__.py."""

from __future__ import annotations

import pytest

from tests.kits.first_worker import FENCES, runs_a_job
from tests.kits.trial import Row, Trial, each_column, rows_of


@pytest.mark.parametrize("row", rows_of())
@pytest.mark.parametrize("trial", each_column(), indirect=True)
def test_row(trial: Trial, row: Row) -> None:
    trial.judge(row)


@pytest.mark.parametrize("row", rows_of(long=True))
@pytest.mark.parametrize("trial", each_column(), indirect=True)
def test_long_row(trial: Trial, row: Row) -> None:
    trial.judge(row)


@pytest.mark.parametrize("trial", each_column(FENCES), indirect=True)
def test_the_first_worker_of_the_page_runs_a_job(trial: Trial) -> None:
    runs_a_job(trial.stand)
