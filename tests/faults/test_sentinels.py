"""A shard on a Redis that sentinels watch: its primary is killed, stands still, or is cut off, under load.

PINLATER_FAILOVERS=20 makes that many, in turn of all three kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pinlater.client.async_client import AsyncClient
from tests.faults.answered import CALLERS, Load, drained
from tests.server.running import running
from tests.stores.sentinels import ReplicatedRedis, SentinelGroup

pytestmark = [pytest.mark.slow, pytest.mark.store("redis"), pytest.mark.timeout(600)]
FAILOVERS = int(os.environ.get("PINLATER_FAILOVERS", "3"))

KEPT_BY_REPLICAS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")


def kill(node: ReplicatedRedis) -> None:
    node.kill()


def cut_off(node: ReplicatedRedis) -> None:
    node.relay.cut()


def stand_still(node: ReplicatedRedis) -> None:
    node.pause()


WAYS: tuple[Callable[[ReplicatedRedis], None], ...] = (kill, stand_still, cut_off)


def bring_back(node: ReplicatedRedis) -> None:
    if not node.is_running:
        node.start()
    node.resume()
    node.relay.heal()


@pytest.mark.parametrize("query", ["?wait=1", ""])
async def test_failovers_under_load(tmp_path: Path, query: str) -> None:
    """With wait=1 nothing that was answered is lost; without, what is lost is said, and it is little."""
    with SentinelGroup(*KEPT_BY_REPLICAS) as group:
        store = f"1={group.url(query)}"
        with running(tmp_path, "--store", store, "--processes", "1", "--call-timeout", "2s") as server:
            address = f"127.0.0.1:{server.port}"
            async with contextlib.AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(AsyncClient(address, timeout=1.0)) for _ in range(CALLERS)]
                await clients[0].create_queue("mail")
                load, promoted, pauses = Load(clients), [], []
                async with load.going():
                    for number in range(FAILOVERS):
                        await asyncio.sleep(1.0)
                        before = await asyncio.to_thread(group.primary)
                        began_s = time.monotonic()
                        await asyncio.to_thread(WAYS[number % len(WAYS)], before)
                        await asyncio.to_thread(group.failed_over, before)
                        promoted.append(time.monotonic() - began_s)
                        pauses.append(promoted[-1] + await load.goes_on(time.monotonic()))
                        await asyncio.to_thread(bring_back, before)
                        await asyncio.to_thread(group.settle)
                found = await drained(clients[0])
        lost = load.answered - found
        times = ", ".join(f"{there:.1f} and {back:.1f}" for there, back in zip(promoted, pauses, strict=True))
        print(f"{query or 'without wait'}: {len(load.answered):,} answered, {len(lost)} lost, errors {load.reasons}")
        print(f"seconds until another Redis was the primary, and until calls were answered again: {times}")
        assert len(load.answered) > 100 * FAILOVERS
        if query:
            assert not lost, sorted(lost)[:10]
