"""A shard on MySQL 8 or MariaDB, through PyMySQL or mysqlclient: a small pool of connections and as many threads.

How much a power cut may take is the server's own setting: with innodb_flush_log_at_trx_commit = 1, nothing. Every call
is one transaction, so until its COMMIT is sent nothing is stored, whatever happens: the server rolls back what a broken
connection leaves. Only a COMMIT without an answer leaves the outcome unknown.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from sqlalchemy import create_engine, event, exc
from sqlalchemy.pool import PoolProxiedConnection

from pinlater.backends.sql.coordination import establish_identity
from pinlater.backends.sql.mysql_session import MysqlSession
from pinlater.backends.sql.records import load_statements
from pinlater.backends.sql.shard import SqlShard
from pinlater.backends.sql.threads import Threads
from pinlater.backends.store_warnings import warn_once
from pinlater.errors import NothingStored, OutcomeUnknown, PinLaterError, StoreConflict, StoreFull, StoreRefused
from pinlater.redaction import redact_url

LOCK_WAIT_TIMEOUT, DEADLOCK, RECORD_CHANGED = 1205, 1213, 1020
CONFLICTS = frozenset({LOCK_WAIT_TIMEOUT, DEADLOCK, RECORD_CHANGED})
READ_ONLY = frozenset({1290, 1792, 1836})
FULL = frozenset({1021, 1114})
_NO_SPACE = re.compile(r"\b(?:errno|Errcode|error):? ?\"?28\b")
"""ENOSPC, as MariaDB quotes it in its errors about files."""

_NO_SUCH_TABLE = 1146
_CLIENT_ERRORS = range(2000, 3000)
"""Errors of the client library: the server did not answer, or not in time."""

_HANGING_UP = frozenset({0, 1053, 1927, 4031})
"""A server that closes a connection: it stops, it was told to, nobody used it. 0: a driver found it closed."""

_ADVICE = {
    1021: "the store's disk is full: free some space",
    1030: "the store's disk could not be written: look into its log",
    1040: "it has too many connections: raise its max_connections, or lower the number of servers or their threads",
    1044: "this user may not use the database: check its grants",
    1045: "user or password refused",
    1049: "there is no such database: CREATE DATABASE ... CHARACTER SET utf8mb4",
    1053: "it is shutting down",
    1114: "a table is full, or the disk is: free some space",
    1142: "this user lacks a grant: it needs SELECT, INSERT, UPDATE, DELETE, and CREATE for the first start",
    1153: "a packet was too large: raise its max_allowed_packet",
    1203: "this user has too many connections: raise max_user_connections",
    1698: "user or password refused",
    2002: "it cannot be reached: is it running, and the address right?",
    2003: "it cannot be reached: is it running, and the address right?",
    2005: "its host name is unknown: check the address",
    2006: "the connection was lost",
    2013: "the connection was lost, or the answer did not come in time",
} | dict.fromkeys(READ_ONLY, "it is read-only: is it a replica, or did another server take over?")


def error_number(error: BaseException) -> int:
    """The number that both drivers give as the first argument; 0 where there is none."""
    number = error.args[0] if error.args else 0
    return number if isinstance(number, int) else 0


def shard_error(error: BaseException, place: str, *, committing: bool) -> PinLaterError:
    number = error_number(error)
    message = f"{place}: {_ADVICE.get(number, 'the store refused the call')} ({_text(error)})"
    if number in CONFLICTS:
        return StoreConflict(message)
    if number == _NO_SUCH_TABLE:
        wiped = "its tables are gone: it was wiped or replaced since it was opened"
        return StoreRefused(f"{place}: {wiped} ({_text(error)})")
    if committing and number not in READ_ONLY:
        return OutcomeUnknown(message)
    if number in FULL or _NO_SPACE.search(_text(error)):
        return StoreFull(message)
    return NothingStored(message)


def _text(error: BaseException) -> str:
    """What the store or the driver says; both drivers have it behind the number.

    >>> _text(OSError(1045, "Access denied for user 'app'@'localhost'"))
    "1045: Access denied for user 'app'@'localhost'"
    """
    return f"{error.args[0]}: {error.args[1]}" if len(error.args) > 1 else str(error)


def is_disconnect(error: BaseException) -> bool:
    """Whether other connections of the same age are likely to be broken too."""
    number = error_number(error)
    return number in _CLIENT_ERRORS or number in _HANGING_UP


RECYCLE_AFTER_S = 3_600
PING_AFTER_IDLE_S = 30
"""A connection that rested longer is tried before it is used: firewalls drop resting ones without a word."""

_DRIVERS = {"mysqldb": "mysqlclient", "pymysql": "pymysql"}
_SETTINGS = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # Strict: what does not fit is an error and never cut. The drivers escape with backslashes, so these must count.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'",
)
_FLUSHES_LATER = (
    "innodb_flush_log_at_trx_commit is {}: a power cut takes about the last second of what was answered; set it to 1"
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. A lock that is not had in time is a StoreConflict; any other time-out a lost connection."""

    connect_s: int = 5
    read_s: int = 30
    write_s: int = 30
    lock_wait_s: int = 5


