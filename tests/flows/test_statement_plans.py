"""Every statement on the way of items reaches its rows by an index, so that no cost grows with what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from pinlater.flows.database import FlowDatabase
from pinlater.flows.ends import ItemEnd
from pinlater.flows.tables import METADATA
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    ItemState,
    NewFlow,
    NewItem,
    OnFailure,
    Stage,
)
from tests.flows.stand import ROOT, START_MS, feed, flow_of, job_of, opened

BELOW = Stage("below", "x", "q", "calculate", Applet(AppletKind.PASS))
FLOWS, ITEMS = 40, 50
OF_ONE_ROW = "flow_keeper"
PARTIAL = ("flow_stage_waiting", "flow_stage_queued")
"""Indexes of the rows alone that are looked for, which are read whole."""


FIRST_COLUMNS = {
    str(index.name): index.columns.values()[0].name for table in METADATA.sorted_tables for index in table.indexes
}


class Said(NamedTuple):
    statement: str
    parameters: Any


@contextmanager
def listening() -> Iterator[dict[str, Said]]:
    """What is said to any database meanwhile, each statement once."""
    said: dict[str, Said] = {}

    def hear(_: sa.Connection, __: object, statement: str, parameters: Any, ___: object, is_many: bool) -> None:
        if statement.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "INSERT")):
            said.setdefault(
                statement, Said(statement, parameters[0] if is_many and isinstance(parameters, list) else parameters)
            )

    sa.event.listen(sa.Engine, "before_cursor_execute", hear)
    try:
        yield said
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", hear)


def work_through(database: FlowDatabase) -> None:
    """The whole way of items: added, fed, recorded, looked after, and the end of their flow."""
    database.keep("me", START_MS + 5_000, START_MS)
    flow_id = flow_of(
        database,
        ROOT,
        BELOW,
        on_failure=OnFailure.STOP_STAGE,
        on_complete=CompletionCallback(queue="done"),
        dedupe_key="k",
        owner="token:first",
    )
    for queue in ("b", "b", "c"):  # of other callers, who may not fill the first one
        others = NewFlow("payroll", [Stage("pay", "", queue)], "k")
        database.flows("payroll", "k", None, 0, 10, {queue}.issuperset)
        database.delete(database.create(others, START_MS, may_fill={queue}.issuperset).id, 10)
    for number in range(FLOWS):
        flow_of(database, ROOT, BELOW, items=ITEMS, sealed=["calculate"], owner=f"token:{number}")
    database.add(flow_id, "calculate", [NewItem(b"1"), NewItem(b"2"), NewItem(b"3")], START_MS)
    database.add(flow_id, "calculate", [NewItem(b"4", "a", "s"), NewItem(b"5", "b", "s")], START_MS)
    items = [item for item in feed(database, limit=10) if item.flow_id == flow_id]
    assert len(items) >= 4
    found, _ = database.held((0, 0, 0), START_MS + 60_000, 100)
    database.lost({found[0].number: found[0].job})
    database.record(
        [ItemEnd(job_of(items[0]), b"1"), ItemEnd(job_of(items[1]), b"2", number=items[1].number)], START_MS
    )
    for turn in range(3):
        database.record([ItemEnd(job_of(items[2]), None, f"claim {turn}", "w", "it broke")], START_MS)
    database.seal(flow_id, "calculate", START_MS)
    while database.stopping():
        for each in database.stopping():
            database.stop(each, START_MS, 1_000)
    below = [item for item in feed(database, "below") if item.flow_id == flow_id]
    assert database.record([ItemEnd(job_of(item), b"1") for item in below], START_MS).over == [flow_id]
    assert database.take_callbacks(START_MS, START_MS, 10)
    assert database.take_callbacks(START_MS, START_MS + 1_000, 10, flow_id)
    assert database.over_among([flow_id]) == [flow_id]
    assert database.open_flows()
    database.status(flow_id)
    database.counts_of("token:1")
    database.reap(START_MS + 10**12, 100)
    database.recount("", 1_000)


def stay_unknown(engine: sa.Engine) -> None:
    """PostgreSQL does not look by itself how little is in the tables: it reads small ones whole, and is right to."""
    with engine.begin() as connection:
        for table in METADATA.sorted_tables:
            connection.exec_driver_sql(f"ALTER TABLE {table.name} SET (autovacuum_enabled = off)")


def whole_reads(connection: sa.Connection, said: Said) -> list[str]:
    """What a statement reads whole, as the database plans it."""
    name = connection.dialect.name
    if name == "postgresql":
        (plan,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {said.statement}", said.parameters).scalars()
        document = json.loads(plan) if isinstance(plan, str) else plan
        return [text for each in nodes_of(document[0]["Plan"]) if (text := read_by_postgresql(each))]
    prefix = "EXPLAIN QUERY PLAN" if name == "sqlite" else "EXPLAIN"
    rows = connection.exec_driver_sql(f"{prefix} {said.statement}", said.parameters).mappings().all()
    if name == "sqlite":
        steps = [row["detail"] for row in rows]
        return [
            step
            for step in steps
            if step.startswith("SCAN flow") and not step.endswith(PARTIAL) and OF_ONE_ROW not in step
        ]
    return [
        f"{row['table']} by {row['key']}"
        for row in rows
        if row["type"] in ("ALL", "index") and row["select_type"] != "INSERT" and is_large(row["table"])
    ]


def is_large(table: str | None) -> bool:
    return table is not None and not table.startswith("<") and table != OF_ONE_ROW


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes_of(below)


def read_by_postgresql(node: dict[str, Any]) -> str:
    """The table or index that a step of a plan reads whole; "" for none. A condition on others than the first column of
    an index looks at all of it.
    """
    if node["Node Type"] == "Seq Scan":
        return "" if node["Relation Name"] == OF_ONE_ROW else str(node["Relation Name"])
    if node["Node Type"] not in ("Index Scan", "Index Only Scan", "Bitmap Index Scan"):
        return ""
    name, condition = str(node["Index Name"]), node.get("Index Cond", "")
    is_narrow = condition and FIRST_COLUMNS.get(name, "") in condition
    return "" if is_narrow or name in PARTIAL else name


def test_every_statement_on_the_way_of_items_reaches_its_rows_by_an_index(url: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with opened(url) as database, listening() as said:
        if engine.dialect.name == "postgresql":
            stay_unknown(engine)
        work_through(database)
    assert len(said) > 40
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            for way in ("seqscan", "hashjoin", "mergejoin"):  # as the server has it
                connection.exec_driver_sql(f"SET enable_{way} = off")
        whole = {each.statement: read for each in said.values() if (read := whole_reads(connection, each))}
    engine.dispose()
    assert whole == {}


def test_a_page_of_items_is_not_sorted_out_of_all_of_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/flows.db"
    with opened(url) as database, listening() as said:
        flow_id = flow_of(database, ROOT, BELOW, items=ITEMS)
        said.clear()
        for state in (None, *ItemState):
            database.items(flow_id, "", state, "", (), 0, 10)
            database.items(flow_id, "calculate", state, "", (), 0, 10)
    with sa.create_engine(url, poolclass=sa.pool.NullPool).connect() as connection:
        of_items = [each for each in said.values() if "flow_item" in each.statement]
        steps = [
            row.detail
            for each in of_items
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each.statement}", each.parameters)
        ]
    assert any("flow_item_state" in step for step in steps)
    assert [step for step in steps if "TEMP B-TREE" in step or step.startswith("SCAN flow_item")] == []
