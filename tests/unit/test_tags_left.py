"""Whatever removes jobs with tags leaves nothing of them in the index of a store, which no call shows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pymysql
import pytest
import redis
from sqlalchemy.engine import make_url

from pinlater.backends.base import PerQueue, Retention
from pinlater.model import JobState
from tests.conformance.bindings import BINDINGS
from tests.conformance.extended_subject import store
from tests.conformance.subject import Subject
from tests.conformance.test_tags import KINDS
from tests.queues import drop_queue, make_queue
from tests.stores.places import Places

NOW_MS = 1_790_000_000_000
KEPT_NO_TIME = PerQueue(Retention(0, 0))


def entries(url: str) -> int:
    """Of all tags, and of jobs that have some."""
    if url.startswith("redis"):
        with closing(redis.Redis.from_url(url.partition("?")[0])) as client:
            return sum(client.zcard(key) for key in client.scan_iter("*:tags")) + sum(
                client.hlen(key) for key in client.scan_iter("*:tagged")
            )
    with closing(_connected(url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT (SELECT COUNT(*) FROM pinlater_tags) + (SELECT COUNT(*) FROM pinlater_extensions)")
        return int(cursor.fetchone()[0])


def _connected(url: str) -> Any:
    address = make_url(url)
    if url.startswith("sqlite"):
        return sqlite3.connect(str(address.database))
    if url.startswith("postgres"):
        return psycopg.connect(url.replace("+psycopg", ""))
    return pymysql.connect(
        host=address.host,
        port=address.port or 3306,
        user=address.username,
        password=address.password or "",
        database=address.database,
    )


@pytest.mark.parametrize(
    "binding", [each.param() for each in BINDINGS if each.name in ("sqlite-file", "redis", "mysql", "postgres")]
)
async def test_nothing_is_left_of_tags(binding: Any, request: pytest.FixtureRequest) -> None:
    places: Places = request.getfixturevalue(binding.places)
    url = places.fresh()
    shard = binding.make(url, "1")
    await shard.open()
    try:
        subject = Subject(shard)
        await make_queue(shard, subject.queue, subject.now_ms)
        for kind in KINDS:
            removed = await store(subject, tags=("t", "u"), **kind)
            assert entries(url) >= 3
            await subject.cancel(removed)
            assert entries(url) == 0
            own = {name: f"{value}2" for name, value in kind.items() if isinstance(value, str)}
            await store(subject, tags=("t",), **own)
            ended = await subject.claimed()
            await subject.succeed(ended.descriptor)
            subject.tick(1)
            await shard.prune(10, subject.now_ms, KEPT_NO_TIME)
            assert entries(url) == 0
            failed = await store(subject, tags=("t",))
            await subject.claimed()
            await subject.ack_with(failed, False, permanent=True)
            assert entries(url) >= 2
            assert await subject.delete_listed(JobState.FAILED, failed) == 1
            assert entries(url) == 0
        for _ in range(5):
            await store(subject, tags=("t", "u"), expires_at_ms=subject.now_ms + 100)
        await drop_queue(shard, subject.queue, subject.now_ms)
        for _ in range(10):
            await shard.prune(2, subject.now_ms, KEPT_NO_TIME)
        assert entries(url) == 0
    finally:
        await shard.close()
