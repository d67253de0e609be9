"""Many rows in one statement: for PostgreSQL as lists, so that its text is short and always the same; for the others as
values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from pinlater.flows.tables import ITEMS

_NTH = "nth"


def is_postgresql(connection: sa.Connection) -> bool:
    return connection.dialect.name == "postgresql"


def among(connection: sa.Connection, column: sa.Column[Any], values: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Whether a column has one of these."""
    if is_postgresql(connection):
        return column == sa.any_(_listed(column, values))
    return column.in_(values)


def change_items(connection: sa.Connection, rows: Sequence[Mapping[str, Any]], same: Mapping[str, Any]) -> None:
    """Give items, by their `number`, each its own values, and all of them the same ones."""
    own = [name for name in rows[0] if name != "number"]
    change = sa.update(ITEMS)
    if is_postgresql(connection):
        given = _as_table(rows)
        values = {name: given.c[name] for name in own}
        connection.execute(change.where(ITEMS.c.number == given.c.number).values(**values, **same))
        return
    bound: dict[str, Any] = {name: sa.bindparam(f"own_{name}") for name in own}
    by_number = change.where(ITEMS.c.number == sa.bindparam("own_number")).values(**bound, **same)
    connection.execute(by_number, [{f"own_{name}": value for name, value in row.items()} for row in rows])


def insert_unless_taken(
    connection: sa.Connection, rows: Sequence[Mapping[str, Any]], same: Mapping[str, Any]
) -> dict[str, int]:
    """Add items whose dedupe keys are not taken, as `change_items` has their values; the numbers of these by their
    keys.
    """
    known: dict[str, int] = {}
    answer = ITEMS.c.dedupe_key, ITEMS.c.number
    if is_postgresql(connection):
        adding = _insert_from(_as_table(rows), same)
        found = connection.execute(adding.on_conflict_do_nothing().returning(*answer))
    else:
        ignoring = (
            sqlite.insert(ITEMS).on_conflict_do_nothing()
            if connection.dialect.name == "sqlite"
            else sa.insert(ITEMS).prefix_with("IGNORE")
        )
        found = connection.execute(ignoring.returning(*answer), [{**row, **same} for row in rows])
    known.update((key, number) for key, number in found)
    return known


def insert_in_order(connection: sa.Connection, rows: Sequence[Mapping[str, Any]], same: Mapping[str, Any]) -> list[int]:
    """Add items, none of whose keys is taken; their numbers, in order."""
    if is_postgresql(connection):
        given = _as_table(rows)
        numbers = connection.execute(_insert_from(given, same, given.c[_NTH]).returning(ITEMS.c.number)).scalars()
        return sorted(numbers)
    in_order = sa.insert(ITEMS).returning(ITEMS.c.number, sort_by_parameter_order=True)
    return list(connection.execute(in_order, [{**row, **same} for row in rows]).scalars())


def _insert_from(given: sa.TableValuedAlias, same: Mapping[str, Any], *order: Any) -> postgresql.Insert:
    values: dict[str, Any] = {column.name: column for column in given.c if column.name != _NTH}
    values |= {name: sa.literal(value, ITEMS.c[name].type) for name, value in same.items()}
    return postgresql.insert(ITEMS).from_select(list(values), sa.select(*values.values()).order_by(*order))


def _as_table(rows: Sequence[Mapping[str, Any]]) -> sa.TableValuedAlias:
    """Rows of PostgreSQL, a list for each column, and the place of each."""
    lists = [_listed(ITEMS.c[name], [row[name] for row in rows]) for name in rows[0]]
    columns = [sa.column(name, ITEMS.c[name].type) for name in rows[0]]
    return sa.func.unnest(*lists).table_valued(*columns, with_ordinality=_NTH, name="given").render_derived()


def _listed(column: sa.Column[Any], values: Sequence[Any]) -> sa.Cast[Any]:
    list_type = postgresql.ARRAY(column.type)
    return sa.cast(sa.bindparam(None, list(values), list_type, unique=True), list_type)
