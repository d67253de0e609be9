"""Real stores whose data lie on the disk that is cut; their logs do not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.powercuts.disk import Disk
from tests.stores.engines import program_of
from tests.stores.mariadb_server import MariadbServer
from tests.stores.postgres_server import PostgresServer
from tests.stores.process import StoreServer
from tests.stores.redis_server import RedisServer

_CONF = Path(__file__).parents[2] / "conf"


class RedisOnDisk(RedisServer):
    """Set up as conf/redis.conf says. `repaired` counts how often its log had to be, before it started."""

    def __init__(self, disk: Disk, options: Sequence[str]) -> None:
        super().__init__(durable=True)
        self._data = disk.folder / "redis"
        self._data.mkdir()
        self._options = options
        self.repaired = 0

    def command(self) -> list[str]:
        program, *arguments = super().command()
        arguments[arguments.index("--dir") + 1] = str(self._data)
        return [program, str(_CONF / "redis.conf"), *arguments, *self._options]

    def start(self) -> None:
        """As an operator does: see docs/stores.md."""
        try:
            super().start()
        except RuntimeError as error:
            if "redis-check-aof --fix" not in str(error):
                raise
            self.directory.mkdir(exist_ok=True)  # of the log, which a start that fails takes away
            self._repair()
            super().start()

    def _repair(self) -> None:
        program = program_of("redis", "redis-check-aof")
        assert program is not None, "redis-check-aof comes with redis-server: apt-get install redis-tools"
        (manifest,) = (self._data / "appendonlydir").glob("*.manifest")
        subprocess.run([program, "--fix", str(manifest)], input="y\n", text=True, check=True, capture_output=True)
        self.repaired += 1


class MariadbOnDisk(MariadbServer):
    """Its redo log is small, since the disk lies in memory."""

    def __init__(self, disk: Disk, options: Sequence[str]) -> None:
        super().__init__(durable=True)
        self._options = options
        super().command()  # makes its data, where that is quick
        _moved_to(disk, self.directory / "data", "mysql")

    def install_options(self) -> list[str]:
        return ["--innodb-log-file-size=8M"]

    def command(self) -> list[str]:
        return [*super().command(), *self.install_options(), *self._options]


class PostgresOnDisk(PostgresServer):
    def __init__(self, disk: Disk, options: Sequence[str]) -> None:
        super().__init__(durable=True)
        self._options = options
        super().command()
        _moved_to(disk, self.directory / "data", "postgres")

    def command(self) -> list[str]:
        return [*super().command(), "-c", "min_wal_size=32MB", "-c", "max_wal_size=64MB", *self._options]


def _moved_to(disk: Disk, folder: Path, name: str) -> None:
    """A link leads there from where the store has always been."""
    subprocess.run(["cp", "-a", str(folder), str(disk.folder / name)], check=True)
    shutil.rmtree(folder)
    folder.symlink_to(disk.folder / name)


def processes_of(store: StoreServer) -> list[int]:
    """The store, and the processes that it has for its connections."""
    if not store.is_running:
        return []
    children = Path(f"/proc/{store.pid}/task/{store.pid}/children").read_text().split()
    return [store.pid, *map(int, children)]


def killed(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
