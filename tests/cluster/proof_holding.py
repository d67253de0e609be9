"""How many claims of a queue are alive over all stores at one instant, read from the stores themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

import pymysql
import redis

Claims = set[tuple[str, int, int]]
"""Shard, job, and when its claim expires."""


class Holding:
    """Reads a queue's claims on every shard, twice.

    The stores cannot be read at the same instant. But a claim that is there in a first look at all of them, and still
    there in a second one that began when the first was over, was alive at the moment in between.
    """

    def __init__(self, urls: Mapping[str, str], queue: str) -> None:
        self._queue = queue
        self._redis = {shard: redis.Redis.from_url(url) for shard, url in urls.items() if url.startswith("redis")}
        self._sql = {shard: _connected(url) for shard, url in urls.items() if not url.startswith("redis")}
        self.most = 0
        self.looks = 0

    def _look(self) -> Claims:
        found: Claims = set()
        for shard, store in self._redis.items():
            for job, expires_ms in store.zrange(f"{{pinlater}}:q:{self._queue}:expiry", 0, -1, withscores=True):  # type: ignore[union-attr]
                found.add((shard, int.from_bytes(job, "big"), int(expires_ms)))
        for shard, connection in self._sql.items():
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT j.id, j.claim_expires_at_ms FROM pinlater_jobs j"
                    " JOIN pinlater_queues q ON q.id = j.queue_id WHERE q.name = %s AND j.state = 1",
                    (self._queue,),
                )
                found |= {(shard, job, expires_ms) for job, expires_ms in cursor.fetchall()}
        return found

    async def watch(self) -> None:
        """Look on and on, until cancelled; `most` is the most that was ever seen."""
        first = await asyncio.to_thread(self._look)
        while True:
            second = await asyncio.to_thread(self._look)
            self.most = max(self.most, len(first & second))
            self.looks += 1
            first = second

    def close(self) -> None:
        for store in self._redis.values():
            store.close()
        for connection in self._sql.values():
            connection.close()


def _connected(url: str) -> pymysql.Connection:  # type: ignore[type-arg]
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, database=parts.path[1:], autocommit=True
    )
