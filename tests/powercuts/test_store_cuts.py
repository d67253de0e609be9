"""The power of stores is cut under load: what was answered is there, and they open by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.powercuts.cases import CUTS, STORES, over_store
from tests.powercuts.jobs_under_cuts import JobsUnderCuts
from tests.powercuts.machine import Machine
from tests.powercuts.stores_on_disk import RedisOnDisk

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.store(case.needs)) for name, case in STORES.items()]
)
async def test_what_was_answered_survives_on_a_store(
    machine: Callable[..., Machine], name: str, tmp_path: Path, seed: int
) -> None:
    """Redis may need its own tool first; docs/stores.md says so."""
    case = STORES[name]
    cut = machine(case.maker(), over_store)
    await JobsUnderCuts(cut, tmp_path, case.workload, seed).survives(CUTS)
    if isinstance(cut.store, RedisOnDisk):
        print(f"redis-check-aof was needed {cut.store.repaired} times")
