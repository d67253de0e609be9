"""An outbox as operators see it: what waits, what was refused, what the relays did; and refused jobs tried again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import BodyInvalid
from pinlater_workers.outbox.database import Database
from pinlater_workers.outbox.statements import OutboxStatements

RETRIES_PER_TRANSACTION = 1000


@dataclass(slots=True)
class QueueBacklog:
    """The jobs of one queue in an outbox. `oldest_s`: since when the oldest that waits does."""

    queue: str
    waiting: int = 0
    oldest_s: float = 0.0
    refused: int = 0


@dataclass(slots=True)
class OutboxStatus:
    """`relay`: the last one that was here, "" where none ever was; `error`: what keeps jobs waiting."""

    queues: list[QueueBacklog] = field(default_factory=list)
    relay: str = ""
    seen_s: float = 0.0
    handed_over: int = 0
    error: str = ""
    error_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class RefusedJob(NamedTuple):
    """A job that was set aside. `job`: its type, where its body says one."""

    id: int
    key: str
    queue: str
    job: str
    size: int
    refused_at_ms: int
    error: str


class OutboxView:
    """One outbox, over a connection of its own. Errors: those of the connection's library."""

    def __init__(self, database: Database, table: str) -> None:
        self._session = database.connect()
        self._statements = OutboxStatements(table, self._session.dialect)

    def close(self) -> None:
        self._session.close()

    def status(self) -> OutboxStatus:
        now_ms = time.time_ns() // 1_000_000
        with self._session.transaction():
            waiting = self._session.execute(self._statements.counts())
            refused = self._session.execute(self._statements.counts(refused=True))
            relays = self._session.execute(self._statements.relay_row())
        queues: dict[str, QueueBacklog] = {}
        for queue, number, oldest_ms in waiting:
            queues[queue] = QueueBacklog(queue, number, max(0, now_ms - oldest_ms) / 1000)
        for queue, number, _oldest_ms in refused:
            queues.setdefault(queue, QueueBacklog(queue)).refused = number
        found = OutboxStatus([queues[name] for name in sorted(queues)])
        for relay, seen_ms, handed_over, error, error_since_ms in relays:
            found.relay, found.seen_s, found.handed_over = relay, max(0, now_ms - seen_ms) / 1000, handed_over
            if error is not None:
                found.error, found.error_s = error, max(0, now_ms - (error_since_ms or now_ms)) / 1000
        return found

    def refused(self, limit: int, queue: str | None = None) -> list[RefusedJob]:
        """The first of them, of one queue or of all."""
        with self._session.transaction():
            rows = self._session.execute(*self._statements.refused(limit, queue))
        return [
            RefusedJob(number, key, name, _job_name(bytes(body)), len(body), refused_at_ms, error)
            for number, key, name, body, refused_at_ms, error in rows
        ]

    def retry(self, queue: str | None = None, ids: Sequence[int] = ()) -> int:
        """Refused jobs wait again; how many. Neither a queue nor ids: all that are there now."""
        moved = 0
        while True:
            with self._session.transaction():
                chosen = self._session.execute(*self._statements.refused_ids(RETRIES_PER_TRANSACTION, queue, ids))
                if not chosen:
                    return moved
                for statement in self._statements.bring_back([row[0] for row in chosen]):
                    self._session.execute(statement)
            moved += len(chosen)


def _job_name(body: bytes) -> str:
    try:
        envelope = read_envelope(body)
    except BodyInvalid:
        envelope = None
    return "-" if envelope is None else envelope.job
