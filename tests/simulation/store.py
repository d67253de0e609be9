"""One simulated store: the product's SQLite shard in memory, with a clock of its own, and faults that a store can have.

Every operation of `Shard` is carried out at one moment. `mark` remembers what the store holds, and `roll_back` brings
it back: what a store does that loses its last seconds, or whose replica takes over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pinlater.backends.base import LIVE_STATES, UNKNOWN_CHANGE, Notification, StoredState, StoreStatus
from pinlater.backends.sql.coordination import establish_identity
from pinlater.backends.sql.session import Session
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import NothingStored, StoreFull
from pinlater.model import AckOutcome, Job
from tests.simulation.virtual_time import EPOCH_MS, MachineClock, passed_ns

R = TypeVar("R")
Publish = Callable[[str, Notification, str], None]
"""Told the queue, what became pending, and the process whose enqueue brought it, or ""."""

TAKES_ROOM = frozenset({"enqueue", "enqueue_extended", "dead_letter", "replay", "put_trails"})
"""What a full store refuses."""

ENQUEUES = frozenset({"enqueue", "enqueue_extended"})
MAY_FREE = frozenset(
    {
        "checkpoint",
        "requeue",
        "requeue_undelivered",
        "expire_disconnected",
        "expire_listed",
        "enqueue_extended",
        "reschedule",
        "retry_failed",
        "retry_listed",
        "replay",
    }
)
"""What may make jobs of the queue that it names pending, and does not say which."""


def carry_out(step: Coroutine[Any, Any, R]) -> R:
    """What a coroutine returns that waits for nothing."""
    try:
        step.send(None)
    except StopIteration as over:
        return over.value  # type: ignore[no-any-return]
    raise AssertionError(f"{step} waits for something")


_JOBS = "SELECT q.name, j.id, j.state FROM pinlater_jobs j JOIN pinlater_queues q ON q.id = j.queue_id ORDER BY j.id"


class SimulatedStore:
    """`notifies`: as Redis does. The transactions of the shard run at once (`threads.py`)."""

    def __init__(self, shard_id: str, *, notifies: bool, ahead_ms: int = 0) -> None:
        self.shard_id = shard_id
        self.notifies = notifies
        self.publish: Publish = lambda queue, notification, by: None
        self.clock = MachineClock(ahead_ms)
        self.full = ""
        """Why it takes no more jobs; "" while it does."""
        self.freed: list[tuple[str, Sequence[int]]] = []
        """What the last call freed: queues, and when each of their jobs is due."""
        self.kv_bytes = 0
        """How much `kv_list` has answered with."""
        self._new_shard()

    def _new_shard(self) -> None:
        self._shard = SqliteShard("sqlite://", self.shard_id)
        self._shard.events = self
        carry_out(self._shard.open())
        self._marked: sqlite3.Connection | None = None

    # -- calls ---------------------------------------------------------------------------------------------------------

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], by: str, *, notifies: bool = True) -> Any:
        """Carry out an operation for a process. Raises what it raises. `notifies`: of jobs that it stores."""
        self.freed = []
        if self.full and name in TAKES_ROOM:
            raise StoreFull(self.full)
        answer = self._open() if name == "open" else carry_out(getattr(self._shard, name)(*args, **kwargs))
        if name == "ping":
            status: StoreStatus = answer
            return status._replace(now_ms=self.clock.now_ms(), full=self.full)
        if name == "kv_list":
            self.kv_bytes += sum(len(entry.body) for entry in answer.values())
        elif self.notifies:
            self._notify("" if name in ENQUEUES and not notifies else name, args, answer, by)
        return answer

    def _open(self) -> str:
        """As a further process opens it."""
        identity = carry_out(self._transact(establish_identity, self.shard_id))
        return identity.store_id

    async def _transact(self, transaction: Callable[..., R], *arguments: Any) -> R:
        return await self._shard.write(transaction, *arguments)

    def _notify(self, name: str, args: Sequence[Any], answer: Any, by: str) -> None:
        if name == "enqueue":
            self._tell(args[0], args[1], args[2], by)
        elif name in MAY_FREE:
            self.publish(args[0], UNKNOWN_CHANGE, "")
        elif name in ("ack", "ack_and_claim"):
            outcomes = answer if name == "ack" else answer[0]
            if AckOutcome.RETRIED in outcomes:
                self.publish(args[0], UNKNOWN_CHANGE, "")
        elif name in ("expire_claims", "lift_barriers"):
            for queue in answer:
                self.publish(queue, UNKNOWN_CHANGE, "")
        elif name == "dead_letter":
            for target in args[2].values():
                self.publish(target.queue, UNKNOWN_CHANGE, "")
        for queue, _ in self.freed:
            self.publish(queue, UNKNOWN_CHANGE, "")

    def _tell(self, queue: str, jobs: Sequence[Job], now_ms: int, by: str) -> None:
        later_ms = [job.run_after_ms for job in jobs if job.run_after_ms is not None and job.run_after_ms > now_ms]
        self.publish(queue, Notification(len(jobs) - len(later_ms), min(later_ms, default=None)), by)

    def jobs_freed(self, queue: str, run_after_ms: Sequence[int]) -> None:
        """See `ShardEvents`."""
        self.freed.append((queue, run_after_ms))

    def jobs_ended(self, queue: str, ids: Sequence[int]) -> None:
        """SQLite tells of none."""

    def store_moved(self) -> None:
        """SQLite stays where it is."""

    # -- faults --------------------------------------------------------------------------------------------------------

    @property
    def is_marked(self) -> bool:
        return self._marked is not None

    def mark(self) -> float:
        """Remember what is there now; the time at which that is."""
        self._marked = sqlite3.connect(":memory:")
        self._connection().backup(self._marked)
        return EPOCH_MS + passed_ns() / 1_000_000

    def roll_back(self) -> None:
        """All is as it was at the mark, and what was answered since then never happened."""
        if self._marked is None:
            raise NothingStored("nothing was marked")
        self._marked.backup(self._connection())
        self._marked.close()
        self._marked = None

    def wipe(self) -> None:
        """Another store, which is empty, is at its place."""
        carry_out(self._shard.close())
        self._new_shard()

    def close(self) -> None:
        if self._marked is not None:
            self._marked.close()
        carry_out(self._shard.close())

    def _connection(self) -> sqlite3.Connection:
        """Between two transactions."""
        return carry_out(self._transact(_connection))

    # -- what tests look at --------------------------------------------------------------------------------------------

    def in_progress(self, queue: str) -> int:
        return sum(1 for name, _, state in self._jobs() if name == queue and state == StoredState.IN_PROGRESS)

    def live_jobs(self) -> list[str]:
        """Those that have not ended: queue, shard, id and state of each."""
        return [
            f"{queue}:s{self.shard_id}:{job_id} {StoredState(state).name}"
            for queue, job_id, state in self._jobs()
            if state in LIVE_STATES
        ]

    def _jobs(self) -> list[tuple[str, int, int]]:
        return carry_out(self._transact(_rows, _JOBS, ()))


def _connection(session: Session) -> sqlite3.Connection:
    connection: sqlite3.Connection = session.cursor.connection
    return connection


def _rows(session: Session, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    return list(session.cursor.execute(statement, values))
