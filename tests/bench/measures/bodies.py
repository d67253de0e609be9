"""Bodies in a folder tier beside bodies in the store: cycles of 300 KB, small jobs while a tier hangs, and memory."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from pinlater.backends.redis import RedisShard
from pinlater.model.body_reference import BodyReference, BodyRule
from tests.bench.figures import AtMost, Figure
from tests.bench.measures.memory import BATCH, used_memory
from tests.bench.processes import served
from tests.bench.run import PERSISTENCE, Run, stand
from tests.faults.proxy import Proxy
from tests.queues import make_queue
from tests.stores.process import StoreServer, dies_with_us, free_port

DELAYED = 1_000_000
IN_STORE = 20_000
BODY = 50_000
LARGE = 300_000
CYCLES = 400
IN_FLIGHT = 8
SMALL = 2_000
DUE_WITHIN_MS = 86_400_000
FLOOR = "the same with the bodies in the store"


def measure(run: Run) -> Iterator[Figure]:
    yield from _memory(run)
    for name in ("redis", "sqlite"):
        yield from _cycles(run, name)
    yield from _hang(run)
    yield from _urgent(run)


# -- memory ------------------------------------------------------------------------------------------------------------


def _memory(run: Run) -> Iterator[Figure]:
    """The reference is all that Redis has of a body in a tier: no object need be there for it."""
    store = run.store("redis")
    for name, usual, by_reference, goals in (
        ("bodies/memory", DELAYED, True, [AtMost(250)]),
        ("bodies/memory in the store", IN_STORE, False, []),
    ):
        jobs = run.sizes.jobs(usual, BATCH)
        subprocess.run(["redis-cli", "-p", str(store.port), "FLUSHALL", "SYNC"], capture_output=True, check=True)
        each = asyncio.run(_growth(store, jobs, by_reference)) / jobs
        run.say(f"  {jobs:,} delayed jobs of {BODY:,} bytes: {each:,.1f} bytes of Redis each")
        yield Figure(name, "bytes", [each], goals, persistence=PERSISTENCE["redis"], notes="growth of used_memory")
    store.empty(0)


async def _growth(store: StoreServer, jobs: int, by_reference: bool) -> int:
    shard = RedisShard(store.url(0), "1")
    await shard.open()
    try:
        now_ms = time.time_ns() // 1_000_000
        await make_queue(shard, "campaign", now_ms)
        before = used_memory(store.port)
        body = os.urandom(BODY)
        for first in range(0, jobs, BATCH):
            await shard.enqueue(
                "campaign",
                [
                    Job(
                        BodyReference.new("s3", "campaign", body, now_ms, BodyRule.DELAY) if by_reference else body,
                        run_after_ms=now_ms + DUE_WITHIN_MS + (first + number) * DUE_WITHIN_MS // jobs,
                    )
                    for number in range(BATCH)
                ],
                now_ms,
            )
        return used_memory(store.port) - before
    finally:
        await shard.close()


# -- cycles ------------------------------------------------------------------------------------------------------------


def _cycles(run: Run, name: str) -> Iterator[Figure]:
    cycles = run.sizes.jobs(CYCLES, IN_FLIGHT)
    rates: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for number in range(run.sizes.rounds):
        for has_tier in (True, False):
            with (
                stand(run, name) as place,
                _tier(has_tier) as options,
                served([place.fresh()], 1, options=options) as server,
            ):
                for what, rate in asyncio.run(_cycle(server.address, cycles)).items():
                    rates[has_tier].setdefault(what, []).append(rate)
        said = ", ".join(
            f"{what} {rates[True][what][-1]:,.0f} of {rates[False][what][-1]:,.0f}/s" for what in rates[True]
        )
        run.say(f"  {name}, round {number + 1}: {said}")
    for what, own in rates[True].items():
        yield Figure(
            f"bodies/{what} {name}",
            "jobs/s",
            own,
            (),
            rates[False][what],
            FLOOR,
            persistence=PERSISTENCE[name],
            notes=f"bodies of {LARGE:,} bytes, {IN_FLIGHT} calls in flight, each file synced",
        )


@contextmanager
def _tier(has_tier: bool) -> Iterator[Sequence[str]]:
    with tempfile.TemporaryDirectory(prefix="pinlater-tier-") as folder:
        yield ("--bodies", Path(folder).as_uri()) if has_tier else ()


async def _cycle(address: str, cycles: int) -> dict[str, float]:
    body = os.urandom(LARGE)
    async with AsyncClient(address, timeout=60) as client:
        await client.create_queue("images")

        async def enqueue() -> None:
            for _ in range(cycles // IN_FLIGHT):
                await client.enqueue("images", Job(body))

        async def take() -> None:
            for _ in range(cycles // IN_FLIGHT):
                (job,) = await client.dequeue(DequeueRequest("images", 1))
                await client.ack("images", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])

        rates = {}
        for what, call in (("enqueue", enqueue), ("dequeue and ack", take)):
            begun_s = time.perf_counter()
            await asyncio.gather(*[call() for _ in range(IN_FLIGHT)])
            rates[what] = cycles / (time.perf_counter() - begun_s)
        return rates


# -- other queues ------------------------------------------------------------------------------------------------------


def _hang(run: Run) -> Iterator[Figure]:
    """Small jobs one by one, while four callers ask for large ones whose tier is well, or hangs."""
    small, well, hanging = run.sizes.jobs(SMALL, 100), list[float](), list[float]()
    with _s3() as (relay, url):
        for number in range(run.sizes.rounds):
            store = run.store("redis")
            store.empty(1)
            with served([store.url(1)], 1, options=("--bodies", url, "--body-ahead", "0s")) as server:
                before, while_hanging = asyncio.run(_beside_images(server.address, small, relay))
            well.append(before)
            hanging.append(while_hanging)
            run.say(f"  round {number + 1}: p99 {while_hanging:.2f} ms while the tier hangs, {before:.2f} ms before")
    yield Figure(
        "bodies/p99 of small jobs while a tier hangs",
        "ms",
        hanging,
        (),
        well,
        "the same while the tier is well",
        persistence=PERSISTENCE["redis"],
        notes="enqueue, dequeue and ack of one small job at a time; four callers ask for bodies of 300,000 bytes",
    )


@contextmanager
def _s3() -> Iterator[tuple[Proxy, str]]:
    port = free_port()
    program = str(Path(sys.executable).parent / "moto_server")
    command = [*dies_with_us(), program, "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until_s = time.monotonic() + 60
        bucket = urllib.request.Request(f"http://127.0.0.1:{port}/bench", method="PUT")
        while True:
            try:
                with urllib.request.urlopen(bucket, timeout=10):
                    break
            except OSError as error:
                if time.monotonic() > until_s:
                    raise SystemExit("moto_server does not answer") from error
                time.sleep(0.2)
        with Proxy(port) as relay:
            keys = "region=us-east-1&access_key_id=a&secret_access_key=b"
            yield relay, f"s3://bench/jobs?endpoint=http://127.0.0.1:{relay.port}&{keys}"
    finally:
        process.kill()
        process.wait()


async def _beside_images(address: str, small: int, relay: Proxy) -> tuple[float, float]:
    async with AsyncClient(address, timeout=60) as client, AsyncClient(address, timeout=60) as other:
        for queue in ("images", "small"):
            await client.create_queue(queue)
        for _ in range(60):
            await client.enqueue("images", Job(os.urandom(LARGE)))

        async def ask() -> None:
            while True:
                jobs = await other.dequeue(DequeueRequest("images", 1, wait_ms=1_000))
                again = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, retry_delay_ms=100) for job in jobs]
                await other.ack("images", [], again)

        found = []
        for hangs in (False, True):
            if hangs:
                relay.black_hole()
            asking = [asyncio.create_task(ask()) for _ in range(4)]
            await asyncio.sleep(0.5)
            found.append(await _p99_of_small(client, small))
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        relay.heal()
        return found[0], found[1]


async def _p99_of_small(client: AsyncClient, small: int) -> float:
    took_ms = []
    for _ in range(small):
        begun_s = time.perf_counter()
        await client.enqueue("small", Job(b"x" * 200))
        (job,) = await client.dequeue(DequeueRequest("small", 1, wait_ms=5_000))
        await client.ack("small", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
        took_ms.append((time.perf_counter() - begun_s) * 1000)
    return statistics.quantiles(took_ms, n=100)[98]


def _urgent(run: Run) -> Iterator[Figure]:
    """From the enqueue of an urgent job to its pick-up, while large bodies come and go in a slow queue all the time."""
    jobs = run.sizes.jobs(SMALL // 4, 100)
    p99: dict[bool, list[float]] = {True: [], False: []}
    for number in range(run.sizes.rounds):
        for has_tier in (True, False):
            store = run.store("redis")
            store.empty(1)
            with _tier(has_tier) as options, served([store.url(1)], 1, options=options) as server:
                p99[has_tier].append(asyncio.run(_beside_slow(server.address, jobs)))
        run.say(f"  round {number + 1}: p99 {p99[True][-1]:.1f} ms, without a tier {p99[False][-1]:.1f} ms")
    yield Figure(
        "bodies/p99 of an urgent queue beside a slow one",
        "ms",
        p99[True],
        (),
        p99[False],
        FLOOR,
        persistence=PERSISTENCE["redis"],
        notes="four callers enqueue, dequeue and ack bodies of 300,000 bytes meanwhile",
    )


async def _beside_slow(address: str, jobs: int) -> float:
    async with AsyncClient(address, timeout=60) as client, AsyncClient(address, timeout=60) as other:
        for queue in ("slow", "urgent"):
            await client.create_queue(queue)
        body = os.urandom(LARGE)

        async def burden() -> None:
            while True:
                await other.enqueue("slow", Job(body))
                taken = await other.dequeue(DequeueRequest("slow", 1))
                await other.ack("slow", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in taken])

        burdens = [asyncio.create_task(burden()) for _ in range(4)]
        try:
            await asyncio.sleep(0.5)
            took_ms = []
            for _ in range(jobs):
                waiting = asyncio.create_task(client.dequeue(DequeueRequest("urgent", 1, wait_ms=10_000)))
                await asyncio.sleep(0.005)
                begun_s = time.perf_counter()
                await client.enqueue("urgent", Job(b"now"))
                (job,) = await waiting
                took_ms.append((time.perf_counter() - begun_s) * 1000)
                await client.ack("urgent", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
            return statistics.quantiles(took_ms, n=100)[98]
        finally:
            for task in burdens:
                task.cancel()
            await asyncio.gather(*burdens, return_exceptions=True)
