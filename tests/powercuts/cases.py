"""What the power is cut under, by name: the stores, and the files of a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.powercuts.disk import Disk
from tests.powercuts.jobs_under_cuts import Workload
from tests.powercuts.stores_on_disk import MariadbOnDisk, PostgresOnDisk, RedisOnDisk
from tests.stores.process import StoreServer

CUTS = int(os.environ.get("PINLATER_POWER_CUTS", "3"))
"""Of each case; PINLATER_POWER_CUTS=500 before a release."""

EVERY_SECOND = Workload(loss_ms=2_000, serving_s=(2.2, 3.2), callers=4, pause_s=0.02)
"""docs/stores.md: about the last second or two."""


class StoreCase(NamedTuple):
    """`needs`: as `--without` names it."""

    needs: str
    make: Callable[..., StoreServer]
    options: Sequence[str]
    workload: Workload

    def maker(self, *more: str) -> Callable[[Disk], StoreServer]:
        return partial(self.make, options=[*self.options, *more])


STORES = {
    "redis-always": StoreCase("redis", RedisOnDisk, [], Workload()),
    "redis-everysec": StoreCase("redis", RedisOnDisk, ["--appendfsync", "everysec"], EVERY_SECOND),
    "mysql": StoreCase("mysql", MariadbOnDisk, [], Workload()),
    "postgres": StoreCase("postgres", PostgresOnDisk, [], Workload()),
}

FILES = {"sqlite": Workload(), "tier": Workload(body_bytes=9_000)}


def over_store(store: StoreServer | None) -> list[str]:
    """The arguments of a server over a store."""
    assert store is not None
    return ["--store", f"1={store.url()}"]


def over_files(disk: Disk, kind: str = "sqlite") -> list[str]:
    """The arguments of a server that keeps its jobs in a file on the disk, and of kind "tier" their bodies too."""
    tier = ["--bodies", f"disk={_folder(disk, 'tier').as_uri()}", "--body-rules", "disk: size > 1KiB"]
    return ["--data", str(_folder(disk, "data")), *(tier if kind == "tier" else ())]


def over_a_store_that_goes(disk: Disk, store: StoreServer) -> list[str]:
    """The arguments of a server that keeps its jobs in an overflow file on the disk while the store is away. It has
    room for all cuts: jobs that have moved stay in it for an hour.
    """
    return [*over_store(store), *over_files(disk), "--overflow", "1GiB", "--health-pause", "1s"]


def _folder(disk: Disk, name: str) -> Path:
    return disk.folder / name
