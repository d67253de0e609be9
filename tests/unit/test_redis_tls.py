"""`rediss://`: a real Redis that speaks TLS, with certificates made for the test."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator

import pytest
import redis

from pinlater.backends.base import ClaimRequest, Notification
from pinlater.backends.redis import RedisShard
from pinlater.errors import NothingStored
from pinlater.model import Job
from tests.queues import make_queue
from tests.server.certificates import Authority
from tests.stores.process import StoreMissing
from tests.stores.redis_server import INSTALL, RedisServer

NOW_MS = 1_790_000_000_000

pytestmark = pytest.mark.store("redis")


class TlsRedisServer(RedisServer):
    """Listens for TLS alone, and takes callers with a certificate alone; `authority` is the file of who signs them."""

    def __init__(self) -> None:
        super().__init__()
        made = Authority(self.directory)
        self.authority = made.ca
        self._certificate, self._key = made.issue("server", "127.0.0.1")
        self.caller = made.issue("caller", "pinlater.example")

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
        port = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "yes", "--bind", "127.0.0.1"]
        return [program, *port, *files, "--save", "", "--dir", str(self.directory)]

    def url(self, place: int = 0) -> str:
        return f"rediss://127.0.0.1:{self.port}/{place}?{self.showing()}"

    def showing(self) -> str:
        """As parameters."""
        return f"ssl_ca_certs={self.authority}&ssl_certfile={self.caller[0]}&ssl_keyfile={self.caller[1]}"

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
    shard = RedisShard(f"rediss://localhost:{server.port}/0?{server.showing()}", "1")
    with pytest.raises(NothingStored, match=r"(?i)certificate"):
        await shard.open()
    await shard.close()


async def test_a_caller_without_a_certificate_is_refused(server: TlsRedisServer) -> None:
    shard = RedisShard(f"rediss://127.0.0.1:{server.port}/0?ssl_ca_certs={server.authority}", "1")
    with pytest.raises(NothingStored, match=r"(?i)certificate|closed|reset"):
        await shard.open()
    await shard.close()


async def test_news_of_other_servers_come_over_tls(server: TlsRedisServer) -> None:
    telling, told = RedisShard(server.url(1), "1"), RedisShard(server.url(1), "1")
    await telling.open()
    await told.open()
    await make_queue(telling, "mail", NOW_MS)
    came: asyncio.Queue[Notification | None] = asyncio.Queue()
    assert await told.subscribe("mail", came.put_nowait)
    await telling.enqueue("mail", [Job(b"")], NOW_MS)
    async with asyncio.timeout(60):
        assert await came.get() == Notification(1, None)
    await told.close()
    await telling.close()
