"""Claims in PostgreSQL that begin behind the dead rows in front of a queue: what they find, and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psycopg
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from pinlater.backends.base import AckRequest
from pinlater.backends.sql.low_water import LONGEST_S, LowWaterMarks
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.model import Job
from tests.conformance.machine import ShardMachine
from tests.conformance.subject import START_MS, Subject, key_of
from tests.conformance.test_model import SETTINGS
from tests.queues import make_queue
from tests.stores.places import Places

pytestmark = pytest.mark.store("postgres")
DEAD = 6_000
"""Jobs whose claims and acks leave two rows each."""


@dataclass
class Watch:
    """Seconds that pass when a test says so."""

    at_s: float = 100.0

    def __call__(self) -> float:
        return self.at_s


def always_marked(watch: Watch) -> LowWaterMarks:
    """Every look from the front counts as a slow one past many dead rows, and a second passes before the next."""
    return LowWaterMarks(slow_s=-1.0, many_dead_rows=0, margin_ms=0, now_s=watch)


@contextlib.asynccontextmanager
async def opened(url: str, marks: LowWaterMarks) -> AsyncIterator[PostgresShard]:
    shard = PostgresShard(url, "1", low_water=marks)
    await shard.open()
    try:
        yield shard
    finally:
        await shard.close()


def test_with_its_own_changes_a_shard_answers_and_looks_as_the_reference(
    postgres_places: Places, runner: asyncio.Runner
) -> None:
    """What it makes pending itself, wherever that stands in the order, it hands out in its turn."""
    shard = PostgresShard(postgres_places.fresh(), "1", low_water=always_marked(Watch()))
    runner.run(shard.open())
    try:
        chosen = settings(SETTINGS, max_examples=10, phases=[Phase.generate])
        run_state_machine_as_test(lambda: ShardMachine(runner, shard, has_tags=True), settings=chosen)
    finally:
        runner.run(shard.close())


async def test_what_another_server_makes_ready_is_found_within_a_second(postgres_places: Places) -> None:
    url, watch = postgres_places.fresh(), Watch()
    async with opened(url, always_marked(watch)) as mine, opened(url, LowWaterMarks()) as other:
        await make_queue(mine, "mail", START_MS)
        here, there = Subject(mine), Subject(other)
        await there.enqueue(Job(b"first", run_after_ms=START_MS - 20), Job(b"second", run_after_ms=START_MS - 10))
        first, second = await here.claim(5)
        assert await here.claim(5) == []
        assert await there.requeue(first) == 1
        latest = await there.job(b"latest", run_after_ms=START_MS)
        assert [job.descriptor for job in await here.claim(5)] == [latest]
        assert await mine.count_ready("mail", [1], 5, START_MS) == [0]
        assert await mine.next_due(["mail"], [1]) == {"mail": None}
        watch.at_s += LONGEST_S
        assert [job.descriptor for job in await here.claim(5)] == [first.descriptor]
        await here.succeed(second.descriptor)


async def test_dead_rows_that_no_vacuum_may_remove_are_passed_over(postgres_places: Places) -> None:
    url = postgres_places.fresh()
    marks = LowWaterMarks(slow_s=0.0, now_s=Watch())
    async with opened(url, marks) as shard:
        await make_queue(shard, "mail", START_MS)
        subject = Subject(shard)
        with contextlib.closing(psycopg.connect(url.replace("+psycopg", ""))) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1 FROM pg_class")
            await subject.enqueue(*[Job(b"", run_after_ms=START_MS)] * DEAD)
            done = [AckRequest(*key_of(job.descriptor), True) for job in await subject.claim(DEAD)]
            await subject.ack(*done)
            assert not marks
            while not marks:  # the table's statistics are a second late
                await subject.claim()
                await asyncio.sleep(0.05)
            subject.tick(60_000)
            assert await subject.claim() == []
            assert marks.begins_of_name_ms("mail", 1) == subject.now_ms - 2_000
            last = await subject.job()
            assert [job.descriptor for job in await subject.claim()] == [last]
