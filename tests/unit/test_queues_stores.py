"""Two servers over stores of every kind: what one changes, the other knows, and operators' calls reach all jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pinlater.backends.base import Shard
from pinlater.backends.redis.shard import RedisShard
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.data_folder.password import hash_password
from pinlater.errors import LimitReached, NothingStored, QueueNotFound, ShardConnectionFailed
from pinlater.model import (
    CONTINUATION_END,
    Ack,
    Caller,
    DequeueRequest,
    Job,
    JobAction,
    JobChange,
    JobFilter,
    JobState,
    RequestContext,
    ScheduleChange,
)
from pinlater.model.owner_bounds import OwnerBounds
from pinlater.service import ServiceSettings
from tests.stores.places import Places
from tests.unit.several import Server, several

SETTINGS = ServiceSettings(page_jobs=40, admin_password_hash=hash_password("sesame"))
ANN = RequestContext("ann")

pytestmark = [pytest.mark.store("redis"), pytest.mark.store("mysql")]


@pytest.fixture
def stores(redis_places: Places, mysql_places: Places, sqlite_places: Places) -> Callable[[], list[Shard]]:
    redis, mysql, sqlite = (places.fresh() for places in (redis_places, mysql_places, sqlite_places))
    return lambda: [RedisShard(redis, "1"), MysqlShard(mysql, "2"), SqliteShard(sqlite, "3")]


@asynccontextmanager
async def two(stores: Callable[[], list[Shard]]) -> AsyncIterator[tuple[Server, Server]]:
    async with several(2, settings=SETTINGS, stores=stores) as (one, other):
        yield one, other


async def amount(server: Server, queue: str, state: JobState) -> int:
    return sum([await server.service.count(JobFilter(queue, state, future=future)) for future in (False, True)])


async def changed(server: Server, change: JobChange) -> int:
    """To the end, in slices."""
    total = 0
    while True:
        done = await server.service.change_jobs(change, context=ANN)
        total += done.changed
        assert done.missing_shards == []
        if done.continuation == CONTINUATION_END:
            return total
        change = replace(change, continuation=done.continuation)


async def fail_all(server: Server, queue: str) -> int:
    failed = 0
    while jobs := await server.service.dequeue(DequeueRequest(queue, 100)):
        await server.service.ack(queue, [], [Ack(job.descriptor, "broken", permanent=True) for job in jobs])
        failed += len(jobs)
    return failed


async def test_queues_and_settings_go_round(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, other):
        await one.service.create_queue("mail")
        await one.service.update_queue("mail", "sesame", set={"paused": "true", "paused_why": "é ✓"}, context=ANN)
        await other.queues.poll()
        assert other.queues.settings("mail").paused_why == "é ✓"
        for _ in range(10):
            await other.service.enqueue("mail", [Job(b"x")])
        one.lose(2)
        other.lose(2)
        await one.service.update_queue("mail", "sesame", unset=["paused"], context=ANN)
        await one.service.create_queue("late")
        one.clock.tick(1)
        await other.service.delete_queue("mail", "sesame", context=ANN)
        await other.find(2)
        await one.find(2)
        for server in (one, other):
            await server.queues.poll()
            assert server.queues.names() == {"late"}
            with pytest.raises(QueueNotFound):
                await server.service.count(JobFilter("mail", JobState.PENDING))
        held = [{record.name: record for record in (await way.list_config(0, 100)).entries} for way in one.ways]
        assert held[0] == held[1] == held[2]
        actions = [entry.action for entry in await other.service.audit()]
        assert actions == ["delete_queue", "create_queue", "update_queue", "update_queue", "create_queue"]


async def test_owners_are_counted_alike_from_every_store(stores: Callable[[], list[Shard]]) -> None:
    hers = RequestContext("ann", caller=Caller("token:hérs", ["operator"]), is_granted=True)
    async with two(stores) as (one, other):
        for server in (one, other):
            server.queues.owned.bounds = lambda owner: OwnerBounds(queues=2, schedules=1)
        one.lose(2)
        other.lose(1)
        await one.service.create_queue("a", context=hers)
        await other.service.update_queue("b", "", create=True, set={"max_pending": "5"}, context=hers)
        await one.find(2)
        await other.find(1)
        change = ScheduleChange(name="s", queue="a", cron="0 3 * * *")
        await other.service.update_schedule(change, "", context=hers)
        for server in (one, other):
            with pytest.raises(LimitReached, match="token:hérs has 2 queues, and may have 2"):
                await server.service.create_queue("c", context=hers)
            with pytest.raises(LimitReached, match="has 1 schedules"):
                await server.service.update_schedule(replace(change, name="t"), "", context=hers)
        held = [{record.name: record for record in (await way.list_config(0, 100)).entries} for way in one.ways]
        assert held[0] == held[1] == held[2]
        await other.service.delete_queue("a", "", context=hers)
        await one.service.create_queue("c", context=hers)


async def test_jobs_are_retried_dead_lettered_replayed_cancelled_and_deleted(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, other):
        for name in ("mail", "dead"):
            await one.service.create_queue(name)
        for start in range(0, 300, 10):
            await one.service.enqueue("mail", [Job(b"number %03d" % number) for number in range(start, start + 10)])
        assert await fail_all(one, "mail") == 300
        one.clock.tick(1)
        retry = JobChange("mail", JobAction.RETRY, limit=70)
        assert await changed(other, replace(retry, body_regex="number 0..", dry_run=True)) == 100
        assert await changed(other, replace(retry, body_regex="number 0..")) == 100
        assert await changed(other, retry) == 200
        await one.service.update_queue("mail", "sesame", set={"dead_letter_queue": "dead"})
        assert await fail_all(one, "mail") == 300
        for way in one.ways:
            await way.dead_letter(1_000, one.clock.now_ms(), one.queues.dead_letter_targets())
        assert await amount(one, "dead", JobState.PENDING) == 300
        one.clock.tick(1)
        assert await changed(other, JobChange("dead", JobAction.REPLAY, body_regex="1$", limit=70)) == 30
        assert await changed(other, JobChange("dead", JobAction.REPLAY, limit=70)) == 270
        assert await amount(one, "mail", JobState.PENDING) == 300
        assert await changed(other, JobChange("mail", JobAction.CANCEL, body_regex="number 2", limit=70)) == 100
        delete = JobChange("mail", JobAction.DELETE, JobState.PENDING, limit=70)
        assert await changed(other, replace(delete, priority=2)) == 0
        assert await changed(other, delete) == 200
        assert await amount(one, "dead", JobState.PENDING) == await amount(one, "mail", JobState.PENDING) == 0


@pytest.mark.parametrize("has_it", [[1], [2], [3], [1, 2, 3]])
async def test_what_cannot_be_read_is_not_taken_for_absent(
    stores: Callable[[], list[Shard]], has_it: list[int]
) -> None:
    """A queue and a schedule that another server made a moment ago: to delete them would seem to be done."""
    async with two(stores) as (one, other):
        for shard in {1, 2, 3} - {*has_it}:
            one.lose(shard)
        await one.service.create_queue("mail")
        change = ScheduleChange(name="nightly", queue="mail", cron="0 3 * * *")
        await one.service.update_schedule(change, "sesame", context=ANN)
        deletions = (
            lambda: other.service.delete_schedule("nightly", "sesame", context=ANN),
            lambda: other.service.delete_queue("mail", "sesame", context=ANN),
        )
        for delete in deletions:
            for shard in has_it:
                other.ways[shard - 1].failures["list_config"] = [NothingStored("reset")] * 20
            with pytest.raises(ShardConnectionFailed):
                await delete()
        for way in other.ways:
            way.heal()
        for delete in deletions:
            await delete()
        assert (await other.service.get_schedules()).schedules == []
        assert await other.service.queue_names() == set()
        assert (await other.service.delete_schedule("nightly", "sesame", context=ANN)).version == ""
