"""Two servers that fire schedules in turns of the test, over each kind of store, with a clock under control."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from pinlater.backends.base import Shard
from pinlater.backends.redis.shard import RedisShard
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.data_folder.password import hash_password
from pinlater.metrics import Metrics
from pinlater.model import JobFilter, JobState, RequestContext, ScheduleChange
from pinlater.schedules.firer import ScheduleFirer
from pinlater.service import ServiceSettings
from tests.stores.places import Places
from tests.unit.several import Server, several

SETTINGS = ServiceSettings(admin_password_hash=hash_password("sesame"))
ME = RequestContext("me")
KINDS = ["redis", "mysql", "sqlite"]
MINUTE_MS = 60_000
BEGIN_MS = 1_790_000_000_000


@dataclass
class Duty:
    """What a server takes for its own, and since when the cluster is up."""

    owned: bool
    up_since: int

    def owns(self, shard_id: str) -> bool:
        return self.owned

    def up_since_ms(self) -> int:
        return self.up_since


@dataclass
class Member:
    server: Server
    duty: Duty
    firer: ScheduleFirer
    ready: list[tuple[str, int, int]] = field(default_factory=list)


@pytest.fixture(params=KINDS)
def stores(
    request: pytest.FixtureRequest, redis_places: Places, mysql_places: Places, sqlite_places: Places
) -> Callable[[], list[Shard]]:
    if request.param == "redis":
        redis = [redis_places.fresh() for _ in range(2)]
        return lambda: [RedisShard(url, str(number)) for number, url in enumerate(redis, 1)]
    if request.param == "mysql":
        mysql = [mysql_places.fresh() for _ in range(2)]
        return lambda: [MysqlShard(url, str(number)) for number, url in enumerate(mysql, 1)]
    sqlite = [sqlite_places.fresh() for _ in range(2)]
    return lambda: [SqliteShard(url, str(number)) for number, url in enumerate(sqlite, 1)]


def member(server: Server, *, owned: bool) -> Member:
    duty = Duty(owned, server.clock.now_ms())
    ready: list[tuple[str, int, int]] = []

    def jobs_ready(queue: str, now: int, later: object) -> None:
        ready.append((queue, now, len(later)))  # type: ignore[arg-type]

    service = server.service
    firer = ScheduleFirer(service.schedules, service.router, duty, server.clock, Metrics(), jobs_ready)
    return Member(server, duty, firer, ready)


@asynccontextmanager
async def two(stores: Callable[[], list[Shard]], *, older: Sequence[str] = ()) -> AsyncIterator[tuple[Member, Member]]:
    """The first owns all homes. Nothing fires but in the turns of the test. `older`: see several."""
    async with several(2, settings=SETTINGS, stores=stores, older=older) as (one, other):
        await one.service.create_queue("mail")
        await other.queues.poll()
        members = member(one, owned=True), member(other, owned=False)
        try:
            yield members
        finally:
            for each in members:
                await each.firer.close()


async def known(at: Member, **change: object) -> None:
    """A schedule every minute, unless said, known to a firer whose own task is not left to run."""
    told = {"name": "poll", "queue": "mail", "every_ms": MINUTE_MS, "body": b"x"} | change
    await at.server.service.update_schedule(ScheduleChange(**told), "sesame", context=ME)  # type: ignore[arg-type]


async def begin(*members: Member) -> None:
    for each in members:
        await each.server.queues.poll()
        each.firer.start()
        await each.firer.turn()


async def fired(at: Member) -> list[int]:
    """When the jobs that are there were due, relative to the first moment of the test."""
    page = await at.server.service.scan(JobFilter("mail", JobState.PENDING), limit=1000)
    found = await at.server.service.lookup([info.descriptor for info in page.jobs])
    keys = [info.dedupe_key for info in found.values()]
    return sorted(int(key.rpartition("/")[2]) - BEGIN_MS for key in keys if key)
