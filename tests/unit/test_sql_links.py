"""What is kept beside jobs and queues goes with them, in whichever way they go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from pinlater.backends.base import (
    AckRequest,
    ClaimRequest,
    DeadLetterTarget,
    EndRules,
    JobKey,
    PerQueue,
    Retention,
    StatsPosition,
)
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.session import Session
from pinlater.backends.sql.shard import SqlShard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.model import DequeuedJob, Job, JobState, parse_descriptor
from tests.queues import drop_queue, make_queue

NOW_MS = 1_790_000_000_000
NO_BOUND = 2**30
AT_ONCE = PerQueue(Retention(0, 0))
TARGETS = {"mail": DeadLetterTarget("dead", 1)}


@pytest.fixture(params=["sqlite", pytest.param("mysql", marks=pytest.mark.store("mysql"))])
def shard(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[SqlShard]:
    """An open shard with a queue and one for its dead letters."""
    made: SqliteShard | MysqlShard
    if request.param == "sqlite":
        made = SqliteShard("sqlite://", "1")
    else:
        made = MysqlShard(request.getfixturevalue("mysql_places").fresh(), "1", threads=1)
    runner.run(made.open())
    for queue in ("mail", "dead"):
        runner.run(make_queue(made, queue, NOW_MS))
    yield made
    runner.run(made.close())


def key_of(job: DequeuedJob) -> JobKey:
    ref = parse_descriptor(job.descriptor)
    assert ref is not None
    return JobKey(ref.priority, ref.id)


async def claimed(shard: SqlShard, queue: str) -> list[JobKey]:
    (jobs,) = await shard.claim(queue, [ClaimRequest("a:b:c:d:e", 9, (1,), 1000, NO_BOUND)], NOW_MS)
    return [key_of(job) for job in jobs]


async def letters(shard: SqlShard) -> None:
    """Three jobs that failed, each with its letter: six links."""
    await shard.enqueue("mail", [Job(b"x")] * 3, NOW_MS)
    acks = [AckRequest(*job, False, permanent=True) for job in await claimed(shard, "mail")]
    await shard.ack("mail", acks, NOW_MS, EndRules(dead_letters=True))
    assert await shard.dead_letter(9, NOW_MS, TARGETS) == {"mail": 3}


async def rows_in(shard: SqlShard, table: str) -> int:
    def look(session: Session) -> int:
        session.cursor.execute(f"SELECT COUNT(*) FROM {table}")
        return int(session.cursor.fetchall()[0][0])

    return await shard.write(look)


async def collected(shard: SqlShard) -> None:
    assert await shard.prune(9, NOW_MS + 1, AT_ONCE) == {"mail": 3}


async def deleted(shard: SqlShard) -> None:
    assert await shard.delete_jobs("mail", JobState.FAILED, 1, 9, NOW_MS) == 3


async def acked(shard: SqlShard) -> None:
    acks = [AckRequest(*job, True) for job in await claimed(shard, "dead")]
    await shard.ack("dead", acks, NOW_MS, EndRules(keep_succeeded=False))


async def cancelled(shard: SqlShard) -> None:
    jobs = await shard.peek("dead", (1,), 9, NO_BOUND, NOW_MS)
    await shard.cancel("dead", [key_of(job) for job in jobs], NOW_MS)


async def freed(shard: SqlShard) -> None:
    await drop_queue(shard, "mail", NOW_MS)
    assert await shard.prune(9, NOW_MS, PerQueue(Retention(NOW_MS, NOW_MS))) == {"": 3}


@pytest.mark.parametrize("gone", [collected, deleted, acked, cancelled, freed])
async def test_links_go_with_their_jobs(shard: SqlShard, gone: Callable[[SqlShard], Awaitable[None]]) -> None:
    await letters(shard)
    assert await rows_in(shard, "pinlater_links") == 6
    await gone(shard)
    assert await rows_in(shard, "pinlater_links") == 3


async def test_what_is_sent_back_leaves_one_link_to_its_letter(shard: SqlShard) -> None:
    await letters(shard)
    jobs = await shard.peek("dead", (1,), 9, NO_BOUND, NOW_MS)
    sent = await shard.replay("dead", [key_of(job) for job in jobs], NOW_MS, None)
    assert None not in sent
    assert await rows_in(shard, "pinlater_links") == 6
    assert await rows_in(shard, "pinlater_jobs") == 6


async def test_quotas_and_buckets_go_with_their_queue(shard: SqlShard) -> None:
    await shard.set_quota("mail", 5, 1, NOW_MS)
    await shard.take_tokens("mail", 1, 1.0, 1.0, NOW_MS)
    await drop_queue(shard, "mail", NOW_MS)
    assert await rows_in(shard, "pinlater_buckets") == 0
    await shard.prune(9, NOW_MS, AT_ONCE)
    assert await rows_in(shard, "pinlater_shares") == 0
    assert await rows_in(shard, "pinlater_queues") == 1


async def test_a_note_that_was_not_written_leaves_nothing(shard: SqlShard) -> None:
    assert await shard.kv_put("kind", "name", b"x", NOW_MS + 1, NOW_MS, expected_version=3) == 0
    assert await rows_in(shard, "pinlater_notes") == 0


async def test_stats_go_on_in_the_middle_of_jobs_of_one_moment(shard: SqlShard) -> None:
    await shard.enqueue("mail", [Job(b"x")] * 10, NOW_MS)
    page = await shard.stats("mail", (1, 2, 3), NOW_MS, None, 4)
    assert page.levels[1].ready == 4
    assert page.after == StatsPosition(0, 1, NOW_MS, NOW_MS * 1000 + 3)
    page = await shard.stats("mail", (1, 2, 3), NOW_MS, page.after, 1000)
    assert (page.levels[1].ready, page.after) == (6, None)
