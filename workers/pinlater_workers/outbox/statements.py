"""The statements of an outbox in the SQL of one database, with ? where a parameter goes; and the rows they bring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

import msgspec

from pinlater.model import ExtendedJob, Job, OnDuplicate, ReplaceRunning
from pinlater_workers.jobs.enqueue_calls import slices
from pinlater_workers.outbox.schema import DialectName, TableNames

ROWS_PER_INSERT = 100
"""So many rows in one statement: 800 parameters, which every database takes, and one round trip."""

MOST_COUNTED = 100_000
"""A relay counts no more rows, as it does so every ten seconds."""

_KEYED = frozenset({"dedupe_key", "serialize_key", "send_id"})
_COLUMNS = ("body", "priority", "run_after_ms", "attempts_allowed")
_DEFAULTS = {each.name: each.default for each in fields(ExtendedJob) if each.default is not MISSING}
_FIELDS = "job_key, queue, body, priority, attempts, run_after_ms, enqueued_at_ms, more"


class RowHead(NamedTuple):
    """A job that waits, without its body."""

    id: int
    queue: str
    size: int


class OutboxRow(NamedTuple):
    """A job that waits. What has no column is in `more`: versions that do not know a field of it refuse the job."""

    id: int
    key: str
    queue: str
    body: bytes
    priority: int
    attempts: int
    run_after_ms: int | None
    more: str | None

    @property
    def extras(self) -> dict[str, Any]:
        """The fields of the job that have no column; what cannot be read is a field that nobody knows."""
        if not self.more:
            return {}
        try:
            return msgspec.json.decode(self.more, type=dict[str, Any])
        except msgspec.DecodeError:
            return {self.more: None}

    @property
    def is_keyed(self) -> bool:
        return not _KEYED.isdisjoint(self.extras)

    @property
    def is_extended(self) -> bool:
        """Whether servers of versions before keys could not take it."""
        return not self.extras.keys() <= {"custom_status"}

    def job(self, *, with_id: bool) -> Job:
        """The job as it was enqueued; a duplicate of it is as good as the job, so none is rejected. `with_id`: with its
        key as send id, so that it can be sent again. ValueError or TypeError: a field that this version does not know.
        """
        found = self.extras
        if not with_id and found.keys() <= {"custom_status"}:
            return Job(bytes(self.body), self.priority, self.run_after_ms, self.attempts, **found)
        on_duplicate = OnDuplicate(found.pop("on_duplicate", OnDuplicate.KEEP))
        if on_duplicate is OnDuplicate.REJECT:
            on_duplicate = OnDuplicate.KEEP
        if with_id:
            found.setdefault("send_id", self.key)
        replace_running = ReplaceRunning(found.pop("replace_running", ReplaceRunning.KEEP))
        job = ExtendedJob(bytes(self.body), self.priority, self.run_after_ms, self.attempts, **found)
        job.on_duplicate, job.replace_running = on_duplicate, replace_running
        return job


def insert_values(queue: str, job: Job, key: str, now_ms: int) -> tuple[Any, ...]:
    """The values of a job's row, in the order of its columns."""
    more = {
        each.name: getattr(job, each.name)
        for each in fields(job)
        if each.name not in _COLUMNS and getattr(job, each.name) != _DEFAULTS[each.name]
    }
    encoded = msgspec.json.encode(more).decode() if more else None
    return key, queue, job.body, job.priority, job.attempts_allowed, job.run_after_ms, now_ms, encoded


