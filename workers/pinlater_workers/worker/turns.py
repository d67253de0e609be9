"""Whose turn it is: free slots are dealt to queues by weight, one after the other (stride scheduling). Pure.

A queue's pass grows with every slot that it gets, the slower the heavier it is; the lowest pass is next. A queue that
had nothing for a while starts at the pass of those that had, so it saves up no turns and owes none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class Turns:
    """`weights`: of every queue, 1 or more."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._stride = {queue: 1.0 / weight for queue, weight in weights.items()}
        self._pass = dict.fromkeys(weights, 0.0)
        self._now = 0.0

    def deal(self, contenders: Collection[str], slots: int, takers: Collection[str] | None = None) -> dict[str, int]:
        """So many slots for each of the `takers`: all contenders, unless some cannot take theirs yet.

        What falls to a contender that is no taker stays free. Queues without a slot are left out.
        """
        if takers is None:
            takers = contenders
        if not contenders:
            return {}
        ahead = {queue: max(self._pass[queue], self._now) for queue in contenders}
        self._now = min(ahead.values())
        dealt = dict.fromkeys(contenders, 0)
        for _ in range(slots):
            queue = min(ahead, key=ahead.__getitem__)
            dealt[queue] += 1
            ahead[queue] += self._stride[queue]
        taken = {queue: count for queue, count in dealt.items() if count and queue in takers}
        for queue in taken:
            self._pass[queue] = ahead[queue]
        return taken

    def give_back(self, queue: str, slots: int) -> None:
        """So many of those that it was dealt brought no job."""
        self._pass[queue] -= self._stride[queue] * slots
