"""A loop written by hand over the tables of flows: the two steps with no server, no queue and no worker in between.

It adds, claims and records items by SQL, in batches, each a transaction that is as durable as those of a server. An
item that is recorded counts, makes its child in the same transaction, and a stage that has no more seals the next. It
has one connection, tries nothing again, and knows of no other program: what a server could be at best.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import sqlalchemy as sa

from pinlater.flows.database import FlowDatabase
from pinlater.model.flow_words import NewFlow
from tests.bench.flows.producer import BATCH, STAGES

CLAIMED = 100
"""Items in one claim and in one record, as of a worker that has as many slots."""

_INSERT = (
    "INSERT INTO flow_item (flow, place, state, is_queued, payload, failures, dedupe_key, added_ms)"
    " VALUES (?, ?, 0, 0, ?, 0, ?, ?)"
)
_WAITING = (
    "SELECT number, payload FROM flow_item WHERE flow = ? AND place = ? AND state = 0 AND is_queued = 0"
    " ORDER BY number LIMIT ?"
)
_CLAIM = "UPDATE flow_item SET is_queued = 1, job = ?, queued_ms = ? WHERE number = ?"
_RECORD = "UPDATE flow_item SET state = 1, is_queued = 0, result = ?, ended_ms = ? WHERE number = ? AND state = 0"
_LOCK = "SELECT place, pending FROM flow_stage WHERE flow = ? ORDER BY place"
_ADDED = "UPDATE flow_stage SET items = items + ?, pending = pending + ? WHERE flow = ? AND place = ?"
_QUEUED = "UPDATE flow_stage SET queued = queued + ? WHERE flow = ? AND place = ?"
_ENDED = (
    "UPDATE flow_stage SET pending = pending - ?, queued = queued - ?, succeeded = succeeded + ?"
    " WHERE flow = ? AND place = ?"
)
_SEAL = "UPDATE flow_stage SET sealed_ms = ? WHERE flow = ? AND place = ?"
_COMPLETE = "UPDATE flow SET state = 1, completed_ms = ? WHERE number = ?"


def carried_out(url: str, items: int) -> float:
    """Root items a second, in an empty place of a database."""
    database = FlowDatabase(url)
    database.open()
    flow_id = database.create(NewFlow("payroll", STAGES), _now_ms()).id
    database.close()
    connection = _connected(url)
    try:
        loop = _Loop(connection, is_sqlite=url.startswith("sqlite"))
        loop.find(flow_id)
        began_s = time.monotonic()
        loop.run(items)
        return items / (time.monotonic() - began_s)
    finally:
        connection.close()


def _connected(url: str) -> Any:
    parsed = sa.make_url(url)
    if url.startswith("sqlite"):
        made = sqlite3.connect(str(parsed.database), isolation_level=None)
        made.execute("PRAGMA synchronous = FULL")
        return made
    psycopg = import_module("psycopg")
    where = {"host": parsed.host, "port": parsed.port, "user": parsed.username, "dbname": parsed.database}
    return psycopg.connect(**where, autocommit=True)


class _Loop:
    def __init__(self, connection: Any, *, is_sqlite: bool) -> None:
        self._cursor = connection.cursor()
        self._begin = "BEGIN IMMEDIATE" if is_sqlite else "BEGIN"
        self._mark = "?" if is_sqlite else "%s"
        self._lock = _LOCK if is_sqlite else f"{_LOCK} FOR UPDATE"
        self._flow = 0

    def find(self, flow_id: str) -> None:
        (self._flow,) = self._rows("SELECT number FROM flow WHERE id = ?", flow_id)[0]

    def run(self, items: int) -> None:
        for start in range(0, items, BATCH):
            self._add([b'{"user":%d}' % user for user in range(start, min(start + BATCH, items))])
        self._do(_SEAL, _now_ms(), self._flow, 0)
        is_open = True
        while is_open:
            is_open = False
            for place in (0, 1):
                claimed = self._claim(place)
                if claimed:
                    is_open = True
                    self._record(place, claimed)

    def _add(self, payloads: Sequence[bytes]) -> None:
        self._do(self._begin)
        self._rows(self._lock, self._flow)
        now_ms = _now_ms()
        self._many(_INSERT, [(self._flow, 0, payload, None, now_ms) for payload in payloads])
        self._do(_ADDED, len(payloads), len(payloads), self._flow, 0)
        self._do("COMMIT")

    def _claim(self, place: int) -> list[tuple[int, bytes]]:
        self._do(self._begin)
        found = self._rows(_WAITING, self._flow, place, CLAIMED)
        if found:
            now_ms = _now_ms()
            self._many(_CLAIM, [(f"job {number}", now_ms, number) for number, _ in found])
            self._do(_QUEUED, len(found), self._flow, place)
        self._do("COMMIT")
        return found

    def _record(self, place: int, claimed: Sequence[tuple[int, bytes]]) -> None:
        results, children = [], []
        now_ms = _now_ms()
        for number, payload in claimed:
            said = json.loads(payload)
            if place == 0:
                result = {"amount": 7 * said["user"]}
                child = json.dumps({"user": said["user"], "amount": result["amount"]}).encode()
                children.append((self._flow, 1, child, f"@{number}:0", now_ms))
            else:
                result = {"paid": said["amount"]}
            results.append((json.dumps(result).encode(), now_ms, number))
        self._do(self._begin)
        pending = dict(self._rows(self._lock, self._flow))
        self._many(_RECORD, results)
        amount = len(results)
        self._do(_ENDED, amount, amount, amount, self._flow, place)
        if children:
            self._many(_INSERT, children)
            self._do(_ADDED, amount, amount, self._flow, 1)
        if pending[place] == amount:
            self._do(*((_SEAL, now_ms, self._flow, 1) if place == 0 else (_COMPLETE, now_ms, self._flow)))
        self._do("COMMIT")

    def _do(self, statement: str, *values: object) -> None:
        self._cursor.execute(statement.replace("?", self._mark), values)

    def _many(self, statement: str, values: Sequence[tuple[object, ...]]) -> None:
        self._cursor.executemany(statement.replace("?", self._mark), values)

    def _rows(self, statement: str, *values: object) -> list[Any]:
        self._do(statement, *values)
        return list(self._cursor.fetchall())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
