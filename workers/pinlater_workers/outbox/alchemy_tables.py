"""The tables of an outbox as SQLAlchemy has them, so that Alembic finds them. They are those of schema.py."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from pinlater_workers.errors import ConfigurationError
from pinlater_workers.outbox.schema import TableNames


def add_tables(metadata: sa.MetaData, table: str) -> list[sa.Table]:
    """The tables in this metadata, as Alembic sees them. ConfigurationError: another table has the name."""
    schema, _, name = TableNames.of(table).jobs.rpartition(".")
    for each in TableNames.of(table):
        if each in metadata.tables:
            raise ConfigurationError(f"the metadata has a table {each} already; add the outbox to it once")

    def columns() -> list[sa.Column[Any]]:
        return [
            sa.Column("job_key", sa.CHAR(32), nullable=False),
            sa.Column("queue", sa.String(64), nullable=False),
            sa.Column("body", sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"), nullable=False),
            sa.Column("priority", sa.Integer(), nullable=False),
            sa.Column("attempts", sa.Integer(), nullable=False),
            sa.Column("run_after_ms", sa.BigInteger()),
            sa.Column("enqueued_at_ms", sa.BigInteger(), nullable=False),
            sa.Column("more", sa.Text()),
        ]

    def made(suffix: str, *own: sa.Column[Any]) -> sa.Table:
        options: dict[str, Any] = {"sqlite_autoincrement": not suffix, "mysql_engine": "InnoDB"}
        options |= {"mysql_charset": "utf8mb4", "mariadb_engine": "InnoDB", "mariadb_charset": "utf8mb4"}
        return sa.Table(f"{name}{suffix}", metadata, *own, schema=schema or None, **options)

    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    identity = sa.Identity(always=False)
    return [
        made("", sa.Column("id", number, identity, primary_key=True), *columns()),
        made(
            "_refused",
            sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=False),
            *columns(),
            sa.Column("refused_at_ms", sa.BigInteger(), nullable=False),
            sa.Column("error", sa.Text(), nullable=False),
        ),
        made(
            "_relay",
            sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
            sa.Column("relay", sa.String(255), nullable=False),
            sa.Column("seen_at_ms", sa.BigInteger(), nullable=False),
            sa.Column("handed_over", sa.BigInteger(), nullable=False),
            sa.Column("error", sa.Text()),
            sa.Column("error_since_ms", sa.BigInteger()),
        ),
    ]
