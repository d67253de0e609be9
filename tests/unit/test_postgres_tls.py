"""PostgreSQL over TLS: a real one that takes nothing else, with certificates made for the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pinlater.backends.base import ClaimRequest
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.errors import NothingStored
from pinlater.model import Job
from tests.queues import make_queue
from tests.server.certificates import Authority
from tests.stores.postgres_server import PostgresServer

NOW_MS = 1_790_000_000_000

pytestmark = pytest.mark.store("postgres")


class TlsPostgresServer(PostgresServer):
    """Takes connections over TLS alone, of callers that show a certificate."""

    def __init__(self) -> None:
        super().__init__()
        self.authority = Authority(self.directory)
        self._cert, self._key = self.authority.issue("server", "127.0.0.1")
        self.caller = self.authority.issue("caller", "pinlater.example")
        for path in (self.authority.ca, self._cert, self._key):
            self.own(Path(path))
        access = self.directory / "access"
        access.write_text("hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n")
        self._options = {
            "ssl": "on",
            "ssl_ca_file": self.authority.ca,
            "ssl_cert_file": self._cert,
            "ssl_key_file": self._key,
            "hba_file": str(access),
        }

    def command(self) -> list[str]:
        return [*super().command(), *[f"--{name}={value}" for name, value in self._options.items()]]

    def connected(self) -> Any:
        parameters = f"{trusting(self.authority)}&{showing(self.caller)}"
        return psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.port}/postgres?{parameters}", autocommit=True, connect_timeout=2
        )


@pytest.fixture(scope="module")
def server() -> Iterator[TlsPostgresServer]:
    running = TlsPostgresServer()
    running.start()
    yield running
    running.stop()


def shard_at(server: TlsPostgresServer, *parameters: str, host: str = "127.0.0.1") -> PostgresShard:
    url = f"postgresql+psycopg://postgres@{host}:{server.port}/postgres?{'&'.join(parameters)}"
    return PostgresShard(url, "1")


def trusting(authority: Authority) -> str:
    return f"sslmode=verify-full&sslrootcert={authority.ca}"


def showing(files: tuple[str, str]) -> str:
    return f"sslcert={files[0]}&sslkey={files[1]}"


async def test_jobs_go_in_and_come_out_over_tls_and_so_do_notifications(server: TlsPostgresServer) -> None:
    shard = shard_at(server, trusting(server.authority), showing(server.caller))
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    assert await shard.subscribe("mail", lambda event: None)
    stored = await shard.enqueue("mail", [Job(b"body" * 10_000)], NOW_MS)
    ((job,),) = await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 1, (1,), 1_000, 1_000_000)], NOW_MS)
    assert (job.descriptor, len(job.body)) == (stored[0], 40_000)
    with server.connected() as admin:
        of_ours = "SELECT bool_and(ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
        encrypted, sessions = admin.execute(f"{of_ours} WHERE application_name = 'pinlater'").fetchone()
    assert encrypted
    assert sessions >= 2  # one of them listens
    await shard.close()


async def test_a_server_of_another_authority_is_refused(server: TlsPostgresServer, tmp_path: Path) -> None:
    shard = shard_at(server, trusting(Authority(tmp_path, "other")), showing(server.caller))
    with pytest.raises(NothingStored, match=r"check sslmode.*certificate verify failed"):
        await shard.open()
    await shard.close()


async def test_a_server_whose_certificate_has_another_name_is_refused(server: TlsPostgresServer) -> None:
    shard = shard_at(server, trusting(server.authority), showing(server.caller), host="localhost")
    with pytest.raises(NothingStored, match=r"check sslmode.*does not match host name"):
        await shard.open()
    await shard.close()


async def test_a_caller_without_a_certificate_of_the_authority_is_refused(
    server: TlsPostgresServer, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other").issue("caller", "pinlater.example")
    for shown in ("", showing(other)):
        shard = shard_at(server, trusting(server.authority), shown)
        with pytest.raises(NothingStored, match=r"check sslmode.*(valid client certificate|unknown ca)"):
            await shard.open()
        await shard.close()


async def test_nobody_comes_in_without_tls(server: TlsPostgresServer) -> None:
    shard = shard_at(server, "sslmode=disable")
    with pytest.raises(NothingStored, match=r"refused.*no encryption"):
        await shard.open()
    await shard.close()
