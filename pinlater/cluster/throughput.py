"""Throughput per queue: what a process has counted, as its lease says it, and rates over all processes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import NamedTuple

from pinlater.cluster.lease import COUNTED, MAX_QUEUES, Lease
from pinlater.metrics import Metrics

READINGS = 4
"""A rate is over the time between the first and the last of so many leases of a process."""

YOUNG_MS = 15_000
"""A process that is not older than this counts from its beginning, when it had counted nothing."""

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
            old, new = readings[0], readings[-1]
            for queue, now in new.counters.items() if new.at_ms > old.at_ms else ():
                before = old.counters.get(queue)
                if before is None and len(old.counters) >= MAX_QUEUES:
                    continue  # it was one of those that a lease has no place for, so nobody knows what it had counted
                per_second = sums.setdefault(queue, [0.0] * len(COUNTED))
                for place, (was, amount) in enumerate(zip(before or _NOTHING, now, strict=False)):
                    per_second[place] += max(0, amount - was) * 1000 / (new.at_ms - old.at_ms)
        return {queue: dict(zip(COUNTED, numbers, strict=True)) for queue, numbers in sums.items()}


_AT = {word: place for place, word in enumerate(COUNTED)}
_BY_FAMILY = {"jobs_enqueued": _AT["enqueued"], "jobs_dequeued": _AT["dequeued"]}


class QueueCounters:
    """Reads the metrics of this process; of too many queues it tells those where most happened since the last time."""

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics = metrics
        self._before: dict[str, int] = {}

    def read(self) -> dict[str, tuple[int, ...]]:
        """By queue, in the order of COUNTED; only queues with anything."""
        found: dict[str, list[int]] = {}
        for key, value in self._metrics.counters.items() if self._metrics is not None else ():
            place = _place(key)
            if place is not None:
                found.setdefault(str(key[1]), [0] * len(COUNTED))[place] += int(value)
        totals = {queue: sum(numbers) for queue, numbers in found.items()}
        chosen = list(totals)
        if len(chosen) > MAX_QUEUES:
            chosen = nlargest(
                MAX_QUEUES, chosen, lambda queue: (totals[queue] - self._before.get(queue, 0), totals[queue])
            )
        self._before = totals
        return {queue: tuple(found[queue]) for queue in chosen if totals[queue]}


def _place(key: tuple[object, ...]) -> int | None:
    """Where a counter belongs in COUNTED; the outcome of an ack is a word of it, or is not counted."""
    family = str(key[0])
    return _AT.get(str(key[3])) if family == "jobs_acked" else _BY_FAMILY.get(family)
