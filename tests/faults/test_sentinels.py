"""A shard on a Redis that sentinels watch: its primary is killed, stands still, or is cut off, under load.

PINLATER_FAILOVERS=20 with `--release` makes that many, in turn of all kinds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

import pytest

from pinlater.client.async_client import AsyncClient
from pinlater.errors import PinLaterError
from pinlater.model import Job
from tests.faults.answered import CALLERS, Load, drained
from tests.server.running import running
from tests.stores.sentinels import SENTINELS_COME_FROM, ReplicatedRedis, SentinelGroup

pytestmark = [pytest.mark.slow, pytest.mark.store("redis")]
FAILOVERS = int(os.environ.get("PINLATER_FAILOVERS", "3"))

MAX_LAG_S = 2
KEPT_BY_REPLICAS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", str(MAX_LAG_S))


def kill(node: ReplicatedRedis) -> None:
    node.kill()


def cut_off(node: ReplicatedRedis) -> None:
    node.relay.cut()


def cut_off_from_sentinels(node: ReplicatedRedis) -> None:
    node.relay.cut_peer(SENTINELS_COME_FROM)


def stand_still(node: ReplicatedRedis) -> None:
    node.pause()


Way = Callable[[ReplicatedRedis], None]
WAYS: tuple[Way, ...] = (kill, stand_still, cut_off)
LONG = tuple(islice(cycle(WAYS), FAILOVERS))


def bring_back(node: ReplicatedRedis) -> None:
    if not node.is_running:
        node.start()
    node.resume()
    node.relay.heal()


@dataclass
class Seen:
    """`lost`: what was answered and is not there at the end. The others are times: of each fault, of another Redis
    being the primary, and of a call being answered again.
    """

    answered: dict[bytes, float]
    lost: set[bytes] = field(default_factory=set)
    began_s: list[float] = field(default_factory=list)
    promoted_s: list[float] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)


async def failovers(folder: Path, query: str, ways: Sequence[Way], *, heals_first: bool = False) -> Seen:
    """These faults, one after the other, under load; the former primary comes back after each as a replica.

    `heals_first`: before calls are answered again, which then need it.
    """
    with SentinelGroup(*KEPT_BY_REPLICAS) as group:
        async with clients_of(folder, f"1={group.url(query)}", CALLERS) as clients:
            load = Load(clients)
            seen = Seen(load.answered)
            async with load.going():
                for way in ways:
                    await asyncio.sleep(1.0)
                    before = await asyncio.to_thread(group.primary)
                    seen.began_s.append(time.monotonic())
                    await asyncio.to_thread(way, before)
                    await asyncio.to_thread(group.failed_over, before)
                    seen.promoted_s.append(time.monotonic())
                    if heals_first:
                        await asyncio.to_thread(bring_back, before)
                    seen.back_s.append(seen.promoted_s[-1] + await load.goes_on(seen.promoted_s[-1]))
                    await asyncio.to_thread(bring_back, before)
                    await asyncio.to_thread(group.settle)
            found = await drained(clients[0])
    seen.lost = load.answered.keys() - found
    times = zip(seen.began_s, seen.promoted_s, seen.back_s, strict=True)
    shown = ", ".join(f"{there - began:.1f} and {back - began:.1f}" for began, there, back in times)
    print(f"{query or 'without wait'}: {len(seen.answered):,} answered, {len(seen.lost)} lost, errors {load.reasons}")
    print(f"seconds until another Redis was the primary, and until calls were answered again: {shown}")
    assert len(seen.answered) > 100 * len(ways)
    return seen


@contextlib.asynccontextmanager
async def clients_of(folder: Path, store: str, count: int = 1) -> AsyncIterator[list[AsyncClient]]:
    """Of a server on that store, with a queue `mail`."""
    with running(folder, "--store", store, "--processes", "1", "--call-timeout", "5s") as server:
        async with contextlib.AsyncExitStack() as stack:
            address = f"127.0.0.1:{server.port}"
            clients = [await stack.enter_async_context(AsyncClient(address, timeout=1.0)) for _ in range(count)]
            await clients[0].create_queue("mail")
            yield clients


@pytest.mark.parametrize("ways", [pytest.param((kill,), id="one"), pytest.param(LONG, id="many")])
async def test_what_a_replica_has_before_it_is_answered_outlives_the_primary(
    tmp_path: Path, ways: Sequence[Way]
) -> None:
    seen = await failovers(tmp_path, "?wait=1", ways)
    assert not seen.lost, sorted(seen.lost)[:10]


async def test_without_a_wait_what_is_lost_was_answered_while_the_primary_failed(tmp_path: Path) -> None:
    seen = await failovers(tmp_path, "", LONG)
    assert all_fell_into_the_failovers(seen)


async def test_a_primary_that_only_its_sentinels_cannot_reach_answers_with_a_replica_that_leaves_it(
    tmp_path: Path,
) -> None:
    """One replica is promoted while the other one still follows the former primary, for some tenths of a second."""
    seen = await failovers(tmp_path, "?wait=1", [cut_off_from_sentinels] * 2)
    assert all_fell_into_the_failovers(seen)


async def test_a_primary_that_only_its_sentinels_cannot_reach_answers_nothing_without_both_replicas(
    tmp_path: Path,
) -> None:
    seen = await failovers(tmp_path, "?wait=2", [cut_off_from_sentinels], heals_first=True)
    assert not seen.lost, sorted(seen.lost)[:10]


def all_fell_into_the_failovers(seen: Seen) -> bool:
    """A primary without replicas refuses writes after MAX_LAG_S at most."""
    times = list(zip(seen.began_s, seen.back_s, strict=True))
    return all(any(began <= seen.answered[body] <= back + MAX_LAG_S for began, back in times) for body in seen.lost)


async def test_what_one_replica_has_is_lost_with_it_and_the_primary(tmp_path: Path) -> None:
    """Two processes at once: with wait=1 the one that is left may lack what was answered."""
    with SentinelGroup() as group:
        async with clients_of(tmp_path, f"1={group.url('?wait=1')}") as (client,):
            primary = group.primary()
            replica, other = [node for node in group.nodes if node is not primary]
            await client.enqueue("mail", [Job(b"all three have it")])
            primary.relay.cut_peer(other.comes_from)
            await client.enqueue("mail", [Job(b"one replica has it")])
            primary.kill()
            replica.kill()
            assert await asyncio.to_thread(group.failed_over, primary) is other
        async with clients_of(tmp_path, f"1={other.url()}") as (client,):
            assert await drained(client) == {b"all three have it"}


async def test_with_a_wait_for_both_replicas_nothing_is_answered_that_one_lacks(tmp_path: Path) -> None:
    """So these two processes can go."""
    with SentinelGroup(*KEPT_BY_REPLICAS) as group:
        async with clients_of(tmp_path, f"1={group.url('?wait=2')}") as (client,):
            primary = group.primary()
            await client.enqueue("mail", [Job(b"all three have it")])
            primary.relay.cut_peer(group.nodes[group.nodes.index(primary) - 1].comes_from)
            with pytest.raises(PinLaterError) as refused:
                await client.enqueue("mail", [Job(b"one replica has it")])
            assert refused.value.reason == "OUTCOME_UNKNOWN"
