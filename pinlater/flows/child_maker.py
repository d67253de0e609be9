"""The making of children outside of transactions and of the threads of the database, so that the expressions of one
caller hold up nobody else.

    quick: a few steps, on the event loop ──► dear: on a few threads that take turns, slice by slice, with a pause
                                              behind each; a caller has one, and who has spent least is next
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import FlowsUnavailable
from pinlater.flows.budgets import MAX_STEPS, OF_ITEM, Budget
from pinlater.flows.ends import MadeChildren, UnmadeChildren
from pinlater.model.flow_words import Stage

QUICK_STEPS = 2_000
"""About a millisecond: no more stands on the event loop at once."""

SLICE_STEPS, PAUSE_S = 2_000, 0.001
"""On threads: so the event loop waits no longer for them, and has half of the time whatever they evaluate."""

MAX_AT_ONCE = 4
"""Callers with a thread, and so with values in memory."""

MAX_ACK_STEPS = 8 * MAX_STEPS
"""Of the items that one call ends."""

MAX_HELD_BYTES = 8 * 1024 * 1024
"""Children of one call that are in memory before they are recorded; of one item it may be more."""

MAX_WAIT_S = 20.0
"""For the turn of a caller whose expressions are dear."""

MAX_REMEMBERED = 1_000
"""Callers, with what they have spent."""

_OF_ACK = f"the {MAX_ACK_STEPS:,} steps of the items of one ack"


class _Work(NamedTuple):
    unmade: UnmadeChildren
    budget: Budget
    made: asyncio.Future[list[MadeChildren]]


class ChildMaker:
    """Makes children for one process. `ended` hears what became of those that were dear: made, too_dear or no_turn."""

    def __init__(self, ended: Callable[[str], None] = lambda outcome: None) -> None:
        self._ended = ended
        self._waiting: dict[str, deque[_Work]] = {}
        self._spent: dict[str, int] = {}
        """By each caller; who comes anew begins at what the one before has spent that was served last."""
        self._served = 0
        self._running: set[str] = set()
        self._quick = asyncio.Lock()
        """Of one call at a time: many calls at once would make a turn of the event loop as long as all of them."""
        self._turns = _Turns()
        self._threads: ThreadPoolExecutor | None = None
        self._tasks = BackgroundTasks()

    async def close(self) -> None:
        """What waits is not made."""
        await self._tasks.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def check(self, stages: Sequence[Stage]) -> None:
        """RequestInvalid: an expression is none. Reading one takes up to two milliseconds, and a flow may have many."""
        for stage in stages:
            if stage.applet.expression:
                from pinlater.flows.applets import check_expression  # noqa: PLC0415  # as below

                check_expression(stage)
                await asyncio.sleep(0)

    async def make(
        self, unmade: Sequence[UnmadeChildren], caller: str, steps: int = MAX_ACK_STEPS
    ) -> tuple[list[list[MadeChildren]], int]:
        """The children of each of the first, in order, as many as may be held in memory, with all that they may take
        together; and the steps that are left. `caller`: who has its turn for them, "" where nobody is known: then each
        flow has its own. FlowsUnavailable: its turn did not come.
        """
        all_made: list[list[MadeChildren]] = []
        sliced = held = 0
        for each in unmade:
            budget = Budget(min(QUICK_STEPS, steps), _OF_ACK)
            async with self._quick:
                made, is_too_dear = _made(each, budget)
                steps -= budget.spent
                sliced += budget.spent
                if sliced >= QUICK_STEPS:
                    sliced = 0
                    await asyncio.sleep(0)  # with the lock: nobody else is quick in this turn of the loop
            if is_too_dear and steps > 0:
                made, spent = await self._in_turn(each, caller or f"flow {each.flow}", steps)
                steps -= spent
            all_made.append(made)
            held += sum(of_stage.size for of_stage in made)
            if held > MAX_HELD_BYTES:
                break
        return all_made, steps

    async def _in_turn(self, unmade: UnmadeChildren, caller: str, steps: int) -> tuple[list[MadeChildren], int]:
        """The children, and the steps that were spent."""
        owner = OF_ITEM if steps >= MAX_STEPS else _OF_ACK
        budget = Budget(min(MAX_STEPS, steps), owner, self._turns.pause, SLICE_STEPS)
        work = _Work(unmade, budget, asyncio.get_running_loop().create_future())
        if caller not in self._waiting:
            self._waiting[caller] = deque()
            self._spent[caller] = max(self._served, self._spent.get(caller, 0))
        self._waiting[caller].append(work)
        self._begin()
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                return await work.made, budget.spent
        except TimeoutError:
            self._ended("no_turn")
            raise FlowsUnavailable(
                f"the expressions of {caller} have waited {MAX_WAIT_S:g} s for their turn: send it again, or end fewer "
                "items at once",
                retry_after_ms=5_000,
            ) from None

    def _begin(self) -> None:
        """Let callers go on that have nothing under way, those first that have spent least."""
        while len(self._running) < MAX_AT_ONCE and (free := self._waiting.keys() - self._running):
            caller = min(free, key=self._spent.__getitem__)
            self._served = self._spent[caller]
            work = self._waiting[caller].popleft()
            if not self._waiting[caller]:
                del self._waiting[caller]
            if not work.made.done():  # else nobody waits any more
                self._running.add(caller)
                self._tasks.start(self._run(caller, work))

    async def _run(self, caller: str, work: _Work) -> None:
        try:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="expressions")
            made, is_too_dear = await asyncio.get_running_loop().run_in_executor(self._threads, self._in_turns, work)
        except Exception as error:  # as where there are no more threads: the place is free again
            if not work.made.done():
                work.made.set_exception(
                    FlowsUnavailable(f"no expression can be evaluated: {error}", retry_after_ms=5_000)
                )
        else:
            if not work.made.done():
                self._ended("too_dear" if is_too_dear else "made")
                work.made.set_result(made)
        self._running.discard(caller)
        self._spent[caller] += work.budget.spent
        if len(self._spent) > MAX_REMEMBERED:
            active = self._running | self._waiting.keys()
            self._spent = {each: spent for each, spent in self._spent.items() if each in active}
        self._begin()

    def _in_turns(self, work: _Work) -> tuple[list[MadeChildren], bool]:
        self._turns.take()
        try:
            return _made(work.unmade, work.budget)
        finally:
            self._turns.give()


class _Turns:
    """Whose slice it is, of the threads that evaluate: one at a time, in the order in which they ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Event] = deque()

    def take(self) -> None:
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        mine.wait()

    def give(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._is_taken = False

    def pause(self) -> None:
        """At the end of a slice: nobody evaluates meanwhile, then somebody else does."""
        time.sleep(PAUSE_S)
        self.give()
        self.take()


def _made(unmade: UnmadeChildren, budget: Budget) -> tuple[list[MadeChildren], bool]:
    from pinlater.flows.applets import make_children  # noqa: PLC0415  # what reads expressions is for who has some

    return make_children(unmade, budget)
