"""The proof on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.places import Places
from tests.workers.proof_run import prove

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_ten_thousand_jobs_end_right_whatever_is_killed_meanwhile(tmp_path: Path, sqlite_places: Places) -> None:
    prove(tmp_path, sqlite_places.fresh())
