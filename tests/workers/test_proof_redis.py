"""The proof on Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.places import Places
from tests.workers.proof_run import prove

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_ten_thousand_jobs_end_right_whatever_is_killed_meanwhile(tmp_path: Path, redis_places: Places) -> None:
    prove(tmp_path, redis_places.fresh())
