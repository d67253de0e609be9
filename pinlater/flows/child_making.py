"""The making of children outside of transactions and of the threads of the database, so that the expressions of one
caller hold up nobody else.

    quick: a few steps, on the event loop ──► dear: on one thread that pauses after each slice, the callers in turn;
                                              whoever has spent least is next
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, NamedTuple

from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import FlowsUnavailable
from pinlater.flows.budgets import MAX_STEPS, OF_ITEM, Budget
from pinlater.flows.ends import MadeChildren, UnmadeChildren
from pinlater.model.flow_words import Stage

QUICK_STEPS = 2_000
"""About a millisecond: no more stands on the event loop at once."""

SLICE_STEPS, PAUSE_S = 2_000, 0.001
"""On the thread: so the event loop waits no longer for it, and has half of the time whatever is evaluated."""

MAX_ACK_STEPS = 8 * MAX_STEPS
"""Of the items that one call ends."""

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
    """Makes children for one process."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Work]] = {}
        self._spent: dict[str, int] = {}
        """By each caller; who comes anew begins at what the one before has spent that was served last."""
        self._served = 0
        self._thread: ThreadPoolExecutor | None = None
        self._tasks = BackgroundTasks()

    async def close(self) -> None:
        """What waits is not made."""
        await self._tasks.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def check(self, stages: Sequence[Stage]) -> None:
        """RequestInvalid: an expression is none. Reading one takes up to two milliseconds, and a flow may have many."""
        for stage in stages:
            if stage.applet.expression:
                _applets().check_expression(stage)
                await asyncio.sleep(0)

    async def make(
        self, unmade: Sequence[UnmadeChildren], caller: str, steps: int = MAX_ACK_STEPS
    ) -> tuple[list[list[MadeChildren]], int]:
        """The children of each, in order, with all that they may take together; and the steps that are left. `caller`:
        who has its turn for them, "" where nobody is known: then each flow has its own. FlowsUnavailable: its turn did
        not come.
        """
        all_made: list[list[MadeChildren]] = []
        began = steps
        for each in unmade:
            budget = Budget(min(QUICK_STEPS, steps), _OF_ACK)
            made, is_too_dear = _made(each, budget)
            steps -= budget.spent
            if is_too_dear and steps > 0:
                made, spent = await self._in_turn(each, caller or f"flow {each.flow}", steps)
                steps -= spent
            all_made.append(made)
            if began - steps >= QUICK_STEPS:
                began = steps
                await asyncio.sleep(0)
        return all_made, steps

    async def _in_turn(self, unmade: UnmadeChildren, caller: str, steps: int) -> tuple[list[MadeChildren], int]:
        """The children, and the steps that were spent."""
        owner = OF_ITEM if steps >= MAX_STEPS else _OF_ACK
        budget = Budget(min(MAX_STEPS, steps), owner, _pause, SLICE_STEPS)
        work = _Work(unmade, budget, asyncio.get_running_loop().create_future())
        if caller not in self._waiting:
            self._waiting[caller] = deque()
            self._spent[caller] = max(self._served, self._spent.get(caller, 0))
        self._waiting[caller].append(work)
        if not len(self._tasks):
            self._tasks.start(self._serve())
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                return await work.made, budget.spent
        except TimeoutError:
            raise FlowsUnavailable(
                f"the expressions of {caller} have waited {MAX_WAIT_S:g} s for their turn: send it again, or end fewer "
                "items at once",
                retry_after_ms=5_000,
            ) from None

    async def _serve(self) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="expressions")
        loop = asyncio.get_running_loop()
        while self._waiting:
            caller = min(self._waiting, key=self._spent.__getitem__)
            self._served = self._spent[caller]
            work = self._waiting[caller].popleft()
            if not self._waiting[caller]:
                del self._waiting[caller]
            if work.made.done():  # nobody waits any more
                continue
            try:
                made, _ = await loop.run_in_executor(self._thread, _made, work.unmade, work.budget)
            except Exception as error:
                if not work.made.done():
                    work.made.set_exception(error)
            else:
                if not work.made.done():
                    work.made.set_result(made)
            self._spent[caller] += work.budget.spent
            if len(self._spent) > MAX_REMEMBERED:
                some = {*self._waiting, caller}
                self._spent = {each: spent for each, spent in self._spent.items() if each in some}


def _made(unmade: UnmadeChildren, budget: Budget) -> tuple[list[MadeChildren], bool]:
    made: tuple[list[MadeChildren], bool] = _applets().make_children(unmade, budget)
    return made


def _applets() -> Any:
    """Who makes no children of expressions and lists does not load what reads them."""
    return import_module("pinlater.flows.applets")


def _pause() -> None:
    time.sleep(PAUSE_S)
