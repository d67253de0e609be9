"""Results of attempts in the words of the server's interface, and in batches that one call carries.

A result is an ack (success, failure, permanent failure), which may ride on a dequeue; or a requeue, which is a
checkpoint that moves the job back to PENDING, and goes by a call of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pinlater.model import Ack, Checkpoint, parse_descriptor
from pinlater_workers.execution.acknowledgements import ACKS, ack_of, requeue_of
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.running_job import RunningJob

MAX_RESULTS = 1_000
"""In one call."""
MAX_BODY_BYTES = 1 << 16
"""The most bytes of new bodies or results in one call, or one of them: a server breaks the connection over a call that
is too large.
"""
Result = tuple[RunningJob, Outcome]


@dataclass(frozen=True, slots=True)
class PlannedRequeue(Outcome):
    """A requeue until a moment that stays the same, whenever the call gets through."""

    run_after_ms: int = 0


class AckQueue:
    """Results that no call carries yet, by queue. Times are of time.monotonic."""

    def __init__(self) -> None:
        self._acks: dict[str, list[Result]] = {}
        self._since_s: dict[str, float] = {}
        self._requeues: dict[str, list[Result]] = {}
        self._with_results: set[str] = set()
        """Queues of which some acks carry results of jobs: their bytes count."""
        self.count = 0

    def put(self, results: Sequence[Result], now_s: float) -> None:
        acks, requeues = self._acks, self._requeues
        for result in results:
            running, outcome = result
            queue = running.queue
            if outcome.action not in ACKS:
                requeues.setdefault(queue, []).append(result)
            elif queue in acks:
                acks[queue].append(result)
            else:
                acks[queue] = [result]
                self._since_s[queue] = now_s
            if outcome.result is not None:
                self._with_results.add(queue)
        self.count += len(results)

    @property
    def has_acks(self) -> bool:
        return bool(self._acks)

    def oldest_s(self) -> float | None:
        """Since when the ack waits that waits longest; None: there is none."""
        return min(self._since_s.values(), default=None)

    def take_riding(self, queue: str) -> list[AckBatch]:
        """Acks to ride on a dequeue: of this queue; or, where it is "", of all queues, as many as one call takes."""
        if queue:
            return [self._take_acks(queue)] if queue in self._acks else []
        batches: list[AckBatch] = []
        room = MAX_RESULTS
        while self._acks and room > 0:
            batch = self._take_acks(min(self._since_s, key=self._since_s.__getitem__), room)
            room -= len(batch.results)
            batches.append(batch)
        return batches

    def take_waiting(self, since_s: float) -> list[AckBatch]:
        """All acks of queues where one waits since then or longer."""
        batches = []
        for queue in [queue for queue, oldest_s in self._since_s.items() if oldest_s <= since_s]:
            while queue in self._acks:
                batches.append(self._take_acks(queue))
        return batches

    def queues_to_requeue(self) -> list[str]:
        """The queues that have some."""
        return list(self._requeues)

    def take_requeues(self, queue: str) -> AckBatch | None:
        if queue not in self._requeues:
            return None
        return self._take(self._requeues, queue, fitting(self._requeues[queue]), requeues=True)

    def _take_acks(self, queue: str, most: int = MAX_RESULTS) -> AckBatch:
        if queue in self._with_results:
            most = min(most, fitting(self._acks[queue]))
        batch = self._take(self._acks, queue, most, requeues=False)
        if queue not in self._acks:
            del self._since_s[queue]
            self._with_results.discard(queue)
        return batch

    def _take(self, results: dict[str, list[Result]], queue: str, count: int, *, requeues: bool) -> AckBatch:
        waiting = results[queue]
        if len(waiting) <= count:
            taken = results.pop(queue)
        else:
            taken = waiting[:count]
            del waiting[:count]
        self.count -= len(taken)
        return AckBatch(queue, taken, requeues=requeues)


class AckBatch:
    """Results of one queue that travel in one call.

    `requeues`: all of them go back to PENDING; else all are acks. `may_repeat`: an earlier call with them may have been
    carried out, so that this one has no effect.
    """

    __slots__ = ("may_repeat", "queue", "requeues", "results")

    def __init__(self, queue: str, results: list[Result], *, requeues: bool, may_repeat: bool = False) -> None:
        self.may_repeat = may_repeat
        self.queue = queue
        self.results = results
        self.requeues = requeues

    def halves(self) -> Iterator[AckBatch]:
        middle = len(self.results) // 2
        return (self._with(part) for part in (self.results[:middle], self.results[middle:]))

    def by_shard(self) -> list[AckBatch]:
        """One for each shard, so that those of a shard that is away hold up no others."""
        parts: dict[str, list[Result]] = {}
        for result in self.results:
            parts.setdefault(_shard(result[0].job.descriptor), []).append(result)
        return [self] if len(parts) == 1 else [self._with(part) for part in parts.values()]

    def take(self, which: Callable[[RunningJob], bool]) -> list[Result]:
        """Takes those out, and returns them."""
        taken = [result for result in self.results if which(result[0])]
        if taken:
            self.results = [result for result in self.results if not which(result[0])]
        return taken

    def _with(self, results: list[Result]) -> AckBatch:
        return AckBatch(self.queue, results, requeues=self.requeues, may_repeat=self.may_repeat)


def fitting(results: Sequence[Result]) -> int:
    """How many of the first of these one call takes; 1 or more."""
    size = 0
    for index, (_, outcome) in enumerate(results[:MAX_RESULTS]):
        size += len(outcome.body or outcome.result or b"")
        if size > MAX_BODY_BYTES:
            return max(1, index)
    return MAX_RESULTS


def _shard(descriptor: str) -> str:
    ref = parse_descriptor(descriptor)
    return "" if ref is None else ref.shard


def acks(results: Sequence[Result]) -> tuple[list[Ack], list[Ack]]:
    """The successes and the failures, each fenced by its claim."""
    succeeded = [_ack(*result) for result in results if result[1].action is Action.SUCCEED]
    failed = [_ack(*result) for result in results if result[1].action is not Action.SUCCEED]
    return succeeded, failed


def _ack(running: RunningJob, outcome: Outcome) -> Ack:
    return ack_of(running.job, outcome, None if running.take_new is None else running.last_report())


def in_order(results: Sequence[Result]) -> list[RunningJob]:
    """As `acks` names them in a call: the successes, then the failures."""
    succeeded = [running for running, outcome in results if outcome.action is Action.SUCCEED]
    return succeeded + [running for running, outcome in results if outcome.action is not Action.SUCCEED]


def requeues(results: Sequence[Result], now_ms: int) -> list[Checkpoint]:
    return [_requeue(running, outcome, now_ms) for running, outcome in results]


def _requeue(running: RunningJob, outcome: Outcome, now_ms: int) -> Checkpoint:
    made = requeue_of(running.job, outcome, now_ms)
    return replace(made, run_after_ms=outcome.run_after_ms) if isinstance(outcome, PlannedRequeue) else made
