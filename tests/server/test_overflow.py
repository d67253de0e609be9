"""A server of two processes, and its only store goes: jobs are taken all the same, and none is lost or done twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pinlater.client.async_client import AsyncClient
from pinlater.data_folder.password import hash_password
from pinlater.errors import Forbidden, NoHealthyShards, OutcomeUnknown, ShardConnectionFailed
from pinlater.model import Ack, DequeueRequest, Job, JobState, ScheduleChange
from pinlater.overflow import ownership
from pinlater.overflow.descriptors import overflow_of
from tests.server.running import RunningServer, clients_of, running
from tests.speed import slower
from tests.stores.process import StoreServer

pytestmark = pytest.mark.slow
WITHIN_S = 60.0
PASSWORD = "correct horse"
TAKEN_OVER_S = 5.0
"""Processes look once a second; the rest is for a busy machine."""


@contextlib.contextmanager
def two_processes(folder: Path, store: StoreServer, *more: str) -> Iterator[RunningServer]:
    """One server over one store, which it tries again soon."""
    with running(
        folder,
        *("--store", f"1={store.url()}", "--data", str(folder / "data"), "--processes", "2"),
        *("--overflow", "64MiB", "--health-pause", "1s", "--call-timeout", "2s", "--http", "none"),
        *more,
    ) as server:
        yield server


def owner_of(folder: Path) -> int:
    return int(json.loads((folder / "data" / ownership.ADDRESS_FILE).read_text())["pid"])


def address_of_owner(folder: Path) -> str:
    return str(json.loads((folder / "data" / ownership.ADDRESS_FILE).read_text())["address"])


def left(server: RunningServer) -> list[dict[str, Any]]:
    return [event for event in server.events if event["event"] == "overflow_left"]


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not await holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.05)


async def create_queue(clients: Sequence[AsyncClient]) -> None:
    """Until both processes know of it: what one alone knows of, the other one's overflow shard refuses."""
    await clients[0].create_queue("mail")

    async def is_known() -> bool:
        known = await asyncio.gather(*[client.get_queues() for client in clients])
        return all("mail" in [queue.name for queue in queues] for queues in known)

    await eventually(is_known)


async def enqueue(clients: Sequence[AsyncClient], names: Sequence[str]) -> list[str]:
    """By one client after the other, also over the moment in which a store goes: what may be there is gone with it."""
    descriptors: list[str] = []
    for number, name in enumerate(names):
        for _ in range(20):
            with contextlib.suppress(OutcomeUnknown):
                descriptors += await clients[number % len(clients)].enqueue("mail", [Job(name.encode())])
                break
    assert len(descriptors) == len(names)
    return descriptors


async def take_all(clients: Sequence[AsyncClient], jobs: int) -> Counter[bytes]:
    """Dequeue and ack until so many jobs came, and then none for a while."""
    seen: Counter[bytes] = Counter()

    async def taken() -> bool:
        for client in clients:
            with contextlib.suppress(NoHealthyShards):
                got = await client.dequeue(DequeueRequest("mail", 7))
                seen.update(job.body for job in got)
                await client.ack("mail", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in got])
        return sum(seen.values()) >= jobs

    await eventually(taken)
    assert await clients[0].dequeue(DequeueRequest("mail", 7, wait_ms=1500)) == []
    return seen


@pytest.mark.parametrize("has_rules", [False, True])
async def test_jobs_are_taken_while_the_store_is_away_and_all_are_done_once(
    tmp_path: Path, durable_redis_server: StoreServer, has_rules: bool
) -> None:
    """With rules the processes show each other that they are of one cluster, and nobody else gets in there."""
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nwho = ["anonymous"]\nroles = ["admin"]')
    more = ("--rules", str(rules)) if has_rules else ()
    with two_processes(tmp_path, durable_redis_server, *more) as server:
        async with clients_of(server, 4, timeout=8.0) as clients:
            await create_queue(clients)
            names = [f"before {number}" for number in range(4)]
            before = await enqueue(clients, names)
            assert not any(map(overflow_of, before))
            durable_redis_server.terminate()
            away = [f"away {number}" for number in range(60)]
            kept = await enqueue(clients, away)
            assert len(set(map(overflow_of, kept)) - {None}) == 1, "one overflow shard for both"
            for client in clients:
                found = await client.lookup(kept, include_body=True)
                assert [found[each].body for each in kept] == [name.encode() for name in away]
            (job,) = await clients[1].dequeue(DequeueRequest("mail", 1))
            await clients[0].ack("mail", [Ack(job.descriptor)])
            if has_rules:
                async with AsyncClient(address_of_owner(tmp_path)) as outsider:
                    for call in (outsider.lookup(kept), outsider.dequeue(DequeueRequest("mail", 1))):
                        with pytest.raises(Forbidden, match="other servers of its cluster only"):
                            await call
            durable_redis_server.start()
            seen = await take_all(clients, len(names) + len(away) - 1)
            seen[job.body] += 1
            assert seen == Counter(name.encode() for name in names + away)

            async def all_are_done() -> bool:
                found = await clients[1].lookup(kept)
                return {each.state for each in found.values()} == {JobState.SUCCEEDED} and len(found) == len(kept)

            await eventually(all_are_done)
        assert server.stop() == 0
        assert not left(server)


