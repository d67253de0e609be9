"""Every statement reaches its rows by an index, in the index's own order, so no cost grows with what waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from sqlalchemy.engine import make_url

from pinlater.backends.base import ClaimRequest
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.backends.sql.statements import load_statements, parts
from pinlater.model import Job
from tests.stores.places import Places

NOW_MS = 1_790_000_000_000
NAMES = sorted(load_statements("sqlite.sql"))
MYSQL_ONLY = {"queue_id_if_eligible", "lock_and_skip", "claim_several", "snapshot"}
ON_JOBS = [
    name
    for name in NAMES
    if "pinlater_jobs" in load_statements("sqlite.sql")[name] and name not in ("schema", "insert_jobs")
]


def test_both_dialects_have_the_same_statements() -> None:
    sqlite, mysql = set(load_statements("sqlite.sql")), set(load_statements("mysql.sql"))
    assert sqlite <= mysql
    assert mysql - sqlite == MYSQL_ONLY


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:")
    for statement in parts(load_statements("sqlite.sql")["schema"]):
        made.execute(statement)
    made.create_function("append_status", 2, lambda status, text: status + text)
    made.create_function("prepend_status", 2, lambda status, text: text + status)
    yield made
    made.close()


@pytest.mark.parametrize("name", ON_JOBS)
def test_sqlite_never_walks_the_table_nor_sorts(connection: sqlite3.Connection, name: str) -> None:
    statement = load_statements("sqlite.sql")[name]
    values = ["[1, 2]"] * statement.count("?")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert any("SEARCH pinlater_jobs" in line for line in plan), plan
    assert not [line for line in plan if "SCAN pinlater_jobs" in line or "TEMP B-TREE" in line], plan


@pytest.fixture
def mysql_cursor(mysql_places: Places, runner: Any) -> Iterator[Any]:
    """A store with jobs of three priorities, half of them due."""
    url = mysql_places.fresh()
    shard = MysqlShard(url, "1", threads=1)

    async def fill() -> None:
        await shard.open()
        await shard.create_queue("mail", NOW_MS)
        jobs = [Job(b"x", priority=1 + n % 3, run_after_ms=NOW_MS + (n % 2) * 9999) for n in range(3000)]
        await shard.enqueue("mail", jobs, NOW_MS)
        await shard.close()

    runner.run(fill())
    parsed = make_url(url)
    made = pymysql.connect(
        host=parsed.host,
        port=parsed.port or 3306,
        user=parsed.username or "",
        password=str(parsed.password or ""),
        database=parsed.database,
    )
    with made.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield cursor
    made.close()


def plan_of(cursor: Any, statement: str, values: tuple[object, ...]) -> list[dict[str, Any]]:
    cursor.execute(f"EXPLAIN {statement}", values)
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def rows_read(cursor: Any, statement: str, values: tuple[object, ...]) -> tuple[int, int]:
    """How many rows a statement answers, and how many it touches."""
    cursor.execute("FLUSH STATUS")
    cursor.execute(statement, values)
    found = len(cursor.fetchall())
    cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
    touched = sum(int(value) for _, value in cursor.fetchall())
    cursor.connection.rollback()
    return found, touched


def test_mysql_claims_over_all_priorities_in_the_order_of_the_index(mysql_cursor: Any) -> None:
    statements = load_statements("mysql.sql")
    statement = f"{statements['candidates']} {statements['lock_and_skip']}"
    (plan,) = plan_of(mysql_cursor, statement, (1, (1, 2, 3), NOW_MS, 100))
    assert (plan["key"], plan["type"], int(plan["key_len"])) == ("pinlater_jobs_order", "range", 14)
    assert "filesort" not in plan["Extra"]
    found, touched = rows_read(mysql_cursor, statement, (1, (1, 2, 3), NOW_MS, 600))
    assert found == 600
    assert touched <= 610


@pytest.mark.parametrize(
    ("name", "values", "index"),
    [
        ("lapsed", (NOW_MS, 10), "pinlater_jobs_due"),
        ("succeeded_before", (NOW_MS, 10), "pinlater_jobs_due"),
        ("failed_before", (NOW_MS, 10), "pinlater_jobs_due"),
        ("oldest", (1, 0, 1, 10), "pinlater_jobs_order"),
        ("scan_time", (1, 0, 1, 0, NOW_MS, 9), "pinlater_jobs_order"),
        ("in_progress", ("mail", (1, 2, 3)), "PRIMARY"),
        ("claim", ("c", 1, 1, 1, 1, (1, 2, 3)), "PRIMARY"),
        ("remove", ((1, 2, 3),), "PRIMARY"),
    ],
)
def test_mysql_reaches_rows_by_an_index(mysql_cursor: Any, name: str, values: tuple[object, ...], index: str) -> None:
    plan = plan_of(mysql_cursor, load_statements("mysql.sql")[name], values)[0]
    assert plan["key"] == index
    assert "filesort" not in (plan["Extra"] or "")


@pytest.mark.parametrize("name", ["lapsed", "succeeded_before", "failed_before"])
def test_mysql_looks_at_nothing_where_nothing_is_due(mysql_cursor: Any, name: str) -> None:
    found, touched = rows_read(mysql_cursor, load_statements("mysql.sql")[name], (NOW_MS, 1000))
    assert (found, touched) == (0, 1)


async def test_an_empty_queue_costs_mysql_two_round_trips(mysql_places: Places) -> None:
    shard = MysqlShard(mysql_places.fresh(), "1", threads=1)
    await shard.open()
    await shard.create_queue("mail", NOW_MS)
    asked: list[str] = []

    def count(session: Any) -> int:
        return int(session.rows("meta") and _questions(session))

    before = await shard._read(count)
    assert await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 9, (1, 2, 3), 1000, 1000)], NOW_MS) == [[]]
    after = await shard._read(count)
    await shard.close()
    own = 3  # the look itself: meta, SHOW STATUS, and the end of its transaction
    assert after - before - own <= 2, asked


def _questions(session: Any) -> int:
    session.cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
    return int(session.cursor.fetchone()[1])


async def test_sqlite_hands_out_the_first_of_many_as_fast_as_of_few(sqlite_places: Places) -> None:
    """Counted in steps of SQLite's machine, not in time."""
    few, many = [await _steps_of_a_claim(sqlite_places.fresh(), jobs) for jobs in (200, 20_000)]
    assert many < 1.2 * few


async def _steps_of_a_claim(url: str, jobs: int) -> int:
    shard = SqliteShard(url, "1")
    await shard.open()
    await shard.create_queue("mail", NOW_MS)
    await shard.enqueue("mail", [Job(b"x", run_after_ms=NOW_MS + n % 2) for n in range(jobs)], NOW_MS)
    steps = 0

    def one_more() -> None:
        nonlocal steps
        steps += 1

    def watch(session: Any) -> None:
        session.cursor.connection.set_progress_handler(one_more, 1)

    await shard._write(watch)
    await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 50, (1, 2, 3), 1000, 1000)], NOW_MS)
    await shard.close()
    return steps
