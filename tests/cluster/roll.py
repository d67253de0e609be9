"""A cluster that is rolled from a version before to this one and back, under load: `python -m tests.cluster.roll OLD`.

OLD is a checkout of that version, set up by its own `scripts/setup`. Two servers work on two Redis and a MariaDB, and
are replaced one after the other. No call may fail, and no job be lost, run early or be found wrong. A data folder with
an SQLite file is then upgraded in place.

Jobs with keys are refused while an old server lives, and taken afterwards; from then on the old version refuses the
stores. With `--knows-keys` OLD takes them too, and goes on with what this version has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TypeVar

from pinlater import AsyncClient
from pinlater.errors import KeysNotYet, PinLaterError
from pinlater.model import Ack, CancelOutcome, DequeueRequest, ExtendedJob, Job, JobState
from tests.server.running import PROGRAM, RunningServer
from tests.stores.places import start_server
from tests.stores.process import StoreServer, free_port

T = TypeVar("T")

QUEUE = "mail"
KEYED = b"0 keyed"
SETTINGS = ("--processes", "2", "--lease", "2s", "--claim-timeout", "20s")
STEP_S = 3.0
"""Of load between two replacements."""

WITHIN_S = 100.0


class Load:
    """What was asked, what came of it, and what is wrong with it."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.calls: Counter[str] = Counter()
        self.faults: list[str] = []
        self.stored: dict[bytes, str] = {}
        """The descriptors of jobs, by their bodies."""
        self.done: Counter[bytes] = Counter()
        self.is_ending = False
        """Nothing more is enqueued."""
        self.is_over = False

    async def call(self, name: str, answer: Awaitable[T]) -> T | None:
        self.calls[name] += 1
        try:
            return await answer
        except PinLaterError as error:
            self.faults.append(f"{name}: {type(error).__name__} {error.message}")
            return None

    async def enqueue(self, seed: int) -> None:
        dice, number = random.Random(seed), 0
        while not self.is_ending:
            jobs = []
            for _ in range(dice.choice((1, 1, 5, 20))):
                number += 1
                at_ms = int(time.time() * 1000) + dice.choice((0, 0, 500))
                jobs.append(Job(b"%d %d %d" % (at_ms, seed, number), run_after_ms=at_ms))
            descriptors = await self.call("enqueue", self.client.enqueue(QUEUE, jobs))
            self.stored |= dict(zip([job.body for job in jobs], descriptors or (), strict=False))
            await asyncio.sleep(0.01)

    async def look_up_and_cancel(self) -> None:
        """Jobs of its own, an hour ahead: half of them are cancelled."""
        number = 0
        while not self.is_ending:
            at_ms = int(time.time() * 1000) + 3_600_000
            bodies = [b"%d later %d" % (at_ms, number + each) for each in range(4)]
            number += 4
            made = await self.call(
                "enqueue", self.client.enqueue(QUEUE, [Job(each, run_after_ms=at_ms) for each in bodies])
            )
            if made is None:
                continue
            infos = await self.call("lookup", self.client.lookup(made))
            if infos is not None and {info.state for info in infos.values()} != {JobState.PENDING}:
                self.faults.append(f"lookup: {infos}")
            outcomes = await self.call("cancel", self.client.cancel(QUEUE, made[:2]))
            if outcomes is not None and set(outcomes.values()) != {CancelOutcome.CANCELLED}:
                self.faults.append(f"cancel: {outcomes}")
            found = await self.call("lookup", self.client.lookup(made))
            if found is not None and set(found) != set(made[2:]):
                self.faults.append(f"lookup behind cancel: {found}")
            await asyncio.sleep(0.02)

    async def work(self) -> None:
        """Acks ride with the next dequeue."""
        acks: list[Ack] = []
        while not self.is_over or acks:
            request = DequeueRequest(QUEUE, 20, wait_ms=300, succeeded=acks)
            jobs = await self.call("dequeue", self.client.dequeue(request))
            if jobs is None:
                continue
            now_ms = time.time() * 1000
            for job in jobs:
                self.done[job.body] += 1
                if int(job.body.split()[0]) > now_ms + 5:
                    self.faults.append(f"early: {job.body!r}")
            acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]

    async def end(self, producers: Sequence[Awaitable[None]]) -> None:
        """Enqueue no more, and wait until all that was stored has been done."""
        self.is_ending = True
        await asyncio.gather(*producers)
        deadline = time.monotonic() + WITHIN_S
        while self.missing and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        if self.missing:
            await self.explain_missing()
        self.is_over = True

    @property
    def missing(self) -> set[bytes]:
        """The jobs that were stored, and that no worker has had."""
        return self.stored.keys() - self.done.keys()

    async def explain_missing(self) -> None:
        """Where they are, and how the shards are."""
        some = [self.stored[body] for body in sorted(self.missing)[:500]]
        found, now_ms = await self.client.lookup(some), time.time() * 1000
        where: Counter[str] = Counter()
        for each in some:
            info = found.get(each)
            state = (
                "not there"
                if info is None
                else f"{info.state.name}, {'due' if info.run_after_ms <= now_ms else 'later'}"
            )
            where[f"{each.split(':')[1]} {state}"] += 1
        print(f"of {len(self.missing)} missing jobs: {dict(where)}")
        for shard in (await self.client.cluster_status(queues=[])).shards:
            print(f"  {shard}")


