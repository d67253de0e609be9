"""The trial of the kit in Go: tests/kits/__init__.py."""

from __future__ import annotations

import pytest

from tests.kits.first_worker import runs_a_job
from tests.kits.trial import Row, Trial, rows_of

COLUMN = "go"
pytestmark = [pytest.mark.slow, pytest.mark.store("languages")]


@pytest.mark.parametrize("row", rows_of(COLUMN))
def test_row(trial: Trial, row: Row) -> None:
    trial.judge(row)


@pytest.mark.parametrize("row", rows_of(COLUMN, long=True))
def test_long_row(trial: Trial, row: Row) -> None:
    trial.judge(row)


def test_the_first_worker_of_the_page_runs_a_job(trial: Trial) -> None:
    runs_a_job(trial.stand)
