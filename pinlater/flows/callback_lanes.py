"""Lanes of callbacks: one for each owner and receiver, so that none waits behind those of another.

An owner alone has a third of all places; where several come, all lanes of one have at most half of the places that are
free. So there is always one for an owner that comes. A receiver that took long, or did not answer, shares half of all
places with the others like it, until it has answered quickly: however many hang, those that are quick keep the other
half. What does not fit in is refused, and tried again later.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any

from pinlater.background_tasks import BackgroundTasks

AT_ONCE = 300
WAITING = 2_000
"""Callbacks of all lanes that wait for their turn."""

QUICK_S = 1.0
"""A receiver that answers within it is a quick one."""

_MAX_KNOWN = 1_000
"""Quick lanes that are remembered although they are empty."""

Work = Callable[[], Coroutine[Any, Any, bool | None]]
"""Makes one callback; whether its receiver has answered, None where it was not asked. It raises nothing."""


class Lane:
    """The callbacks of one owner to one receiver. Nothing is known of a new one, so it counts as slow."""

    __slots__ = ("is_quick", "owner", "receiver", "running", "waiting")

    def __init__(self, owner: str, receiver: str) -> None:
        self.owner = owner
        self.receiver = receiver
        self.running = 0
        self.waiting: deque[Work] = deque()
        self.is_quick = False


class CallbackLanes:
    """Those of one process; its callbacks run in `tasks`."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._turns: deque[Lane] = deque()
        """The lanes in which somebody waits, the next one first."""
        self._running, self._waiting = Counter[str](), Counter[str]()
        """By owner."""
        self._all = self._slow = 0
        """Callbacks under way; of them, those to receivers that are not quick."""

    def add(self, owner: str, receiver: str, work: Work) -> bool:
        """Make a callback in its turn; False: too many of its owner wait already."""
        if self._waiting[owner] > (WAITING - self._waiting.total()) // 2:
            return False
        lane = self._lanes.get((owner, receiver)) or Lane(owner, receiver)
        self._lanes[owner, receiver] = lane
        if not lane.waiting:
            self._turns.append(lane)
        lane.waiting.append(work)
        self._waiting[owner] += 1
        self._go_on()
        return True

    def close(self) -> None:
        """What waits is not made."""
        self._turns.clear()

    def _go_on(self) -> None:
        """Let each lane in turn begin one, until none may."""
        passed = 0
        while passed < len(self._turns):
            lane = self._turns.popleft()
            if not self._may_begin(lane):
                self._turns.append(lane)
                passed += 1
                continue
            passed = 0
            work = lane.waiting.popleft()
            _give_back(self._waiting, lane.owner)
            if lane.waiting:
                self._turns.append(lane)
            lane.running += 1
            self._running[lane.owner] += 1
            self._all += 1
            self._slow += not lane.is_quick
            self._tasks.start(self._run(lane, work, is_slow=not lane.is_quick))

    def _may_begin(self, lane: Lane) -> bool:
        free = AT_ONCE - self._all
        if not lane.is_quick:
            free = min(free, AT_ONCE // 2 - self._slow)
        running = self._running[lane.owner]
        is_alone = running == self._all and len(self._waiting) == 1
        return free > 0 and running < (AT_ONCE // 3 if is_alone else max(1, free // 2))

    async def _run(self, lane: Lane, work: Work, *, is_slow: bool) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        has_answered: bool | None = False
        try:
            has_answered = await work()
        finally:
            lane.running -= 1
            _give_back(self._running, lane.owner)
            self._all -= 1
            self._slow -= is_slow
            if has_answered is not None:
                lane.is_quick = has_answered and loop.time() - began_s <= QUICK_S
            if not lane.running and not lane.waiting:
                self._leave(lane)
            self._go_on()

    def _leave(self, lane: Lane) -> None:
        """Nothing is in the lane any more."""
        del self._lanes[lane.owner, lane.receiver]
        if lane.is_quick:
            self._lanes[lane.owner, lane.receiver] = lane
            if len(self._lanes) > _MAX_KNOWN:
                idle = next((each for each in self._lanes.values() if not each.running and not each.waiting), lane)
                del self._lanes[idle.owner, idle.receiver]


def _give_back(places: Counter[str], owner: str) -> None:
    places[owner] -= 1
    if not places[owner]:
        del places[owner]
