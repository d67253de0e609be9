"""The tables of flows, on SQLite, PostgreSQL and MariaDB. Schemas only add: `upgrade` makes what is missing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

METADATA = sa.MetaData()

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_MS = sa.BigInteger()
_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_bin",
    "sqlite_autoincrement": True,
}

FLOWS = sa.Table(
    "flow",
    METADATA,
    sa.Column("number", _NUMBER, sa.Identity(always=False), primary_key=True),
    sa.Column("id", sa.String(32), nullable=False, unique=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("dedupe_key", sa.String(255)),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("metadata", sa.Text, nullable=False),
    sa.Column("on_complete", sa.Text),
    sa.Column("on_failure", sa.SmallInteger, nullable=False),
    sa.Column("ttl_ms", _MS, nullable=False),
    sa.Column("created_ms", _MS, nullable=False),
    sa.Column("completed_ms", _MS),
    sa.Column("reap_ms", _MS),
    sa.Column("stopping_ms", _MS),
    sa.UniqueConstraint("name", "dedupe_key"),
    sa.Index("flow_reap", "reap_ms"),
    sa.Index("flow_stopping", "stopping_ms"),
    sa.Index("flow_open", "completed_ms", "number"),
    **_OPTIONS,
)

FLOW_KEYS = sa.Table(
    "flow_key",
    METADATA,
    sa.Column("flow", _MS, primary_key=True, autoincrement=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("dedupe_key", sa.String(255), nullable=False),
    sa.Index("flow_key_name", "dedupe_key", "name"),
    **{name: value for name, value in _OPTIONS.items() if name != "sqlite_autoincrement"},
)
"""The dedupe keys of flows whose name and key were taken by a flow that their callers may not fill. The row of such a
flow has no key, so that servers which do not know this table take it for a flow without one.
"""

STAGES = sa.Table(
    "flow_stage",
    METADATA,
    sa.Column("flow", _MS, primary_key=True, autoincrement=False),
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("parent", sa.Integer),
    sa.Column("queue", sa.String(255), nullable=False),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("sealed_ms", _MS),
    sa.Column("items", sa.BigInteger, nullable=False),
    sa.Column("pending", sa.BigInteger, nullable=False),
    sa.Column("queued", sa.BigInteger, nullable=False),
    sa.Column("succeeded", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
    sa.Column("applet_errors", sa.BigInteger, nullable=False),
    sa.Column("stop_reason", sa.String(255)),
    sa.Index(
        "flow_stage_waiting",
        "flow",
        "place",
        sqlite_where=sa.text("pending > queued"),
        postgresql_where=sa.text("pending > queued"),
    ),
    sa.Index(
        "flow_stage_queued", "flow", "place", sqlite_where=sa.text("queued > 0"), postgresql_where=sa.text("queued > 0")
    ),
    **{name: value for name, value in _OPTIONS.items() if name != "sqlite_autoincrement"},
)
"""A parent's place is before its children's. The counters are changed once by a transaction, in the order of places.

`items` = `pending` + `succeeded` + `failed`; `queued` of the pending ones are in their queue; `applet_errors` are the
succeeded ones whose children could not be made. With a `stop_reason` its pending items are to fail, for that reason.
"""

ITEMS = sa.Table(
    "flow_item",
    METADATA,
    sa.Column("number", _NUMBER, sa.Identity(always=False), primary_key=True),
    sa.Column("flow", _MS, nullable=False),
    sa.Column("place", sa.Integer, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("is_queued", sa.SmallInteger, nullable=False),
    sa.Column("job", sa.String(255)),
    sa.Column("payload", _BYTES, nullable=False),
    sa.Column("result", _BYTES),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("dedupe_key", sa.String(255)),
    sa.Column("serialize_key", sa.String(255)),
    sa.Column("retry_ms", _MS),
    sa.Column("queued_ms", _MS),
    sa.Column("added_ms", _MS, nullable=False),
    sa.Column("ended_ms", _MS),
    sa.Column("applet_error", sa.Text),
    sa.UniqueConstraint("flow", "place", "dedupe_key"),
    sa.Index("flow_item_job", "job"),
    sa.Index("flow_item_state", "flow", "place", "state", "is_queued", "number"),
    sa.Index(
        "flow_item_broken",
        "flow",
        "place",
        "number",
        sqlite_where=sa.text("applet_error IS NOT NULL"),
        postgresql_where=sa.text("applet_error IS NOT NULL"),
    ).ddl_if(callable_=lambda *_, dialect, **__: dialect.name in ("sqlite", "postgresql")),
    sa.Index(
        "flow_item_serialize",
        "serialize_key",
        "state",
        "is_queued",
        "number",
        sqlite_where=sa.text("serialize_key IS NOT NULL"),
        postgresql_where=sa.text("serialize_key IS NOT NULL"),
    ),
    **_OPTIONS,
)

FAILURES = sa.Table(
    "flow_failure",
    METADATA,
    sa.Column("item", _MS, primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at_ms", _MS, nullable=False),
    sa.Column("worker", sa.String(255), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("claim", sa.Text, nullable=False),
    **{name: value for name, value in _OPTIONS.items() if name != "sqlite_autoincrement"},
)

CALLBACKS = sa.Table(
    "flow_callback",
    METADATA,
    sa.Column("flow", _MS, primary_key=True, autoincrement=False),
    sa.Column("id", sa.String(32), nullable=False),
    sa.Column("due_ms", _MS, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("done_ms", _MS),
    sa.Index("flow_callback_due", "done_ms", "due_ms"),
    **{name: value for name, value in _OPTIONS.items() if name != "sqlite_autoincrement"},
)

REOPENED_FLOWS = sa.Table(
    "flow_reopened",
    METADATA,
    sa.Column("flow", _MS, primary_key=True, autoincrement=False),
    sa.Column("ends", sa.Integer, nullable=False),
    **{name: value for name, value in _OPTIONS.items() if name != "sqlite_autoincrement"},
)
"""How many ends a flow had when it was opened again last. One that never was has no row here."""

OWNED_FLOWS = sa.Table(
    "flow_owned",
    METADATA,
    sa.Column("flow", _MS, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Index("flow_owned_owner", "owner", "flow"),
    **{name: value for name, value in _OPTIONS.items() if name != "sqlite_autoincrement"},
)
"""Whose a flow is. One that has no row here is nobody's."""

OWNERS = sa.Table(
    "flow_owner",
    METADATA,
    sa.Column("owner", sa.String(255), primary_key=True),
    sa.Column("flows", _MS, nullable=False),
    sa.Column("items", _MS, nullable=False),
    **{name: value for name, value in _OPTIONS.items() if name != "sqlite_autoincrement"},
)
"""How many each owner has; see owned_flows.py."""

KEEPERS = sa.Table(
    "flow_keeper",
    METADATA,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("holder", sa.String(255), nullable=False),
    sa.Column("until_ms", _MS, nullable=False),
    **{name: value for name, value in _OPTIONS.items() if name != "sqlite_autoincrement"},
)
"""One row: the process that puts items into queues and looks after what is stuck, and until when it says so."""


def upgrade(connection: sa.Connection) -> None:
    """Make the tables that are missing. Two processes may do so at once."""
    METADATA.create_all(connection, checkfirst=True)
    if connection.execute(sa.select(KEEPERS.c.name)).first() is None:
        with suppress(sa.exc.IntegrityError), connection.begin_nested():
            connection.execute(sa.insert(KEEPERS).values(name="keeper", holder="", until_ms=0))
