"""Results that no call carries yet, by queue: acks that may ride on a dequeue, and moves, which may not."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater_workers.worker.parcel import MAX_RESULTS, Parcel, fitting
from pinlater_workers.worker.results import ACKS, Result


class Outbox:
    """Times are of time.monotonic."""

    def __init__(self) -> None:
        self._acks: dict[str, list[Result]] = {}
        self._since_s: dict[str, float] = {}
        self._moves: dict[str, list[Result]] = {}
        self.count = 0

    def put(self, results: Sequence[Result], now_s: float) -> None:
        acks, moves = self._acks, self._moves
        for result in results:
            running, verdict = result
            queue = running.queue
            if verdict.action not in ACKS:
                moves.setdefault(queue, []).append(result)
            elif queue in acks:
                acks[queue].append(result)
            else:
                acks[queue] = [result]
                self._since_s[queue] = now_s
        self.count += len(results)

    @property
    def has_acks(self) -> bool:
        return bool(self._acks)

    def oldest_s(self) -> float | None:
        """Since when the ack waits that waits longest; None: there is none."""
        return min(self._since_s.values(), default=None)

    def take_for(self, queue: str) -> Parcel | None:
        """Acks to ride on a dequeue of this queue: its own, or else of the queue whose acks wait longest."""
        if not self._acks:
            return None
        return self._take_acks(queue if queue in self._acks else min(self._since_s, key=self._since_s.__getitem__))

    def take_waiting(self, since_s: float) -> list[Parcel]:
        """All acks of queues where one waits since then or longer."""
        parcels = []
        for queue in [queue for queue, oldest_s in self._since_s.items() if oldest_s <= since_s]:
            while queue in self._acks:
                parcels.append(self._take_acks(queue))
        return parcels

    def moving(self) -> list[str]:
        """The queues with moves to make."""
        return list(self._moves)

    def take_moves(self, queue: str) -> Parcel | None:
        return self._take(self._moves, queue, moves=True) if queue in self._moves else None

    def _take_acks(self, queue: str) -> Parcel:
        parcel = self._take(self._acks, queue, moves=False)
        if queue not in self._acks:
            del self._since_s[queue]
        return parcel

    def _take(self, results: dict[str, list[Result]], queue: str, *, moves: bool) -> Parcel:
        waiting = results[queue]
        count = fitting(waiting) if moves else MAX_RESULTS
        if len(waiting) <= count:
            taken = results.pop(queue)
        else:
            taken = waiting[:count]
            del waiting[:count]
        self.count -= len(taken)
        return Parcel(queue, taken, moves=moves)
