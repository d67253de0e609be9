"""Queues of a cluster in an incident: changed while a shard is away, starved by a slow neighbour, killing workers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import redis

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from pinlater.errors import DequeueRateLimited, ErrorCode
from pinlater.model import DequeuedJob, JobState
from pinlater.wire.convert import acks_to_wire, dequeue_to_wire, dequeued_from_wire
from tests.cluster.proof_load import shard_of
from tests.cluster.proof_stand import PASSWORD, PROCESSES, Server, Stand, all_agree, count, known_everywhere, until
from tests.cluster.proof_stores import SHARDS, FourStores
from tests.server.commands import Shell
from tests.server.running import Plain
from tests.stores.process import dies_with_us

pytestmark = [pytest.mark.slow]
AWAY = "1"


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, four_stores: FourStores) -> Iterator[Stand]:
    with Stand(tmp_path_factory.mktemp("queues"), four_stores, proxied=[AWAY]) as running:
        yield running


class Operator:
    """Types `pinlater …` with the admin password at hand."""

    def __init__(self, stand: Stand) -> None:
        self._shell = Shell(stand.servers[0].folder, stand.servers[0].address)

    async def __call__(self, *arguments: str) -> str:
        result = await asyncio.to_thread(self._shell, *arguments, PINLATER_ADMIN_PASSWORD=PASSWORD)
        return result.out


async def fill(client: AsyncClient, queue: str, jobs: int, *, on: set[str] | None = None, **fields: int) -> set[str]:
    """So many jobs, each in a call of its own, and more until every shard of `on` has one; their descriptors."""
    made: set[str] = set()
    while len(made) < jobs or not (on or set()) <= {shard_of(each) for each in made}:
        made.add(await client.enqueue(queue, Job(queue.encode(), **fields)))
    return made


# -- while a shard is away -------------------------------------------------------------------------------------------


def queues_in(stand: Stand, shard: str) -> set[str]:
    """What a Redis store itself says, asked directly."""
    with redis.Redis.from_url(stand.direct[shard], decode_responses=True) as store:
        names: dict[str, str] = store.hgetall("{pinlater}:queues")  # type: ignore[assignment]
        return set(names)


async def test_what_is_created_paused_and_deleted_while_a_shard_is_away_is_so_on_it_when_it_is_back(
    stand: Stand,
) -> None:
    async with stand.clients() as clients:
        client = clients[0]
        for queue in ("deleted", "recreated", "paused"):
            await client.create_queue(queue)
        for queue in ("deleted", "recreated", "paused"):
            await known_everywhere(stand, queue)
        before = {queue: await fill(client, queue, 8, on=set(SHARDS)) for queue in ("deleted", "recreated", "paused")}
        stand.proxies[AWAY].cut()
        await all_agree(client, PROCESSES, out=[AWAY])

        await client.create_queue("created")
        paused = await client.update_queue("paused", PASSWORD, set={"paused": "true", "paused_why": "an incident"})
        assert paused.missed_shards == [AWAY]
        await client.delete_queue("deleted", PASSWORD)
        await client.delete_queue("recreated", PASSWORD)
        await client.create_queue("recreated")
        assert {"created", "deleted", "recreated"} & queues_in(stand, AWAY) == {"deleted", "recreated"}

        stand.proxies[AWAY].heal()
        await all_agree(client, PROCESSES)
        assert {"created", "deleted", "recreated"} & queues_in(stand, AWAY) == {"created", "recreated"}
        for each in clients:
            assert await count(each, "recreated", *JobState) == 0
            assert await each.lookup([*before["deleted"], *before["recreated"]]) == {}
            with pytest.raises(DequeueRateLimited) as refused:
                await each.dequeue(DequeueRequest("paused", 100))
            assert refused.value.reason == "QUEUE_PAUSED"
        assert await count(client, "paused", JobState.PENDING) == len(before["paused"])
        for queue in ("created", "recreated"):
            made = await fill(client, queue, 1, on={AWAY})
            taken = await client.dequeue(DequeueRequest(queue, len(made)))
            assert {job.descriptor for job in taken} == made


# -- a slow queue beside another one ----------------------------------------------------------------------------------

WORKERS = 4
SLOW_S = 0.2


class Fleet:
    """Workers that look at the queue of reports first, and at mail only when that gives them nothing."""

    def __init__(self, port: int) -> None:
        self.done: Counter[str] = Counter()
        self._port = port
        self._going = True

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._worker()) for _ in range(WORKERS)]
        try:
            yield
        finally:
            self._going = False
            await asyncio.gather(*tasks)

    async def _worker(self) -> None:
        plain = await Plain.to(self._port)
        while self._going:
            if not await self._one(plain, "reports", SLOW_S) and not await self._one(plain, "mail", 0.0):
                await asyncio.sleep(0.05)
        await plain.close()

    async def _one(self, plain: Plain, queue: str, seconds: float) -> bool:
        """Whether there was a job, and it is done."""
        await plain.send("dequeueJobs", request=dequeue_to_wire(DequeueRequest(queue, 1)))
        reply = await plain.answer()
        if reply.exception is not None:
            assert reply.exception.error_code == ErrorCode.DEQUEUE_RATE_LIMITED, reply.exception
            return False
        jobs = dequeued_from_wire(reply.success)
        await asyncio.sleep(seconds if jobs else 0)
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
        await plain.call("ackDequeuedJobs", request=acks_to_wire(queue, acks, []))
        self.done[queue] += len(jobs)
        return bool(jobs)

    async def does(self, **jobs: int) -> None:
        """Until so many more jobs of these queues are done."""
        goal = self.done + Counter(jobs)

        async def is_there() -> bool:
            return all(self.done[queue] >= goal[queue] for queue in jobs)

        await until(is_there)


LIMITS = {
    "a rate": ("set-rate", "reports", "5/s"),
    "a maximum in progress": ("set", "reports", "max_in_progress=2"),
}
NO_LIMITS = {
    "a rate": ("set-rate", "reports", "none"),
    "a maximum in progress": ("unset", "reports", "max_in_progress"),
}


async def test_a_slow_queue_starves_another_one_until_it_has_a_limit(stand: Stand) -> None:
    operator = Operator(stand)
    async with stand.clients() as clients:
        for queue in ("reports", "mail"):
            await clients[0].create_queue(queue)
            await known_everywhere(stand, queue)
        await clients[0].enqueue("reports", [Job(b"slow")] * 1_000)
        await clients[0].enqueue("mail", [Job(b"quick")] * 3_000)
        fleet = Fleet(stand.servers[1].port)
        async with fleet.working():
            for limit, command in LIMITS.items():
                await fleet.does(reports=WORKERS)
                mail = fleet.done["mail"]
                await fleet.does(reports=4 * WORKERS)
                assert fleet.done["mail"] - mail == 0, f"mail waits, before {limit}"
                await operator("queue", *command)
                await fleet.does(mail=50, reports=2)
                await operator("queue", *NO_LIMITS[limit])
                await fleet.does(reports=12 * WORKERS)  # that takes longer than the two seconds in which the limit goes


# -- a job that kills its workers -------------------------------------------------------------------------------------

WORKER = """
import sys, time
from pinlater import Ack, Client, DequeueRequest
with Client(sys.argv[1]) as client:
    while not (jobs := client.dequeue(DequeueRequest(sys.argv[2], 1, wait_ms=1000))):
        pass
    print(jobs[0].descriptor, flush=True)
    time.sleep(0 if sys.argv[3] == "good" else 600)
    client.ack(sys.argv[2], [Ack(jobs[0].descriptor, claim_descriptor=jobs[0].claim_descriptor)])