class Cluster:
    """Two servers that keep their ports and data folders, whichever version they are."""

    def __init__(self, folder: Path, stores: list[StoreServer], old: str, *, knows_keys: bool) -> None:
        self.old = old
        self.knows_keys = knows_keys
        self._ports = [free_port(), free_port()]
        self._folders = [folder / "a", folder / "b"]
        urls = [("--store", f"{number}={store.url()}") for number, store in enumerate(stores, 1)]
        self._arguments = (*SETTINGS, *(argument for pair in urls for argument in pair))
        for each in self._folders:
            each.mkdir()
        self._servers = [self.started(number, old) for number in range(2)]

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ports]

    def started(self, number: int, program: str) -> RunningServer:
        server = RunningServer(self._folders[number], *self._arguments, port=self._ports[number], program=program)
        server.wait_for("ready")
        return server

    def replace(self, number: int, program: str) -> None:
        self._servers[number].clean_up()
        self._servers[number] = self.started(number, program)

    def refusal(self, number: int) -> str:
        """What the version before says of the stores, in place of one of these servers."""
        self._servers[number].clean_up()
        refused = RunningServer(self._folders[number], *self._arguments, port=self._ports[number], program=self.old)
        code = refused.ended()
        refused.clean_up()
        assert code != 0
        return " ".join(map(str, refused.events))

    def stop(self) -> None:
        for server in self._servers:
            server.clean_up()


async def is_refused(address: str) -> None:
    async with AsyncClient(address) as client:
        with contextlib.suppress(KeysNotYet):
            await client.enqueue(QUEUE, [ExtendedJob(KEYED, dedupe_key="k")])
            raise AssertionError("a job with a key was stored while an old server lives")


async def taken(address: str) -> None:
    """Once the last lease of an old process has ended."""
    deadline = time.monotonic() + WITHIN_S
    async with AsyncClient(address) as client:
        while True:
            try:
                await client.enqueue(QUEUE, [ExtendedJob(KEYED, dedupe_key="k")])
            except KeysNotYet:
                assert time.monotonic() < deadline, "jobs with keys are refused still"
                await asyncio.sleep(0.1)
            else:
                return


async def roll(cluster: Cluster) -> Load:
    """There, back while there is no job with a key, and there again."""
    async with AsyncClient(servers=cluster.addresses, timeout=20) as client:
        await client.create_queue(QUEUE)
        await asyncio.sleep(STEP_S)  # both know it
        load = Load(client)
        producers = [asyncio.create_task(load.enqueue(seed)) for seed in range(4)]
        producers.append(asyncio.create_task(load.look_up_and_cancel()))
        workers = [asyncio.create_task(load.work()) for _ in range(6)]
        new, old = PROGRAM, cluster.old
        for number, program in ((0, new), (1, new), (1, old), (0, old), (0, new), (1, new)):
            await asyncio.sleep(STEP_S)
            await asyncio.to_thread(cluster.replace, number, program)
            print(
                f"server {number + 1} is now {program}: {load.calls.total()} calls, {len(load.faults)} faults",
                flush=True,
            )
            if number == 0 and program == new and not cluster.knows_keys:
                await is_refused(cluster.addresses[0])
        await taken(cluster.addresses[0])
        await asyncio.sleep(STEP_S)
        await load.end(producers)
        await asyncio.gather(*workers)
    return load


def judge(load: Load) -> None:
    missing = load.missing
    twice = [body for body, times in load.done.items() if times > 1]
    print(f"{len(load.stored)} jobs: {len(missing)} missing, {len(twice)} run twice; calls: {dict(load.calls)}")
    assert not load.faults, load.faults[:20]
    assert not missing, sorted(missing)[:20]


async def upgrade_folder(folder: Path, old: str, *, knows_keys: bool) -> None:
    """A server with its own SQLite file: this version takes the folder over, the one before takes it back, and so on;
    one that knows no keys until there is a job with one.
    """
    port = free_port()

    def started(program: str) -> RunningServer:
        server = RunningServer(folder, "--data", "data", port=port, program=program)
        server.wait_for("ready")
        return server

    bodies: set[bytes] = set()
    for number, program in enumerate((old, PROGRAM, old, PROGRAM)):
        server = await asyncio.to_thread(started, program)
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            await client.create_queue(QUEUE)
            bodies |= {b"0 %d %d" % (number, each) for each in range(100)}
            await client.enqueue(QUEUE, [Job(b"0 %d %d" % (number, each)) for each in range(100)])
            for job in await client.dequeue(DequeueRequest(QUEUE, 50)):
                bodies.remove(job.body)
                await client.ack(QUEUE, [Ack(job.descriptor)])
            if number == 3:
                await taken(f"127.0.0.1:{port}")
                left = await client.dequeue(DequeueRequest(QUEUE, 1_000))
                assert {job.body for job in left} == bodies | {KEYED}
        await asyncio.to_thread(server.clean_up)
    if knows_keys:
        (await asyncio.to_thread(started, old)).clean_up()
    else:
        refused = RunningServer(folder, "--data", "data", port=port, program=old)
        assert await asyncio.to_thread(refused.ended) != 0
        refused.clean_up()
    print("the data folder went to this version, back, and to this version again")


def main(old_tree: str, option: str = "") -> None:
    knows_keys = option == "--knows-keys"
    old = str(Path(old_tree, ".venv/bin/pinlater").resolve(strict=True))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = [start_server(kind, durable=True) for kind in ("redis", "redis", "mysql")]
        try:
            for store in stores:
                store.empty(0)
            cluster = Cluster(folder, stores, old, knows_keys=knows_keys)
            try:
                load = asyncio.run(roll(cluster))
                judge(load)
                if not knows_keys:
                    print("the version before refuses these stores:", cluster.refusal(1)[:400])
            finally:
                cluster.stop()
        finally:
            for store in stores:
                store.stop()
        (folder / "alone").mkdir()
        asyncio.run(upgrade_folder(folder / "alone", old, knows_keys=knows_keys))


if __name__ == "__main__":
    main(*sys.argv[1:])
