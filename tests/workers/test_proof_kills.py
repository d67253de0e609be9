"""Jobs of every fate on each kind of store, while workers, their processes and the server are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.proof_run import prove

STORES = ("redis", "mysql", "sqlite")


@pytest.mark.slow
@pytest.mark.parametrize("store", [pytest.param(store, marks=pytest.mark.store(store)) for store in STORES])
def test_jobs_end_right_whatever_is_killed_meanwhile(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    prove(tmp_path, request.getfixturevalue(f"{store}_places").fresh())