"""


def worker(server: Server, queue: str, kind: str) -> str:
    """The job that a worker process took. A good one finishes it; another one is killed while it holds it."""
    command = [*dies_with_us(), sys.executable, "-c", WORKER, server.address, queue, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        taken = process.stdout.readline()
        if kind == "good":
            assert process.wait(20) == 0
        else:
            process.kill()
    return taken.strip()


async def taken_from(client: AsyncClient, queue: str, is_wanted: Callable[[DequeuedJob], bool]) -> DequeuedJob:
    found: list[DequeuedJob] = []

    async def is_there() -> bool:
        found.extend(job for job in await client.dequeue(DequeueRequest(queue, 1, wait_ms=200)) if is_wanted(job))
        return bool(found)

    await until(is_there)
    return found[0]


async def test_a_job_that_kills_its_workers_ends_as_a_dead_letter_and_is_replayed(stand: Stand) -> None:
    operator = Operator(stand)
    async with stand.clients() as clients:
        client = clients[0]
        await operator("queue", "create", "poison", "dead")
        await operator("queue", "set", "poison", "crash_budget=2", "dead_letter_queue=dead", "claim_timeout=1s")
        for queue in ("poison", "dead"):
            await known_everywhere(stand, queue)
        name = await client.enqueue("poison", Job(b"poison", attempts_allowed=10))
        for crashes in (1, 2):
            assert await asyncio.to_thread(worker, stand.servers[1], "poison", "bad") == name

            async def is_counted(wanted: int = crashes) -> bool:
                return (await client.lookup([name]))[name].crashes == wanted

            await until(is_counted)
        job = (await client.lookup([name]))[name]
        assert (job.state, job.attempts_allowed) == (JobState.FAILED, 10)
        assert "crash budget" in job.custom_status

        letter = await taken_from(client, "dead", lambda job: job.body == b"poison")
        info = (await client.lookup([letter.descriptor]))[letter.descriptor]
        assert info.origin == name
        assert (await client.lookup([name]))[name].moved_to == letter.descriptor
        await client.ack("dead", failed=[Ack(letter.descriptor, permanent=True)])
        assert (await operator("queue", "replay", "dead")).split()[0] == "1"
        assert await count(client, "dead", *JobState) == 0
        again = await asyncio.to_thread(worker, stand.servers[1], "poison", "good")
        found = (await client.lookup([again]))[again]
        assert (found.state, found.origin, found.attempts_allowed) == (JobState.SUCCEEDED, letter.descriptor, 10)
        assert again != name
