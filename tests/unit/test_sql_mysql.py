"""MySQL's and MariaDB's own, by both drivers: large packets, and what its numbers mean."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator

import pymysql
import pytest

from pinlater.backends.base import CheckpointRequest
from pinlater.backends.sql.mysql import MysqlShard, shard_error
from pinlater.errors import NothingStored, OutcomeUnknown, StoreFull, StoreRefused
from pinlater.model import Job
from tests.queues import make_queue
from tests.stores.places import Places
from tests.stores.process import StoreServer, free_port
from tests.unit.test_sql_servers import NOW_MS, QUICK, claimed, client, enqueued, info, key_of


@pytest.fixture(params=["mysql+pymysql", "mysql+mysqldb"])
def url(request: pytest.FixtureRequest, mysql_places: Places) -> str:
    """An empty place, by each driver."""
    return mysql_places.fresh().replace("mysql+pymysql", request.param)


@pytest.fixture
def shard(url: str, runner: asyncio.Runner) -> Iterator[MysqlShard]:
    """An open shard with one queue."""
    made = MysqlShard(url, "1", timeouts=QUICK)
    runner.run(made.open())
    runner.run(make_queue(made, "mail", NOW_MS))
    yield made
    runner.run(made.close())


@pytest.fixture
def small_packets(url: str) -> Iterator[None]:
    """A store that takes a megabyte at a time."""
    with client(url) as other, other.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
        before = cursor.fetchone()[0]
        cursor.execute(f"SET GLOBAL max_allowed_packet = {1 << 20}")
        yield
        cursor.execute(f"SET GLOBAL max_allowed_packet = {before}")


@pytest.mark.usefixtures("small_packets")
async def test_an_enqueue_of_more_than_a_packet_is_stored_whole(shard: MysqlShard) -> None:
    bodies = [os.urandom(300_000) for _ in range(10)]
    jobs = [key_of(each) for each in await shard.enqueue("mail", [Job(body) for body in bodies], NOW_MS)]
    assert [(await info(shard, job)).body for job in jobs] == bodies


@pytest.mark.usefixtures("small_packets")
async def test_a_body_beyond_a_packet_is_refused_with_what_to_do(shard: MysqlShard) -> None:
    with pytest.raises(NothingStored, match="max_allowed_packet") as refused:
        await shard.enqueue("mail", [Job(b"x"), Job(b"'" * 700_000)], NOW_MS)
    assert not refused.value.retryable
    assert await shard.count_ready("mail", [1], 10, NOW_MS) == [0]
    job = await enqueued(shard)
    await claimed(shard)
    with pytest.raises(NothingStored, match="max_allowed_packet"):
        await shard.checkpoint("mail", [CheckpointRequest(*job, "e", new_body=bytes(2**20))], NOW_MS)


@pytest.mark.parametrize(
    ("number", "text", "kind"),
    [
        (1114, "The table 'pinlater_jobs' is full", StoreFull),
        (1021, "Disk full (/tmp/#sql); waiting for someone to free some space...", StoreFull),
        (1030, 'Got error 28 "No space left on device" from storage engine InnoDB', StoreFull),
        (1026, "Error writing file './place/pinlater_jobs' (errno: 28 \"No space left on device\")", StoreFull),
        (3, "Error writing file '/tmp/MLfd' (Errcode: 28 \"No space left on device\")", StoreFull),
        (1030, 'Got error 5 "Input/output error" from storage engine InnoDB', NothingStored),
        (1041, "Out of memory.", NothingStored),
    ],
)
def test_only_a_lack_of_room_makes_a_store_full(number: int, text: str, kind: type[NothingStored]) -> None:
    assert type(shard_error(Exception(number, text), "db-1", committing=False)) is kind
    assert type(shard_error(Exception(number, text), "db-1", committing=True)) is OutcomeUnknown


async def test_too_many_connections_says_so(durable_mysql_server: StoreServer) -> None:
    durable_mysql_server.empty(0)
    url = durable_mysql_server.url(0)
    with client(url) as other, other.cursor() as cursor, contextlib.ExitStack() as taken:
        cursor.execute("SET GLOBAL max_connections = 10")
        with contextlib.suppress(pymysql.OperationalError):
            for _ in range(12):
                taken.enter_context(client(url))
        late = MysqlShard(url, timeouts=QUICK)
        with pytest.raises(NothingStored, match="max_connections"):
            await late.open()


def test_a_driver_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreRefused, match="pip install"):
        MysqlShard(f"mysql+asyncmy://root@127.0.0.1:{free_port()}/x", "1")
