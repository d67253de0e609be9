"""The hand-over of one batch of jobs to the servers, and what becomes of those that a server does not take.

| the servers say | then |
| --- | --- |
| they cannot be reached, or have no shard for jobs now | nothing more is sent; the relay backs off |
| the queue takes no jobs now (full, draining), or none from here | its jobs wait, and those of other queues go on |
| there is no such queue; something unknown went wrong | likewise, for a minute at most: then those jobs are refused |
| the job cannot be: too large, no such priority | it is refused; the others of its call are sent again, in halves |
| the homes of some keys are out, or servers do not know keys yet | jobs with these keys wait, those behind them go on |

Refused jobs are set aside with their error, so that they keep nobody waiting.

Each job is sent with an id of its own, by which the servers know it when it comes again. An id is a key too: while some
keys are not taken, jobs that have no other go without one, at least once; but first those that may be stored already
wait for a minute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from pinlater.errors import (
    BodyTooLarge,
    EnqueueRejected,
    HomeMoving,
    HomeOut,
    KeysNotYet,
    MethodUnknown,
    OutcomeUnknown,
    PasswordInvalid,
    PinLaterError,
    PriorityNotSupported,
    QueueNameInvalid,
    QueueNameTooLong,
    QueueNotFound,
    RequestInvalid,
    ShardConnectionFailed,
    UnknownError,
)
from pinlater.model import Job
from pinlater_workers.outbox.statements import OutboxRow, by_queue

PATIENCE_S = 60.0
"""How long a queue may be missing, as while a release creates it, before its jobs are refused."""

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
FORGOTTEN_S = 300.0
KEYS_TIMEOUT_S = 2.0
"""Of a call with keys while some are not taken: clients go on trying for as long as they may."""

MAX_KEYED_WAITING = 10_000
"""With more jobs that wait for their keys, their queue waits."""

LARGE_BYTES = 1024 * 1024
"""A call of so much may have been cut off because it is larger than the servers read: they do not say then."""

_CANNOT_BE = (
    RequestInvalid,
    BodyTooLarge,
    PriorityNotSupported,
    QueueNameInvalid,
    QueueNameTooLong,
    ValueError,
    TypeError,
)
_HOMES = frozenset({HomeOut.reason, HomeMoving.reason})
_OF_THE_QUEUE = (QueueNotFound, QueueNameInvalid, QueueNameTooLong)
"""What one job of a queue is refused for, all are."""


class Fate(Enum):
    """What becomes of jobs that a server did not take."""

    REFUSED = auto()
    KEYS_WAIT = auto()
    QUEUE_WAITS = auto()
    ALL_WAIT = auto()


@dataclass(slots=True)
class QueueHold:
    """A queue that takes no jobs: since when, until when nothing is sent to it, and why."""

    since_s: float
    until_s: float
    failures: int
    why: str


@dataclass(slots=True)
class KeyHold:
    """A job whose keys are not taken: until when it is not sent, after so many failures."""

    until_s: float
    failures: int
    serialize_key: str


@dataclass(slots=True)
class BatchOutcome:
    """What became of a batch; what is neither handed over nor refused waits on. `away`: why nothing more was sent."""

    handed_over: list[OutboxRow] = field(default_factory=list)
    refused: list[tuple[Sequence[OutboxRow], str]] = field(default_factory=list)
    away: Exception | None = None


class Handover:
    """Sends batches, one after the other, and remembers which queues take none for now, `held`, and which jobs wait for
    their keys, `waiting`, by the ids of their rows. `keys_why`: why they do, "" where keys are taken.
    """

    def __init__(
        self,
        send: Callable[[str, Sequence[Job], float | None], object],
        monotonic_s: Callable[[], float],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._send_jobs = send
        self._now_s = monotonic_s
        self._patience_s = patience_s
        self.held: dict[str, QueueHold] = {}
        self.waiting: dict[int, KeyHold] = {}
        self._keys_why = ""
        self._keys_out_until_s = -math.inf
        self._knows_keys_at_s = -math.inf
        self._unsure_until_s: dict[int, float] = {}

    @property
    def keys_why(self) -> str:
        return self._keys_why if self._now_s() < self._keys_out_until_s else ""

    def waiting_ids(self) -> set[int]:
        """Of the rows that are not to be sent for now. One that nobody brings any more is forgotten after a while."""
        now_s = self._now_s()
        for row_id in [row_id for row_id, hold in self.waiting.items() if now_s - hold.until_s > FORGOTTEN_S]:
            del self.waiting[row_id]
        return {row_id for row_id, hold in self.waiting.items() if hold.until_s > now_s}

    def waiting_queues(self) -> list[str]:
        """Those that nothing is sent to for now. One that nobody sends to any more is forgotten after a while."""
        now_s = self._now_s()
        for queue in [queue for queue, hold in self.held.items() if now_s - hold.until_s > FORGOTTEN_S]:
            del self.held[queue]
        return [queue for queue, hold in self.held.items() if hold.until_s > now_s]

    def send(self, rows: Iterable[OutboxRow]) -> BatchOutcome:
        """Those of each queue in order. A queue that does not take one gets none of those behind it."""
        outcome = BatchOutcome()
        for queue, some in by_queue(rows):
            if queue in self.waiting_queues():
                continue
            self._send(queue, some, outcome)
            if outcome.away is not None:
                break
        return outcome

    def _send(self, queue: str, rows: Sequence[OutboxRow], outcome: BatchOutcome) -> bool:
        """Whether those behind them can be sent."""
        without_id, with_id = self._split(rows)
        return self._send_some(queue, without_id, False, outcome) and self._send_some(
            queue, self._not_waiting(with_id), True, outcome
        )

    def _send_some(self, queue: str, rows: Sequence[OutboxRow], with_id: bool, outcome: BatchOutcome) -> bool:
        if not rows:
            return True
        error = self._try(queue, rows, with_id)
        done = rows if error is None else _stored(rows, error)
        outcome.handed_over += done
        for row in done:
            self.waiting.pop(row.id, None)
        if error is None:
            self.held.pop(queue, None)
            if with_id and not self.waiting:
                self._keys_out_until_s = self._knows_keys_at_s = -math.inf
            return True
        ids = {row.id for row in done}
        left = [row for row in rows if row.id not in ids]
        fate = self._fate(queue, left, error)
        if fate is Fate.REFUSED:
            if len(left) == 1 or isinstance(error, _OF_THE_QUEUE):
                outcome.refused.append((left, str(error)))
                return True
            middle = len(left) // 2
            return self._send_some(queue, left[:middle], with_id, outcome) and self._send_some(
                queue, left[middle:], with_id, outcome
            )
        if isinstance(error, OutcomeUnknown) and with_id:
            until_s = self._now_s() + self._patience_s
            for row in left:
                self._unsure_until_s.setdefault(row.id, until_s)
        if with_id and (fate is Fate.KEYS_WAIT or (done and fate is Fate.ALL_WAIT)):
            return self._hold_keys(queue, left, error, outcome)
        if fate is Fate.QUEUE_WAITS:
            self._hold(queue, error)
        else:
            outcome.away = error
        return False

    def _try(self, queue: str, rows: Sequence[OutboxRow], with_id: bool) -> Exception | None:
        timeout_s = KEYS_TIMEOUT_S if with_id and self.keys_why else None
        try:
            self._send_jobs(queue, [row.job(with_id=with_id) for row in rows], timeout_s)
        except Exception as error:
            return error
        return None

    # -- keys that are not taken -----------------------------------------------------------------------------------

    def _split(self, rows: Sequence[OutboxRow]) -> tuple[Sequence[OutboxRow], Sequence[OutboxRow]]:
        """Those that go without an id for now, and those that do not."""
        now_s = self._now_s()
        if now_s >= self._keys_out_until_s:
            return (), rows
        self._unsure_until_s = {row_id: until_s for row_id, until_s in self._unsure_until_s.items() if until_s > now_s}
        are_known = now_s >= self._knows_keys_at_s
        parts: tuple[list[OutboxRow], list[OutboxRow]] = ([], [])
        for row in rows:
            needs_keys = row.is_keyed if are_known else row.is_extended
            parts[needs_keys or row.id in self._unsure_until_s].append(row)
        return parts

    def _not_waiting(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Without those that need keys while servers know none, and those behind one that waits for the same key."""
        now_s = self._now_s()
        behind = {hold.serialize_key for hold in self.waiting.values() if hold.serialize_key and hold.until_s > now_s}
        found = []
        for row in rows:
            serialize_key = row.extras.get("serialize_key", "")
            if now_s < self._knows_keys_at_s or serialize_key in behind:
                self._hold_row(row, now_s)
            else:
                found.append(row)
        return found

    def _hold_keys(self, queue: str, rows: Sequence[OutboxRow], error: Exception, outcome: BatchOutcome) -> bool:
        """Those that need no keys go without an id, the others wait. Whether those behind them can be sent."""
        now_s = self._now_s()
        self._keys_why, self._keys_out_until_s = str(error), now_s + self._patience_s
        if isinstance(error, KeysNotYet | MethodUnknown):
            self._knows_keys_at_s = now_s + LONGEST_PAUSE_S
        without_id, with_id = self._split(rows)
        for row in with_id:
            self._hold_row(row, now_s)
        if len(self.waiting) > MAX_KEYED_WAITING:
            self._hold(queue, error)
            return False
        return self._send_some(queue, without_id, False, outcome)

    def _hold_row(self, row: OutboxRow, now_s: float) -> None:
        hold = self.waiting.setdefault(row.id, KeyHold(now_s, 0, row.extras.get("serialize_key", "")))
        hold.failures += 1
        hold.until_s = now_s + backoff_s(hold.failures)

    # -- others ----------------------------------------------------------------------------------------------------

    def _fate(self, queue: str, rows: Sequence[OutboxRow], error: Exception) -> Fate:
        is_of_shards = isinstance(error, ShardConnectionFailed) and error.reason in _HOMES
        if is_of_shards or isinstance(error, KeysNotYet | MethodUnknown):
            return Fate.KEYS_WAIT
        if isinstance(error, _CANNOT_BE):
            return Fate.REFUSED
        if isinstance(error, EnqueueRejected):
            return Fate.QUEUE_WAITS if error.retryable else Fate.REFUSED
        if isinstance(error, PasswordInvalid):
            return Fate.QUEUE_WAITS
        is_large = isinstance(error, OutcomeUnknown) and sum(len(row.body) for row in rows) >= LARGE_BYTES
        if isinstance(error, QueueNotFound | UnknownError) or is_large:
            hold = self.held.get(queue)
            is_over = hold is not None and self._now_s() - hold.since_s >= self._patience_s
            return Fate.REFUSED if is_over else Fate.QUEUE_WAITS
        return Fate.ALL_WAIT

    def _hold(self, queue: str, error: Exception) -> None:
        now_s = self._now_s()
        hold = self.held.setdefault(queue, QueueHold(now_s, now_s, 0, ""))
        retry_after_s = (error.retry_after_ms or 0) / 1000 if isinstance(error, PinLaterError) else 0.0
        hold.failures += 1
        hold.until_s = now_s + max(retry_after_s, backoff_s(hold.failures))
        hold.why = str(error)


def _stored(rows: Sequence[OutboxRow], error: Exception) -> Sequence[OutboxRow]:
    """Those that are stored though the call failed."""
    descriptors = (error.job_descriptors or ()) if isinstance(error, PinLaterError) else ()
    return [row for row, descriptor in zip(rows, descriptors, strict=False) if descriptor]


def backoff_s(failures: int) -> float:
    """The pause after so many failures in a row."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16)))
