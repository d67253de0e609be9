"""Whose turn it is: free slots are dealt to queues by weight, one after the other (stride scheduling). Pure.

A queue's pass grows with every slot that it gets, the slower the heavier it is; the lowest pass is next. A queue that
did not use all of its slots, or was not asked, has no turns to catch up on: it goes on where the others are by then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class Turns:
    """`weights`: of every queue, 1 or more."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._stride = {queue: 1.0 / weight for queue, weight in weights.items()}
        self._pass = dict.fromkeys(weights, 0.0)
        self._sated: set[str] = set()
        self._now = 0.0

    def deal(self, contenders: Collection[str], slots: int, takers: Collection[str] | None = None) -> dict[str, int]:
        """So many slots for each of the `takers`: all contenders, unless some cannot take theirs yet.

        What falls to a contender that is no taker stays free. Queues without a slot are left out.
        """
        if takers is None:
            takers = contenders
        if not contenders:
            return {}
        hungry = [self._pass[queue] for queue in contenders if queue not in self._sated]
        self._now = max(self._now, min(hungry, default=self._now))
        for queue in self._sated.intersection(contenders):
            self._pass[queue] = max(self._pass[queue], self._now)
        self._sated = self._sated.difference(contenders).union(self._pass.keys() - contenders)
        ahead = {queue: self._pass[queue] for queue in contenders}
        dealt = dict.fromkeys(contenders, 0)
        for _ in range(slots):
            queue = min(ahead, key=ahead.__getitem__)
            dealt[queue] += 1
            ahead[queue] += self._stride[queue]
        taken = {queue: count for queue, count in dealt.items() if count and queue in takers}
        for queue in taken:
            self._pass[queue] = ahead[queue]
        return taken

    def undo(self, queue: str, slots: int) -> None:
        """It was not asked for so many of those that it was dealt."""
        self._pass[queue] -= self._stride[queue] * slots

    def give_back(self, queue: str, slots: int) -> None:
        """So many of those that it was dealt brought no job."""
        self.undo(queue, slots)
        self._sated.add(queue)
