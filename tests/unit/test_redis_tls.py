"""`rediss://`: a real Redis that speaks TLS, with certificates made for the test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import trustme

from pinlater.backends.base import ClaimRequest
from pinlater.backends.redis import RedisShard
from pinlater.errors import NothingStored
from pinlater.model import Job
from tests.queues import make_queue
from tests.stores.process import StoreMissing
from tests.stores.redis_server import INSTALL, RedisServer

NOW_MS = 1_790_000_000_000

pytestmark = pytest.mark.store("redis")


class TlsRedisServer(RedisServer):
    """Listens for TLS alone; `authority` is the file of the certificate authority."""

    def __init__(self) -> None:
        super().__init__()
        ca = trustme.CA()
        issued = ca.issue_cert("127.0.0.1")
        self.authority = self._written("ca.pem", ca.cert_pem)
        self._certificate = self._written("cert.pem", issued.cert_chain_pems[0])
        self._key = self._written("key.pem", issued.private_key_pem)

    def _written(self, name: str, blob: trustme.Blob) -> Path:
        path = self.directory / name
        blob.write_to_path(str(path))
        return path

    def command(self) -> list[str]:
        program = shutil.which("redis-server")
        if program is None:
            raise StoreMissing(INSTALL)
        files = [
            "--tls-cert-file",
            self._certificate,
            "--tls-key-file",
            self._key,
            "--tls-ca-cert-file",
            self.authority,
        ]
        port = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no", "--bind", "127.0.0.1"]
        return [program, *port, *map(str, files), "--save", "", "--dir", str(self.directory)]

    def url(self, place: int = 0) -> str:
        return f"rediss://127.0.0.1:{self.port}/{place}?ssl_ca_certs={self.authority}"

    def answers(self) -> bool:
        with redis.Redis.from_url(self.url(), socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False


@pytest.fixture(scope="module")
def server() -> Iterator[TlsRedisServer]:
    running = TlsRedisServer()
    running.start()
    yield running
    running.stop()


async def test_jobs_go_in_and_come_out_over_tls(server: TlsRedisServer) -> None:
    shard = RedisShard(server.url(), "1")
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    stored = await shard.enqueue("mail", [Job(b"body" * 10_000)], NOW_MS)
    ((job,),) = await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 1, (1,), 1_000, 1_000_000)], NOW_MS)
    assert (job.descriptor, len(job.body)) == (stored[0], 40_000)
    await shard.close()


async def test_a_certificate_that_nobody_vouches_for_is_refused(server: TlsRedisServer) -> None:
    shard = RedisShard(f"rediss://127.0.0.1:{server.port}/0", "1")
    with pytest.raises(NothingStored, match=r"(?i)certificate verify failed"):
        await shard.open()
    await shard.close()


async def test_a_certificate_for_another_name_is_refused(server: TlsRedisServer) -> None:
    shard = RedisShard(f"rediss://localhost:{server.port}/0?ssl_ca_certs={server.authority}", "1")
    with pytest.raises(NothingStored, match=r"(?i)certificate"):
        await shard.open()
    await shard.close()
