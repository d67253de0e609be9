"""A store that is full, with a whole server before it: no new jobs, all else goes on, and everybody is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from pinlater.client.async_client import AsyncClient
from pinlater.errors import HomeOut, NothingStored, PinLaterError, ShardsFull
from pinlater.model import (
    Ack,
    CancelOutcome,
    Checkpoint,
    DequeueRequest,
    ExtendedJob,
    Heartbeat,
    HeartbeatOutcome,
    Job,
    JobFilter,
    JobState,
    KeyRef,
    RescheduleJob,
    RescheduleOutcome,
)
from tests.forked_programs import run
from tests.server.running import PROGRAM, RunningServer, running
from tests.stores.mariadb_server import MariadbServer
from tests.stores.postgres_server import PostgresServer
from tests.stores.process import StoreServer

pytestmark = [pytest.mark.slow]
WITHIN_S = 60.0
ROOM_WITHIN_S = 60.0
DISK_MIB = 32
BODY = b"x" * 10_000


@dataclass
class Store:
    """A store that can be made full. `fill` is done behind the server's back; without it, jobs fill it."""

    url: str
    advice: str
    fill: Callable[[], None] | None
    free: Callable[[], None] | None


class SmallMariadb(MariadbServer):
    """All tables are in one file, which may not grow beyond its bound; what undoes changes lies beside it. A much
    lower bound is reached before InnoDB has the extents that it keeps for changes to what is there.
    """

    FILE = (
        *("--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:28M"),
        "--innodb-undo-tablespaces=2",
    )

    def install_options(self) -> list[str]:
        return list(self.FILE)

    def command(self) -> list[str]:
        return [*super().command(), *self.FILE, "--innodb-autoextend-increment=1"]


