"""Every statement reaches its rows by an index, in the index's own order, so no cost grows with what waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from sqlalchemy.engine import make_url

from pinlater.backends.base import STORED_STATES, AckRequest, ClaimRequest, ConfigEntry, JobKey, ScanRequest
from pinlater.backends.extended import Offer, RescheduleRequest
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.backends.sql.records import load_statements, parts
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.model import CancelOutcome, ExtendedJob, Job, JobState, KeyRef, RescheduleOutcome, parse_descriptor
from pinlater.model.status_text import append_status, prepend_status
from tests.queues import make_queue
from tests.stores.places import Places

NOW_MS = 1_790_000_000_000
NAMES = sorted(load_statements("sqlite.sql"))
MYSQL_ONLY = {"queue_id_if_eligible", "lock_and_skip", "snapshot", "has_old_index"}
MYSQL_ONLY |= {"lock_tables", "unlock_tables", "ids_in_line"}
SQLITE_ONLY = {"remove_links"}
NOT_IN_POSTGRES = {"remove_links", "upgrade", "add_columns", "add_extended", "add_tags", "add_trails"}
NOT_IN_POSTGRES |= {"insert_jobs_row", "insert_extended_jobs_row"}
POSTGRES_ONLY = {"lock_tables", "snapshot", "lock_chains", "lock_queue_id_by_homes"}
POSTGRES_ONLY |= {"subscribe", "unsubscribe", "prune_subscribers", "notify", "dead_rows"}
POSTGRES_ONLY |= {"store_jobs", "one_new_job", "new_jobs", "store_in_groups"}
POSTGRES_ONLY |= {"enter_lines", "first_in_lines", "leave_lines"}
MAKE_TABLES = {"schema", "upgrade", "add_columns", "add_extended", "add_tags", "add_trails"}
OVER_ALL_QUEUES = {"queues_without_config_entry", "deleted_queues", "oldest_ended"}
FROM_ONE_END = {"most_blocked", "longest_blocked", "barriers", "any_references", "any_groups"}
"""These read an index from its beginning, up to a limit."""

OVER_ALL_KEYS = {"key_slots"}
OF_A_WHOLE_STORE = {"any_jobs", "count_jobs", "counts_by_queue"}
OF_A_WHOLE_STORE |= {"export_config", "export_firings", "export_kv", "export_queues", "export_quotas"}
"""Exports and imports read these once, and a shard that is served does not; jobs are read page by page."""

SORTS_A_PAGE = {"stats_all", "expired_ready"}
"""What was read is grouped."""

ROWS = {
    name: text.split("/*rows*/")[0].split("(")[1].split(")")[0].count(",") + 1
    for name, text in load_statements("sqlite.sql").items()
    if "/*rows*/" in text
} | {"claim_several": 2}
"""How many columns rows have: as many as the INSERT names."""

INSERTS = {name for name in NAMES if name.startswith("insert_") and "_jobs" in name} | {"import_jobs"}


def filled(name: str, file_name: str) -> str:
    """A statement with two rows or keys in it."""
    text, mark = load_statements(file_name)[name], "?" if file_name == "sqlite.sql" else "%s"
    row = f"({','.join([mark] * ROWS.get(name, 0))})"
    text = text.replace("/*key_rows*/", f"SELECT {mark} AS k UNION ALL SELECT {mark} AS k")
    return text.replace("/*rows*/", f"{row},{row}").replace("/*keys*/", f"{mark},{mark}")


ON_JOBS = [
    name
    for name in NAMES
    if "pinlater_jobs" in load_statements("sqlite.sql")[name]
    and name not in INSERTS | MAKE_TABLES | OF_A_WHOLE_STORE | {"lacks_columns"}
]


def test_all_dialects_have_the_same_statements() -> None:
    sqlite, mysql, postgres = (set(load_statements(f"{name}.sql")) for name in ("sqlite", "mysql", "postgres"))
    assert sqlite - mysql == SQLITE_ONLY
    assert mysql - sqlite == MYSQL_ONLY
    assert sqlite - postgres == NOT_IN_POSTGRES
    assert postgres - sqlite == POSTGRES_ONLY


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:")
    for statement in parts(load_statements("sqlite.sql")["schema"]):
        made.execute(statement)
    made.create_function("append_status", 3, append_status)
    made.create_function("prepend_status", 2, prepend_status)
    yield made
    made.close()


@pytest.mark.parametrize("name", ON_JOBS)
def test_sqlite_never_walks_the_table_nor_sorts(connection: sqlite3.Connection, name: str) -> None:
    statement = filled(name, "sqlite.sql")
    values = ["[1, 2]"] * statement.count("?")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert any(line.startswith(("SEARCH pinlater_jobs", "SEARCH job ")) for line in plan), plan
    assert not [line for line in plan if line.startswith(("SCAN pinlater_jobs", "SCAN job"))], plan
    assert name in SORTS_A_PAGE or not [line for line in plan if "TEMP B-TREE" in line], plan


@pytest.mark.parametrize(
    "name",
    sorted(set(NAMES) - INSERTS - MAKE_TABLES - OVER_ALL_QUEUES - FROM_ONE_END - OVER_ALL_KEYS - OF_A_WHOLE_STORE),
)
def test_sqlite_reads_no_table_whole(connection: sqlite3.Connection, name: str) -> None:
    statement = filled(name, "sqlite.sql")
    values = ["[1, 2]"] * statement.count("?")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    small = ("SCAN pinlater_meta", "SCAN pinlater_sequence")
    walked = ("SCAN pinlater", "SCAN chain", "SCAN blocked", "SCAN waiting", "SCAN expiry", "SCAN ended")
    assert not [line for line in plan if line.startswith(walked) and not line.startswith(small)], plan


@pytest.fixture
def mysql_cursor(mysql_places: Places, runner: Any) -> Iterator[Any]:
    """A store with jobs of three priorities, half of them due."""
    url = mysql_places.fresh()
    shard = MysqlShard(url, "1", threads=1)

    async def fill() -> None:
        await shard.open()
        await make_queue(shard, "mail", NOW_MS)
        await shard.put_config([ConfigEntry(f"queue_{n}", f"{10**15 + n}-00000000") for n in range(50)], NOW_MS)
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
        cursor.execute("INSERT INTO pinlater_links (job_id) SELECT id FROM pinlater_jobs")
        made.commit()
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.executemany(
            "INSERT INTO pinlater_waiting VALUES (%s, %s, 1)", [(b"%d" % (n % 50), n) for n in range(3000)]
        )
        made.commit()
        yield cursor
    made.close()


def plan_of(cursor: Any, statement: str, values: tuple[object, ...]) -> list[dict[str, Any]]:
    cursor.execute(f"EXPLAIN {statement}", values)
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def rows_read(cursor: Any, statement: str, values: tuple[object, ...]) -> tuple[int, int]:
    """How many rows a statement answers, and how many it touches, once its tables are open."""
    cursor.execute(statement, values)
    cursor.fetchall()
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
        ("expired_claims", (NOW_MS, 10), "pinlater_jobs_ends"),
        ("expired_claims_of", (NOW_MS, (1, 2, 3), 10), "pinlater_jobs_ends"),
        ("expired_claims_of_others", (NOW_MS, (1, 2, 3), 10), "pinlater_jobs_ends"),
        ("listed", (1, (1, 2, 3)), "PRIMARY"),
        ("succeeded_before", (1, NOW_MS, 10), "pinlater_jobs_ends"),
        ("failed_before", (1, NOW_MS, 10), "pinlater_jobs_ends"),
        ("dead_letters_pending", (1, 10), "pinlater_jobs_ends"),
        ("links", ((1, 2, 3),), "PRIMARY"),
        ("clear_moved_to", ((1, 2, 3),), "PRIMARY"),
        ("versions_of_config_entries", (("mail", "post"),), "PRIMARY"),
        ("remove_config_entries", (("mail", "post"),), "PRIMARY"),
        ("tombstones", ("2", 10), "pinlater_records_deleted"),
        ("remove_kv_entries", ("lease", ("a", "b")), "PRIMARY"),
        ("config_entries", (1, 10), "pinlater_records_revision"),
        ("expired_kv_entries", ("lease", NOW_MS, 10), "pinlater_notes_expiry"),
        ("excess_kv_entries", ("lease", 10, 10), "pinlater_notes_expiry"),
        ("stats_place_between", (1, 0, 1, 0, NOW_MS, 9), "pinlater_jobs_order"),
        ("stats_place_at", (1, 0, 1, NOW_MS, 5, 9), "pinlater_jobs_order"),
        ("oldest", (1, 0, 1, 10), "pinlater_jobs_order"),
        ("scan_time", (1, 0, 1, 0, NOW_MS, 9), "pinlater_jobs_order"),
        ("oldest_ready", (1, 0, 1, NOW_MS, NOW_MS, 10), "pinlater_jobs_order"),
        ("in_progress", ("mail", (1, 2, 3)), "PRIMARY"),
        ("last_seen", ("mail", (1, 2, 3)), "PRIMARY"),
        ("claim", ("c", 1, 1, 1, 1, (1, 2, 3)), "PRIMARY"),
        ("remove", ((1, 2, 3),), "PRIMARY"),
        ("keys", (1, b"a", b"b"), "PRIMARY"),
        ("keys_over", (NOW_MS, 10), "pinlater_keys_over"),
        ("end_keys", (NOW_MS, NOW_MS, 1, b"a", b"b", (1, 2, 3)), "PRIMARY"),
        ("untake_keys", (1, b"a", b"b", 1), "PRIMARY"),
        ("drop_keys", (1, b"a", b"b", (1, 2, 3)), "PRIMARY"),
        ("drop_keys_over", (NOW_MS, 1, b"a", b"b", (1, 2, 3)), "PRIMARY"),
        ("leave_windows", (NOW_MS, NOW_MS, 1, b"a", b"b", (1, 2, 3)), "PRIMARY"),
        ("windows", (1, 1, b"a", NOW_MS, 10), "PRIMARY"),
        ("chains", (b"a", b"b"), "PRIMARY"),
        ("chains_of_queue", (1, 10), "pinlater_blocked_queue"),
        ("next_in_chains", (b"a", b"b"), "PRIMARY"),
        ("most_blocked", (10,), "pinlater_blocked_waiting"),
        ("longest_blocked", (10,), "pinlater_blocked_since"),
        ("expired_jobs", (NOW_MS, 10), "pinlater_expiries_due"),
        ("cancelled_before", (1, NOW_MS, 10), "pinlater_cancelled_ended"),
        ("results_over", (NOW_MS, 10), "pinlater_results_expiry"),
        ("renew_claims", (*[NOW_MS] * 6, (1, 2, 3)), "PRIMARY"),
    ],
)
def test_mysql_reaches_rows_by_an_index(mysql_cursor: Any, name: str, values: tuple[object, ...], index: str) -> None:
    plan = plan_of(mysql_cursor, filled(name, "mysql.sql"), values)[0]
    assert plan["key"] == index, plan
    assert "filesort" not in (plan["Extra"] or "")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("expired_claims", (NOW_MS, 1000)),
        ("expired_claims_of", (NOW_MS, (1, 2, 3), 1000)),
        ("succeeded_before", (1, NOW_MS, 1000)),
        ("failed_before", (1, NOW_MS, 1000)),
        ("dead_letters_pending", (1, 1000)),
    ],
)
def test_mysql_looks_at_nothing_where_nothing_is_due(mysql_cursor: Any, name: str, values: tuple[object, ...]) -> None:
    found, touched = rows_read(mysql_cursor, load_statements("mysql.sql")[name], values)
    assert (found, touched) == (0, 1)


@pytest.mark.parametrize(
    ("name", "values", "bound"),
    [
        ("next_due_in_priority", (1, ("mail",)), 3),
        ("stats_all", (NOW_MS, 1, 100), 310),  # what was read is grouped, which reads it again
        ("stats_between", (0, 1, 0, 1, 0, NOW_MS, 100), 210),
        ("in_progress_up_to", (1, 100), 5),
    ],
)
def test_mysql_reads_no_more_than_was_asked_for(
    mysql_cursor: Any, name: str, values: tuple[object, ...], bound: int
) -> None:
    _, touched = rows_read(mysql_cursor, load_statements("mysql.sql")[name], values)
    assert touched <= bound


def test_links_are_removed_in_the_statement_that_removes_jobs(mysql_cursor: Any) -> None:
    mysql_cursor.execute("SELECT id FROM pinlater_jobs LIMIT 3")
    ids = tuple(job_id for (job_id,) in mysql_cursor.fetchall())
    plan = plan_of(mysql_cursor, load_statements("mysql.sql")["remove"], (ids,))
    assert [(row["table"], row["key"], row["type"]) for row in plan] == [
        ("job", "PRIMARY", "range"),
        ("link", "PRIMARY", "eq_ref"),
    ]


async def test_many_idle_queues_cost_one_statement_and_three_looks_each(mysql_places: Places) -> None:
    shard = MysqlShard(mysql_places.fresh(), "1", threads=1)
    await shard.open()
    await shard.put_config([ConfigEntry(f"queue_{n}", f"{10**15 + n}-00000000") for n in range(100)], NOW_MS)
    await shard.enqueue("queue_1", [Job(b"x")] * 1000, NOW_MS)
    await shard.claim("queue_1", [ClaimRequest("a:b:c:d:e", 1000, (1,), 1000, 2**30)], NOW_MS)
    jobs = await shard.scan("queue_1", ScanRequest(STORED_STATES[JobState.IN_PROGRESS], (1,), False, 1000), NOW_MS)
    refs = [ref for job in jobs if (ref := parse_descriptor(job.descriptor)) is not None]
    await shard.ack("queue_1", [AckRequest(ref.priority, ref.id, True) for ref in refs], NOW_MS)

    def touched(session: Any) -> int:
        return rows_read(session.cursor, session.statements["oldest_ended"], ())[1]

    assert await shard.read(touched) <= 100 + 6 * 100 + 10
    await shard.close()


@pytest.fixture
def postgres_shard(postgres_places: Places, runner: Any) -> Iterator[PostgresShard]:
    """A store with jobs of three priorities in all states."""
    shard = PostgresShard(postgres_places.fresh(), "1", threads=1)

    def look(session: Any) -> None:
        session.cursor.execute("INSERT INTO pinlater_links (job_id) SELECT id FROM pinlater_jobs")
        session.cursor.execute("INSERT INTO pinlater_expiries SELECT id, run_after_ms FROM pinlater_jobs")
        session.cursor.execute("INSERT INTO pinlater_cancelled SELECT id, 1, run_after_ms FROM pinlater_jobs")
        entries = "1, convert_to(id::TEXT, 'UTF8'), id, 1, 1, 1, 0, 0, id, id FROM pinlater_jobs"
        session.cursor.execute(f"INSERT INTO pinlater_keys SELECT {entries}")
        session.cursor.execute("INSERT INTO pinlater_notes SELECT 'lease', id, 1, id, '' FROM pinlater_jobs")
        session.cursor.execute("ANALYZE")

    async def fill() -> None:
        await shard.open()
        await make_queue(shard, "mail", NOW_MS)
        jobs = [Job(b"x", priority=1 + n % 3, run_after_ms=NOW_MS + (n % 2) * 9999) for n in range(9000)]
        await shard.enqueue("mail", jobs, NOW_MS)
        await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 1000, (1,), 1000, 2**30)], NOW_MS)
        taken = await shard.scan("mail", ScanRequest(STORED_STATES[JobState.IN_PROGRESS], (1,), False, 600), NOW_MS)
        refs = [ref for job in taken if (ref := parse_descriptor(job.descriptor)) is not None]
        await shard.ack("mail", [AckRequest(ref.priority, ref.id, ref.id % 2 == 0) for ref in refs], NOW_MS)
        await shard.write(look)

    runner.run(fill())
    yield shard
    runner.run(shard.close())


IDS = [10**15 + 1, 10**15 + 2, 10**15 + 3]


@pytest.mark.parametrize(
    ("name", "values", "index"),
    [
        ("candidates", ([1, 2, 3], [0, 0, NOW_MS - 9], 1, NOW_MS, 100, 100), "pinlater_jobs_order"),
        ("ready_in_priority", (1, "mail", 1, NOW_MS, 0, 100), "pinlater_jobs_order"),
        ("next_due_in_priority", (1, ["mail"], [0]), "pinlater_jobs_order"),
        ("expired_claims", (NOW_MS, 10), "pinlater_jobs_claims"),
        ("expired_claims_of", (NOW_MS, [1, 2, 3], 10), "pinlater_jobs_claims"),
        ("expired_claims_of_others", (NOW_MS, [1, 2, 3], 10), "pinlater_jobs_claims"),
        ("listed", (1, IDS), "pinlater_jobs_pkey"),
        ("succeeded_before", (1, NOW_MS, 10), "pinlater_jobs_ended_2"),
        ("failed_before", (1, NOW_MS, 10), "pinlater_jobs_ended_3"),
        ("dead_letters_pending", (1, 10), "pinlater_jobs_marked"),
        ("queues_with_dead_letters_pending", (["mail"],), "pinlater_jobs_marked"),
        ("links", (IDS,), "pinlater_links_pkey"),
        ("clear_moved_to", (IDS,), "pinlater_links_pkey"),
        ("remove_kv_entries", ("lease", ["a", "b"]), "pinlater_notes_pkey"),
        ("expired_kv_entries", ("lease", NOW_MS, 10), "pinlater_notes_expiry"),
        ("stats_place_between", (1, 0, 1, 0, NOW_MS, 9), "pinlater_jobs_order"),
        ("stats_place_at", (1, 0, 1, NOW_MS, 5, 9), "pinlater_jobs_order"),
        ("stats_all", (NOW_MS, 1, 100), "pinlater_jobs_order"),
        ("stats_between", (0, 1, 0, 1, 0, NOW_MS, 100), "pinlater_jobs_order"),
        ("oldest_ready", (1, 0, 1, NOW_MS, NOW_MS, 10), "pinlater_jobs_order"),
        ("in_progress_up_to", (1, 100), "pinlater_jobs_order"),
        ("oldest", (1, 0, 1, 10), "pinlater_jobs_order"),
        ("scan_time", (1, 0, 1, 0, NOW_MS, 9), "pinlater_jobs_order"),
        ("scan_at", (1, 0, 1, NOW_MS, 5, 9), "pinlater_jobs_order"),
        ("count_between", (1, 0, 1, 0, NOW_MS), "pinlater_jobs_order"),
        ("leftovers", (1, 10), "pinlater_jobs_order"),
        ("in_progress", ("mail", IDS), "pinlater_jobs_pkey"),
        ("last_seen", ("mail", IDS), "pinlater_jobs_pkey"),
        ("when_claimed", ("mail", IDS), "pinlater_jobs_pkey"),
        ("named", ("mail", IDS), "pinlater_jobs_pkey"),
        ("infos", ("mail", IDS), "pinlater_jobs_pkey"),
        ("bodies", (IDS,), "pinlater_jobs_pkey"),
        ("claim", ("c", 1, 1, 1, 1, IDS), "pinlater_jobs_pkey"),
        ("claim_several", (1, 1, 1, 1, IDS, ["a", "b", "c"]), "pinlater_jobs_pkey"),
        ("succeed", (1, 1, IDS), "pinlater_jobs_pkey"),
        ("remove", (IDS,), "pinlater_jobs_pkey"),
        ("keys", (1, b"a", b"b"), "pinlater_keys_pkey"),
        ("keys_over", (NOW_MS, 10), "pinlater_keys_over"),
        ("end_keys", (NOW_MS, NOW_MS, 1, b"a", b"b", IDS), "pinlater_keys_pkey"),
        ("windows", (1, 1, b"a", NOW_MS, 10), "pinlater_keys_pkey"),
        ("chains", (b"a", b"b"), "pinlater_chains_pkey"),
        ("next_in_chains", (b"a", b"b"), "pinlater_blocked_pkey"),
        ("most_blocked", (10,), "pinlater_blocked_waiting"),
        ("longest_blocked", (10,), "pinlater_blocked_since"),
        ("expired_jobs", (NOW_MS, 10), "pinlater_expiries_due"),
        ("cancelled_before", (1, NOW_MS, 10), "pinlater_cancelled_ended"),
        ("results_over", (NOW_MS, 10), "pinlater_results_expiry"),
        ("renew_claims", (*[NOW_MS] * 6, IDS), "pinlater_jobs_pkey"),
        ("held_groups", (1, 1, NOW_MS, 10), "pinlater_turns_order"),
        ("in_line_between", (1, 1, b"a", *[NOW_MS] * 6, 10), "pinlater_lines_order"),
        ("first_in_lines", (1, 1, [b"a"], [10]), "pinlater_lines_order"),
    ],
)
async def test_postgres_reaches_rows_by_an_index(
    postgres_shard: PostgresShard, name: str, values: tuple[object, ...], index: str
) -> None:
    def plan(session: Any) -> str:
        text = filled(name, "postgres.sql").replace("/*lock*/", "FOR UPDATE SKIP LOCKED")
        session.cursor.execute(f"EXPLAIN {text}", values)
        return "\n".join(row[0] for row in session.cursor.fetchall())

    found = await postgres_shard.write(plan)
    assert f" {index} on " in found, found
    assert "Seq Scan on pinlater_jobs" not in found, found
    assert "Bitmap" not in found, found
    if name not in SORTS_A_PAGE | SORTS_WHAT_IS_NAMED:
        assert "Sort" not in found, found


SORTS_WHAT_IS_NAMED = {"chains"}


async def test_an_empty_queue_costs_mysql_two_round_trips(mysql_places: Places) -> None:
    shard = MysqlShard(mysql_places.fresh(), "1", threads=1)
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    asked: list[str] = []

    def count(session: Any) -> int:
        return int(session.rows("meta") and _questions(session))

    before = await shard.read(count)
    assert await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 9, (1, 2, 3), 1000, 1000)], NOW_MS) == [[]]
    after = await shard.read(count)
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


async def test_sqlite_finds_moves_and_cancels_a_job_by_its_key_among_many_as_fast_as_among_few(
    sqlite_places: Places,
) -> None:
    few, many = [await _steps_by_a_key(sqlite_places.fresh(), jobs) for jobs in (200, 20_000)]
    assert many < 1.2 * few


async def _steps_by_a_key(url: str, jobs: int) -> int:
    """Of a job that is due in two years."""
    shard = SqliteShard(url, "1")
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    for start in range(0, jobs, 1000):
        offers = [Offer(ExtendedJob(b"x", dedupe_key=f"key-{start + n}")) for n in range(min(jobs, 1000))]
        await shard.enqueue_extended("mail", offers, NOW_MS)
    later = Offer(ExtendedJob(b"x", run_after_ms=NOW_MS + 2 * YEAR_MS, dedupe_key="that one"))
    await shard.enqueue_extended("mail", [later], NOW_MS)
    steps = 0

    def one_more() -> None:
        nonlocal steps
        steps += 1

    def watch(session: Any) -> None:
        session.cursor.connection.set_progress_handler(one_more, 1)

    await shard.write(watch)
    await shard.read(watch)
    (found,) = await shard.find_keys("mail", [KeyRef("that one")])
    assert found is not None
    ref = parse_descriptor(found.descriptor)
    assert ref is not None
    change = RescheduleRequest(ref.priority, ref.id, run_after_ms=NOW_MS + YEAR_MS)
    assert await shard.reschedule("mail", [change], NOW_MS) == [RescheduleOutcome.RESCHEDULED]
    assert await shard.cancel("mail", [JobKey(ref.priority, ref.id)], NOW_MS) == [CancelOutcome.CANCELLED]
    assert await shard.find_keys("mail", [KeyRef("that one")]) == [None]
    await shard.close()
    return steps


YEAR_MS = 365 * 86_400_000


async def _steps_of_a_claim(url: str, jobs: int) -> int:
    shard = SqliteShard(url, "1")
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    await shard.enqueue("mail", [Job(b"x", run_after_ms=NOW_MS + n % 2) for n in range(jobs)], NOW_MS)
    steps = 0

    def one_more() -> None:
        nonlocal steps
        steps += 1

    def watch(session: Any) -> None:
        session.cursor.connection.set_progress_handler(one_more, 1)

    await shard.write(watch)
    await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 50, (1, 2, 3), 1000, 1000)], NOW_MS)
    await shard.close()
    return steps
