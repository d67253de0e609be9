"""The power of a server with files of its own is cut under load: what was answered is there, and it opens by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.powercuts.cases import CUTS, FILES, over_a_store_that_goes, over_files
from tests.powercuts.disk import Disk
from tests.powercuts.flows_under_cuts import FlowsUnderCuts
from tests.powercuts.jobs_under_cuts import JobsUnderCuts
from tests.powercuts.machine import Machine
from tests.powercuts.overflow_under_cuts import OverflowUnderCuts
from tests.stores.process import StoreServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", FILES)
async def test_what_was_answered_survives_in_sqlite_and_in_a_tier(
    machine: Callable[..., Machine], disk: Disk, kind: str, tmp_path: Path, seed: int
) -> None:
    cut = machine(None, lambda _: over_files(disk, kind))
    await JobsUnderCuts(cut, tmp_path, FILES[kind], seed).survives(CUTS)


async def test_what_was_answered_survives_in_the_overflow_file(
    machine: Callable[..., Machine], disk: Disk, durable_redis_server: StoreServer, tmp_path: Path, seed: int
) -> None:
    cut = machine(None, lambda _: over_a_store_that_goes(disk, durable_redis_server))
    await OverflowUnderCuts(cut, tmp_path, durable_redis_server, seed).survives(CUTS)


async def test_what_was_answered_survives_in_the_database_of_flows(
    machine: Callable[..., Machine], disk: Disk, seed: int
) -> None:
    await FlowsUnderCuts(machine(None, lambda _: over_files(disk)), seed).survives(CUTS)
