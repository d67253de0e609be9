"""A shard on MySQL 8 or MariaDB, through PyMySQL or mysqlclient.

How much a power cut may take is the server's own setting: with innodb_flush_log_at_trx_commit = 1, nothing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from sqlalchemy import event
from sqlalchemy.pool import PoolProxiedConnection

from pinlater.backends.sql.bounded_statements import bounded_connection
from pinlater.backends.sql.driver_texts import driver_text
from pinlater.backends.sql.mysql_session import MysqlSession
from pinlater.backends.sql.records import load_statements
from pinlater.backends.sql.server_pool import ServerPool, ServerShard, Timeouts
from pinlater.backends.store_warnings import warn_once
from pinlater.errors import (
    WIPED_OR_REPLACED,
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    StoreConflict,
    StoreFull,
    StoreReplaced,
    ValueNotStorable,
)

LOCK_WAIT_TIMEOUT, DEADLOCK, RECORD_CHANGED = 1205, 1213, 1020
CONFLICTS = frozenset({LOCK_WAIT_TIMEOUT, DEADLOCK, RECORD_CHANGED})
READ_ONLY = frozenset({1290, 1792, 1836})
FULL = frozenset({1021, 1114})
_NO_SPACE = re.compile(r"\b(?:errno|Errcode|error):? ?\"?28\b")
"""ENOSPC, as MariaDB quotes it in its errors about files."""

OF_A_VALUE = frozenset({1048, 1118, 1153, 1162, 1264, 1265, 1292, 1300, 1301, 1366, 1406, 1690})
"""It is null, too long, out of its range or no such text, or the statement that it makes is: the store is well
(https://mariadb.com/kb/en/mariadb-error-code-reference/).
"""

_NO_SUCH_TABLE = 1146
_CLIENT_ERRORS = range(2000, 3000)
"""Errors of the client library: the server did not answer, or not in time."""

_HANGING_UP = frozenset({0, 1053, 1927, 4031})
"""A server that closes a connection: it stops, it was told to, nobody used it. 0: a driver found it closed."""

_LACKS_CONNECTIONS = frozenset({1040, 1203, 1226})

_ADVICE = {
    1021: "the store's disk is full: free some space",
    1030: "the store's disk could not be written: look into its log",
    1040: "it has too many connections: raise its max_connections, or lower the number of servers or their threads",
    1044: "this user may not use the database: check its grants",
    1045: "user or password refused",
    1049: "there is no such database: CREATE DATABASE ... CHARACTER SET utf8mb4",
    1053: "it is shutting down",
    1927: "it ended this session: an administrator did (KILL), or it was idle for too long",
    4031: "it ended this session, which was idle for too long",
    1226: "this user has too many connections: raise max_user_connections",
    1114: "a table is full, or the disk is: free some space",
    1142: "this user lacks a grant: it needs SELECT, INSERT, UPDATE, DELETE, and CREATE for the first start",
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
    message = f"{place}: {_ADVICE.get(number, 'the store refused the call')} ({driver_text(error)})"
    if number in CONFLICTS:
        return StoreConflict(message)
    if number == _NO_SUCH_TABLE:
        wiped = f"its tables are gone: {WIPED_OR_REPLACED} since it was opened"
        return StoreReplaced(f"{place}: {wiped} ({driver_text(error)})")
    if number in OF_A_VALUE:
        return ValueNotStorable.at(place, driver_text(error))
    if committing and number not in READ_ONLY:
        return OutcomeUnknown(message)
    if number in FULL or _NO_SPACE.search(driver_text(error)):
        return StoreFull(message)
    return NothingStored(message)


def is_disconnect(error: BaseException) -> bool:
    """Whether other connections of the same age are likely to be broken too."""
    number = error_number(error)
    return number in _CLIENT_ERRORS or number in _HANGING_UP


_SETTINGS = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # Strict: what does not fit is an error and never cut. The drivers escape with backslashes, so these must count.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'",
)
_FLUSHES_LATER = (
    "innodb_flush_log_at_trx_commit is {}: a power cut takes about the last second of what was answered; set it to 1"
)


_OWN_SESSIONS = (
    "SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)"
)


class MysqlPool(ServerPool):
    """Connections to MySQL or MariaDB, by either driver."""

    DRIVERS: ClassVar[Mapping[str, str]] = {"mysqldb": "mysqlclient", "pymysql": "pymysql"}

    def __init__(self, url: str, size: int, timeouts: Timeouts) -> None:
        super().__init__(url, size, timeouts)
        self._connection: Any = bounded_connection(self.engine.dialect.loaded_dbapi)
        event.listen(self.engine, "do_connect", self._connect)

    def connect_args(self, timeouts: Timeouts) -> dict[str, Any]:
        return {
            "charset": "utf8mb4",
            "binary_prefix": True,  # else bodies are taken for text that is not valid
            "connect_timeout": timeouts.connect_s,
            "read_timeout": timeouts.read_s,
            "write_timeout": timeouts.write_s,
        }

    def _connect(self, dialect: Any, record: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        return self._connection(*arguments, **named)

    def set_up(self, connection: Any, info: dict[str, Any]) -> None:
        cursor = connection.cursor()
        for setting in (*_SETTINGS, f"SET SESSION innodb_lock_wait_timeout = {self.timeouts.lock_wait_s}"):
            cursor.execute(setting)
        info["max_packet"] = connection.learn_bound()
        cursor.execute("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit")
        (flush,) = cursor.fetchone()
        if int(flush) != 1:
            warn_once(self.place, _FLUSHES_LATER.format(flush))
        cursor.close()
        connection.commit()

    def check(self) -> None:
        """What it needs is asked for by each connection, and said by the statements that make the tables."""

    def free_connections(self, connection: Any) -> int:
        """How many more connections the server takes of this user. Of a bound of its own it sees its own sessions."""
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute("SELECT @@max_connections, @@SESSION.max_user_connections")
            most, most_of_user = map(int, cursor.fetchone())
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Threads_connected'")
            free = most - int(cursor.fetchone()[1])
            if most_of_user:
                cursor.execute(_OWN_SESSIONS)
                free = min(free, most_of_user - int(cursor.fetchone()[0]))
        connection.commit()
        return free

    def lacks_connections(self, error: BaseException) -> bool:
        return error_number(error) in _LACKS_CONNECTIONS

    def shard_error(self, error: BaseException, *, committing: bool) -> PinLaterError:
        return shard_error(error, self.place, committing=committing)

    def is_disconnect(self, error: BaseException) -> bool:
        return is_disconnect(error)


_STATEMENTS = load_statements("mysql.sql")


class MysqlShard(ServerShard):
    """A shard in MySQL or MariaDB. `url` is mysql+pymysql://USER:PASSWORD@HOST:PORT/DATABASE, or mysql+mysqldb://...
    for mysqlclient.
    """

    POOL = MysqlPool
    NAME = "mysql"

    def session(self, connection: PoolProxiedConnection, *, writes: bool) -> MysqlSession:
        packet = connection.info["max_packet"]
        return MysqlSession(connection.cursor(), _STATEMENTS, self.shard_id, locking=writes, max_packet=packet)