class SmallPostgres(PostgresServer):
    """Its one place lies on a small disk; the log of what changes lies elsewhere."""

    @property
    def disk(self) -> Path:
        return self.directory / "disk"

    def empty(self, place: int) -> None:
        self.own(self.disk)
        with self.connected() as admin:
            admin.execute(f"CREATE TABLESPACE small LOCATION '{self.disk}'")
            admin.execute(f"CREATE DATABASE place_{place} TEMPLATE template0 TABLESPACE small")


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own; only root may mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def redis_store(durable_redis_server: StoreServer) -> Iterator[Store]:
    with redis.Redis.from_url(durable_redis_server.url()) as admin:

        def bound(size: str) -> Callable[[], None]:
            return lambda: admin.config_set("maxmemory", size)

        yield Store(durable_redis_server.url(), "raise maxmemory", bound("1mb"), bound("0"))


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    with small_disk(tmp_path / "disk") as disk:
        other = disk / "other"

        def fill() -> None:
            """Somebody else takes the room, but for less than the reserve."""
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            other.write_bytes(bytes(free - (DISK_MIB << 20) // 6))

        yield Store(f"sqlite:///{disk}/jobs.db", "free some space", fill, other.unlink)


@pytest.fixture
def mysql_store() -> Iterator[Store]:
    server = SmallMariadb(durable=True)
    server.start()
    server.empty(0)
    try:
        yield Store(server.url(0), "free some space", None, None)
    finally:
        server.stop()


@pytest.fixture
def small_postgres() -> Iterator[SmallPostgres]:
    server = SmallPostgres(durable=True)
    with contextlib.ExitStack() as ending:
        ending.callback(server.stop)
        ending.enter_context(small_disk(server.disk))
        server.start()
        ending.callback(server.kill)
        server.empty(0)
        yield server


@pytest.fixture(
    params=[
        pytest.param("redis_store", id="redis", marks=pytest.mark.store("redis")),
        pytest.param("sqlite_store", id="sqlite"),
        pytest.param("mysql_store", id="mysql", marks=pytest.mark.store("mysql")),
    ]
)
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


@contextlib.contextmanager
def serving(folder: Path, *stores: str, options: tuple[str, ...] = ()) -> Iterator[RunningServer]:
    urls = [part for number, url in enumerate(stores, 1) for part in ("--store", f"{number}={url}")]
    fast = ("--lease", "2s", "--maintenance-interval", "200ms", "--http", "127.0.0.1:0")
    with running(folder, *urls, "--data", str(folder / "data"), *fast, *options) as server:
        yield server


@contextlib.asynccontextmanager
async def client_of(server: RunningServer) -> AsyncIterator[AsyncClient]:
    """With a queue `mail`. It gives up soon: it would else try again for ten seconds."""
    address = f"127.0.0.1:{server.port}"
    async with AsyncClient(address) as patient:
        await patient.create_queue("mail")
    async with AsyncClient(address, timeout=10.0) as client:
        yield client


def get(server: RunningServer, path: str) -> tuple[int, str]:
    url = server.wait_for("http_ready")["address"].rstrip("/") + path
    try:
        with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def command(server: RunningServer, *arguments: str) -> tuple[int, str]:
    done = run(
        [PROGRAM, *arguments, "--server", f"127.0.0.1:{server.port}"], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


async def eventually(holds: Callable[[], Awaitable[bool]], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not await holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.05)


async def told(server: RunningServer) -> list[str]:
    """What /readyz remarks on a server that is ready."""
    code, text = await asyncio.to_thread(get, server, "/readyz")
    body = json.loads(text)
    assert (code, body["ready"]) == (200, True)
    remarks: list[str] = body.get("remarks", [])
    return remarks


async def fill_with_jobs(client: AsyncClient) -> int:
    """Until the store says that it is full; how many there are then."""
    stored = 0
    with contextlib.suppress(ShardsFull):
        while stored < 10_000:
            stored += len(await client.enqueue("mail", [Job(BODY, priority=3)] * 20))
    return stored


async def fill(store: Store, client: AsyncClient) -> None:
    if store.fill is not None:
        await asyncio.to_thread(store.fill)
        return
    await fill_with_jobs(client)


async def make_room(store: Store, client: AsyncClient) -> None:
    if store.free is not None:
        await asyncio.to_thread(store.free)
        return
    while await client.delete_jobs(JobFilter("mail", JobState.PENDING, 3), limit=20):
        pass


async def work_goes_on(client: AsyncClient, descriptors: list[str]) -> None:
    """Everything that a worker and an operator do to jobs that are there; a claim that is left alone expires."""
    jobs = await client.dequeue(DequeueRequest("mail", 3))
    assert len(jobs) == 3
    done, failed, kept = (job.descriptor for job in jobs)
    await client.ack("mail", [Ack(done)], [Ack(failed, append_status="no luck", retry_delay_ms=60_000)])
    await client.checkpoint("mail", [Checkpoint(kept, prepend_status="alive")])
    found = await client.lookup([done, failed, kept])
    assert [found[each].state for each in (done, failed, kept)] == [
        JobState.SUCCEEDED,
        JobState.PENDING,
        JobState.IN_PROGRESS,
    ]
    await client.ack("mail", [Ack(kept)], [])
    (lost,) = await client.dequeue(DequeueRequest("mail", 1, claim_timeout_ms=500))

    async def is_back() -> bool:
        return (await client.lookup([lost.descriptor]))[lost.descriptor].state is JobState.PENDING

    await eventually(is_back)
    (cancelled,) = set(descriptors[-1:]) - {lost.descriptor}
    assert await client.cancel("mail", [cancelled]) == {cancelled: CancelOutcome.CANCELLED}
    assert await client.delete_jobs(JobFilter("mail", JobState.SUCCEEDED), limit=1) == 1


async def test_a_full_store_takes_no_new_jobs_goes_on_with_all_else_and_is_told_of(
    tmp_path: Path, store: Store
) -> None:
    with serving(tmp_path, store.url) as server:
        async with client_of(server) as client:
            descriptors = [each for _ in range(12) for each in await client.enqueue("mail", [Job(b"x", priority=1)])]
            assert await told(server) == []
            assert (await asyncio.to_thread(command, server, "check"))[0] == 0

            await fill(store, client)

            async def is_told() -> bool:
                remarks = await told(server)
                return bool(remarks) and "shard 1 is full" in remarks[0] and store.advice in remarks[0]

            await eventually(is_told)  # although nothing is enqueued, where the store can tell
            with pytest.raises(ShardsFull, match=store.advice) as refused:
                await client.enqueue("mail", [Job(BODY)])
            assert (refused.value.reason, refused.value.retryable) == ("SHARDS_FULL", True)

            await work_goes_on(client, descriptors)
            await asyncio.sleep(2.5)  # longer than a lease
            (shard,) = (await client.cluster_status()).shards
            assert (shard.state, shard.is_full) == ("in", True)
            assert shard.maintained_by
            for arguments, code, says in (
                (("check",), 2, "no shard has room for new jobs"),
                (("cluster", "status"), 0, " full "),
                (("shard", "health"), 1, "pinlater: full: 1"),
                (("top", "--once"), 0, "FULL"),
            ):
                ended, text = await asyncio.to_thread(command, server, *arguments)
                assert (ended, says in text) == (code, True), text
            _, metrics = await asyncio.to_thread(get, server, "/metrics")
            assert 'pinlater_shard_full{shard="1"} 1.0' in metrics
            assert 'pinlater_shard_in{shard="1"} 1.0' in metrics
            assert "Shard 1 is full" in (await asyncio.to_thread(get, server, "/"))[1]

            await make_room(store, client)

            async def has_room() -> bool:
                with contextlib.suppress(PinLaterError):
                    return len(await client.enqueue("mail", [Job(b"x")])) == 1
                return False

            await eventually(has_room, ROOM_WITHIN_S)

            async def is_well() -> bool:
                return not await told(server) and (await asyncio.to_thread(command, server, "check"))[0] == 0

            await eventually(is_well)
        assert [event for event in server.events if event["event"] == "shard_out"] == []


def keyed(number: int, **fields: Any) -> ExtendedJob:
    """One of a chain, by its number in it."""
    return ExtendedJob(b"%d" % number, dedupe_key=f"part {number}", serialize_key="account", **fields)


async def test_a_full_redis_stores_no_key_and_keyed_jobs_go_on_in_order(tmp_path: Path, redis_store: Store) -> None:
    with serving(tmp_path, redis_store.url) as server:
        async with client_of(server) as client:
            chain = [each for number in range(5) for each in await client.enqueue("mail", [keyed(number)])]
            await fill(redis_store, client)

            with pytest.raises(HomeOut, match=redis_store.advice):
                await client.enqueue("mail", [ExtendedJob(BODY, dedupe_key="new")])
            assert await client.lookup([], queue="mail", keys=[KeyRef("new")]) == {}
            found = await client.lookup([], queue="mail", keys=[KeyRef("part 1", "account")])
            assert found[chain[1]].waits_for == chain[0]

            (first,) = await client.dequeue(DequeueRequest("mail", 1))
            beat = Heartbeat(first.descriptor, first.claim_descriptor, fraction=0.5, text="half")
            assert (await client.heartbeat("mail", [beat]))[0].outcome is HeartbeatOutcome.OK
            await client.ack("mail", [Ack(first.descriptor, result=b"r" * 1_000)], [])
            ended = await client.wait(chain[0], timeout=WITHIN_S)
            assert ended is not None
            assert (ended.state, ended.result) == (JobState.SUCCEEDED, b"r" * 1_000)

            change = RescheduleJob(key=KeyRef("part 2", "account"), body=b"other")
            body = b"2"
            with contextlib.suppress(NothingStored):  # a new body takes room, and perhaps there is none
                assert await client.reschedule("mail", [change]) == [RescheduleOutcome.RESCHEDULED]
                body = b"other"
            (second,) = await client.dequeue(DequeueRequest("mail", 1))
            assert second.descriptor == chain[1]
            asked = await client.cancel("mail", [second.descriptor], running=True)
            assert asked == {second.descriptor: CancelOutcome.REQUESTED}
            beat = Heartbeat(second.descriptor, second.claim_descriptor)
            assert (await client.heartbeat("mail", [beat]))[0].outcome is HeartbeatOutcome.CANCEL
            await client.ack("mail", [], [Ack(second.descriptor)])
            assert (await client.lookup([second.descriptor]))[second.descriptor].cancelled

            (third,) = await client.dequeue(DequeueRequest("mail", 1))
            assert (third.descriptor, third.body) == (chain[2], body)
            await client.ack("mail", [Ack(third.descriptor)], [])
            cancelled = await client.cancel("mail", keys=[KeyRef("part 3", "account")])
            assert cancelled.by_key == [CancelOutcome.CANCELLED]
            (last,) = await client.dequeue(DequeueRequest("mail", 1))
            assert last.descriptor == chain[4]
            await client.ack("mail", [Ack(last.descriptor)], [])

            await make_room(redis_store, client)

            async def is_stored() -> bool:
                with contextlib.suppress(PinLaterError):
                    return len(await client.enqueue("mail", [ExtendedJob(b"", dedupe_key="new")])) == 1
                return False

            await eventually(is_stored, ROOM_WITHIN_S)
        assert [event for event in server.events if event["event"] == "shard_out"] == []


async def test_new_jobs_go_to_the_shards_that_have_room_and_nobody_sees_an_error(
    tmp_path: Path, redis_store: Store
) -> None:
    assert redis_store.fill is not None
    with serving(tmp_path, redis_store.url, f"sqlite:///{tmp_path}/two.db") as server:
        async with client_of(server) as client:
            placed = {each.split(":")[1] for _ in range(40) for each in await client.enqueue("mail", [Job(b"x")])}
            assert placed == {"s1", "s2"}
            redis_store.fill()
            placed = {each.split(":")[1] for _ in range(40) for each in await client.enqueue("mail", [Job(b"x")])}
            assert placed == {"s2"}
            jobs = await client.dequeue(DequeueRequest("mail", 100))
            assert {job.descriptor.split(":")[1] for job in jobs} == {"s1", "s2"}
            await client.ack("mail", [Ack(job.descriptor) for job in jobs], [])
            code, line = await asyncio.to_thread(command, server, "check")
            assert code == 1, line
            assert "shard 1 full" in line


async def test_jobs_that_fill_a_disk_leave_the_room_that_their_end_takes(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, serving(tmp_path, f"sqlite:///{disk}/jobs.db") as server:
        async with client_of(server) as client:
            stored = await fill_with_jobs(client)
            with pytest.raises(ShardsFull, match="kept for work on the jobs that are there"):
                await client.enqueue("mail", [Job(BODY)])
            worked = 0
            while jobs := await client.dequeue(DequeueRequest("mail", 50)):
                await client.ack("mail", [Ack(job.descriptor, append_status="done") for job in jobs], [])
                worked += len(jobs)
            assert worked == stored > 500
            while await client.delete_jobs(JobFilter("mail", JobState.SUCCEEDED, 3), limit=500):
                pass

            async def has_room() -> bool:
                with contextlib.suppress(ShardsFull):
                    return len(await client.enqueue("mail", [Job(BODY)])) == 1
                return False

            await eventually(has_room, ROOM_WITHIN_S)


async def test_a_disk_that_others_filled_to_the_last_byte_refuses_clearly_and_is_back_with_the_room(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk") as disk, serving(tmp_path, f"sqlite:///{disk}/jobs.db") as server:
        async with client_of(server) as client:
            (descriptor,) = await client.enqueue("mail", [Job(b"x")])
            other = disk / "other"
            with contextlib.suppress(OSError), other.open("wb", buffering=0) as hog:
                while hog.write(bytes(4096)):
                    pass
            with pytest.raises(ShardsFull):
                await client.enqueue("mail", [Job(BODY)])
            with contextlib.suppress(NothingStored):  # or it goes on, where the log has room
                await client.dequeue(DequeueRequest("mail", 1))
            assert (await client.lookup([descriptor]))[descriptor]
            other.unlink()

            async def has_room() -> bool:
                with contextlib.suppress(PinLaterError):
                    return len(await client.enqueue("mail", [Job(b"x")])) == 1
                return False

            await eventually(has_room, ROOM_WITHIN_S)
        assert [event for event in server.events if event["event"] == "shard_out"] == []


@pytest.mark.store("postgres")
async def test_a_full_disk_of_postgresql_refuses_clearly_and_loses_nothing(
    tmp_path: Path, small_postgres: SmallPostgres
) -> None:
    """Whatever changes a job may need room there, and be refused; what only reads or deletes does not."""
    other = small_postgres.disk / "other"
    with serving(tmp_path, small_postgres.url(0)) as server:
        async with client_of(server) as client:
            other.write_bytes(bytes(8 << 20))
            first = await client.enqueue("mail", [Job(BODY, priority=3)] * 50)
            stored = len(first) + await fill_with_jobs(client)
            with pytest.raises(ShardsFull, match="free some space"):
                await client.enqueue("mail", [Job(BODY)] * 20)

            async def is_told() -> bool:
                return any("shard 1 is full" in remark for remark in await told(server))

            async def is_checked() -> bool:
                """A write that is small enough may find room in between: then it is not full for a while."""
                return await is_told() and (await asyncio.to_thread(command, server, "check"))[0] == 2

            await eventually(is_checked)

            done = 0
            with contextlib.suppress(NothingStored):
                for job in await client.dequeue(DequeueRequest("mail", 3, claim_timeout_ms=500)):
                    await client.ack("mail", [Ack(job.descriptor)], [])
                    done += 1
            assert len(await client.lookup(first)) == len(first)
            deleted = await client.delete_jobs(JobFilter("mail", JobState.PENDING, 3), limit=10)
            assert deleted == 10

            other.unlink()

            async def has_room() -> bool:
                with contextlib.suppress(PinLaterError):
                    return len(await client.enqueue("mail", [Job(b"x", priority=1)])) == 1
                return False

            await eventually(has_room, ROOM_WITHIN_S)

            async def is_well() -> bool:
                return not await told(server) and (await asyncio.to_thread(command, server, "check"))[0] == 0

            await eventually(is_well)
            left = 0
            while jobs := await client.dequeue(DequeueRequest("mail", 100, wait_ms=2_000)):
                await client.ack("mail", [Ack(job.descriptor) for job in jobs], [])
                left += sum(job.body == BODY for job in jobs)
            assert left == stored - done - deleted
        assert [event for event in server.events if event["event"] == "shard_out"] == []
