"""A shard on PostgreSQL 13 or newer, through psycopg 3.

How much a power cut may take is the server's own setting: with fsync and synchronous_commit on, nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.types.string import StrBinaryDumper, StrDumperUnknown, TextBinaryLoader
from sqlalchemy import event
from sqlalchemy.pool import PoolProxiedConnection

from pinlater.backends.base import OnNotification
from pinlater.backends.sql.driver_texts import driver_text
from pinlater.backends.sql.low_water import LowWaterMarks
from pinlater.backends.sql.postgres_conditions import FREE_CONNECTIONS, SHARES_SESSIONS, check_conditions
from pinlater.backends.sql.postgres_notifications import PostgresNotifications
from pinlater.backends.sql.postgres_session import PostgresSession
from pinlater.backends.sql.records import load_statements
from pinlater.backends.sql.server_pool import THREADS, ServerPool, ServerShard, Timeouts
from pinlater.backends.sql.session import Session
from pinlater.backends.store_warnings import warn_once
from pinlater.errors import (
    WIPED_OR_REPLACED,
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    StoreConflict,
    StoreFull,
    StoreRefused,
    StoreReplaced,
    ValueNotStorable,
)

CONFLICTS = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, a lock that was not had in time
(https://www.postgresql.org/docs/current/errcodes-appendix.html; so all below).
"""

READ_ONLY = "25006"
FULL = frozenset({"53000", "53100"})
OF_A_VALUE = ("22", "54", "23502", "23514")
"""Data exceptions, limits of statements, conditions of columns: of a value of the call."""

_NO_SUCH_TABLE = frozenset({"42P01", "42883"})
_GOES = ("08", "57P0", "25P03")
"""The connection broke, or the server ends it: it stops, crashed, was told to, or waited too long."""

_ADVICE = {
    "28P01": "user or password refused",
    "28000": "user or password refused",
    "3D000": "there is no such database: CREATE DATABASE ... ENCODING 'UTF8'",
    "25006": "it is read-only: is it a replica, or did another server take over?",
    "42501": "this user lacks a grant: it needs SELECT, INSERT, UPDATE, DELETE, and CREATE for the first start",
    "53100": "the store's disk is full: free some space",
    "53200": "it is out of memory",
    "53300": "it has too many connections: raise its max_connections, or lower the number of servers or their threads",
    "25P03": "the transaction stood still for too long",
    "57014": "a statement took too long",
    "57P01": "it ended this session: an administrator did (pg_terminate_backend), or it is shutting down",
    "57P02": "it crashed",
    "57P03": "it is starting, or shutting down",
    "57P04": "the database was dropped",
    "57P05": "it ended this session, which was idle for longer than its idle_session_timeout",
}
_NO_SCHEMA = "3F000"
_NO_SCHEMA_ADVICE = (
    "no schema that is there, and that this user may use, is named by search_path (of the address, the user or the "
    "database): CREATE SCHEMA, grant USAGE and CREATE on it, or correct search_path"
)
_LACKS_CONNECTIONS = "53300"
_LOST = "the connection was lost, or the answer did not come in time"
_UNCONNECTED = "connection failed", "connection timeout", "connection is bad", "failed to resolve"
_REFUSALS = {
    "password": "28P01",
    "no pg_hba.conf entry": "28000",
    "too many": "53300",
    "connection slots": "53300",
    "no more connections": "53300",
    "is starting up": "57P03",
    "is shutting down": "57P03",
    "database": "3D000",
}
"""Words of the error of a refused connection, which has no code, and the code of their meaning."""

_TLS_FAILURES = "SSL error", "certificate", "not support SSL"
_TLS_ADVICE = (
    "TLS was not agreed on: check sslmode, the authority in sslrootcert and the host's name, "
    "and sslcert and sslkey if it asks for a certificate"
)


