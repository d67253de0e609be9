"""MariaDB over TLS: a real one that takes nothing else, with certificates made for the test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from pinlater.backends.base import ClaimRequest
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.errors import NothingStored
from pinlater.model import Job
from tests.queues import make_queue
from tests.server.certificates import Authority
from tests.stores.mariadb_server import MariadbServer

NOW_MS = 1_790_000_000_000
DRIVERS = ["pymysql", "mysqldb"]

pytestmark = pytest.mark.store("mysql")


class TlsMariadbServer(MariadbServer):
    """Takes connections over TLS alone; one account, `caller`, has to show a certificate."""

    def __init__(self) -> None:
        super().__init__()
        self.authority = Authority(self.directory)
        self._cert, self._key = self.authority.issue("server", "127.0.0.1")
        self.caller = self.authority.issue("caller", "pinlater.example")

    def command(self) -> list[str]:
        files = [f"--ssl-ca={self.authority.ca}", f"--ssl-cert={self._cert}", f"--ssl-key={self._key}"]
        return [*super().command(), "--require-secure-transport=ON", *files]

    def connect(self) -> pymysql.Connection[pymysql.cursors.Cursor]:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", connect_timeout=1, ssl={"ca": self.authority.ca}
        )

    def answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.Error:
            return False
        return True

    def empty(self, place: int) -> None:
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE place_{place} CHARACTER SET utf8mb4")
            cursor.execute("CREATE USER IF NOT EXISTS caller@'%' REQUIRE X509")
            cursor.execute(f"GRANT ALL ON place_{place}.* TO caller@'%'")


@pytest.fixture(scope="module")
def server() -> Iterator[TlsMariadbServer]:
    running = TlsMariadbServer()
    running.start()
    for place in range(len(DRIVERS)):
        running.empty(place)
    yield running
    running.stop()


def shard_at(server: TlsMariadbServer, driver: str, parameters: str, *, user: str = "caller") -> MysqlShard:
    place = DRIVERS.index(driver)
    return MysqlShard(f"mysql+{driver}://{user}@127.0.0.1:{server.port}/place_{place}?{parameters}", "1")


def trusting(server: TlsMariadbServer) -> str:
    return f"ssl_ca={server.authority.ca}"


def showing(files: tuple[str, str]) -> str:
    return f"ssl_cert={files[0]}&ssl_key={files[1]}"


@pytest.mark.parametrize("driver", DRIVERS)
async def test_jobs_go_in_and_come_out_over_tls_with_a_certificate(server: TlsMariadbServer, driver: str) -> None:
    shard = shard_at(server, driver, f"{trusting(server)}&{showing(server.caller)}")
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    stored = await shard.enqueue("mail", [Job(b"body" * 10_000)], NOW_MS)
    ((job,),) = await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 1, (1,), 1_000, 1_000_000)], NOW_MS)
    assert (job.descriptor, len(job.body)) == (stored[0], 40_000)
    await shard.close()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_an_account_that_needs_a_certificate_is_refused_without_one(
    server: TlsMariadbServer, driver: str, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other").issue("caller", "pinlater.example")
    for parameters in (trusting(server), f"{trusting(server)}&{showing(other)}"):
        shard = shard_at(server, driver, parameters)
        with pytest.raises(NothingStored):
            await shard.open()
        await shard.close()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_server_of_another_authority_is_refused(server: TlsMariadbServer, driver: str, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other").ca
    shard = shard_at(server, driver, f"ssl_ca={other}&{showing(server.caller)}")
    with pytest.raises(NothingStored, match=r"(?i)certificate"):
        await shard.open()
    await shard.close()