async def test_a_stop_without_the_store_says_what_is_left_and_the_next_start_moves_it(
    tmp_path: Path, durable_redis_server: StoreServer
) -> None:
    with two_processes(tmp_path, durable_redis_server) as server:
        async with clients_of(server, 4, timeout=8.0) as clients:
            await create_queue(clients)
            await enqueue(clients, ["first"])
            durable_redis_server.terminate()
            kept = await enqueue(clients, [f"kept {number}" for number in range(10)])
        assert server.stop() == 0
        assert left(server)[-1]["jobs"] == 10
        assert left(server)[-1]["file"] == str(tmp_path / "data" / "overflow.db")
    with two_processes(tmp_path, durable_redis_server) as server:
        async with clients_of(server, 4, timeout=8.0) as clients:
            assert list(await clients[1].lookup(kept)) == kept, "it starts, and answers, without the store"
            durable_redis_server.start()
            assert len(await take_all(clients, 11)) == 11


async def test_a_stop_with_the_store_back_leaves_nothing(tmp_path: Path, durable_redis_server: StoreServer) -> None:
    with two_processes(tmp_path, durable_redis_server) as server:
        async with clients_of(server, 4, timeout=8.0) as clients:
            await create_queue(clients)
            durable_redis_server.terminate()
            await enqueue(clients, [f"kept {number}" for number in range(10)])
            durable_redis_server.start()

            async def is_back() -> bool:
                return not any(map(overflow_of, await enqueue(clients, ["probe"] * len(clients))))

            await eventually(is_back)
        assert server.stop() == 0
        assert not left(server)


async def test_when_the_owner_is_killed_the_other_process_takes_over(
    tmp_path: Path, durable_redis_server: StoreServer
) -> None:
    with two_processes(tmp_path, durable_redis_server) as server:
        async with clients_of(server, 4, timeout=8.0) as clients:
            await create_queue(clients)
            durable_redis_server.terminate()
            kept = await enqueue(clients, [f"kept {number}" for number in range(6)])
            owner = owner_of(tmp_path)
            killed_at = time.monotonic()
            os.kill(owner, signal.SIGKILL)

            async def is_taken_over() -> bool:
                return owner_of(tmp_path) != owner

            await eventually(is_taken_over)
            assert time.monotonic() - killed_at < slower(time.monotonic) * TAKEN_OVER_S
            kept += await enqueue(clients, ["more"])
            for client in clients:
                assert list(await client.lookup(kept)) == kept
            durable_redis_server.start()
            assert len(await take_all(clients, 7)) == 7


async def test_processes_that_are_replaced_hand_the_file_over(
    tmp_path: Path, durable_redis_server: StoreServer
) -> None:
    with two_processes(tmp_path, durable_redis_server) as server:
        async with clients_of(server, 4, timeout=8.0) as clients:
            await create_queue(clients)
            durable_redis_server.terminate()
            kept = await enqueue(clients, [f"kept {number}" for number in range(6)])
            owner = owner_of(tmp_path)
            seen = len(server.events)
            server.send(signal.SIGHUP)
            server.wait_for("overflow_owned", after=seen, jobs=6)
            assert owner_of(tmp_path) != owner
            for client in clients:
                assert list(await client.lookup(kept)) == kept
            durable_redis_server.start()
            assert len(await take_all(clients, 6)) == 6


async def test_another_server_finds_the_owner_also_when_the_stores_are_gone(
    tmp_path: Path, durable_redis_server: StoreServer
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        two_processes(tmp_path / "a", durable_redis_server) as first,
        two_processes(tmp_path / "b", durable_redis_server) as second,
    ):
        async with clients_of(first, 4, timeout=8.0) as ours, clients_of(second, 4, timeout=8.0) as theirs:
            await create_queue([*ours, *theirs])

            nothing = f"mail:s{first.wait_for('overflow_owned')['shard']}:p1:1790000000000000"

            async def know_the_owner() -> bool:
                with contextlib.suppress(ShardConnectionFailed):
                    return [await client.lookup([nothing]) for client in theirs] == [{}] * len(theirs)
                return False

            await eventually(know_the_owner)
            durable_redis_server.terminate()
            kept = await enqueue(ours, ["kept"])
            (job,) = await ours[0].dequeue(DequeueRequest("mail", 1))
            for client in theirs:
                assert list(await client.lookup(kept)) == kept
            await theirs[0].ack("mail", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
            assert (await ours[1].lookup(kept))[kept[0]].state is JobState.SUCCEEDED


async def test_the_process_that_owns_the_overflow_shard_fires_schedules_too(tmp_path: Path) -> None:
    arguments = ("--data", str(tmp_path / "data"), "--overflow", "64MiB", "--http", "none")
    with running(tmp_path, *arguments, "--admin-password-hash", hash_password(PASSWORD)) as server:
        server.wait_for("overflow_owned")
        async with clients_of(server, 1) as (client,):
            await client.create_queue("mail")
            every = ScheduleChange(name="often", queue="mail", body=b"again", every_ms=1_000)
            assert (await client.update_schedule(every, PASSWORD)).view.next_ms
            (job,) = await client.dequeue(DequeueRequest("mail", 1, wait_ms=10_000))
            assert job.body == b"again"
