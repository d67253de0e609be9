"""Debian's PostgreSQL for the tests: every place is a database of its own.

It refuses to run as root: there it runs as nobody.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.stores.engines import program_of
from tests.stores.process import STOPPED_WITHIN_S, StoreMissing, StoreServer

INSTALL = "postgres is not installed: apt-get install postgresql (or leave it out: --without postgres)"
FAST = ["-c", "fsync=off", "-c", "full_page_writes=off"]
NOBODY = "nobody"


class PostgresServer(StoreServer):
    name = "postgres"

    def command(self) -> list[str]:
        program = postgres_program("postgres")
        data = self.directory / "data"
        if not data.exists():
            self._install(data)
        where = ["-D", str(data), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1"]
        small = ["-c", "unix_socket_directories=", "-c", "max_connections=200", "-c", "shared_buffers=64MB"]
        return [*as_nobody(), program, *where, *small, *([] if self.durable else FAST)]

    def _install(self, data: Path) -> None:
        self.own(self.directory)
        (self.directory / "log").touch()
        command = [*as_nobody(), postgres_program("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"]
        how = ["-E", "UTF8", "--no-sync", "--locale=C"]
        done = subprocess.run([*command, *how], capture_output=True, text=True, check=False, cwd=self.directory)
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr[-2000:]}")

    def own(self, folder: Path) -> None:
        """Let the user of the server have it."""
        if as_nobody():
            shutil.chown(folder, NOBODY)

    def url(self, place: int = 0) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/place_{place}"

    def answers(self) -> bool:
        try:
            self.connected().close()
        except importlib.import_module("psycopg").OperationalError:
            return False
        return True

    def empty(self, place: int) -> None:
        empty_postgres(self.url(place))

    def connected(self) -> Any:
        """A connection of the one who may do all."""
        return _connected(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")

    def _signal(self, number: signal.Signals) -> None:
        super()._signal(number)
        for pid in self._children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """All of it: what is left of it would keep the next one from starting."""
        children = self._children()
        super().kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + STOPPED_WITHIN_S
        while any(Path(f"/proc/{pid}").exists() for pid in children):
            assert time.monotonic() < deadline, "a process of the database goes on"
            time.sleep(0.005)

    def _children(self) -> list[int]:
        """It has a process for each connection."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def terminate(self) -> None:
        """Its SIGTERM waits for every client to leave."""
        self._end(signal.SIGINT)

    def stop(self) -> None:
        self._end(signal.SIGINT)
        super().stop()


def empty_postgres(url: str) -> None:
    """Make the database that the address names, or drop all that is in it, with its connections as they are."""
    parts = urlsplit(url)
    database = parts.path.strip("/")
    with contextlib.closing(_connected(urlunsplit(("postgresql", parts.netloc, "/postgres", "", "")))) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database]).fetchall():
            connection.execute(f"CREATE DATABASE {database} ENCODING 'UTF8' TEMPLATE template0")
    with contextlib.closing(_connected(urlunsplit(("postgresql", parts.netloc, database, "", "")))) as connection:
        own = "nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public')"  # of programs with a schema each
        others = connection.execute(f"SELECT quote_ident(nspname) FROM pg_namespace WHERE {own}").fetchall()
        names = ", ".join(["public", *(name for (name,) in others)])
        connection.execute(f"DROP SCHEMA {names} CASCADE; CREATE SCHEMA public")


def _connected(url: str) -> Any:
    """Only tests that start this server need the driver."""
    return importlib.import_module("psycopg").connect(url, autocommit=True, connect_timeout=2)


def postgres_program(name: str) -> str:
    """The path of one of them. StoreMissing: it is not installed.

    Debian keeps those of a server apart, in a folder for each version.
    """
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: float(each.parent.name))
    found = program_of("postgres", name, os.pathsep.join(map(str, reversed(folders))))
    if found is None:
        raise StoreMissing(INSTALL)
    return found


def as_nobody() -> list[str]:
    """What to put before a command. A process that changes its user forgets with whom it is to die."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", "--regid=nogroup", "--clear-groups", "--pdeathsig", "KILL"]
