"""A shard behind a network that breaks, beside a sound one: real stores, real time, a short deadline."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from pinlater.clock import SystemClock
from pinlater.config import StoreConfig
from pinlater.errors import PinLaterError
from pinlater.model import DequeueRequest, Job, RequestContext
from pinlater.service import ClaimTokens, Service
from pinlater.shard_factory import bare_shard
from pinlater.shards.batching import BatchingShard
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.health import HealthSettings
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.faults.proxy import Proxy
from tests.speed import slower
from tests.stores.places import Places

DEADLINE_S = 2.0
SLACK_S = 2.0
"""What a busy machine may take for itself."""

WITHIN_S = 60.0
HEALTH = HealthSettings(window=20, min_good=15, pause_ms=2_000, probe_gap_ms=100)


@dataclass
class Load:
    """Callers that enqueue and dequeue without a pause; how long each call took, and when it ended."""

    service: Service
    calls: list[tuple[float, float]] = field(default_factory=list)
    is_over: bool = False

    async def caller(self) -> None:
        while not self.is_over:
            for call in (
                self.service.enqueue("mail", [Job(b"x")]),
                self.service.dequeue(DequeueRequest("mail", 5), context=RequestContext("me")),
            ):
                began = time.monotonic()
                with contextlib.suppress(PinLaterError):
                    await call
                self.calls.append((time.monotonic(), time.monotonic() - began))
            await asyncio.sleep(0.005)

    def longest_since(self, moment: float) -> float:
        """Among calls that began after that moment."""
        return max(took for ended, took in self.calls if ended - took >= moment)


@asynccontextmanager
async def two_shards(sound: str, sick: str) -> AsyncIterator[tuple[ShardSet, Load]]:
    clock = SystemClock()
    guard = BulkheadSettings(deadline_ms=int(DEADLINE_S * 1000))
    members = ShardSet(
        [
            ShardHandle(
                BatchingShard(ResilientShard(bare_shard(StoreConfig(shard_id, url)), guard)), clock, health=HEALTH
            )
            for shard_id, url in (("sound", sound), ("sick", sick))
        ],
        clock,
    )
    service = Service(Router(members), clock, ClaimTokens("here", 1, clock.now_ms()))
    await service.open()
    await service.create_queue("mail")
    load = Load(service)
    callers = [asyncio.create_task(load.caller()) for _ in range(8)]
    try:
        yield members, load
    finally:
        load.is_over = True
        await asyncio.gather(*callers)
        await service.close()


async def until(holds: Callable[[], bool]) -> float:
    """The moment when it was so."""
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.01)
    return time.monotonic()


BREAKS: dict[str, Callable[[Proxy], None]] = {
    "refuses": Proxy.cut,
    "accepts and never answers": Proxy.black_hole,
    "answers slowly": lambda proxy: proxy.delay(0.35 * DEADLINE_S),
}


@pytest.mark.parametrize("trouble", BREAKS)
async def test_callers_wait_for_one_deadline_at_most_then_not_at_all_and_the_shard_comes_back_by_itself(
    trouble: str, redis_places: Places
) -> None:
    sick = redis_places.fresh()
    port = int(sick.partition("://")[2].partition(":")[2].partition("/")[0])
    with Proxy(port) as proxy:
        by_proxy = sick.replace(f":{port}", f":{proxy.port}")
        async with two_shards(redis_places.fresh(), by_proxy) as (members, load):
            member = members.all[1]
            assert member.is_healthy
            broke = time.monotonic()
            BREAKS[trouble](proxy)
            went_out = await until(lambda: not member.is_healthy)
            await until(lambda: time.monotonic() > went_out + 2 * DEADLINE_S)
            busy = slower(time.monotonic)
            assert load.longest_since(broke) <= DEADLINE_S + SLACK_S * busy
            assert load.longest_since(went_out + DEADLINE_S) <= DEADLINE_S / 2 * busy
            proxy.heal()
            await until(lambda: member.is_healthy)
            came_back = time.monotonic()
            taken = member.health.good().samples
            await until(lambda: member.health.good().samples > taken or taken == HEALTH.window)
            assert came_back - went_out >= HEALTH.first_pause_ms / 1000
