"""What a job costs from its enqueue to its ack, at three rates: calls of stores and messages between servers, counted.

At every server a worker waits for jobs of one queue. Its acks ride on its next dequeue, as those of PinLater's own
workers do.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pinlater.model import Ack, DequeueRequest, Job, RequestContext
from tests.simulation.calls import ACKS, CLAIMS, COUNTS, POLLS, for_jobs, number, per
from tests.simulation.cluster import Cluster
from tests.simulation.server import SimulatedServer

QUEUE = "mail"
WAIT_MS = 60_000
WORKER, PRODUCER = RequestContext("worker"), RequestContext("producer")

APART_S = 0.3
"""Between two jobs that come alone."""

STEADY_PER_S, STEADY_WORK_S = 10.0, 0.05

DRAINED = 0.8
"""A backlog is measured until this part of it is gone: there is always enough for all."""

BATCH, DRAIN_WORK_S = 10, 0.1


class Workers:
    """One at each server: it asks for up to `limit` jobs, works for `work_s` on average, and asks again."""

    def __init__(self, cluster: Cluster) -> None:
        self.limit, self.work_s = 1, 0.0
        self.delivered = 0
        """Jobs that they have received."""
        self._cluster = cluster
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [server.begin(self._work(server)) for server in self._cluster.servers]

    async def _work(self, server: SimulatedServer) -> None:
        acks: list[Ack] = []
        while True:
            request = DequeueRequest(QUEUE, self.limit, succeeded=acks, wait_ms=WAIT_MS)
            jobs = await server.service.dequeue(request, context=WORKER)
            self.delivered += len(jobs)
            if self.work_s:
                await asyncio.sleep(self.work_s * random.uniform(0.5, 1.5))
            acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]

    async def until_delivered(self, jobs: int) -> None:
        """What a worker raises is raised."""
        while self.delivered < jobs:
            done, _ = await asyncio.wait(self._tasks, timeout=0.01)
            for task in done:
                task.result()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(frozen=True)
class JobCost:
    """Of one job that was delivered. `calls`: of stores, by operation, but for those that are made without jobs too.

    `empty_claims`: the part of all claims that brought nothing. `messages`: from one server to another.
    """

    calls: Mapping[str, float]
    empty_claims: float
    messages: float

    @property
    def counts(self) -> float:
        return number(self.calls, COUNTS)

    @property
    def claims(self) -> float:
        return number(self.calls, CLAIMS)

    @property
    def acks(self) -> float:
        return number(self.calls, ACKS)

    @property
    def polls(self) -> float:
        return number(self.calls, POLLS)

    @property
    def all_calls(self) -> float:
        return sum(self.calls.values())


class Meter:
    """What the cluster does from now on."""

    def __init__(self, cluster: Cluster) -> None:
        self._tally = cluster.network.tally
        self._began_s = asyncio.get_running_loop().time()
        self._calls, self._empty, self._messages = self._read()

    def _read(self) -> tuple[Counter[str], int, int]:
        return self._tally.by_operation(), self._tally.empty_claims, self._tally.notifications.total()

    def calls(self) -> Counter[str]:
        return self._tally.by_operation() - self._calls

    def seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._began_s

    def job_cost(self, jobs: int) -> JobCost:
        calls, empty, messages = self._read()
        made = calls - self._calls
        claims = number(made, CLAIMS)
        return JobCost(
            per(Counter(for_jobs(made)), jobs),
            (empty - self._empty) / claims if claims else 0.0,
            (messages - self._messages) / jobs,
        )

    def cost_beyond(self, idle_per_s: Mapping[str, float], jobs: int) -> JobCost:
        """As `job_cost`, with the polls beyond those that the idle cluster makes in the same time."""
        usual = {name: idle_per_s.get(name, 0.0) * self.seconds() / jobs for name in POLLS}
        cost = self.job_cost(jobs)
        beyond = {name: made - usual.get(name, 0.0) for name, made in cost.calls.items()}
        return replace(cost, calls={name: made for name, made in beyond.items() if made > 0})


# -- the rates ---------------------------------------------------------------------------------------------------------


async def lone(cluster: Cluster, workers: Workers, jobs: int, idle_per_s: Mapping[str, float]) -> JobCost:
    """A job comes into the idle queue."""
    meter, delivered = Meter(cluster), workers.delivered
    for _ in range(jobs):
        await _enqueue(cluster.servers[0], 1)
        await asyncio.sleep(APART_S)
    await workers.until_delivered(delivered + jobs)
    return meter.cost_beyond(idle_per_s, jobs)


async def steady(cluster: Cluster, workers: Workers, jobs: int, idle_per_s: Mapping[str, float]) -> JobCost:
    """Ten jobs a second come, one by one, to any of the servers."""
    workers.work_s = STEADY_WORK_S
    meter, delivered = Meter(cluster), workers.delivered
    for _ in range(jobs):
        await _enqueue(random.choice(cluster.servers), 1)
        await asyncio.sleep(random.uniform(0.5, 1.5) / STEADY_PER_S)
    await workers.until_delivered(delivered + jobs)
    return meter.cost_beyond(idle_per_s, jobs)


async def backlog(
    cluster: Cluster, workers: Workers, dequeues: int, idle_per_s: Mapping[str, float], *, limit: int = BATCH
) -> JobCost:
    """Jobs for so many dequeues of each worker are there before the workers are, which take up to `limit` at a time.
    Their enqueues are not counted.
    """
    await workers.stop()
    stored = dequeues * limit * len(cluster.servers)
    for _ in range(stored // BATCH):
        await _enqueue(random.choice(cluster.servers), BATCH)
    await asyncio.sleep(APART_S)
    workers.limit, workers.work_s = limit, DRAIN_WORK_S
    meter, delivered = Meter(cluster), workers.delivered
    workers.start()
    await workers.until_delivered(delivered + round(DRAINED * stored))
    cost = meter.job_cost(workers.delivered - delivered)
    await workers.until_delivered(delivered + stored)
    return cost


async def _enqueue(server: SimulatedServer, jobs: int) -> None:
    await server.begin(server.service.enqueue(QUEUE, [Job(b"")] * jobs, context=PRODUCER))


Load = Callable[[Cluster, Workers, int, Mapping[str, float]], Awaitable[JobCost]]
LOADS: Mapping[str, Load] = {
    "lone": lone,
    "10/s": steady,
    "backlog by 1": partial(backlog, limit=1),
    "backlog by 10": backlog,
}
