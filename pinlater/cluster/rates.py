"""How much happens per second in the whole cluster, from what the processes have counted. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pinlater.cluster.lease import COUNTED, MAX_QUEUES, Lease

READINGS = 4
"""A rate is over the time between the first and the last of so many leases of a process."""

YOUNG_MS = 15_000
"""A process that is not older than this counts from its beginning, when it had counted nothing."""

_NOTHING = (0,) * len(COUNTED)


class _Reading(NamedTuple):
    at_ms: int
    counters: Mapping[str, tuple[int, ...]]


class Rates:
    """Keeps the last readings of each process."""

    def __init__(self) -> None:
        self._started: dict[str, int] = {}
        self._readings: dict[str, deque[_Reading]] = {}

    def heard(self, leases: Iterable[Lease]) -> None:
        """These processes are alive, and their counters are such; what was known of others is forgotten."""
        alive = set()
        for lease in leases:
            alive.add(lease.name)
            self._heard(lease)
        for name in self._readings.keys() - alive:
            del self._readings[name], self._started[name]

    def _heard(self, lease: Lease) -> None:
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
