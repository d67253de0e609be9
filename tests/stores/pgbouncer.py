"""Debian's PgBouncer before a PostgreSQL of the tests, with a pool mode."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests.stores.process import StoreMissing, StoreServer

INSTALL = "pgbouncer is not installed: apt-get install pgbouncer (or leave it out: --without postgres)"
SETTINGS = """
[databases]
* = host={host} port={host_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
"""


class PgBouncer(StoreServer):
    """As the database, it refuses to run as root: there it runs as nobody."""

    name = "pgbouncer"

    def __init__(self, postgres_url: str, mode: str) -> None:
        super().__init__()
        self._url = urlsplit(postgres_url)
        self._mode = mode

    def command(self) -> list[str]:
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
        program = shutil.which("pgbouncer", path=path)
        if program is None:
            raise StoreMissing(INSTALL)
        settings = self.directory / "pgbouncer.ini"
        host, host_port = self._url.hostname, self._url.port or 5432
        own = {"port": self.port, "folder": self.directory, "mode": self._mode}
        settings.write_text(SETTINGS.format(host=host, host_port=host_port, **own))
        (self.directory / "users").write_text(f'"{self._url.username}" "{self._url.password or ""}"\n')
        if os.geteuid() != 0:
            return [program, str(settings)]
        for path_ in (self.directory, *self.directory.iterdir()):
            shutil.chown(Path(path_), "nobody")
        return [program, "-u", "nobody", str(settings)]

    def url(self, place: int = 0) -> str:
        """The database that it was made for, by way of it."""
        return urlunsplit(self._url._replace(netloc=f"{self._url.username}@127.0.0.1:{self.port}"))

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2):
            return True
        return False

    def empty(self, place: int) -> None:
        raise AssertionError("it keeps nothing")
