"""The bounds of queues over the whole cluster: jobs a second, and jobs in progress."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from pinlater import AsyncClient, DequeueRequest, Job
from pinlater.model import Ack, JobState
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.wire.convert import acks_to_wire, dequeue_to_wire, dequeued_from_wire
from tests.cluster.proof_ending import drain
from tests.cluster.proof_holding import Holding
from tests.cluster.proof_stand import PASSWORD, PATIENT, PROCESSES, Stand, all_agree, count, known_everywhere, until
from tests.cluster.proof_stores import SHARDS, FourStores
from tests.server.running import Plain
from tests.speed import slower
from tests.stores.process import StoreServer

pytestmark = [pytest.mark.slow]
CLAIM_MS = 2_000
TOLERANCE = 1.05
"""Of a rate."""


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, four_stores: FourStores) -> Iterator[Stand]:
    claim = ("--claim-timeout", f"{CLAIM_MS}ms", "--crash-budget", "0")
    with Stand(tmp_path_factory.mktemp("limits"), four_stores, *claim, *PATIENT) as running:
        yield running


async def limited(stand: Stand, client: AsyncClient, queue: str, key: str, value: str, jobs: int) -> None:
    """A queue with one limit that every process knows of, and jobs on every shard."""
    await client.update_queue(queue, PASSWORD, set={key: value}, create=True)
    await known_everywhere(stand, queue)
    await asyncio.gather(
        *[client.enqueue(queue, [Job(b"x", attempts_allowed=1_000)] * (jobs // 40)) for _ in range(40)]
    )


# -- jobs a second -----------------------------------------------------------------------------------------------------


class Takers:
    """Workers on some ports that take what they can get of a queue; when each job was handed out."""

    def __init__(self, ports: Sequence[int], queue: str) -> None:
        self._ports = ports
        self._queue = queue
        self._going = True
        self.taken_ms: list[int] = []

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Takers]:
        tasks = [asyncio.create_task(self._take(port)) for port in self._ports for _ in range(4)]
        try:
            yield self
        finally:
            self._going = False
            await asyncio.gather(*tasks)

    async def _take(self, port: int) -> None:
        plain = await Plain.to(port)
        while self._going:
            request = DequeueRequest(self._queue, 10, wait_ms=500, claim_timeout_ms=60_000)
            await plain.send("dequeueJobs", request=dequeue_to_wire(request))
            reply = await plain.answer()
            for job in dequeued_from_wire(reply.success) if reply.exception is None else ():
                self.taken_ms.append(job.claim_expires_at_ms - 60_000)
        await plain.close()

    def within(self, from_ms: int, seconds: float) -> int:
        return sum(from_ms <= each < from_ms + seconds * 1000 for each in self.taken_ms)

    def fullest_second(self) -> int:
        """The most jobs in any second."""
        times = sorted(self.taken_ms)
        return max(bisect.bisect_left(times, each + 1000) - at for at, each in enumerate(times))


async def test_a_rate_is_kept_by_the_whole_cluster_with_workers_on_one_server_only(stand: Stand) -> None:
    rates = {"fast": 50, "leisurely": 5}
    async with stand.clients() as clients:
        for queue, rate in rates.items():
            await limited(stand, clients[0], queue, "max_jobs_per_second", f"{rate}/s", 40 * rate)
        takers = {queue: Takers(stand.ports[:1], queue) for queue in rates}
        async with contextlib.AsyncExitStack() as stack:
            for each in takers.values():
                await stack.enter_async_context(each.working())
            await until(partial(_have_begun, *takers.values()))
            await until(partial(_go_on_for, 11_000, *takers.values()))
        for queue, rate in rates.items():
            first_ms = min(takers[queue].taken_ms)
            beyond, exact = takers[queue].within(first_ms, 10) - 10 * rate, max(1, (TOLERANCE - 1) * 10 * rate)
            assert -exact * slower(time.monotonic) <= beyond <= exact, queue  # a busy machine may take fewer


async def _have_begun(*takers: Takers) -> bool:
    return all(each.taken_ms for each in takers)


async def _go_on_for(some_ms: int, *takers: Takers) -> bool:
    """Each has taken jobs over so long."""
    return all(max(each.taken_ms) - min(each.taken_ms) > some_ms for each in takers)


async def _took_more(takers: Takers, since_ms: int, jobs: int) -> bool:
    return takers.within(since_ms, 60) > jobs


async def test_no_second_has_more_than_twice_the_rate_when_the_shard_with_the_bucket_is_killed(stand: Stand) -> None:
    rate = 40
    async with stand.clients() as clients:
        await limited(stand, clients[0], "taken_over", "max_jobs_per_second", f"{rate}/s", 1_600)
        keeper = rendezvous_pick("taken_over", SHARDS)
        assert keeper is not None
        async with Takers(stand.ports, "taken_over").working() as takers:
            await until(partial(_have_begun, takers))
            await until(partial(_go_on_for, 2_000, takers))
            await stand.stores.do(StoreServer.kill, keeper)
            await all_agree(clients[0], PROCESSES, out=[keeper])
            without_ms = time.time_ns() // 1_000_000
            await until(partial(_took_more, takers, without_ms, rate))
            await stand.stores.do(StoreServer.start, keeper)
            await all_agree(clients[0], PROCESSES)
            back_ms = time.time_ns() // 1_000_000
            await until(partial(_took_more, takers, back_ms, rate))
        assert takers.fullest_second() <= 2 * rate


# -- jobs in progress --------------------------------------------------------------------------------------------------


class Crew:
    """Workers on every port that hold jobs for a moment; some break off with what they hold, as if they were killed."""

    def __init__(self, ports: Sequence[int], queue: str) -> None:
        self._ports = ports
        self._queue = queue
        self._going = True
        self._random = random.Random(7)
        self.done = self.died = 0

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._worker(port)) for port in self._ports for _ in range(8)]
        try:
            yield
        finally:
            self._going = False
            await asyncio.gather(*tasks)

    async def _worker(self, port: int) -> None:
        while self._going:
            plain = await Plain.to(port)
            while self._going and await self._works(plain):
                pass
            await plain.close()

    async def _works(self, plain: Plain) -> bool:
        """Whether the worker lives on."""
        request = DequeueRequest(self._queue, self._random.randint(1, 4), wait_ms=300)
        await plain.send("dequeueJobs", request=dequeue_to_wire(request))
        reply = await plain.answer()
        jobs = dequeued_from_wire(reply.success) if reply.exception is None else []
        await asyncio.sleep(self._random.uniform(0.01, 0.1))
        if jobs and self._random.random() < 0.03:
            self.died += 1
            return False
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
        await plain.call("ackDequeuedJobs", request=acks_to_wire(self._queue, acks, []))
        self.done += len(jobs)
        return True


@pytest.mark.parametrize("most", [3, 10])
async def test_at_no_instant_is_more_in_progress_than_allowed_and_all_drains(stand: Stand, most: int) -> None:
    queue = f"at_most_{most}"
    async with stand.clients() as clients:
        await limited(stand, clients[0], queue, "max_in_progress", str(most), 200 * most // 3)
        jobs = await count(clients[0], queue, JobState.PENDING)
        crew, holding = Crew(stand.ports, queue), Holding(stand.direct, queue)
        watching = asyncio.create_task(holding.watch())
        try:
            async with crew.working():

                async def is_drained() -> bool:
                    return crew.done >= jobs

                await until(is_drained)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            holding.close()
        assert crew.died > 0
        assert holding.looks > 20
        assert 1 <= holding.most <= most
        await drain(clients[0], queue)
        assert await count(clients[0], queue, JobState.SUCCEEDED) == jobs
