"""The conditions under which a PostgreSQL can be a shard, as far as only asking it tells."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import psycopg

from pinlater.errors import StoreRefused

OLDEST = 13
SHARES_SESSIONS = (
    "a pooler in front of it gives its sessions to other clients between two transactions, as PgBouncer does with "
    "pool_mode = transaction or statement; settings, prepared statements and LISTEN belong to a session: "
    "set pool_mode = session for this database or user, or connect without the pooler"
)
_NOT_UTF8 = "its encoding is {}, and texts of jobs are Unicode: CREATE DATABASE ... ENCODING 'UTF8'"
_TOO_OLD = "it is version {}; {} or newer is needed"
_ABOUT = "SELECT pg_backend_pid(), current_setting('server_encoding'), current_setting('server_version_num')::INTEGER"

FREE_CONNECTIONS = """
SELECT CASE WHEN r.rolsuper THEN current_setting('max_connections')::INTEGER - COUNT(*) ELSE LEAST(
    current_setting('max_connections')::INTEGER - current_setting('superuser_reserved_connections')::INTEGER - COUNT(*),
    NULLIF(r.rolconnlimit, -1) - COUNT(*) FILTER (WHERE a.usesysid = r.oid),
    NULLIF(d.datconnlimit, -1) - COUNT(*) FILTER (WHERE a.datid = d.oid)
) END
FROM pg_roles r, pg_database d, pg_stat_activity a
WHERE r.rolname = session_user AND d.datname = current_database() AND a.datid IS NOT NULL
GROUP BY r.rolsuper, r.rolconnlimit, d.datconnlimit
"""
"""The least of three bounds, as far as they are set. Only the first one holds for superusers."""

_ROUNDS = 3
_OTHER_WITHIN_S = 5.0


def check_conditions(
    connection: psycopg.Connection[Any], open_other: Callable[[], psycopg.Connection[Any]], place: str
) -> None:
    """StoreRefused with the condition that does not hold."""
    pid, encoding, version = connection.execute(_ABOUT).fetchall()[0]
    connection.commit()
    if version // 10_000 < OLDEST:
        raise StoreRefused(f"{place}: {_TOO_OLD.format(version // 10_000, OLDEST)}")
    if encoding != "UTF8":
        raise StoreRefused(f"{place}: {_NOT_UTF8.format(encoding)}")
    if pid != connection.info.backend_pid and _shares_sessions(connection, open_other, pid):
        raise StoreRefused(f"{place}: {SHARES_SESSIONS}")


def _shares_sessions(
    connection: psycopg.Connection[Any], open_other: Callable[[], psycopg.Connection[Any]], pid: int
) -> bool:
    """Whether a pooler, which names process ids of its own, gives the session to somebody else who wants one. The other
    one may have to wait for a session for ever, where the pooler has but one and keeps it for us.
    """
    with contextlib.suppress(psycopg.Error), contextlib.closing(open_other()) as other:
        other.read_s = _OTHER_WITHIN_S  # type: ignore[attr-defined]
        for _ in range(_ROUNDS):
            with other.transaction():
                if _backend(other) == pid:
                    return True
                if _backend(connection) != pid:
                    return True
                connection.commit()
    return False


def _backend(connection: psycopg.Connection[Any]) -> int:
    return int(connection.execute("SELECT pg_backend_pid()").fetchall()[0][0])
