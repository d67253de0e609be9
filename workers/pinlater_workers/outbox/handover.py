"""The hand-over of one batch of jobs to the servers, and what becomes of those that a server does not take.

| the servers say | then |
| --- | --- |
| they cannot be reached, or have no shard for jobs now | nothing more is sent; the relay backs off |
| the queue takes no jobs now (full, draining) | its jobs wait, and those of other queues go on |
| there is no such queue; something unknown went wrong | likewise, for a minute at most: then those jobs are refused |
| the job cannot be: too large, no such priority | it is refused; the others of its call are sent again, in halves |

Refused jobs are set aside with their error, so that they keep nobody waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from pinlater.errors import (
    BodyTooLarge,
    EnqueueRejected,
    OutcomeUnknown,
    PinLaterError,
    PriorityNotSupported,
    QueueNameInvalid,
    QueueNameTooLong,
    QueueNotFound,
    RequestInvalid,
    UnknownError,
)
from pinlater.model import Job
from pinlater_workers.outbox.statements import OutboxRow, by_queue

PATIENCE_S = 60.0
"""How long a queue may be missing, as while a release creates it, before its jobs are refused."""

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
FORGOTTEN_S = 300.0
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
_OF_THE_QUEUE = (QueueNotFound, QueueNameInvalid, QueueNameTooLong)
"""What one job of a queue is refused for, all are."""


class Fate(Enum):
    """What becomes of jobs that a server did not take."""

    REFUSED = auto()
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
class BatchOutcome:
    """What became of a batch; what is neither handed over nor refused waits on. `away`: why nothing more was sent."""

    handed_over: list[OutboxRow] = field(default_factory=list)
    refused: list[tuple[Sequence[OutboxRow], str]] = field(default_factory=list)
    away: Exception | None = None


class Handover:
    """Sends batches, one after the other, and remembers which queues take none for now. `held`: these."""

    def __init__(
        self,
        send: Callable[[str, Sequence[Job]], object],
        monotonic_s: Callable[[], float],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._send_jobs = send
        self._now_s = monotonic_s
        self._patience_s = patience_s
        self.held: dict[str, QueueHold] = {}

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
        error = self._try(queue, rows)
        if error is None:
            outcome.handed_over += rows
            self.held.pop(queue, None)
            return True
        fate = self._fate(queue, rows, error)
        if fate is Fate.REFUSED:
            if len(rows) == 1 or isinstance(error, _OF_THE_QUEUE):
                outcome.refused.append((rows, str(error)))
                return True
            middle = len(rows) // 2
            return self._send(queue, rows[:middle], outcome) and self._send(queue, rows[middle:], outcome)
        if fate is Fate.QUEUE_WAITS:
            self._hold(queue, error)
        else:
            outcome.away = error
        return False

    def _try(self, queue: str, rows: Sequence[OutboxRow]) -> Exception | None:
        try:
            self._send_jobs(queue, [row.job() for row in rows])
        except Exception as error:
            return error
        return None

    def _fate(self, queue: str, rows: Sequence[OutboxRow], error: Exception) -> Fate:
        if isinstance(error, _CANNOT_BE):
            return Fate.REFUSED
        if isinstance(error, EnqueueRejected):
            return Fate.QUEUE_WAITS if error.retryable else Fate.REFUSED
        is_large = isinstance(error, OutcomeUnknown) and sum(len(row.body) for row in rows) >= LARGE_BYTES
        if isinstance(error, QueueNotFound | UnknownError) or is_large:
            hold = self.held.get(queue)
            is_over = hold is not None and self._now_s() - hold.since_s >= self._patience_s
            return Fate.REFUSED if is_over else Fate.QUEUE_WAITS
        return Fate.ALL_WAIT

    def _hold(self, queue: str, error: Exception) -> None:
        now_s = self._now_s()
        hold = self.held.setdefault(queue, QueueHold(now_s, now_s, 0, ""))
        asked_s = (error.retry_after_ms or 0) / 1000 if isinstance(error, PinLaterError) else 0.0
        hold.failures += 1
        hold.until_s = now_s + max(asked_s, backoff_s(hold.failures))
        hold.why = str(error)


def backoff_s(failures: int) -> float:
    """The pause after so many failures in a row."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16)))
