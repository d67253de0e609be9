"""What a process has done for each queue, as its lease tells it."""

from __future__ import annotations

from heapq import nlargest

from pinlater.cluster.lease import COUNTED, MAX_QUEUES
from pinlater.metrics import Metrics

_AT = {word: place for place, word in enumerate(COUNTED)}
_BY_FAMILY = {"jobs_enqueued": _AT["enqueued"], "jobs_dequeued": _AT["dequeued"]}


class Counters:
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
        told = list(totals)
        if len(told) > MAX_QUEUES:
            told = nlargest(MAX_QUEUES, told, lambda queue: (totals[queue] - self._before.get(queue, 0), totals[queue]))
        self._before = totals
        return {queue: tuple(found[queue]) for queue in told if totals[queue]}


def _place(key: tuple[object, ...]) -> int | None:
    """Where a counter belongs in COUNTED; the outcome of an ack is a word of it, or is not told."""
    family = str(key[0])
    return _AT.get(str(key[3])) if family == "jobs_acked" else _BY_FAMILY.get(family)
