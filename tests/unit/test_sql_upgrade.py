"""A store with the tables of the first version is brought up to date when it is opened, with all that is in it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import make_url

from pinlater.backends.base import (
    NO_RULES,
    AckOutcome,
    AckRequest,
    ClaimRequest,
    ConfigEntry,
    DeadLetterTarget,
    EndRules,
    ExpiryCounts,
    JobKey,
    PerQueue,
    Retention,
    UnrenewedClaim,
)
from pinlater.backends.extended import KeyHolder, Offer
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.backends.sql.records import load_statements, parts
from pinlater.backends.sql.schema_version import LAST_VERSION
from pinlater.backends.sql.shard import SqlShard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import NothingStored, QueueNotFound, StoreRefused
from pinlater.model import (
    CancelOutcome,
    ExtendedJob,
    Job,
    JobState,
    KeyRef,
    OnDuplicate,
    ReplaceRunning,
    parse_descriptor,
)
from pinlater.model.body_reference import BodyReference, BodyRule
from tests.conformance.subject import key_of
from tests.queues import make_queue, names_of
from tests.stores.places import Places

NOW_MS = 1_790_000_000_000
NO_BOUND = 2**30
VERSION = "SELECT value FROM pinlater_meta WHERE name = 'schema_version'"
FIRST = 1_780_000_000_000_000
RECORDS = [
    ConfigEntry("mail", "1780000000001000-00000000"),
    ConfigEntry("post", "1780000000003000-00000000"),
]


class Old(Protocol):
    """A store of the first version."""

    def shard(self, shard_id: str = "1") -> SqlShard: ...

    def asked(self, statement: str) -> list[Any]: ...


class OldSqlite:
    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(_script("sqlite"))

    def shard(self, shard_id: str = "1") -> SqlShard:
        return SqliteShard(str(self._path), shard_id)

    def asked(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            return [row[0] for row in connection.execute(statement)]


class OldMysql:
    def __init__(self, url: str) -> None:
        self._url = url
        for statement in parts(_script("mysql")):
            self.asked(statement)

    def shard(self, shard_id: str = "1") -> SqlShard:
        return MysqlShard(self._url, shard_id, threads=1)

    def connected(self) -> Any:
        """Another client of the store."""
        url = make_url(self._url)
        login = {"host": url.host or "", "port": url.port or 3306, "user": url.username or ""}
        return pymysql.connect(**login, password=str(url.password or ""), database=url.database, autocommit=True)

    def asked(self, statement: str) -> list[Any]:
        with closing(self.connected()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return [row[0] for row in cursor.fetchall()]


def _script(dialect: str) -> str:
    text = (Path(__file__).parent / "sql_version_1" / f"{dialect}.sql").read_text(encoding="utf-8")
    return text.partition("\n")[2]


@pytest.fixture(params=["sqlite", pytest.param("mysql", marks=pytest.mark.store("mysql"))])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    if request.param == "sqlite":
        return OldSqlite(tmp_path / "old.db")
    places: Places = request.getfixturevalue("mysql_places")
    return OldMysql(places.fresh())


async def test_queues_become_entries_as_of_when_they_were_made(old: Old) -> None:
    shard = old.shard()
    assert await shard.open() == "before"
    assert (await shard.list_config(0, 100)).entries == RECORDS
    assert not await make_queue(shard, "mail", NOW_MS)
    await shard.close()
    assert old.asked("SELECT value FROM pinlater_meta WHERE name = 'schema_version'") == ["2"]


async def test_jobs_in_all_states_live_on(old: Old) -> None:
    shard = old.shard()
    await shard.open()
    keys = [JobKey(1, FIRST + n) for n in range(1, 5)]
    infos = await shard.lookup("mail", keys, with_body=True, max_bytes=NO_BOUND)
    assert [(info.state, info.body) for info in infos if info is not None] == [
        (JobState.PENDING, b"one"),
        (JobState.IN_PROGRESS, b"two"),
        (JobState.SUCCEEDED, b"three"),
        (JobState.FAILED, b"four"),
    ]
    (jobs,) = await shard.claim("mail", [ClaimRequest("a:b:c:h:w", 9, (1,), 1000, NO_BOUND)], NOW_MS)
    assert [job.body for job in jobs] == [b"one"]
    assert await shard.ack("mail", [AckRequest(1, FIRST + 1, True)], NOW_MS) == [AckOutcome.SUCCEEDED]
    assert await shard.expire_claims(9, NOW_MS, PerQueue(NO_RULES)) == {"mail": ExpiryCounts(1, 0)}
    assert await shard.prune(9, NOW_MS, PerQueue(Retention(1, NOW_MS))) == {"mail": 1, "": 1}
    assert await shard.prune(9, NOW_MS, PerQueue(Retention(NOW_MS, 1))) == {"mail": 1}
    (descriptor,) = await shard.enqueue("mail", [Job(b"new")], NOW_MS)
    assert int(descriptor.rpartition(":")[2]) == NOW_MS * 1000
    await shard.close()


async def test_what_is_new_works_on_what_is_old(old: Old) -> None:
    shard = old.shard()
    await shard.open()
    rules = EndRules(dead_letters=True, keep_failed=False)
    await shard.ack("mail", [AckRequest(1, FIRST + 2, False, permanent=True)], NOW_MS, rules)
    assert await shard.dead_letter(9, NOW_MS, {"mail": DeadLetterTarget("post", 1)}) == {"mail": 1}
    assert (await shard.stats("post", (1, 2, 3), NOW_MS, None, 100)).levels[1].ready == 1
    await shard.close()


async def test_several_servers_open_an_old_store_at_once(old: Old) -> None:
    shards = [old.shard() for _ in range(4)]
    assert set(await asyncio.gather(*[shard.open() for shard in shards])) == {"before"}
    for shard in shards:
        assert (await shard.list_config(0, 100)).entries == RECORDS
        await shard.close()


async def test_opening_again_changes_nothing(old: Old) -> None:
    for _ in range(3):
        shard = old.shard("")
        await shard.open()
        page = await shard.list_config(0, 100)
        assert (page.revision, page.entries) == (2, RECORDS)
        await shard.close()


def keyed(**fields: Any) -> list[Offer]:
    return [Offer(ExtendedJob(b"keyed", **fields))]


async def test_the_first_extended_job_raises_the_version_and_plain_ones_do_not(old: Old) -> None:
    version = "SELECT value FROM pinlater_meta WHERE name = 'schema_version'"
    shard = old.shard()
    await shard.open()
    await shard.enqueue("mail", [Job(b"plain")], NOW_MS)
    assert old.asked(version) == ["2"]
    with pytest.raises(QueueNotFound):
        await shard.enqueue_extended("nowhere", keyed(dedupe_key="d"), NOW_MS)
    assert old.asked(version) == ["2"]
    ((_, descriptor, _),) = await shard.enqueue_extended("mail", keyed(dedupe_key="d", serialize_key="s"), NOW_MS)
    assert old.asked(version) == ["3"]
    await shard.close()
    again = old.shard("")
    await again.open()
    assert await again.find_keys("mail", [KeyRef("d", "s"), KeyRef("", "s")]) == [KeyHolder(descriptor)] * 2
    assert old.asked(version) == ["3"]
    await again.close()


async def test_a_store_has_the_version_of_references_while_it_has_some(old: Old) -> None:
    version = "SELECT value FROM pinlater_meta WHERE name = 'schema_version'"
    reference = BodyReference.new("files", "mail", b"x" * 300, NOW_MS, BodyRule.SIZE)
    shard = old.shard()
    await shard.open()
    (descriptor,) = await shard.enqueue("mail", [Job(reference)], NOW_MS)
    assert old.asked(version) == ["4"]
    await shard.enqueue_extended("mail", keyed(dedupe_key="d"), NOW_MS)
    ref = parse_descriptor(descriptor)
    assert ref is not None
    await shard.cancel("mail", [JobKey(1, ref.id)], NOW_MS)
    for expected in ("4", "3"):
        await shard.close()
        shard = old.shard()
        await shard.open()
        assert old.asked(version) == [expected]
        await shard.forget_references([reference])
    await shard.enqueue("mail", [Job(reference)], NOW_MS)
    assert old.asked(version) == ["4"]
    await shard.close()


async def test_a_store_has_the_version_of_groups_until_they_are_taken_off(old: Old) -> None:
    """An enqueue raises it again."""
    shard = old.shard()
    await shard.open()
    for _ in range(2):
        await shard.enqueue_extended("mail", keyed(group="acme"), NOW_MS)
        assert old.asked(VERSION) == ["5"]
        position = "0"
        while position:
            await shard.close()
            shard = old.shard()
            await shard.open()
            assert old.asked(VERSION) == ["5"]
            _, position = await shard.clear_groups("mail", position, 100, False)
        await shard.close()
        shard = old.shard()
        await shard.open()
        assert old.asked(VERSION) == ["3"]
    await shard.close()


async def test_a_request_to_stop_and_progress_of_a_job_that_had_nothing_raise_the_version(old: Old) -> None:
    version = "SELECT value FROM pinlater_meta WHERE name = 'schema_version'"
    shard = old.shard()
    await shard.open()
    job = JobKey(1, FIRST + 2)
    assert await shard.cancel("mail", [job], NOW_MS) == [CancelOutcome.IN_PROGRESS]
    assert old.asked(version) == ["2"]
    assert await shard.cancel("mail", [job], NOW_MS, "ann") == [CancelOutcome.REQUESTED]
    assert old.asked(version) == ["3"]
    assert await shard.ack("mail", [AckRequest(*job, False)], NOW_MS) == [AckOutcome.CANCELLED]
    await shard.close()


async def test_a_server_that_knows_no_keys_goes_on_with_the_tables(old: Old) -> None:
    """As the version before writes: with the names of the columns that it knows."""
    shard = old.shard()
    await shard.open()
    columns = (
        "queue_id, state, priority, run_after_ms, attempts_allowed, attempts_remaining, created_at_ms, updated_at_ms"
    )
    values = f"1, 0, 1, {NOW_MS}, 1, 1, {NOW_MS}, {NOW_MS}, '', 3, 'old'"
    old.asked("DELETE FROM pinlater_jobs")
    old.asked(
        f"INSERT INTO pinlater_jobs (id, {columns}, custom_status, body_bytes, body) VALUES ({FIRST + 99}, {values})"
    )
    (jobs,) = await shard.claim("mail", [ClaimRequest("a:b:c:h:w", 9, (1,), 1000, NO_BOUND)], NOW_MS)
    assert [int(job.descriptor.rpartition(":")[2]) for job in jobs] == [FIRST + 99]
    assert await shard.ack("mail", [AckRequest(1, FIRST + 99, True)], NOW_MS) == [AckOutcome.SUCCEEDED]
    await shard.close()


async def test_a_store_of_a_version_to_come_is_refused(old: Old) -> None:
    shard = old.shard()
    await shard.open()
    await shard.close()
    old.asked(f"UPDATE pinlater_meta SET value = '{LAST_VERSION + 1}' WHERE name = 'schema_version'")
    with pytest.raises(StoreRefused, match="upgrade this server"):
        await old.shard().open()


async def test_the_first_successor_shuts_older_versions_out(old: Old) -> None:
    """Whether or not there are references to bodies, which raise the version too."""
    shard = old.shard()
    await shard.open()
    fields = {"dedupe_key": "d", "on_duplicate": OnDuplicate.REPLACE, "replace_running": ReplaceRunning.ENQUEUE}
    offers = [Offer(ExtendedJob(body, priority=9, **fields)) for body in (b"1", b"2")]
    await shard.enqueue_extended("mail", offers[:1], NOW_MS)
    request = ClaimRequest("h:1:2:3:me", 1, (9,), 60_000, 1_000)
    ((job,),) = await shard.claim("mail", [request], NOW_MS)
    assert old.asked(VERSION) == ["3"]
    reference = BodyReference.new("files", "mail", b"x" * 300, NOW_MS, BodyRule.SIZE)
    await shard.enqueue("mail", [Job(reference)], NOW_MS)
    assert old.asked(VERSION) == ["4"]
    await shard.enqueue_extended("mail", offers[1:], NOW_MS)
    assert old.asked(VERSION) == ["6"]
    await shard.enqueue("mail", [Job(reference)], NOW_MS)
    await shard.close()
    shard = old.shard()
    await shard.open()
    assert old.asked(VERSION) == ["6"]
    (info,) = await shard.lookup("mail", [key_of(job.descriptor)], with_body=False, max_bytes=0)
    assert info is not None
    assert info.successor
    await shard.close()


async def test_a_queue_that_a_server_of_the_first_version_makes_meanwhile_is_found_at_the_next_start(old: Old) -> None:
    shard = old.shard()
    await shard.open()
    await shard.close()
    old.asked("INSERT INTO pinlater_queues (name, created_at_ms) VALUES ('late', 1780000000004)")
    shard = old.shard()
    await shard.open()
    assert await names_of(shard) == {"mail", "post", "late"}
    await shard.close()


async def test_an_upgrade_that_was_broken_off_is_done_again(old: Old) -> None:
    for _ in range(2):
        shard = old.shard()
        await shard.open()
        await shard.close()
        old.asked("UPDATE pinlater_meta SET value = '1' WHERE name = 'schema_version'")
    shard = old.shard()
    await shard.open()
    assert (await shard.list_config(0, 100)).entries == RECORDS
    await shard.close()


async def test_an_upgraded_store_has_the_indexes_of_a_new_one(tmp_path: Path) -> None:
    old, new = OldSqlite(tmp_path / "old.db"), tmp_path / "new.db"
    for shard in (old.shard(), SqliteShard(str(new), "1")):
        await shard.open()
        await shard.close()
    question = "SELECT name FROM sqlite_master ORDER BY name"
    with closing(sqlite3.connect(new)) as connection:
        assert old.asked(question) == [row[0] for row in connection.execute(question)]


async def test_mysql_exchanges_the_index_of_what_is_due(mysql_places: Places) -> None:
    old = OldMysql(mysql_places.fresh())
    shard = old.shard()
    await shard.open()
    await shard.close()
    indexes = old.asked(
        "SELECT DISTINCT index_name FROM information_schema.statistics "
        "WHERE table_schema = DATABASE() AND table_name = 'pinlater_jobs' ORDER BY index_name"
    )
    assert indexes == ["pinlater_jobs_ends", "pinlater_jobs_order", "PRIMARY"]


async def test_while_another_server_makes_tables_an_old_store_is_not_opened(
    mysql_places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinlater.backends.sql.mysql_session.WAIT_FOR_TABLES_S", 0)
    old = OldMysql(mysql_places.fresh())
    shard = old.shard()
    with closing(old.connected()) as other, other.cursor() as cursor:
        assert cursor.execute(load_statements("mysql.sql")["lock_tables"], (0,)) == 1
        with pytest.raises(NothingStored, match="making or upgrading the tables"):
            await shard.open()
    assert await shard.open() == "before"
    await shard.close()


@pytest.mark.parametrize("name", ["sqlite", "mysql"])
async def test_a_store_of_this_version_gets_columns_that_came_later_and_keeps_its_version(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Servers that do not know them go on using it."""
    places: Places = request.getfixturevalue(f"{name}_places")
    url = places.fresh()
    make = SqliteShard if name == "sqlite" else MysqlShard
    shard: SqlShard = make(url, "1")
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    await shard.enqueue("mail", [Job(b"x")], NOW_MS)
    await shard.close()
    for column in ("undelivered", "undelivered_attempts", "undelivered_run_after_ms"):
        _carried_out(url, f"ALTER TABLE pinlater_links DROP COLUMN {column}")
    _carried_out(url, "ALTER TABLE pinlater_extensions DROP COLUMN tags")
    shard = make(url, "1")
    await shard.open()
    try:
        request_one = ClaimRequest("a:b:1:1:c", 1, (1,), 60_000, NO_BOUND)
        ((job,),) = await shard.claim("mail", [request_one], NOW_MS)
        key = key_of(job.descriptor)
        claim = UnrenewedClaim(key.priority, key.id, job.claim_descriptor, job.claim_expires_at_ms)
        assert await shard.requeue_undelivered("mail", [claim], NOW_MS) == 1
        assert _carried_out(url, "SELECT value FROM pinlater_meta WHERE name = 'schema_version'") == "2"
        await shard.enqueue_extended("mail", keyed(tags=("t",)), NOW_MS)
        assert _carried_out(url, "SELECT COUNT(*) FROM pinlater_extensions WHERE tags IS NOT NULL") == 1
    finally:
        await shard.close()


