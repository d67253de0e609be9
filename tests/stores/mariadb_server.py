"""Debian's mariadbd for the tests: every place is a database of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from urllib.parse import urlsplit

import pymysql

from tests.stores.engines import named_folder, program_of
from tests.stores.process import StoreMissing, StoreServer

INSTALL = "mariadbd is not installed: apt-get install mariadb-server (or leave it out: --without mysql)"
FAST = ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--innodb-doublewrite=OFF"]
DURABLE = ["--innodb-flush-log-at-trx-commit=1"]


class MariadbServer(StoreServer):
    name = "mysql"

    def command(self) -> list[str]:
        program = program_of("mysql", "mariadbd", "/usr/sbin:/usr/local/sbin")
        if program is None:
            raise StoreMissing(INSTALL)
        data = self.directory / "data"
        if not data.exists():
            self._install(str(data))
        where = [f"--datadir={data}", f"--socket={self.directory}/sock", f"--pid-file={self.directory}/pid"]
        where.append(f"--tmpdir={self.directory}")
        net = [f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=500"]
        small = ["--skip-log-bin", "--performance-schema=OFF", "--innodb-buffer-pool-size=128M"]
        return [
            program,
            "--no-defaults",
            *_base(),
            *_user(),
            *where,
            *net,
            *small,
            *(DURABLE if self.durable else FAST),
        ]

    def install_options(self) -> list[str]:
        """What must be known when the data folder is made."""
        return []

    def _install(self, data: str) -> None:
        program = program_of("mysql", "mariadb-install-db")
        if program is None:
            raise StoreMissing(INSTALL)
        quiet = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        command = [program, "--no-defaults", f"--datadir={data}", *quiet, *_base(), *_user(), *self.install_options()]
        ours = os.environ | {"TMPDIR": str(self.directory)}  # one that starts removes the tables of others in /tmp
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ours)
        if done.returncode != 0:
            raise RuntimeError(f"mariadb-install-db failed: {done.stderr[-2000:]}")

    def url(self, place: int = 0) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/place_{place}"

    def answers(self) -> bool:
        try:
            pymysql.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=1).close()
        except pymysql.Error:
            return False
        return True

    def empty(self, place: int) -> None:
        empty_mysql(self.url(place))


def empty_mysql(url: str) -> None:
    """Drop the database that the address names, and make it anew."""
    parts = urlsplit(url)
    database = parts.path.strip("/")
    connection = pymysql.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=parts.username or "root",
        password=parts.password or "",
    )
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_notes = 0")
        cursor.execute(f"DROP DATABASE IF EXISTS `{database}`")
        cursor.execute(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")


def _user() -> list[str]:
    """mariadbd refuses to run as root unless it is told to."""
    return ["--user=root"] if os.geteuid() == 0 else []


def _base() -> list[str]:
    """One that is not where it was built to be has to be told."""
    folder = named_folder("mysql")
    return [f"--basedir={folder}"] if folder else []
