"""What syncs too little is found by a few cuts: else none of them would prove anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.powercuts.cases import FILES, STORES, over_a_store_that_goes, over_files, over_store
from tests.powercuts.disk import Disk
from tests.powercuts.flows_under_cuts import FlowsUnderCuts
from tests.powercuts.jobs_under_cuts import JobsUnderCuts
from tests.powercuts.machine import Machine
from tests.powercuts.overflow_under_cuts import OverflowUnderCuts
from tests.stores.process import StoreServer

pytestmark = pytest.mark.slow
FOUND_WITHIN = 6
"""Cuts. Of some of them all survives that was held back."""

SETTINGS = {
    "redis-always": ["--appendfsync", "no"],
    "redis-everysec": ["--appendfsync", "no"],
    "mysql": ["--innodb-flush-log-at-trx-commit=0"],
    "postgres": ["-c", "fsync=off"],
}
"""Of each store, what makes it answer before it has synced."""

UNSYNCED = {
    "sqlite": ["data/pinlater.db*"],
    "tier": ["tier/*"],
    "overflow": ["data/overflow.db*"],
    "flows": ["data/flows.db*"],
}
"""Files whose syncs do nothing, as if they were left out."""

FOUND = re.compile(r"jobs are lost|answers do not hold|did not start|does not serve again|is damaged")


async def is_found(cuts: JobsUnderCuts | FlowsUnderCuts, disk: Disk) -> None:
    """What was made before the first cut is not to be lost: only answers are."""
    await cuts.serves()
    disk.sync_all()
    said = await _said_by_a_cut(cuts)
    print(said)
    assert FOUND.search(said), said


async def _said_by_a_cut(cuts: JobsUnderCuts | FlowsUnderCuts) -> str:
    for number in range(1, FOUND_WITHIN + 1):
        try:
            await cuts.is_cut()
        except (AssertionError, RuntimeError) as error:
            return f"cut {number}: {error}"
    return f"not found by {FOUND_WITHIN} cuts"


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.store(STORES[name].needs)) for name in SETTINGS])
async def test_a_store_that_answers_too_early_is_found(
    machine: Callable[..., Machine], disk: Disk, name: str, tmp_path: Path, seed: int
) -> None:
    case = STORES[name]
    await is_found(JobsUnderCuts(machine(case.maker(*SETTINGS[name]), over_store), tmp_path, case.workload, seed), disk)


@pytest.mark.parametrize("kind", FILES)
async def test_files_that_are_not_synced_are_found(
    machine: Callable[..., Machine], disk: Disk, kind: str, tmp_path: Path, seed: int
) -> None:
    disk.plant(*UNSYNCED[kind])
    await is_found(JobsUnderCuts(machine(None, lambda _: over_files(disk, kind)), tmp_path, FILES[kind], seed), disk)


async def test_an_overflow_file_that_is_not_synced_is_found(
    machine: Callable[..., Machine], disk: Disk, durable_redis_server: StoreServer, tmp_path: Path, seed: int
) -> None:
    disk.plant(*UNSYNCED["overflow"])
    cut = machine(None, lambda _: over_a_store_that_goes(disk, durable_redis_server))
    await is_found(OverflowUnderCuts(cut, tmp_path, durable_redis_server, seed), disk)


async def test_a_database_of_flows_that_is_not_synced_is_found(
    machine: Callable[..., Machine], disk: Disk, seed: int
) -> None:
    disk.plant(*UNSYNCED["flows"])
    await is_found(FlowsUnderCuts(machine(None, lambda _: over_files(disk)), seed), disk)