class OutboxStatements:
    """Those for one outbox in one kind of database."""

    def __init__(self, table: str, dialect: DialectName) -> None:
        self._names = TableNames.of(table)
        self._dialect = dialect
        # As a text of hexadecimal digits bytes mean the same under every character set of a connection to MySQL.
        body = "UNHEX(?)" if dialect == "mysql" else "?"
        self._values = f"(?, ?, {body}, ?, ?, ?, ?, ?)"
        self._insert = f"INSERT INTO {self._names.jobs} ({_FIELDS}) VALUES "
        self._insert_one = self._insert + self._values

    # -- producers -------------------------------------------------------------------------------------------------

    def insert(self, rows: Sequence[tuple[Any, ...]]) -> tuple[str, list[Any]]:
        """One statement for these rows, and its parameters."""
        values = [value for row in rows for value in row]
        if self._dialect == "mysql":
            values[2::8] = [body.hex() for body in values[2::8]]
        if len(rows) == 1:
            return self._insert_one, values
        return self._insert + ", ".join([self._values] * len(rows)), values

    # -- relays ----------------------------------------------------------------------------------------------------

    def heads(self, limit: int, without: Sequence[str] = ()) -> tuple[str, list[Any]]:
        """The first jobs that are not of these queues. All that can be seen, whatever was read before."""
        where = f" WHERE queue NOT IN ({', '.join('?' * len(without))})" if without else ""
        return (
            f"SELECT id, queue, LENGTH(body) FROM {self._names.jobs}{where} ORDER BY id LIMIT {limit}",
            list(without),
        )

    def backlog(self) -> str:
        """How many jobs there are, and when the oldest of them was enqueued, of the first ones."""
        first = f"SELECT enqueued_at_ms FROM {self._names.jobs} ORDER BY id LIMIT {MOST_COUNTED}"
        return f"SELECT COUNT(*), MIN(enqueued_at_ms) FROM ({first}) AS jobs"

    def rows(self, ids: Iterable[int]) -> str:
        return (
            "SELECT id, job_key, queue, body, priority, attempts, run_after_ms, more "
            f"FROM {self._names.jobs} WHERE id IN ({_listed(ids)}) ORDER BY id"
        )

    def delete(self, ids: Iterable[int]) -> str:
        return f"DELETE FROM {self._names.jobs} WHERE id IN ({_listed(ids)})"

    def delete_again(self, ids: Iterable[int], keys: Sequence[str]) -> tuple[str, list[Any]]:
        """Rows of which it is not known whether their removal was committed; never others that have their ids now."""
        marks = ", ".join("?" * len(keys))
        return f"{self.delete(ids)} AND job_key IN ({marks})", list(keys)

    def set_aside(self, ids: Iterable[int], now_ms: int) -> str:
        """A copy among those that were refused; its parameter is the error."""
        return (
            f"INSERT INTO {self._names.refused} (id, {_FIELDS}, refused_at_ms, error) "
            f"SELECT id, {_FIELDS}, {int(now_ms)}, ? FROM {self._names.jobs} WHERE id IN ({_listed(ids)})"
        )

    def seed(self) -> str:
        """The row of the relays, where there is none. Its parameter is a time."""
        names = self._names
        row = f"INTO {names.relay} (id, relay, seen_at_ms, handed_over) VALUES (1, '', ?, 0)"
        if self._dialect == "mysql":
            return f"INSERT IGNORE {row}"
        return f"INSERT {row} ON CONFLICT DO NOTHING"

    def is_seeded(self) -> str:
        return f"SELECT id FROM {self._names.relay} WHERE id = 1"

    def lock(self) -> str:
        """Until the transaction ends. No row: another relay has it."""
        return f"SELECT id FROM {self._names.relay} WHERE id = 1 FOR UPDATE SKIP LOCKED"

    def relay_row(self) -> str:
        return f"SELECT relay, seen_at_ms, handed_over, error, error_since_ms FROM {self._names.relay} WHERE id = 1"

    def note(self) -> str:
        """Parameters: the relay's name, the time, how many more were handed over."""
        return (
            f"UPDATE {self._names.relay} SET relay = ?, seen_at_ms = ?, handed_over = handed_over + ?, "
            "error = NULL, error_since_ms = NULL WHERE id = 1"
        )

    def note_error(self) -> str:
        """Parameters: the relay's name, the time, how many more were handed over, the error, the time."""
        return (
            f"UPDATE {self._names.relay} SET relay = ?, seen_at_ms = ?, handed_over = handed_over + ?, error = ?, "
            "error_since_ms = COALESCE(error_since_ms, ?) WHERE id = 1"
        )

    # -- operators -------------------------------------------------------------------------------------------------

    def counts(self, *, refused: bool = False) -> str:
        """Per queue: how many, and when the oldest was enqueued."""
        table = self._names.refused if refused else self._names.jobs
        return f"SELECT queue, COUNT(*), MIN(enqueued_at_ms) FROM {table} GROUP BY queue ORDER BY queue"

    def refused(self, limit: int, queue: str | None) -> tuple[str, list[Any]]:
        where, values = (" WHERE queue = ?", [queue]) if queue else ("", [])
        return (
            f"SELECT id, job_key, queue, body, refused_at_ms, error FROM {self._names.refused}{where} "
            f"ORDER BY id LIMIT {limit}",
            values,
        )

    def refused_ids(self, limit: int, queue: str | None, ids: Sequence[int]) -> tuple[str, list[Any]]:
        """The first that were refused, of a queue, of these ids, or of all."""
        parts, values = [], []
        if queue is not None:
            parts.append("queue = ?")
            values.append(queue)
        if ids:
            parts.append(f"id IN ({_listed(ids)})")
        where = f" WHERE {' AND '.join(parts)}" if parts else ""
        return f"SELECT id FROM {self._names.refused}{where} ORDER BY id LIMIT {limit}", values

    def bring_back(self, ids: Sequence[int]) -> list[str]:
        """Refused jobs wait again, behind all that do: a copy, then the removal of these very rows."""
        chosen = f"FROM {self._names.refused} WHERE id IN ({_listed(ids)})"
        return [f"INSERT INTO {self._names.jobs} ({_FIELDS}) SELECT {_FIELDS} {chosen} ORDER BY id", f"DELETE {chosen}"]


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(str(int(each)) for each in ids)


def by_queue(rows: Iterable[OutboxRow]) -> Iterator[tuple[str, Sequence[OutboxRow]]]:
    """The rows of each queue in order, as many together as one call of a server takes."""
    queues: dict[str, list[OutboxRow]] = {}
    for row in rows:
        queues.setdefault(row.queue, []).append(row)
    for queue, its in queues.items():
        for some in slices(its):
            yield queue, some
