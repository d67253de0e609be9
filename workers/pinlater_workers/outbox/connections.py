"""Connections of applications: which database one leads to, and how a statement runs on it, in its transaction.

A connection is known by the package of its class, so that no driver is imported here. One that wraps another (a proxy
that traces, a pool's) counts as what it wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, cast

from pinlater_workers.outbox.schema import DIALECTS, DialectName

Row = tuple[Any, ...]

ALLOWED = (
    "a Connection or Session of SQLAlchemy, a connection of Django (django.db.connection), psycopg, psycopg2, sqlite3, "
    "PyMySQL or mysqlclient; with the calls that end in _async an AsyncConnection or AsyncSession of SQLAlchemy, an "
    "AsyncConnection of psycopg, or a connection of asyncpg or aiosqlite"
)


class Executor:
    """Statements on one connection; `?` stands for each parameter. Nothing is committed."""

    def __init__(self, connection: Any, dialect: DialectName, style: str) -> None:
        self.connection = connection
        self.dialect = dialect
        self._style = style

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows, where it brings any."""
        cursor = self.connection.cursor()
        try:
            cursor.execute(placed(statement, self._style), tuple(parameters))
            return [_plain_row(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            cursor.close()


class AlchemyExecutor(Executor):
    """On a connection of SQLAlchemy: what listens to its events sees these statements too."""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        result = self.connection.exec_driver_sql(placed(statement, self._style), tuple(parameters))
        return [tuple(row) for row in result] if result.returns_rows else []


class AsyncExecutor:
    """Statements on one connection of asyncio. `run` is how its library runs one."""

    def __init__(self, dialect: DialectName, style: str, run: Callable[[str, tuple[Any, ...]], Any]) -> None:
        self.dialect = dialect
        self._style = style
        self._run = run

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        rows = await self._run(placed(statement, self._style), tuple(parameters))
        return [_plain_row(row) for row in rows]


def placed(statement: str, style: str) -> str:
    """The statement with the driver's own marks for parameters. No statement of an outbox has a ? in a text."""
    if style == "qmark":
        return statement
    if style in ("format", "pyformat"):
        return statement.replace("?", "%s")
    numbers = count(1)
    mark = ":" if style == "numeric" else "$"
    first, *rest = statement.split("?")
    return first + "".join(f"{mark}{next(numbers)}{part}" for part in rest)


def _plain_row(row: Any) -> Row:
    """Of a connection that makes dicts, or objects, of its rows."""
    return tuple(row.values()) if hasattr(row, "values") else tuple(row)


# -- connections that block ------------------------------------------------------------------------------------------

_DRIVERS: dict[str, tuple[DialectName, str]] = {
    "psycopg": ("postgresql", "format"),
    "psycopg2": ("postgresql", "format"),
    "pymysql": ("mysql", "format"),
    "MySQLdb": ("mysql", "format"),
    "sqlite3": ("sqlite", "qmark"),
}


def executor(connection: Any) -> Executor:
    """How statements run on it. TypeError: no connection that is known, or one of asyncio."""
    library = _library(connection)
    if library in ("asyncpg", "aiosqlite") or _is_async(connection):
        raise TypeError(f"{_shown(connection)} is one of asyncio: await the call whose name ends in _async")
    if library == "sqlalchemy":
        return _alchemy_executor(connection)
    if library == "django":
        _refuse_unless(connection, "cursor")
        return Executor(connection, _dialect(connection.vendor), "format")
    if library in _DRIVERS:
        _refuse_unless(connection, "commit")
        return Executor(connection, *_DRIVERS[library])
    raise TypeError(f"{_shown(connection)} is no connection that an outbox knows; allowed: {ALLOWED}")


def _alchemy_executor(connection: Any) -> Executor:
    if hasattr(connection, "driver_connection"):  # of engine.raw_connection()
        return executor(connection.driver_connection)
    if not hasattr(connection, "exec_driver_sql"):
        if hasattr(connection, "raw_connection") or not hasattr(connection, "connection"):
            raise TypeError(f"{_shown(connection)} has no transaction; allowed: {ALLOWED}")
        connection = connection.connection()  # that of a session's transaction
    dialect = connection.dialect
    return AlchemyExecutor(connection, _dialect(dialect.name), dialect.paramstyle)


# -- connections of asyncio ------------------------------------------------------------------------------------------


async def async_executor(connection: Any) -> AsyncExecutor:
    """How statements run on it. TypeError: no connection that is known, or one that blocks."""
    library = _library(connection)
    if library == "sqlalchemy" and _is_async(connection):
        return await _async_alchemy_executor(connection)
    if library == "psycopg" and _is_async(connection):
        return AsyncExecutor("postgresql", "format", _cursor_runner(connection.execute))
    if library == "asyncpg":
        _refuse_unless(connection, "fetch")
        return AsyncExecutor("postgresql", "numeric_dollar", lambda sql, values: connection.fetch(sql, *values))
    if library == "aiosqlite":
        return AsyncExecutor("sqlite", "qmark", _cursor_runner(connection.execute))
    if library in (*_DRIVERS, "django", "sqlalchemy"):
        raise TypeError(f"{_shown(connection)} is none of asyncio: use the call whose name does not end in _async")
    raise TypeError(f"{_shown(connection)} is no connection that an outbox knows; allowed: {ALLOWED}")


async def _async_alchemy_executor(connection: Any) -> AsyncExecutor:
    if not hasattr(connection, "exec_driver_sql"):
        if not hasattr(connection, "connection"):
            raise TypeError(f"{_shown(connection)} has no transaction; allowed: {ALLOWED}")
        connection = await connection.connection()

    async def run(statement: str, parameters: tuple[Any, ...]) -> Sequence[Any]:
        result = await connection.exec_driver_sql(statement, parameters)
        return cast(Sequence[Any], result.fetchall() if result.returns_rows else ())

    dialect = connection.dialect
    return AsyncExecutor(_dialect(dialect.name), dialect.paramstyle, run)


def _cursor_runner(execute: Callable[..., Any]) -> Callable[[str, tuple[Any, ...]], Any]:
    async def run(statement: str, parameters: tuple[Any, ...]) -> Sequence[Any]:
        cursor = await execute(statement, parameters)
        try:
            return cast(Sequence[Any], await cursor.fetchall() if cursor.description else ())
        finally:
            await cursor.close()

    return run


# -- which one it is -------------------------------------------------------------------------------------------------

_LIBRARIES = frozenset({*_DRIVERS, "sqlalchemy", "django", "asyncpg", "aiosqlite"})
_OF_ASYNCIO = ("sqlalchemy.ext.asyncio", "psycopg.connection_async")


def _library(connection: Any) -> str | None:
    for each in connection.__class__.__mro__:
        root = each.__module__.partition(".")[0]
        if root in _LIBRARIES:
            return str(root)
    return None


def _is_async(connection: Any) -> bool:
    names = [each.__module__ for each in connection.__class__.__mro__]
    return any(name.startswith(_OF_ASYNCIO) for name in names) or connection.__class__.__name__ == "AsyncConnection"


def _dialect(name: str) -> DialectName:
    for known in DIALECTS:
        if known == ("mysql" if name == "mariadb" else name):
            return known
    raise TypeError(f"a database {name!r}; an outbox can be in {', '.join(DIALECTS)} (MariaDB is mysql)")


def _refuse_unless(connection: Any, attribute: str) -> None:
    if not hasattr(connection, attribute):
        raise TypeError(f"{_shown(connection)} is no connection; allowed: {ALLOWED}")


def _shown(connection: Any) -> str:
    kind = connection.__class__
    return f"a {kind.__module__}.{kind.__qualname__}"
