"""A disk whose power can be cut, and machines on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.test_kills import SETTINGS
from tests.powercuts.disk import Disk
from tests.powercuts.kernel_requests import NoFuse
from tests.powercuts.machine import Machine
from tests.stores.process import StoreMissing, StoreServer

StoreMaker = Callable[[Disk], StoreServer]


@pytest.fixture
def seed() -> int:
    """Of what the disk loses, of moments and of jobs; printed, and given again by PINLATER_POWER_SEED."""
    chosen = int(os.environ.get("PINLATER_POWER_SEED", "0")) or int.from_bytes(os.urandom(4))
    print(f"PINLATER_POWER_SEED={chosen}")
    return chosen


@pytest.fixture
def disk(seed: int, pytestconfig: pytest.Config) -> Iterator[Disk]:
    try:
        made = Disk(seed)
    except NoFuse as missing:
        if pytestconfig.getoption("release"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))  # machines of CI are containers, which may lack the device
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def machine(disk: Disk, tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """`store`: makes the store on the disk, or None; `arguments`: of the server, which may name the store."""
    made: list[Machine] = []

    def start(store: StoreMaker | None, arguments: Callable[[StoreServer | None], list[str]]) -> Machine:
        try:
            its = None if store is None else store(disk)
        except StoreMissing as missing:
            pytest.fail(str(missing), pytrace=False)
        made.append(Machine(tmp_path, disk, its, lambda: [*arguments(its), *SETTINGS]))
        if its is not None:
            its.start()
            its.empty(0)
        disk.sync_all()
        made[0].start()
        return made[0]

    yield start
    for each in made:
        each.stop()
