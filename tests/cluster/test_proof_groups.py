"""The limits of groups over a whole cluster, whose workers, servers and stores are killed, and stand still."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from pinlater import AsyncClient
from pinlater.errors import PinLaterError
from pinlater.model import CONTINUATION_START, ExtendedJob, JobState
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.wire.operator_methods import GET_GROUPS
from tests.cluster.groups_worker import QUEUE
from tests.cluster.proof_stand import DEADLINE_S, PASSWORD, Stand, count, everywhere, known_everywhere, until
from tests.cluster.proof_stores import SHARDS, FourStores
from tests.cluster.proof_workers import Workers, runs_of
from tests.cluster.runs import most_at_once
from tests.stores.process import StoreServer

pytestmark = [pytest.mark.slow]
KILLS = int(os.environ.get("PINLATER_PROOF_GROUP_KILLS", "10"))
MOST = {"a": 5, "b": 5, "c": 5, "two": 2}
"""The maximum of each group: that of the queue, and one of its own."""

WORKERS = 4
BEFORE_A_KILL_S = 1.2
"""A killed worker's permits come back seconds later: with no time between two kills there would be none left."""

BACKLOG = 100
"""So many jobs wait at least while there are kills, so that the limits keep jobs back."""

PER_CALL = 5
DRAINED_WITHIN_S = 60.0
VICTIMS = ("worker", "worker", "store", "worker", "server", "worker", "worker", "pause", "worker", "server")


@pytest.fixture
def stand(tmp_path: Path, four_stores: FourStores) -> Iterator[Stand]:
    with Stand(tmp_path, four_stores, "--crash-budget", "0") as running:
        yield running


class Feed:
    """Keeps a backlog of each group, until it is told to end; what it has stored."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._going = True
        self.stored: Counter[str] = Counter()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._feed())
        try:
            yield
        finally:
            self._going = False
            await task

    async def _feed(self) -> None:
        while self._going:
            try:
                waiting = await count(self._client, QUEUE, JobState.PENDING)
            except PinLaterError:
                waiting = 0
            if waiting < BACKLOG * len(MOST):
                await asyncio.gather(*(self._enqueue(group, most * PER_CALL) for group, most in MOST.items()))
            await asyncio.sleep(0.1)

    async def _enqueue(self, group: str, jobs: int) -> None:
        """In calls of their own, which are spread over the shards; each again until it is answered, as keys allow."""
        first = self.stored[group]
        self.stored[group] += jobs
        numbers = range(first, first + jobs)
        for start in range(0, jobs, PER_CALL):
            some = [
                ExtendedJob(f"{group} {n}".encode(), group=group, dedupe_key=f"{group}/{n}", attempts_allowed=1_000)
                for n in numbers[start : start + PER_CALL]
            ]
            await self._client.enqueue(QUEUE, some, resend=True, timeout=DRAINED_WITHIN_S)


class Striker:
    """Kills something of a kind, or has it stand still, one thing after the other; what was killed is started again.
    Of the stores that with the permits is the first.
    """

    def __init__(self, stand: Stand, workers: Workers) -> None:
        self._stand = stand
        self._workers = workers
        home = rendezvous_pick(QUEUE, SHARDS)
        self._shards = sorted(SHARDS, key=lambda shard: shard != home)
        self._strikes: Counter[str] = Counter()

    async def strike(self, victim: str) -> None:
        stores, number = self._stand.stores, self._strikes[victim]
        shard, server = self._shards[number % len(self._shards)], self._stand.servers[number % 2]
        self._strikes[victim] += 1
        if victim == "worker":
            await asyncio.to_thread(self._workers.replace_one)
        elif victim == "server":
            server.kill()
            server.start_again()
            await until(server.is_ready)
        elif victim == "store":
            await stores.do(StoreServer.kill, shard)
            await asyncio.sleep(DEADLINE_S / 2)
            await stores.do(StoreServer.start, shard)
        else:
            await stores.do(StoreServer.pause, shard)
            await asyncio.sleep(1.5 * DEADLINE_S)
            await stores.do(StoreServer.resume, shard)


def maximum_of(page: Any) -> str:
    """That of the only group of a page."""
    (view,) = page.groups
    return str(view.settings["concurrency"].value)


async def test_no_group_has_more_jobs_in_progress_than_its_limit_whatever_is_killed(
    stand: Stand, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with stand.clients() as clients:
        client = clients[0]
        await client.update_queue(QUEUE, PASSWORD, set={"group_concurrency": "5"}, create=True)
        await client.update_group(QUEUE, "two", PASSWORD, set={"concurrency": "2"})
        await known_everywhere(stand, QUEUE)
        asked = GET_GROUPS.request(QUEUE, ["two"], CONTINUATION_START, 1)
        await everywhere(stand, "getGroups", lambda page: maximum_of(page) == "2", request=asked)
        async with AsyncClient(servers=[server.address for server in stand.servers]) as feeding:
            feed = Feed(feeding)
            with Workers("groups_worker", WORKERS, log, stand) as workers:
                async with feed.running():
                    striker = Striker(stand, workers)
                    for victim in islice(cycle(VICTIMS), KILLS):
                        await asyncio.sleep(BEFORE_A_KILL_S)
                        await striker.strike(victim)

                async def all_done() -> bool:
                    return await count(client, QUEUE, JobState.SUCCEEDED) == feed.stored.total()

                await until(all_done, within_s=DRAINED_WITHIN_S)
        assert await count(client, QUEUE, *JobState) == feed.stored.total()
    runs = runs_of(log)
    most = most_at_once(runs)
    assert {group: most[group] for group in most if most[group] > MOST[group]} == {}
    assert any(most[group] == MOST[group] for group in MOST), most  # a busy machine may not fill each of them
    ended = {(run.key, run.number) for run in runs if run.ended_ns is not None}
    assert ended == {(group, number) for group, jobs in feed.stored.items() for number in range(jobs)}