class MysqlPool:
    """At most `size` connections at a time, made when they are first needed."""

    def __init__(self, url: str, size: int, timeouts: Timeouts) -> None:
        self.place = redact_url(url)
        self._timeouts = timeouts
        self._broken_at = 0.0
        try:
            self._engine = create_engine(
                url,
                pool_size=size,
                max_overflow=0,
                pool_recycle=RECYCLE_AFTER_S,
                pool_reset_on_return=None,  # a call ends its transaction itself; a reset would be one more round trip
                connect_args={
                    "charset": "utf8mb4",
                    "binary_prefix": True,  # else bodies are taken for text that is not valid
                    "connect_timeout": timeouts.connect_s,
                    "read_timeout": timeouts.read_s,
                    "write_timeout": timeouts.write_s,
                },
            )
        except ModuleNotFoundError as error:
            driver = _DRIVERS.get(error.name.lower() if error.name else "", error.name)
            raise StoreRefused(f"{self.place}: the driver is not installed: pip install {driver}") from error
        except (exc.ArgumentError, ValueError):
            # what these say has parts of the URL in it, which may be some of the password
            why = "this is no URL; what is special in user and password has to be encoded"
            raise StoreRefused(f"{self.place}: {why}") from None
        event.listen(self._engine, "connect", self._set_up)
        event.listen(self._engine, "checkout", self._check)
        event.listen(self._engine, "checkin", self._note_rest)

    def connection(self) -> PoolProxiedConnection:
        """One that works, as far as can be told. NothingStored with what to do."""
        try:
            return self._engine.raw_connection()
        except exc.DBAPIError as error:
            raise shard_error(error.orig or error, self.place, committing=False) from error
        except (TypeError, ValueError) as error:  # before any connection
            raise StoreRefused(f"{self.place}: the driver does not take these parameters with these values") from error
        except (self._driver_error(), exc.SQLAlchemyError, OSError, RuntimeError) as error:
            raise shard_error(error, self.place, committing=False) from error

    def mapped(self, error: BaseException, *, committing: bool) -> PinLaterError | None:
        """A driver's error as ours; None for any other."""
        if isinstance(error, self._driver_error()):
            return shard_error(error, self.place, committing=committing)
        return None

    def put_back(self, connection: PoolProxiedConnection) -> None:
        connection.close()

    def put_back_after(self, connection: PoolProxiedConnection, error: BaseException) -> None:
        """Roll back; after anything unexpected the connection is not used again."""
        if is_disconnect(error) and isinstance(error, self._driver_error()):
            self._broken_at = monotonic()
        elif self._rolled_back(connection) and (isinstance(error, PinLaterError) or error_number(error) in CONFLICTS):
            connection.close()
            return
        connection.invalidate()
        connection.close()

    def close(self) -> None:
        self._engine.dispose()

    def _driver_error(self) -> type[Exception]:
        found: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        return found

    def _rolled_back(self, connection: PoolProxiedConnection) -> bool:
        with suppress(self._driver_error()):
            connection.rollback()
            return True
        return False

    def _set_up(self, connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        for setting in (*_SETTINGS, f"SET SESSION innodb_lock_wait_timeout = {self._timeouts.lock_wait_s}"):
            cursor.execute(setting)
        cursor.execute("SELECT @@max_allowed_packet, @@GLOBAL.innodb_flush_log_at_trx_commit")
        max_packet, flush = cursor.fetchone()
        record.info["max_packet"] = int(max_packet)
        if int(flush) != 1:
            warn_once(self.place, _FLUSHES_LATER.format(flush))
        cursor.close()
        connection.commit()
        record.info["made_at"] = record.info["rests_since"] = monotonic()

    def _check(self, connection: Any, record: Any, proxy: Any) -> None:
        """Where one connection broke, those of its age are not trusted either: a new one is made instead."""
        if record.info["made_at"] < self._broken_at:
            raise exc.DisconnectionError
        if monotonic() - record.info["rests_since"] > PING_AFTER_IDLE_S:
            try:
                self._engine.dialect.do_ping(connection)
            except self._driver_error() as error:
                raise exc.DisconnectionError from error

    def _note_rest(self, connection: Any, record: Any) -> None:
        record.info["rests_since"] = monotonic()


Result = TypeVar("Result")

THREADS = 4
_STATEMENTS = load_statements("mysql.sql")


class MysqlShard(SqlShard):
    """A shard in MySQL or MariaDB. `url` is mysql+pymysql://USER:PASSWORD@HOST:PORT/DATABASE, or mysql+mysqldb://...
    for mysqlclient.
    """

    def __init__(
        self, url: str, shard_id: str = "", *, threads: int = THREADS, timeouts: Timeouts | None = None
    ) -> None:
        super().__init__(shard_id)
        self._count = threads
        self._pool = MysqlPool(url, threads, timeouts or Timeouts())
        self._threads: Threads | None = None

    async def open(self) -> str:
        self._threads = Threads(self._count, "pinlater-mysql")
        try:
            self._identity = await self.write(establish_identity, self.shard_id)
        except BaseException:
            await self.close()
            raise
        self.shard_id = self._identity.shard_id
        return self._identity.store_id

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            await threads.close()
            self._pool.close()

    def write(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        assert self._threads is not None, "the shard is not open"
        return self._threads.call(self._transact, True, transaction, arguments)

    def read(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        assert self._threads is not None, "the shard is not open"
        return self._threads.call(self._transact, False, transaction, arguments)

    def _transact(self, writes: bool, transaction: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
        """The drivers begin a transaction with the first statement."""
        connection = self._pool.connection()
        committing = False
        try:
            packet = connection.info["max_packet"]
            session = MysqlSession(connection.cursor(), _STATEMENTS, self.shard_id, locking=writes, max_packet=packet)
            result = transaction(session, *arguments)
            committing = writes
            connection.commit()
        except BaseException as error:
            self._pool.put_back_after(connection, error)
            ours = self._pool.mapped(error, committing=committing)
            if ours is None:
                raise
            raise ours from error
        self._pool.put_back(connection)
        return result