@pytest.mark.parametrize("name", ["sqlite", "mysql", "postgres"])
async def test_a_store_of_this_version_gets_tables_that_came_later(name: str, request: pytest.FixtureRequest) -> None:
    """Claims of plain jobs read the tables of groups too, so nothing is handed out of a store that lacks them."""
    url = request.getfixturevalue(f"{name}_places").fresh()
    make = {"sqlite": SqliteShard, "mysql": MysqlShard, "postgres": PostgresShard}[name]
    shard: SqlShard = make(url, "1")
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    await shard.enqueue("mail", [Job(b"plain")], NOW_MS)
    await shard.close()
    for table in ("pinlater_lines", "pinlater_turns", "pinlater_virtual_times"):
        _carried_out(url, f"DROP TABLE {table}")
    shard = make(url, "1")
    await shard.open()
    try:
        await shard.enqueue_extended("mail", [Offer(ExtendedJob(b"grouped", group="acme"))], NOW_MS)
        found = []
        for _ in range(2):
            request_one = ClaimRequest("a:b:1:1:c", 1, (1,), 60_000, NO_BOUND)
            ((job,),) = await shard.claim("mail", [request_one], NOW_MS + 1)
            found.append(job.body)
        assert sorted(found) == [b"grouped", b"plain"]
    finally:
        await shard.close()


def _carried_out(url: str, statement: str) -> Any:
    """The first value of the first row, where there is one."""
    address = make_url(url)
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(str(address.database))) as connection:
            row = connection.execute(statement).fetchone()
            connection.commit()
    elif url.startswith("postgres"):
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as server:
            cursor = server.execute(statement)
            row = cursor.fetchone() if cursor.description else None
    else:
        with (
            closing(
                pymysql.connect(
                    host=address.host,
                    port=address.port or 3306,
                    user=address.username,
                    password=address.password or "",
                    database=address.database,
                )
            ) as server,
            server.cursor() as cursor,
        ):
            cursor.execute(statement)
            row = cursor.fetchone()
    return row[0] if row else None
