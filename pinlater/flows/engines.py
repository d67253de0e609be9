"""Engines of SQLAlchemy for the database of flows: how connections are set up, and how long they wait."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from pinlater.backends.sql.bounded_statements import bounded_connection

LOOKS, CHANGES = {"pinlater_looks": True}, {"pinlater_looks": False}
"""Options of a connection: what is done on it changes nothing, or may."""

_CONNECT_S, _SILENCE_S = 5, 30
"""A database that does not answer is away after so long: to a new connection, and to one that waits."""


def make_engine(url: str) -> sa.Engine:
    is_sqlite = url.startswith("sqlite")
    options = {} if is_sqlite else {"pool_pre_ping": True, "isolation_level": "READ COMMITTED"}
    engine = sa.create_engine(url, **options)
    sa.event.listen(engine, "do_connect", _limit_waits)
    if is_sqlite:
        sa.event.listen(engine, "connect", _set_up_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    if engine.dialect.name in ("mysql", "mariadb"):
        connection: Any = bounded_connection(engine.dialect.loaded_dbapi)
        sa.event.listen(engine, "do_connect", lambda _, __, args, named: connection(*args, **named))
        sa.event.listen(engine, "connect", lambda connection, _: connection.learn_bound())
    if engine.dialect.name == "postgresql":
        sa.event.listen(engine, "connect", _set_up_postgresql)
    return engine


def is_conflict(error: sa.exc.DBAPIError) -> bool:
    """A deadlock, a lock that was waited for too long, a serialization failure, two inserts of the same key, a table
    that another process made first.
    """
    original: Any = error.orig
    if isinstance(error, sa.exc.IntegrityError):
        return True
    if getattr(original, "sqlstate", None) in ("40001", "40P01", "55P03", "42P07"):
        return True
    return bool(original.args) and original.args[0] in (1020, 1050, 1205, 1213)


def _limit_waits(dialect: Any, _record: object, _arguments: object, named: dict[str, Any]) -> None:
    """Where the URL does not say how long to wait."""
    waits: dict[str, Any] = {}
    if dialect.name == "postgresql":
        waits = {"connect_timeout": _CONNECT_S, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4}
        waits["tcp_user_timeout"] = _SILENCE_S * 1_000
    elif dialect.name != "sqlite":
        waits = {"connect_timeout": _CONNECT_S, "read_timeout": _SILENCE_S, "write_timeout": _SILENCE_S}
    for name, value in waits.items():
        named.setdefault(name, value)


def _begin_sqlite(connection: sa.Connection) -> None:
    looks = connection.get_execution_options().get("pinlater_looks")
    connection.exec_driver_sql("BEGIN" if looks else "BEGIN IMMEDIATE")


def _set_up_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by hand
    for line in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 10000"):
        connection.execute(f"PRAGMA {line}")


def _set_up_postgresql(connection: Any, _record: object) -> None:
    """Every statement has an index. Without statistics, as in the first minute of a table, the planner takes a list of
    jobs for half of the table and reads all of it; and it compiles what it takes for dear.

    A pooler, which names process ids of its own, may give the session to others between two transactions. There nothing
    is set and nothing prepared, since both would reach them.
    """
    (process_id,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    if process_id != connection.info.backend_pid:
        connection.prepare_threshold = None
        connection.commit()
        return
    for way in ("seqscan", "hashjoin", "mergejoin"):
        connection.execute(f"SET enable_{way} = off")
    connection.execute("SET jit = off")
    connection.commit()
