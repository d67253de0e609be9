"""Jobs in the transactions of every library whose connections an outbox takes: committed whole, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import django
import psycopg
import psycopg2
import psycopg2.extras
import pymysql
import pymysql.cursors
import pytest
import sqlalchemy as sa
from django.conf import settings
from django.db import connections, transaction
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pinlater.model import Job
from tests.workers.outbox_stand import OutboxPlace, Shop, fresh_place, numbers

POSTGRES, MYSQL = pytest.mark.store("postgres"), pytest.mark.store("mysql")
ALL_BYTES = bytes(range(256)) + b"\\'\"%s?\x00\xff"


@contextlib.contextmanager
def of_sqlite3(place: OutboxPlace) -> Iterator[Any]:
    with contextlib.closing(sqlite3.connect(place.name)) as connection:
        connection.row_factory = lambda cursor, row: dict(
            zip((each[0] for each in cursor.description), row, strict=True)
        )
        yield connection


@contextlib.contextmanager
def of_psycopg(place: OutboxPlace) -> Iterator[Any]:
    where = {"host": place.host, "port": place.port, "user": place.user, "dbname": place.name}
    with contextlib.closing(psycopg.connect(**where, row_factory=dict_row)) as connection:
        yield connection


@contextlib.contextmanager
def of_psycopg2(place: OutboxPlace) -> Iterator[Any]:
    where = {"host": place.host, "port": place.port, "user": place.user, "dbname": place.name}
    factory = psycopg2.extras.RealDictCursor
    with contextlib.closing(psycopg2.connect(**where, cursor_factory=factory)) as connection:
        yield connection


@contextlib.contextmanager
def of_pymysql(place: OutboxPlace) -> Iterator[Any]:
    where = {"host": place.host, "port": place.port, "user": place.user, "database": place.name}
    with contextlib.closing(pymysql.connect(**where, cursorclass=pymysql.cursors.DictCursor)) as connection:
        yield connection


@contextlib.contextmanager
def of_mysqldb(place: OutboxPlace) -> Iterator[Any]:
    where = {"host": place.host, "port": place.port, "user": place.user, "database": place.name}
    library = import_module("MySQLdb")  # left out together with the store
    with contextlib.closing(library.connect(**where, charset="utf8mb4")) as connection:
        yield connection


@contextlib.contextmanager
def of_alchemy(place: OutboxPlace) -> Iterator[Any]:
    with place.engine.connect() as connection:
        yield connection


@contextlib.contextmanager
def of_session(place: OutboxPlace) -> Iterator[Any]:
    with Session(place.engine) as session:
        yield session


@contextlib.contextmanager
def of_scoped_session(place: OutboxPlace) -> Iterator[Any]:
    session = scoped_session(sessionmaker(place.engine))
    yield session
    session.remove()


@contextlib.contextmanager
def of_pool(place: OutboxPlace) -> Iterator[Any]:
    with contextlib.closing(place.engine.raw_connection()) as connection:
        yield connection


SYNC = [
    pytest.param("sqlite", of_sqlite3, id="sqlite3"),
    pytest.param("sqlite", of_alchemy, id="sqlalchemy-sqlite"),
    pytest.param("sqlite", of_session, id="session-sqlite"),
    pytest.param("sqlite", of_scoped_session, id="scoped-session-sqlite"),
    pytest.param("sqlite", of_pool, id="pool-sqlite"),
    pytest.param("postgresql", of_psycopg, id="psycopg", marks=POSTGRES),
    pytest.param("postgresql", of_psycopg2, id="psycopg2", marks=POSTGRES),
    pytest.param("postgresql", of_alchemy, id="sqlalchemy-postgresql", marks=POSTGRES),
    pytest.param("postgresql", of_session, id="session-postgresql", marks=POSTGRES),
    pytest.param("mysql", of_pymysql, id="pymysql", marks=MYSQL),
    pytest.param("mysql", of_mysqldb, id="mysqlclient", marks=MYSQL),
    pytest.param("mysql", of_alchemy, id="sqlalchemy-mysql", marks=MYSQL),
]


@pytest.mark.parametrize(("dialect", "connected"), SYNC)
def test_jobs_are_there_if_and_only_if_the_transaction_is(
    dialect: str,
    connected: Callable[[OutboxPlace], contextlib.AbstractContextManager[Any]],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    place = fresh_place(dialect, request, tmp_path)
    shop = Shop()
    sink = shop.record()
    with connected(place) as connection:
        shop.outbox.create_table(connection)
        connection.commit()
        shop.outbox.enqueue(connection, shop.send, "ada", number=1)
        connection.rollback()
        key = shop.outbox.enqueue(connection, shop.send, "grace", number=2)
        many = shop.outbox.enqueue_many(connection, shop.send, [{"to": "x", "number": n} for n in range(3, 253)])
        (raw,) = shop.outbox.enqueue_jobs(connection, "raw", Job(ALL_BYTES, 1, 1_790_000_000_000, 7, "hällo"))
        connection.commit()
        assert place.waiting() == 252
        stored = place.rows("SELECT job_key FROM pinlater_outbox ORDER BY id")
        assert [row[0] for row in stored] == [key, *many, raw]
        assert shop.outbox.hand_over(connection) == 252
        connection.commit()
    assert place.waiting() == 0
    mails = [job for queue, jobs in sink.calls if queue == "mail" for job in jobs]
    assert numbers(mails) == list(range(2, 253))
    assert {(job.priority, job.attempts_allowed, job.run_after_ms, job.custom_status) for job in mails} == {
        (2, 4, None, "")
    }
    assert [job for queue, jobs in sink.calls if queue == "raw" for job in jobs] == [
        Job(ALL_BYTES, 1, 1_790_000_000_000, 7, "hällo")
    ]


# -- Django ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def django_database(place: OutboxPlace, dialect: str) -> Iterator[str]:
    """An alias for the place, in a Django that is set up once in this process."""
    if not settings.configured:
        settings.configure(DATABASES={}, INSTALLED_APPS=[], USE_TZ=True)
        django.setup()
    engine, alias = {"sqlite": "sqlite3"}.get(dialect, dialect), f"outbox_{dialect}"
    database = {"ENGINE": f"django.db.backends.{engine}", "NAME": place.name, "HOST": place.host, "USER": place.user}
    database["PORT"] = str(place.port or "")
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: database})[alias]
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


@pytest.mark.parametrize(
    "dialect", ["sqlite", pytest.param("postgresql", marks=POSTGRES), pytest.param("mysql", marks=MYSQL)]
)
def test_in_a_transaction_of_django(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = fresh_place(dialect, request, tmp_path)
    shop = Shop()
    sink = shop.record()
    with django_database(place, dialect) as alias:
        connection = connections[alias]
        shop.outbox.create_table(connection)
        with transaction.atomic(using=alias):
            shop.outbox.enqueue(connection, shop.send, "ada", number=1)
            transaction.set_rollback(True, using=alias)
        with transaction.atomic(using=alias):
            shop.outbox.enqueue(connection, shop.send, "grace", number=2)
            shop.outbox.enqueue_jobs(connection, "raw", Job(ALL_BYTES))
        assert place.waiting() == 2
        relay = shop.outbox.relay(f"django:{alias}")
        with transaction.atomic(using=alias):
            assert relay.run_once() == 2, "on a connection of its own"
        assert relay.run_once() == 0
    assert [job.body for queue, jobs in sink.calls if queue == "raw" for job in jobs] == [ALL_BYTES]
    assert [numbers(jobs) for queue, jobs in sink.calls if queue == "mail"] == [[2]]


# -- asyncio ---------------------------------------------------------------------------------------------------------


class _Asyncpg:
    """Transactions as objects, where the other libraries have calls of the connection."""

    def __init__(self, connection: Any) -> None:
        self.given = connection
        self._transaction: Any = None

    async def begin(self) -> None:
        self._transaction = self.given.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


class _Usual:
    def __init__(self, connection: Any) -> None:
        self.given = connection
        self.commit, self.rollback = connection.commit, connection.rollback

    async def begin(self) -> None:
        """With the first statement."""


@contextlib.asynccontextmanager
async def async_connected(library: str, place: OutboxPlace) -> AsyncIterator[Any]:
    where: dict[str, Any] = {"host": place.host, "port": place.port, "user": place.user}
    if library == "asyncpg":
        plain = await asyncpg.connect(**where, database=place.name)
        yield _Asyncpg(plain)
        await plain.close()
    elif library == "psycopg":
        async with await psycopg.AsyncConnection.connect(**where, dbname=place.name) as connection:
            yield _Usual(connection)
    elif library == "aiosqlite":
        async with aiosqlite.connect(place.name) as database:
            yield _Usual(database)
    else:
        kind, driver = library.split("-")
        engine = create_async_engine(place.url_of(driver))
        opened = AsyncSession(engine) if kind == "session" else engine.connect()
        async with opened as connection:
            yield _Usual(connection)
        await engine.dispose()


@pytest.mark.parametrize(
    ("dialect", "library"),
    [
        ("sqlite", "aiosqlite"),
        ("sqlite", "connection-aiosqlite"),
        ("sqlite", "session-aiosqlite"),
        pytest.param("postgresql", "asyncpg", marks=POSTGRES),
        pytest.param("postgresql", "psycopg", marks=POSTGRES),
        pytest.param("postgresql", "connection-asyncpg", marks=POSTGRES),
        pytest.param("postgresql", "session-asyncpg", marks=POSTGRES),
        pytest.param("postgresql", "session-psycopg", marks=POSTGRES),
    ],
)
def test_in_a_transaction_of_asyncio(
    dialect: str, library: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = fresh_place(dialect, request, tmp_path)
    shop = Shop()
    sink = shop.record()
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)

    async def use() -> None:
        async with async_connected(library, place) as connection:
            await connection.begin()
            await shop.outbox.enqueue_async(connection.given, shop.send, "ada", number=1)
            await connection.rollback()
            await connection.begin()
            await shop.outbox.enqueue_async(connection.given, shop.send, "grace", number=2)
            calls = [{"to": "x", "number": n} for n in range(3, 203)]
            await shop.outbox.enqueue_many_async(connection.given, shop.send, calls)
            await shop.outbox.enqueue_jobs_async(connection.given, "raw", [Job(ALL_BYTES, 1, 5, 7, "hällo")])
            await connection.commit()
            assert place.waiting() == 202
            await connection.begin()
            assert await shop.outbox.hand_over_async(connection.given) == 202
            await connection.commit()

    asyncio.run(use())
    assert place.waiting() == 0
    assert numbers([job for queue, jobs in sink.calls if queue == "mail" for job in jobs]) == list(range(2, 203))
    assert sink.bodies[-1] == ALL_BYTES


# -- what is no connection -------------------------------------------------------------------------------------------


def test_what_is_no_connection_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    shop = Shop()
    engine = sa.create_engine("sqlite://")
    for wrong in (engine, "default", None, object(), sqlite3):
        with pytest.raises(TypeError, match="allowed: a Connection or Session of SQLAlchemy, a connection of Django"):
            shop.outbox.enqueue(wrong, shop.send, "ada")


def test_a_connection_of_the_other_kind_is_told_which_call_to_use() -> None:
    shop = Shop()

    async def use() -> None:
        async with aiosqlite.connect(":memory:") as database:
            with pytest.raises(TypeError, match="await the call whose name ends in _async"):
                shop.outbox.enqueue(database, shop.send, "ada")
        plain = sqlite3.connect(":memory:")
        with pytest.raises(TypeError, match="use the call whose name does not end in _async"):
            await shop.outbox.enqueue_async(plain, shop.send, "ada")
        plain.close()
        engine = create_async_engine("sqlite+aiosqlite://")
        async with AsyncSession(engine) as session:
            with pytest.raises(TypeError, match="await the call"):
                shop.outbox.enqueue(session, shop.send, "ada")
        await engine.dispose()

    asyncio.run(use())


def test_what_is_no_job_and_what_the_job_does_not_take_writes_nothing(tmp_path: Path) -> None:
    shop = Shop()
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        shop.outbox.create_table(connection)
        with pytest.raises(TypeError, match="number is 'many'"):
            shop.outbox.enqueue(connection, shop.send, "ada", number="many")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"allowed: a function with @app\.job"):
            shop.outbox.enqueue(connection, print, "ada")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="queue is 'no queue!'; allowed"):
            shop.outbox.enqueue_jobs(connection, "no queue!", Job(b""))
        with pytest.raises(TypeError, match=r"allowed: a pinlater\.Job"):
            shop.outbox.enqueue_jobs(connection, "mail", [b"body"])  # type: ignore[list-item]
        assert connection.execute("SELECT COUNT(*) FROM pinlater_outbox").fetchone() == (0,)
