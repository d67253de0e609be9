"""Jobs with keys while a shard is added, a server killed, and a shard drained and removed: once, and in order.

What the workers began and ended is kept in a log outside; it is judged at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from pinlater import AsyncClient
from pinlater.errors import PinLaterError
from pinlater.model import Ack, DequeueRequest, ExtendedJob
from tests.cluster.proof_stand import (
    PASSWORD,
    PATIENT,
    PROCESSES,
    WITHIN_S,
    Stand,
    all_agree,
    known_everywhere,
    status_when,
)
from tests.cluster.proof_stores import FourStores
from tests.cluster.runs import Run, judge
from tests.server.commands import Shell

pytestmark = [pytest.mark.slow]
QUEUE = "mail"
FIRST, ADDED, DRAINED = "1", "2", "3"
ONCE = [f"once-{number}" for number in range(240)]
CHAINS = [f"chain-{number}" for number in range(24)]
LONG = 12
"""Jobs of a serialize key."""

HOUR_MS = 3_600_000
WORKERS = 4


@dataclass
class Log:
    """By name: the descriptors that its enqueues were answered with, and under which it was delivered."""

    answers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    delivered: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    runs: list[Run] = field(default_factory=list)
    """Of the jobs with a serialize key."""

    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    done: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, four_stores: FourStores) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("keys")
    with Stand(folder, four_stores, "--crash-budget", "0", *PATIENT, shards=(FIRST, DRAINED)) as running:
        yield running


async def stored(client: AsyncClient, job: ExtendedJob, log: Log) -> str:
    """Sent again until it is answered: its keys make that safe."""
    while True:
        try:
            (descriptor,) = await client.enqueue(QUEUE, [job])
        except PinLaterError as error:
            log.refused[error.reason] += 1
            await asyncio.sleep(0.1)
        else:
            return descriptor


async def offer_once(client: AsyncClient, log: Log) -> None:
    """Each key, in an order of its own."""
    for key in random.sample(ONCE, len(ONCE)):
        job = ExtendedJob(key.encode(), dedupe_key=key, dedupe_for_ms=HOUR_MS)
        log.answers[key].add(await stored(client, job, log))
        await asyncio.sleep(random.uniform(0, 0.15))


async def lengthen(clients: Sequence[AsyncClient], chains: Sequence[str], log: Log) -> None:
    """One job behind the other, through either server; a resend is known by its dedupe key."""
    for number in range(LONG):
        for chain in chains:
            job = ExtendedJob(
                f"{chain} {number}".encode(), serialize_key=chain, dedupe_key=str(number), dedupe_for_ms=HOUR_MS
            )
            log.answers[f"{chain} {number}"].add(await stored(random.choice(clients), job, log))
            await asyncio.sleep(random.uniform(0, 0.15))


async def work(client: AsyncClient, log: Log) -> None:
    while True:
        try:
            jobs = await client.dequeue(DequeueRequest(QUEUE, 4, wait_ms=500))
        except PinLaterError:
            await asyncio.sleep(0.1)
            continue
        for job in jobs:
            text = job.body.decode()
            chain, _, number = text.partition(" ")
            log.delivered[text].add(job.descriptor)
            run = Run(chain, int(number or 0), job.claim_expires_at_ms, began_ns=time.time_ns())
            if number:
                log.runs.append(run)
            await asyncio.sleep(random.uniform(0, 0.01))
            run.ended_ns = time.time_ns()
            with contextlib.suppress(PinLaterError):
                await client.ack(QUEUE, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
            log.done.add(text)


def expected() -> set[str]:
    return {*ONCE, *(f"{chain} {number}" for chain in CHAINS for number in range(LONG))}


def judge_all(log: Log) -> None:
    """One job of each name; of each chain one at a time, and none before those that were enqueued before it."""
    for name in expected():
        assert len(log.answers[name] | log.delivered[name]) == 1, (name, log.answers[name], log.delivered[name])
    judge(log.runs).passes()


async def homes_are(client: AsyncClient, *ids: str) -> None:
    await status_when(client, lambda status: sorted(each.id for each in status.shards if each.is_home) == sorted(ids))


async def test_keys_hold_while_shards_come_and_go_and_a_server_dies(stand: Stand) -> None:
    log = Log()
    async with stand.clients() as clients:
        await clients[0].create_queue(QUEUE)
        await known_everywhere(stand, QUEUE)
        offering = [asyncio.create_task(offer_once(client, log)) for client in (*clients, *clients)]
        offering += [asyncio.create_task(lengthen(clients, CHAINS[number::6], log)) for number in range(6)]
        working = [asyncio.create_task(work(clients[number % 2], log)) for number in range(WORKERS)]
        try:
            await homes_are(clients[0], FIRST, DRAINED)
            stand.configure(dict.fromkeys((FIRST, ADDED, DRAINED), ""))
            await homes_are(clients[0], FIRST, ADDED, DRAINED)

            stand.servers[1].kill()
            await asyncio.sleep(1)
            stand.servers[1].start_again()
            await all_agree(clients[0], PROCESSES)

            operator = Shell(stand.servers[0].folder, stand.servers[0].address)
            told = await asyncio.to_thread(
                operator, "shard", "drain", DRAINED, within_s=WITHIN_S, PINLATER_ADMIN_PASSWORD=PASSWORD
            )
            assert f"shard {DRAINED} is drained" in told.out + told.err
            await homes_are(clients[0], FIRST, ADDED)
            stand.configure(dict.fromkeys((FIRST, ADDED), ""))
            await status_when(clients[0], lambda status: sorted(each.id for each in status.shards) == [FIRST, ADDED])

            async with asyncio.timeout(WITHIN_S):
                await asyncio.gather(*offering)
            deadline = time.monotonic() + WITHIN_S
            while not log.done >= expected():
                assert time.monotonic() < deadline, sorted(expected() - log.done)[:20]
                await asyncio.sleep(0.1)
        finally:
            for task in (*offering, *working):
                task.cancel()
            await asyncio.gather(*offering, *working, return_exceptions=True)
    judge_all(log)
    assert not log.refused.keys() & {"UNKNOWN", "REQUEST_INVALID"}, dict(log.refused)
