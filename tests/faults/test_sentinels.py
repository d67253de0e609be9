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
from pinlater.history.call_events import Note
from pinlater.model import Job
from tests.faults.answered import CALLERS, Load, drained
from tests.faults.recorded_run import RecordedRun, now_ms
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
    """The calls, and times: of each fault, of another Redis being the primary, and of a call being answered again."""

    run: RecordedRun
    began_s: list[float] = field(default_factory=list)
    promoted_s: list[float] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)


async def failovers(folder: Path, query: str, ways: Sequence[Way], *, heals_first: bool = False) -> Seen:
    """These faults, one after the other, under load; the former primary comes back after each as a replica.

    `heals_first`: before calls are answered again, which then need it.
    """
    with SentinelGroup(*KEPT_BY_REPLICAS) as group:
        seen = Seen(RecordedRun(folder))
        async with clients_of(folder, f"1={group.url(query)}", CALLERS, seen.run.folder) as clients:
            load = Load(clients)
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
            await drained(clients[0])
            await seen.run.look_up(clients[0])
    times = zip(seen.began_s, seen.promoted_s, seen.back_s, strict=True)
    shown = ", ".join(f"{there - began:.1f} and {back - began:.1f}" for began, there, back in times)
    print(f"{query or 'without wait'}: {load.answered:,} answered, errors {load.reasons}")
    print(f"seconds until another Redis was the primary, and until calls were answered again: {shown}")
    assert load.answered > 100 * len(ways)
    return seen


@contextlib.asynccontextmanager
async def clients_of(
    folder: Path, store: str, count: int = 1, history: Path | str = ""
) -> AsyncIterator[list[AsyncClient]]:
    """Of a server on that store, with a queue `mail`."""
    with running(folder, "--store", store, "--processes", "1", "--call-timeout", "5s") as server:
        async with contextlib.AsyncExitStack() as stack:
            address = f"127.0.0.1:{server.port}"
            clients = [
                await stack.enter_async_context(AsyncClient(address, timeout=1.0, history=history))
                for _ in range(count)
            ]
            await clients[0].create_queue("mail")
            yield clients


@pytest.mark.parametrize("ways", [pytest.param((kill,), id="one"), pytest.param(LONG, id="many")])
async def test_what_a_replica_has_before_it_is_answered_outlives_the_primary(
    tmp_path: Path, ways: Sequence[Way]
) -> None:
    seen = await failovers(tmp_path, "?wait=1", ways)
    seen.run.judge()


async def test_without_a_wait_what_is_lost_was_answered_while_the_primary_failed(tmp_path: Path) -> None:
    seen = await failovers(tmp_path, "", LONG)
    judge_but_for_the_failovers(seen)


async def test_a_primary_that_only_its_sentinels_cannot_reach_answers_with_a_replica_that_leaves_it(
    tmp_path: Path,
) -> None:
    """One replica is promoted while the other one still follows the former primary, for some tenths of a second."""
    seen = await failovers(tmp_path, "?wait=1", [cut_off_from_sentinels] * 2)
    judge_but_for_the_failovers(seen)


async def test_a_primary_that_only_its_sentinels_cannot_reach_answers_nothing_without_both_replicas(
    tmp_path: Path,
) -> None:
    seen = await failovers(tmp_path, "?wait=2", [cut_off_from_sentinels], heals_first=True)
    seen.run.judge()


def judge_but_for_the_failovers(seen: Seen) -> None:
    """What was answered during one may be lost. A primary without replicas refuses writes after MAX_LAG_S at most."""
    shift_ms = now_ms() - time.monotonic() * 1000
    for began_s, back_s in zip(seen.began_s, seen.back_s, strict=True):
        over_ms = (back_s + MAX_LAG_S) * 1000 + shift_ms
        seen.run.notes.append(Note("rollback", over_ms, "1", began_s * 1000 + shift_ms))
    seen.run.judge()


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