_NO_OPTIONS = "unsupported startup parameter"
_NO_OPTIONS_ADVICE = (
    "a pooler in front of it takes no `options`: set search_path for the user or the database instead "
    "(ALTER ROLE ... SET search_path), or connect without the pooler"
)
_PROTOCOL_VIOLATION, _STATEMENT_POOLING = "08P01", "statement pooling"


def _code_of(error: BaseException) -> str:
    """The server's code; of a connection that was refused what its text says."""
    text = str(error)
    return getattr(error, "sqlstate", None) or next(
        (code for words, code in _REFUSALS.items() if "FATAL" in text and words in text), ""
    )


def _advice(error: BaseException, code: str) -> str:
    text = str(error)
    if not code and text.startswith(_UNCONNECTED):
        if any(words in text for words in _TLS_FAILURES):
            return _TLS_ADVICE
        if _NO_OPTIONS in text:
            return _NO_OPTIONS_ADVICE
        return _ADVICE.get(_code_of(error), "it cannot be reached: is it running, and the address right?")
    return _ADVICE.get(code) or (_LOST if is_disconnect(error) else "the store refused the call")


def shard_error(error: BaseException, place: str, *, committing: bool) -> PinLaterError:
    """An error of the server is one of a transaction that is rolled back, also where it is the answer to a COMMIT."""
    code = getattr(error, "sqlstate", None) or ""
    text = driver_text(error)
    message = f"{place}: {_advice(error, code)} ({text})"
    if code in CONFLICTS:
        return StoreConflict(message)
    if code == _NO_SCHEMA:
        return StoreRefused(f"{place}: {_NO_SCHEMA_ADVICE} ({text})")
    if code == _PROTOCOL_VIOLATION and _STATEMENT_POOLING in text:
        return StoreRefused(f"{place}: {SHARES_SESSIONS} ({text})")
    if code in _NO_SUCH_TABLE:
        wiped = f"its tables are gone: {WIPED_OR_REPLACED} since it was opened, or search_path leads elsewhere now"
        return StoreReplaced(f"{place}: {wiped} ({text})")
    if code.startswith(OF_A_VALUE) or (not code and isinstance(error, psycopg.DataError)):
        return ValueNotStorable.at(place, text)
    if committing and is_disconnect(error):
        return OutcomeUnknown(message)
    return StoreFull(message) if code in FULL else NothingStored(message)


