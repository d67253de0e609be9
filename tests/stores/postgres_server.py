"""Debian's PostgreSQL for the tests of outboxes: every place is a database of its own.

It refuses to run as root: there it runs as nobody.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.stores.process import StoreMissing, StoreServer

INSTALL = "postgres is not installed: apt-get install postgresql (or leave it out: --without postgres)"
FAST = ["-c", "fsync=off", "-c", "full_page_writes=off"]
NOBODY = "nobody"


class PostgresServer(StoreServer):
    name = "postgres"

    def command(self) -> list[str]:
        program = _program("postgres")
        data = self.directory / "data"
        if not data.exists():
            self._install(data)
        where = ["-D", str(data), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1"]
        small = ["-c", "unix_socket_directories=", "-c", "max_connections=200", "-c", "shared_buffers=64MB"]
        return [*_as_nobody(), program, *where, *small, *([] if self.durable else FAST)]

    def _install(self, data: Path) -> None:
        if _as_nobody():
            shutil.chown(self.directory, NOBODY)
            (self.directory / "log").touch()
        command = [*_as_nobody(), _program("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        done = subprocess.run(
            [*command, "--no-sync", "--locale=C"], capture_output=True, text=True, check=False, cwd=self.directory
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr[-2000:]}")

    def url(self, place: int = 0) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/place_{place}"

    def answers(self) -> bool:
        try:
            self._connect().close()
        except importlib.import_module("psycopg").OperationalError:
            return False
        return True

    def empty(self, place: int) -> None:
        with contextlib.closing(self._connect()) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS place_{place} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE place_{place}")

    def _connect(self) -> Any:
        """Only tests that start this server need the driver."""
        where = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres connect_timeout=2"
        return importlib.import_module("psycopg").connect(where, autocommit=True)

    def terminate(self) -> None:
        """Its SIGTERM waits for every client to leave."""
        self._end(signal.SIGINT)

    def stop(self) -> None:
        self._end(signal.SIGINT)
        super().stop()


def _program(name: str) -> str:
    """Debian keeps those of a server apart, in a folder for each version."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: float(each.parent.name))
    found = shutil.which(name, path=os.pathsep.join([*map(str, reversed(folders)), os.environ.get("PATH", "")]))
    if found is None:
        raise StoreMissing(INSTALL)
    return found


def _as_nobody() -> list[str]:
    """What to put before a command. A process that changes its user forgets with whom it is to die."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", "--regid=nogroup", "--clear-groups", "--pdeathsig", "KILL"]
