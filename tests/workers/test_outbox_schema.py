"""The tables of an outbox: the same by every way of making them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from django.db import connections, migrations
from django.db.migrations.state import ProjectState

from pinlater_workers import ConfigurationError
from pinlater_workers.outbox import Outbox
from pinlater_workers.outbox.schema import DIALECTS as NAMES
from pinlater_workers.outbox.schema import creation
from tests.workers.outbox_stand import DIALECTS, OutboxPlace, Shop, fresh_place, numbers
from tests.workers.test_outbox_connections import django_database

TABLES = ["pinlater_outbox", "pinlater_outbox_refused", "pinlater_outbox_relay"]


@pytest.fixture(params=DIALECTS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> OutboxPlace:
    return fresh_place(request.param, request, tmp_path)


def shape(place: OutboxPlace) -> dict[str, Any]:
    """Columns and keys as the database has them."""
    found = sa.inspect(place.engine)
    return {
        table: (
            [(each["name"], str(each["type"]), each["nullable"]) for each in found.get_columns(table)],
            found.get_pk_constraint(table)["constrained_columns"],
        )
        for table in sorted(found.get_table_names())
    }


def test_sqlalchemy_makes_the_same_tables_and_alembic_finds_nothing_to_do(place: OutboxPlace) -> None:
    outbox = Shop().outbox
    metadata = sa.MetaData()
    outbox.add_to(metadata)
    with place.engine.begin() as connection:
        outbox.create_table(connection)
        outbox.create_table(connection)  # where they are, nothing happens
    with place.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    ours = shape(place)
    assert list(ours) == TABLES
    with place.engine.begin() as connection:
        outbox.drop_table(connection)
    assert shape(place) == {}
    metadata.create_all(place.engine)
    assert shape(place) == ours


def test_ids_never_come_again_where_a_table_was_emptied(place: OutboxPlace) -> None:
    shop = Shop()
    shop.record()
    ids = []
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)
    for number in range(3):
        with place.engine.begin() as connection:
            shop.outbox.enqueue(connection, shop.send, "ada", number=number)
        ids.append(place.rows("SELECT id FROM pinlater_outbox")[0][0])
        assert shop.outbox.relay(place.url).run_once() == 1
    assert ids == sorted(set(ids))


def test_several_outboxes_in_one_database_know_nothing_of_each_other(place: OutboxPlace) -> None:
    shop = Shop()
    sink = shop.record()
    other = Outbox(shop.app, table="bills_outbox")
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)
        other.create_table(connection)
        shop.outbox.enqueue(connection, shop.send, "ada", number=1)
        other.enqueue(connection, shop.send, "ada", number=2)
    assert other.relay(place.url).run_once() == 1
    assert [numbers(jobs) for _, jobs in sink.calls] == [[2]]


def test_a_migration_of_django_makes_and_drops_them(place: OutboxPlace) -> None:
    outbox = Shop().outbox
    operation = migrations.RunPython(
        lambda apps, editor: outbox.create_table(editor.connection),
        lambda apps, editor: outbox.drop_table(editor.connection),
    )
    state = ProjectState()
    with django_database(place, place.engine.dialect.name) as alias:
        with connections[alias].schema_editor() as editor:
            operation.database_forwards("shop", editor, state, state)
        assert list(shape(place)) == TABLES
        with connections[alias].schema_editor() as editor:
            operation.database_backwards("shop", editor, state, state)
    assert shape(place) == {}


@pytest.mark.store("postgres")
def test_a_table_in_a_schema(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = fresh_place("postgresql", request, tmp_path)
    shop = Shop()
    sink = shop.record()
    outbox = Outbox(shop.app, table="jobs.outbox")
    place.run("CREATE SCHEMA jobs")
    with place.engine.begin() as connection:
        outbox.create_table(connection)
        outbox.enqueue(connection, shop.send, "ada", number=3)
    assert outbox.relay(place.url).run_once() == 1
    assert [numbers(jobs) for _, jobs in sink.calls] == [[3]]
    metadata = sa.MetaData()
    assert [table.fullname for table in outbox.add_to(metadata)] == [
        "jobs.outbox",
        "jobs.outbox_refused",
        "jobs.outbox_relay",
    ]


@pytest.mark.parametrize("dialect", NAMES)
def test_the_statements_are_whole_and_name_the_table(dialect: str) -> None:
    statements = creation("shop_outbox", dialect)
    assert [re.findall(r"EXISTS (\w+)", each) for each in statements] == [
        ["shop_outbox"],
        ["shop_outbox_refused"],
        ["shop_outbox_relay"],
    ]


@pytest.mark.parametrize("table", ["", "a b", "1st", "x" * 41, 'a"; DROP TABLE users; --', "a.b.c", None])
def test_what_is_no_name_of_a_table_is_refused(table: Any) -> None:
    with pytest.raises(ConfigurationError, match="allowed: 1 to 40 letters, digits and _"):
        creation(table, "sqlite")


def test_a_dialect_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match="a dialect 'mariadb'; allowed: postgresql, mysql, sqlite"):
        creation("outbox", "mariadb")


def test_metadata_takes_the_tables_once() -> None:
    metadata = sa.MetaData()
    outbox = Shop().outbox
    outbox.add_to(metadata)
    with pytest.raises(ConfigurationError, match="has a table pinlater_outbox already"):
        outbox.add_to(metadata)
