"""Keys over a whole cluster: once however many callers bring a job, and in order whatever becomes of the workers."""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import AsyncClient, DequeueRequest
from pinlater.errors import PinLaterError
from pinlater.model import Ack, ExtendedJob, JobState
from tests.cluster.keys_worker import QUEUES
from tests.cluster.proof_stand import PATIENT, WITHIN_S, Stand, count, known_everywhere, until
from tests.cluster.proof_stores import FourStores
from tests.cluster.proof_workers import Workers, runs_of
from tests.cluster.runs import judge

pytestmark = [pytest.mark.slow]
CALLERS = 64
KEYS = int(os.environ.get("PINLATER_PROOF_KEYS", "200"))
PER_CALL = 20
LONG_MS = 60_000
"""A claim that lasts until its ack, however busy the machine is: what is counted then is jobs, not attempts."""


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, four_stores: FourStores) -> Iterator[Stand]:
    with Stand(tmp_path_factory.mktemp("keys"), four_stores, "--crash-budget", "0", *PATIENT) as running:
        yield running


async def bring(server: str, others: str, seed: int) -> dict[str, str]:
    """Every key once, in an order of its own, again and again until it is answered: the descriptor of each."""
    keys = [f"key {number}" for number in range(KEYS)]
    random.Random(seed).shuffle(keys)
    answers: dict[str, str] = {}
    async with AsyncClient(servers=[server, others], timeout=10) as client:
        for start in range(0, KEYS, PER_CALL):
            some = keys[start : start + PER_CALL]
            jobs = [ExtendedJob(key.encode(), dedupe_key=key, attempts_allowed=1_000) for key in some]
            while True:
                try:
                    answers |= zip(some, await client.enqueue("once", jobs), strict=True)
                    break
                except PinLaterError:
                    await asyncio.sleep(0.05)
    return answers


async def test_64_callers_bring_the_same_keys_at_once_and_a_server_is_killed(stand: Stand) -> None:
    async with stand.clients() as clients:
        client = clients[0]
        await client.create_queue("once")
        await known_everywhere(stand, "once")
        addresses = [server.address for server in stand.servers]
        callers = [
            asyncio.create_task(bring(addresses[number % 2], addresses[1 - number % 2], number))
            for number in range(CALLERS)
        ]

        async def half() -> bool:
            return await count(client, "once", JobState.PENDING) > KEYS // 2

        await until(half)
        stand.servers[1].kill()
        answers = await asyncio.gather(*callers)
        stand.servers[1].start_again()

        assert all(each == answers[0] for each in answers)
        assert len(set(answers[0].values())) == KEYS
        assert await count(client, "once", *JobState) == KEYS
        bodies = []
        while jobs := await client.dequeue(DequeueRequest("once", KEYS, claim_timeout_ms=LONG_MS)):
            bodies += [job.body for job in jobs]
            await client.ack("once", [Ack(job.descriptor) for job in jobs])
        assert sorted(bodies) == sorted(key.encode() for key in answers[0])


JOBS = 20
WAYS = ("succeeds", "succeeds", "succeeds", "succeeds", "succeeds", "succeeds", "fails", "fails", "fails", "lapses")
WORKERS = 3
KILLS = 6


async def enqueue_all(clients: list[AsyncClient], keys: list[str]) -> None:
    """The jobs of a key one call after the other, each in a queue by chance; many keys in a call."""
    rng = random.Random(7)

    async def some(client: AsyncClient, own: list[str]) -> None:
        for number in range(JOBS):
            by_queue: defaultdict[str, list[ExtendedJob]] = defaultdict(list)
            for key in own:
                by_queue[rng.choice(QUEUES)].append(
                    ExtendedJob(
                        f"{key} {number} {rng.choice(WAYS)}".encode(),
                        attempts_allowed=1_000,
                        priority=rng.choice((1, 2, 3)),
                        dedupe_key=f"{key}/{number}",
                        serialize_key=key,
                        claim_timeout_ms=2_000,
                    )
                )
            for queue, jobs in by_queue.items():
                await client.enqueue(queue, jobs, resend=True, timeout=WITHIN_S)

    each = KEYS // 10
    slices = [keys[start : start + each] for start in range(0, len(keys), each)]
    await asyncio.gather(*(some(clients[place % 2], own) for place, own in enumerate(slices)))


async def test_jobs_of_a_key_are_done_one_at_a_time_and_in_order_while_workers_fail_lapse_and_are_killed(
    stand: Stand, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with stand.clients() as clients:
        for queue in QUEUES:
            await clients[0].create_queue(queue)
            await known_everywhere(stand, queue)
        with Workers("keys_worker", WORKERS, log, stand) as workers:
            enqueuing = asyncio.create_task(enqueue_all(clients, [f"key{number}" for number in range(KEYS)]))
            for _ in range(KILLS):
                await asyncio.sleep(1)
                workers.replace_one()
            await enqueuing

            async def all_done() -> bool:
                """By successes: a job that fails goes from one of the other states to the next between two counts."""
                return sum([await count(clients[0], queue, JobState.SUCCEEDED) for queue in QUEUES]) == KEYS * JOBS

            await until(all_done, within_s=150)
    runs = runs_of(log)
    judge(runs).passes()
    assert len(runs) > KEYS * JOBS
