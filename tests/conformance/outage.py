"""A service with a shard whose network can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from pinlater.backends.base import Shard
from pinlater.model import Job, parse_descriptor
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.handle import ShardHandle
from tests.conformance.served import QUEUE, Served
from tests.faults.proxy import Proxy

OUT = "b2"
"""The id of the shard behind the proxy."""

DEADLINE_MS = 2_000
"""The healthy shard keeps it on a busy machine too; each call to the one that is cut off waits for it."""


def through(url: str, proxy: Proxy) -> str:
    """The same store, by way of the proxy."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}")).geturl()


def shard_of(descriptor: str) -> str:
    ref = parse_descriptor(descriptor)
    assert ref is not None
    return ref.shard


class Outage(Served):
    def __init__(self, shards: Sequence[Shard], proxy: Proxy) -> None:
        super().__init__(shards, deadline_ms=DEADLINE_MS)
        self.proxy = proxy

    async def open(self) -> None:
        """The deadline is short: on a busy machine a shard may be opened only at the second try."""
        await self.api.open()
        for member in self.members.all:
            await self._checked_until(lambda member=member: member.is_healthy, member)
        await self.api.create_queue(QUEUE)

    async def jobs_on_both(self) -> tuple[list[str], list[str]]:
        """Some jobs on the shard that stays, some on the one that goes out."""
        descriptors = await self.spread()
        stays = [each for each in descriptors if shard_of(each) != OUT]
        goes = [each for each in descriptors if shard_of(each) == OUT]
        assert stays
        assert goes
        return stays, goes

    async def eject(self) -> None:
        """Cut the network, and wait until the service knows."""
        self.proxy.cut()
        await self._checked_until(lambda: not self._is_in())

    async def come_back(self) -> None:
        """Heal the network, and wait until the service knows."""
        self.proxy.heal()
        await self._checked_until(self._serves)

    def _is_in(self) -> bool:
        member = self.members.by_id(OUT)
        assert member is not None
        return member.is_healthy

    def _serves(self) -> bool:
        """In, and not resting after a call that missed its deadline."""
        member = self.members.by_id(OUT)
        assert member is not None
        calls = member.shard.bulkhead if isinstance(member.shard, ShardDecorator) else None
        now = asyncio.get_running_loop().time()
        return member.is_healthy and (calls is None or calls.slow_error(now) is None)

    async def _checked_until(self, reached: Callable[[], bool], member: ShardHandle | None = None) -> None:
        member = member or self.members.by_id(OUT)
        assert member is not None
        for _ in range(50):
            if reached():
                return
            self.clock.tick(60_000)
            await self.members.check(member)
        raise AssertionError("the service did not notice")

    async def enqueue_one(self) -> str:
        (descriptor,) = await self.api.enqueue(QUEUE, [Job(b"")], context=self.context)
        return descriptor


async def eventually(holds: Callable[[], Awaitable[bool]], within_s: float = 10.0) -> None:
    """Wait for what happens beside the caller."""
    ends_at = asyncio.get_running_loop().time() + within_s
    while not await holds():
        assert asyncio.get_running_loop().time() < ends_at, "it never came"
        await asyncio.sleep(0.01)
