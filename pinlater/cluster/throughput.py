"""Throughput per queue: counts of a process for its lease, rates over all processes, and totals of each. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from typing import NamedTuple

from pinlater.cluster.lease import MAX_QUEUES, Lease
from pinlater.metrics import OUTCOME_AT, Metrics
from pinlater.model.operator_views import COUNTED, ProcessCounters

READINGS = 4
"""A rate is over the time between the first and the last of so many leases of a process."""

YOUNG_MS = 15_000
"""A process that is not older than this counts from its beginning, when it had counted nothing."""

KEPT_MS = 120_000
"""The totals of a process that has ended are kept for so long, for those who have not asked since."""

_NOTHING = (0,) * len(COUNTED)


class _Reading(NamedTuple):
    at_ms: int
    counters: Mapping[str, tuple[int, ...]]


class Throughput:
    """Keeps the last readings of each process."""

    def __init__(self) -> None:
        self._started: dict[str, int] = {}
        self._readings: dict[str, deque[_Reading]] = {}

    def update(self, leases: Iterable[Lease]) -> None:
        """These processes are alive; what was known of others is forgotten."""
        alive = set()
        for lease in leases:
            alive.add(lease.name)
            self._add(lease)
        for name in self._readings.keys() - alive:
            del self._readings[name], self._started[name]

    def _add(self, lease: Lease) -> None:
        readings = self._readings.get(lease.name)
        if readings is None or self._started[lease.name] != lease.started_ms or lease.renewed_ms < readings[-1].at_ms:
            readings = self._readings[lease.name] = deque(maxlen=READINGS)
            self._started[lease.name] = lease.started_ms
            if 0 < lease.renewed_ms - lease.started_ms <= YOUNG_MS:
                readings.append(_Reading(lease.started_ms, {}))
        if not readings or lease.renewed_ms > readings[-1].at_ms:
            readings.append(_Reading(lease.renewed_ms, lease.counters))

    def per_second(self) -> dict[str, dict[str, float]]:
        """By queue and word of COUNTED, over all processes; only queues of which something is known."""
        sums: dict[str, list[float]] = {}
        for readings in self._readings.values():
            new = readings[-1]
            for queue, now in new.counters.items():
                old = next((each for each in readings if each is not new and _knows(each, queue)), None)
                if old is None:
                    continue  # it was one of those that a lease has no place for, so nobody knows what it had counted
                per_second = sums.setdefault(queue, [0.0] * len(COUNTED))
                for place, (was, amount) in enumerate(zip(old.counters.get(queue, _NOTHING), now, strict=False)):
                    per_second[place] += max(0, amount - was) * 1000 / (new.at_ms - old.at_ms)
        return {queue: dict(zip(COUNTED, numbers, strict=True)) for queue, numbers in sums.items()}


def _knows(reading: _Reading, queue: str) -> bool:
    """What it does not name was 0 then, where it has place for all."""
    return queue in reading.counters or len(reading.counters) < MAX_QUEUES


class _Totals(NamedTuple):
    """A queue as a process last counted it, and when it was known here that this changed: a lease may come late."""

    changed_ms: int
    numbers: tuple[int, ...]


class _Book:
    """What one process has counted in all."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.seen_ms = 0
        self.is_cut = False
        self.queues: dict[str, _Totals] = {}

    def take(self, lease: Lease, now_ms: int) -> None:
        self.seen_ms = max(self.seen_ms, lease.renewed_ms)
        self.is_cut = self.is_cut or len(lease.counters) >= MAX_QUEUES
        for queue, numbers in lease.counters.items():
            before = self.queues.get(queue)
            if before is None or before.numbers != numbers:
                self.queues[queue] = _Totals(max(lease.renewed_ms, now_ms), numbers)


class CounterBook:
    """The totals of each process by queue: a lease has no place for all queues, so they are put together here."""

    def __init__(self) -> None:
        self._books: dict[str, _Book] = {}

    def update(self, leases: Iterable[Lease], now_ms: int) -> None:
        """These processes are alive; those that have ended are forgotten a while later."""
        alive = set()
        for lease in leases:
            alive.add(lease.name)
            book = self._books.get(lease.name)
            if book is None or book.started_ms != lease.started_ms:
                book = self._books[lease.name] = _Book(lease.started_ms)
            book.take(lease, now_ms)
        for name, book in [*self._books.items()]:
            if name not in alive and now_ms - book.seen_ms > KEPT_MS:
                del self._books[name]

    def since(self, since_ms: int, is_wanted: Callable[[str], bool]) -> list[ProcessCounters]:
        """Of each process the queues in which anything changed since then."""
        return [
            ProcessCounters(
                name,
                book.started_ms,
                book.seen_ms,
                {
                    queue: totals.numbers
                    for queue, totals in book.queues.items()
                    if totals.changed_ms >= since_ms and is_wanted(queue)
                },
                book.is_cut,
            )
            for name, book in sorted(self._books.items())
        ]


_AT = {word: place for place, word in enumerate(COUNTED)}
_FAILED = _AT["failed"]
_BY_FAMILY = {
    "jobs_enqueued": _AT["enqueued"],
    "flow_items_queued": _AT["enqueued"],
    "letters_stored": _AT["enqueued"],
    "jobs_dequeued": _AT["dequeued"],
    "jobs_expired": _AT["failed"],
}
LOST = ("expired", "crashed")
"""What a lease also counts of each queue with any: jobs that failed since they were not handed out in time, and since
their workers were lost too often.
"""

LOST_KEY = "lost"
"""Where a lease says so: earlier versions pass over it."""

_LOST_AT = {"jobs_expired": 0, "claims_expired": 1, "claims_released": 1}


class QueueCounters:
    """Reads the metrics of this process; of too many queues it tells those where most happened since they were told.

    So each has its turn, and what a lease says of a queue is all that was counted by then.
    """

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics = metrics
        self._reported: dict[str, int] = {}
        self.lost: dict[str, tuple[int, ...]] = {}
        """As of the last reading, in the order of LOST: of the queues where most were."""

    def read(self) -> dict[str, tuple[int, ...]]:
        """By queue, in the order of COUNTED; only queues with anything."""
        found: dict[str, list[int]] = {}
        lost: dict[str, list[int]] = {}
        for key, value in self._metrics.counters.items() if self._metrics is not None else ():
            place = _place(key)
            if place is not None:
                found.setdefault(str(key[1]), [0] * len(COUNTED))[place] += int(value)
                if place == _FAILED and (lost_at := _LOST_AT.get(str(key[0]))) is not None:
                    lost.setdefault(str(key[1]), [0] * len(LOST))[lost_at] += int(value)
        self.lost = {queue: tuple(lost[queue]) for queue in nlargest(MAX_QUEUES, lost, lambda queue: sum(lost[queue]))}
        totals = {queue: total for queue, numbers in found.items() if (total := sum(numbers))}
        chosen = list(totals)
        if len(chosen) > MAX_QUEUES:
            reported = self._reported
            chosen = nlargest(MAX_QUEUES, chosen, lambda queue: (totals[queue] - reported.get(queue, 0), totals[queue]))
        self._reported.update((queue, totals[queue]) for queue in chosen)
        return {queue: tuple(found[queue]) for queue in chosen}


def _place(key: tuple[object, ...]) -> int | None:
    """Where a counter belongs in COUNTED; the outcome of an attempt is a word of it, or is not counted."""
    family = str(key[0])
    at = OUTCOME_AT.get(family)
    return _BY_FAMILY.get(family) if at is None else _AT.get(str(key[at]))