def is_disconnect(error: BaseException) -> bool:
    code = getattr(error, "sqlstate", None)
    if code is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return str(code).startswith(_GOES)


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that waits for no answer longer than `read_s`."""

    read_s = 30.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval, timeout or self.read_s)


NUL, STAND_IN = "\0", "\U0010ffff"
"""No text of PostgreSQL has a NUL character. A noncharacter of Unicode, for a program's own use, stands in for it
(https://www.unicode.org/faq/private_use.html).
"""


class _Text(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace(NUL, STAND_IN))


class _BinaryText(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace(NUL, STAND_IN))


class _TextLoader(TextBinaryLoader):
    def load(self, data: Buffer) -> str:
        return str(super().load(data)).replace(STAND_IN, NUL)


_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(str, _BinaryText)
_ADAPTERS.register_dumper(str, _Text)
_ADAPTERS.register_loader("text", _TextLoader)
_SETTINGS = {
    "client_encoding": "'UTF8'",
    "default_transaction_isolation": "'read committed'",
    # one way to the rows of each statement, whatever the planner knows of a table that just grew from nothing
    **dict.fromkeys(("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off"),
    **dict.fromkeys(("join_collapse_limit", "from_collapse_limit"), "1"),
    "plan_cache_mode": "force_custom_plan",
}
_FLUSHES_LATER = "{} is off: a power cut takes some of what was answered; turn it on"


class PostgresPool(ServerPool):
    """Connections to PostgreSQL."""

    DRIVERS: ClassVar[Mapping[str, str]] = {"psycopg": "psycopg[binary]"}

    def __init__(self, url: str, size: int, timeouts: Timeouts) -> None:
        super().__init__(url, size, timeouts)
        event.listen(self.engine, "do_connect", self._connect)

    def connect_args(self, timeouts: Timeouts) -> dict[str, Any]:
        return {"connect_timeout": timeouts.connect_s, "application_name": "pinlater"}

    def _connect(self, dialect: Any, record: Any, arguments: list[Any], named: dict[str, Any]) -> BoundedConnection:
        connection = BoundedConnection.connect(*arguments, **named | {"context": _ADAPTERS})
        connection.read_s = float(self.timeouts.read_s)
        return connection

    def open_connection(self) -> BoundedConnection:
        """One beside the pool's, in autocommit."""
        arguments, named = self.engine.dialect.create_connect_args(self.engine.url)
        named = {**named, **self.connect_args(self.timeouts), "autocommit": True}
        return self._connect(self.engine.dialect, None, list(arguments), named)

    def open_listener(self) -> BoundedConnection:
        """A connection for notifications, which a process can do without. TooFewConnections where others need it."""
        connection = self.open_connection()
        try:
            self.leave_some(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def set_up(self, connection: Any, info: dict[str, Any]) -> None:
        timeouts = self.timeouts
        settings = _SETTINGS | {
            "lock_timeout": f"'{timeouts.lock_wait_s}s'",
            "statement_timeout": f"'{timeouts.read_s}s'",
            "idle_in_transaction_session_timeout": f"'{2 * timeouts.read_s}s'",  # of one whose server stands still
        }
        connection.execute("; ".join([f"SET {name} = {value}" for name, value in settings.items()]))
        shown = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit') AND setting = 'off'"
        for (name,) in connection.execute(shown).fetchall():
            warn_once(self.place, _FLUSHES_LATER.format(name))
        connection.commit()

    def check(self) -> None:
        with self.lent() as connection:
            check_conditions(connection, self.open_connection, self.place)

    def free_connections(self, connection: Any) -> int:
        (free,) = connection.execute(FREE_CONNECTIONS).fetchone()
        connection.commit()
        return int(free)

    def lacks_connections(self, error: BaseException) -> bool:
        return _code_of(error) == _LACKS_CONNECTIONS

    def shard_error(self, error: BaseException, *, committing: bool) -> PinLaterError:
        return shard_error(error, self.place, committing=committing)

    def is_disconnect(self, error: BaseException) -> bool:
        return is_disconnect(error)


_STATEMENTS = load_statements("postgres.sql")


class PostgresShard(ServerShard):
    """A shard in PostgreSQL. `url` is postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE."""

    POOL = PostgresPool
    NAME = "postgres"
    _pool: PostgresPool

    def __init__(
        self,
        url: str,
        shard_id: str = "",
        *,
        threads: int = THREADS,
        timeouts: Timeouts | None = None,
        low_water: LowWaterMarks | None = None,
    ) -> None:
        super().__init__(url, shard_id, threads=threads, timeouts=timeouts)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notifications: PostgresNotifications | None = None
        self._low_water = LowWaterMarks() if low_water is None else low_water

    async def open(self) -> str:
        store_id = await super().open()
        self._loop = asyncio.get_running_loop()
        self._notifications = PostgresNotifications(f"pinlater_{store_id}", self._pool.open_listener, self.write)
        return store_id

    async def close(self) -> None:
        notifications, self._notifications = self._notifications, None
        if notifications is not None:
            notifications.close()
        await super().close()

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        return self._notifications is not None and await self._notifications.subscribe(queue, on_event)

    def on_commit(self, session: Session) -> None:
        assert isinstance(session, PostgresSession)
        session.committed()
        notifications = self._notifications
        if notifications is None or self._loop is None:
            return
        if session.enqueued or session.freed or session.stored or (session.claimed and notifications.left):
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(
                    notifications.committed, session.enqueued, session.freed, session.stored, session.claimed
                )

    def session(self, connection: PoolProxiedConnection, *, writes: bool) -> PostgresSession:
        driver: Any = connection.driver_connection
        return PostgresSession(driver.cursor(binary=True), _STATEMENTS, self.shard_id, self._low_water, locking=writes)
