"""MySQL's and MariaDB's own, by both drivers: large packets, and what its numbers mean."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from pinlater.backends.base import AckOutcome, AckRequest, CheckpointRequest, ClaimRequest, EndRules
from pinlater.backends.extended import Offer
from pinlater.backends.sql.bounded_statements import BoundedStatements
from pinlater.backends.sql.mysql import MysqlShard, shard_error
from pinlater.errors import BodyTooLarge, NothingStored, OutcomeUnknown, StoreFull, StoreRefused, ValueNotStorable
from pinlater.model import MAX_STATUS_CHARS, ExtendedJob, Job
from pinlater.model.flow_words import NewFlow, NewItem
from tests.flows.stand import ROOT, flow_of, opened
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
    with pytest.raises(BodyTooLarge, match="max_allowed_packet is 1048576"):
        await shard.enqueue("mail", [Job(b"x"), Job(b"'" * 700_000)], NOW_MS)
    assert await shard.count_ready("mail", [1], 10, NOW_MS) == [0]
    job = await enqueued(shard)
    await claimed(shard)
    with pytest.raises(BodyTooLarge, match="max_allowed_packet"):
        await shard.checkpoint("mail", [CheckpointRequest(*job, "e", new_body=bytes(2**20))], NOW_MS)
    with pytest.raises(BodyTooLarge, match="max_allowed_packet"):
        await shard.ack("mail", [AckRequest(*job, True, result=bytes(2**20))], NOW_MS)


@pytest.mark.usefixtures("small_packets")
async def test_the_size_that_a_refusal_names_fits_beside_all_else_that_a_job_may_have(shard: MysqlShard) -> None:
    with pytest.raises(BodyTooLarge) as refused:
        await shard.enqueue("mail", [Job(bytes(2**20))], NOW_MS)
    named = re.search(r"a body of (\d+) bytes fits", refused.value.message)
    assert named is not None
    body, longest = bytes(int(named[1])), "'" * 255
    job = ExtendedJob(body, custom_status="\U0001f600" * MAX_STATUS_CHARS, dedupe_key=longest, serialize_key=longest)
    (offered,) = await shard.enqueue_extended("mail", [Offer(job, slot=1)], NOW_MS)
    assert (await info(shard, key_of(offered.descriptor))).body == body


@pytest.mark.usefixtures("small_packets")
async def test_results_of_more_than_a_packet_are_kept_together(shard: MysqlShard) -> None:
    jobs = [key_of(each) for each in await shard.enqueue("mail", [Job(b"x")] * 10, NOW_MS)]
    await shard.claim("mail", [ClaimRequest("c", 10, [1], 60_000, 2**30)], NOW_MS)
    results = [os.urandom(300_000) for _ in jobs]
    acks = [AckRequest(*job, True, result=result) for job, result in zip(jobs, results, strict=True)]
    assert await shard.ack("mail", acks, NOW_MS, EndRules(result_ttl_ms=60_000)) == [AckOutcome.SUCCEEDED] * 10
    found = await shard.lookup("mail", jobs, with_body=False, max_bytes=2**30, with_result=True)
    assert [each and each.result for each in found] == results


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1153, "Got a packet bigger than 'max_allowed_packet' bytes"),
        (1406, "Data too long for column 'claim_descriptor' at row 1"),
        (1264, "Out of range value for column 'attempts_allowed' at row 1"),
        (1366, "Incorrect string value"),
    ],
)
def test_a_fault_of_a_value_is_none_of_the_store(number: int, text: str) -> None:
    error = shard_error(Exception(number, text), "db-1", committing=False)
    assert isinstance(error, ValueNotStorable)
    assert not error.retryable
    assert text in error.message


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


@pytest.mark.usefixtures("small_packets")
def test_the_database_of_flows_refuses_what_is_beyond_a_packet_for_good(url: str) -> None:
    with opened(url) as database:
        items = [NewItem(bytes(60_000))] * 30
        with pytest.raises(BodyTooLarge, match="max_allowed_packet"):
            database.create(NewFlow("payroll", (ROOT,), items={"calculate": items}), NOW_MS)
        assert flow_of(database, ROOT, items=10)


def test_bytes_that_a_driver_writes_as_surrogates_are_sent_as_they_are() -> None:
    """As PyMySQL does before 1.2."""

    class Driver:
        def query(self, data: bytes) -> bytes:
            return data

    connection: Any = type("Connection", (BoundedStatements, Driver), {"max_packet": 100})()
    assert connection.query("INSERT '\udcff\udc80'") == b"INSERT '\xff\x80'"
    with pytest.raises(BodyTooLarge, match="max_allowed_packet is 100"):
        connection.query("\udcff" * 100)
