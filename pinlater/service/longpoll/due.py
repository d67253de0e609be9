"""The time of a queue's next job: when it becomes eligible, as far as this process knows, and the question that tells.

`DueTimes` keeps what is known, so that a poller looks no later. `DueQuery` asks the stores what nobody told: one
question for all queues that are looked at together.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence

from pinlater.errors import PinLaterError, QueueNotFound
from pinlater.shards.handle import answers, ask_all
from pinlater.shards.shard_set import ShardSet

_MAX_QUEUES = 10_000


class DueTimes:
    """The earliest time of each queue. What comes behind it is learned by looking, when it has come."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._sure: set[str] = set()

    def add(self, queue: str, times_ms: Sequence[int]) -> bool:
        """Whether the first of these is earlier than what was known."""
        earliest_ms = min(times_ms)
        known_ms = self._times.get(queue)
        if known_ms is None and len(self._times) >= _MAX_QUEUES:
            return False
        if known_ms is not None and known_ms <= earliest_ms:
            return False
        self._times[queue] = earliest_ms
        return True

    def take(self, queue: str, now_ms: int) -> bool:
        """Whether that time has come; then it is forgotten."""
        if self._times.get(queue, now_ms + 1) > now_ms:
            return False
        del self._times[queue]
        self._sure.discard(queue)
        return True

    def is_known(self, queue: str) -> bool:
        """Whether `next` can be trusted, even when it is None; then polling is useless."""
        return queue in self._sure

    def confirm(self, queue: str) -> None:
        """The stores were polled, and will report what comes."""
        if len(self._sure) < _MAX_QUEUES:
            self._sure.add(queue)

    def invalidate(self, queue: str) -> None:
        """There may be jobs that no store reported, or some are behind those that are eligible."""
        self._sure.discard(queue)

    def next(self, queue: str) -> int | None:
        return self._times.get(queue)


_QUEUES = 500
"""The most queues in one question to a shard."""

_Times = Mapping[str, int | None]
_Callers = list[tuple[Sequence[str], asyncio.Future[_Times]]]
"""The queues of each caller, and where its answer goes."""


class DueQuery:
    """The question for the next due times. Those who ask at once, or while one is under way, share the next one."""

    def __init__(self, members: ShardSet) -> None:
        self._members = members
        self._callers: dict[tuple[int, ...], _Callers] = {}
        self._task: asyncio.Task[None] | None = None

    async def next_due(self, queue: str, priorities: Sequence[int]) -> int | None:
        """The smallest run_after of its pending jobs; None: there are none. QueueNotFound; errors of the shards."""
        times = await self.next_due_of((queue,), priorities)
        if queue not in times:
            raise QueueNotFound.of(queue)
        return times[queue]

    async def next_due_of(self, queues: Sequence[str], priorities: Sequence[int]) -> _Times:
        """As `next_due`, by queue; a queue that is not there is left out. Queues of other callers may be among them."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Times] = loop.create_future()
        self._callers.setdefault(tuple(priorities), []).append((queues, answer))
        if self._task is None:
            self._task = loop.create_task(self._ask_all())
        return await answer

    async def _ask_all(self) -> None:
        while self._callers:
            await self._ask(*self._callers.popitem())
        self._task = None

    async def _ask(self, priorities: Sequence[int], callers: _Callers) -> None:
        try:
            queues = list(dict.fromkeys(queue for some, _ in callers for queue in some))
            times: dict[str, int | None] = {}
            for first in range(0, len(queues), _QUEUES):
                times |= await self._earliest(queues[first : first + _QUEUES], priorities)
        except PinLaterError as error:
            error.__traceback__ = None  # it keeps the frames, and they what was asked
            _fail(callers, error)
            return
        except Exception as error:  # unforeseen: without an answer these and later callers would wait for ever
            _fail(callers, error)
            return
        for _, answer in callers:
            if not answer.done():
                answer.set_result(times)

    async def _earliest(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        """The smallest run_after of each queue's pending jobs (None: it has none) over the shards that answer; a queue
        that no shard has is left out. An error where no shard answers.
        """
        self._members.require_any()
        healthy = self._members.healthy()
        found = answers(await ask_all(healthy, lambda shard: shard.next_due(queues, priorities)))
        earliest: dict[str, int | None] = {}
        for times in found:
            for queue, time_ms in times.items():
                known = (each_ms for each_ms in (earliest.get(queue), time_ms) if each_ms is not None)
                earliest[queue] = min(known, default=None)
        return earliest


def _fail(callers: _Callers, error: Exception) -> None:
    for _, answer in callers:
        if not answer.done():
            answer.set_exception(copy.copy(error))  # each caller raises its own, with its own traceback
