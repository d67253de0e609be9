"""What is said of a statement that a database refused has none of the values that it carried."""

from __future__ import annotations

import contextlib

import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from pinlater.backends.sql import mysql, postgres
from pinlater.backends.sql.driver_texts import driver_text
from pinlater.errors import FlowsUnavailable, PinLaterError
from pinlater.flows.ends import ItemEnd
from pinlater.flows.tables import FAILURES
from tests.flows.stand import ROOT, START_MS, feed, job_of, opened
from tests.flows.test_database import flow_of
from tests.stores.process import StoreServer

CARD = "4111-1111-1111-1111"
TABLE = "CREATE TABLE cards (number varchar(30) PRIMARY KEY, amount integer NOT NULL CHECK (amount > 0))"


def refused(server: StoreServer, statement: str) -> BaseException:
    """The driver's error."""
    server.empty(0)
    engine = sa.create_engine(server.url(0))
    with contextlib.closing(engine.raw_connection()) as connection:
        cursor = connection.cursor()
        for each in ("DROP TABLE IF EXISTS cards", TABLE, f"INSERT INTO cards VALUES ('{CARD}', 1)"):
            cursor.execute(each)
        with pytest.raises((psycopg.Error, pymysql.Error)) as caught:
            cursor.execute(statement)
    engine.dispose()
    return caught.value


STATEMENTS = {
    "key": f"INSERT INTO cards VALUES ('{CARD}', 1)",
    "row": f"INSERT INTO cards VALUES ('{CARD}-2', -1)",
    "null": f"INSERT INTO cards VALUES ('{CARD}-3', NULL)",
    "number": f"INSERT INTO cards VALUES ('x', '{CARD}')",
    "syntax": f"INSERT INTO cards VALUES ('x', 1) '{CARD}' '{CARD}'",
    "function": f"SELECT nothing('{CARD}')",
}
"""What each of them refuses, and quotes."""


@pytest.mark.store("postgres")
@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_postgres(postgres_server: StoreServer, statement: str) -> None:
    error = refused(postgres_server, statement)
    told = postgres.shard_error(error, "db-1", committing=False)
    assert isinstance(told, PinLaterError)
    assert (CARD in told.message, "db-1" in told.message) == (False, True)


class Refusal(Exception):
    """As psycopg has it of a database that speaks another language."""

    sqlstate = "22P02"

    def __init__(self, text: str) -> None:
        self.diag = self
        self.message_primary = text


@pytest.mark.parametrize("quoted", ["»%s«", "« %s »", "„%s”", "“%s”", "'%s'", "「%s」", '"%s"'])
def test_values_are_left_out_in_any_language(quoted: str) -> None:
    told = driver_text(Refusal(f"ungültige Eingabesyntax für Typ integer: {quoted % CARD}"))
    assert told == 'ungültige Eingabesyntax für Typ integer: "…"'


@pytest.mark.store("mysql")
@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_mariadb(mysql_server: StoreServer, statement: str) -> None:
    told = mysql.shard_error(refused(mysql_server, statement), "db-1", committing=False)
    assert (CARD in told.message, "db-1" in told.message) == (False, True)


@pytest.mark.store("postgres")
def test_the_database_of_flows(postgres_server: StoreServer) -> None:
    """One transaction has what many callers say: what is wrong with one is told to all of them."""
    postgres_server.empty(0)
    with opened(postgres_server.url(0)) as database:
        flow_of(database, ROOT, items=1)
        engine = sa.create_engine(postgres_server.url(0))
        with engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER TABLE {FAILURES.name} ADD CHECK (reason = 'known')")
        engine.dispose()
        end = ItemEnd(job_of(feed(database)[0]), None, worker="w", reason=CARD, claim="c")
        with pytest.raises(FlowsUnavailable, match="violates check constraint") as caught:
            database.record([end], START_MS)
    assert CARD not in caught.value.message
