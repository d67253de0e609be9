"""The subscriptions of a process to queues, so that it need not poll for what other processes bring.

A queue is subscribed to while somebody waits for its jobs, and a while longer: a caller that took a job mostly comes
back. On Redis a shard publishes what becomes eligible; other stores may report nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

import structlog

from pinlater.backends.base import Notification
from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import PinLaterError
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.service")

KEEP_S = 30.0
"""How long a queue stays subscribed to after the last waiter."""

_TRY_AGAIN_S = 5.0
"""The time for which a shard is not asked again that would not, or could not, report on a queue."""

_MAX_QUEUES = 10_000
"""The most queues that are subscribed to; for more, the stores are polled."""


class QueueEvents(Protocol):
    """Receives the events of queues (LongPolls)."""

    def on_event(self, queue: str, event: Notification, shard_id: str = "") -> None:
        """A store, that of this shard, reports what another process did, or that it may have done something."""

    def on_subscription_changed(self, queue: str) -> None:
        """The stores begin or cease to report on a queue: what happened just before may not have been reported."""

    def poller(self, queue: str) -> object | None:
        """The poller of a queue for which somebody waits; None: nobody does."""


class Subscriptions:
    """The subscriptions of one process to queues, over all shards."""

    def __init__(self, members: ShardSet, listener: QueueEvents) -> None:
        self._members = members
        self._listener = listener
        self._reporting: dict[str, dict[ShardHandle, None]] = {}
        """The shards that report on each queue, in order: two runs of one seed end subscriptions in the same order."""
        self._requests: dict[tuple[str, ShardHandle], asyncio.Task[None]] = {}
        self._broken: set[tuple[str, ShardHandle]] = set()
        """Requested, and ended by the store before its answer was read."""
        self._not_before_s: dict[ShardHandle, float] = {}
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        self._ending = BackgroundTasks()
        self._is_closed = False

    def is_subscribed(self, queue: str) -> bool:
        """Whether all shards in use report on the queue now; those that do not are asked to."""
        reporting = self._reporting.get(queue)
        if reporting is None:
            if len(self._reporting) >= _MAX_QUEUES or self._is_closed:
                return False
            reporting = self._reporting[queue] = {}
        silent = [member for member in self._members.healthy() if member not in reporting]
        for member in silent:
            self._request(queue, member)
        return not silent

    def left(self, queue: str) -> None:
        """Nobody waits for this queue any more: it stays subscribed for KEEP_S, as callers come back."""
        if queue in self._reporting and queue not in self._leaving and not self._is_closed:
            self._leaving[queue] = asyncio.get_running_loop().call_later(KEEP_S, self._leave, queue)

    async def close(self) -> None:
        """Report nothing more, and end all subscriptions."""
        self._is_closed = True
        for timer in self._leaving.values():
            timer.cancel()
        subscribed = [
            *self._requests,
            *((queue, member) for queue, reporting in self._reporting.items() for member in reporting),
        ]
        tasks = [*self._requests.values(), *self._ending]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._reporting.clear()
        for queue, member in subscribed:
            await _quietly(member.shard.subscribe(queue, None))

    def _request(self, queue: str, member: ShardHandle) -> None:
        loop = asyncio.get_running_loop()
        if (queue, member) in self._requests or self._is_closed or self._not_before_s.get(member, 0.0) > loop.time():
            return
        self._requests[queue, member] = loop.create_task(self._begin(queue, member))

    async def _begin(self, queue: str, member: ShardHandle) -> None:
        try:
            reports = await member.shard.subscribe(queue, partial(self._on_event, queue, member))
        except PinLaterError:
            reports = False
        except Exception as error:
            _log.error("queue_not_subscribed", queue=queue, shard=member.shard.shard_id, exc_info=error)
            reports = False
        finally:
            del self._requests[queue, member]
        if (queue, member) in self._broken:
            self._broken.remove((queue, member))
            reports = False
        if not reports:
            self._not_before_s[member] = asyncio.get_running_loop().time() + _TRY_AGAIN_S
        elif queue in self._reporting:
            self._reporting[queue][member] = None
            self._listener.on_subscription_changed(queue)
        else:  # nobody waits for the queue any more
            await member.shard.subscribe(queue, None)

    def _on_event(self, queue: str, member: ShardHandle, event: Notification | None) -> None:
        if self._is_closed:
            return
        if event is not None:
            self._listener.on_event(queue, event, member.shard.shard_id)
            return
        if (queue, member) in self._requests:  # the answer that it is subscribed is still to be read, and is old then
            self._broken.add((queue, member))
        self._reporting.get(queue, {}).pop(member, None)
        self._listener.on_subscription_changed(queue)

    def _leave(self, queue: str) -> None:
        del self._leaving[queue]
        if self._listener.poller(queue) is not None:
            return
        for member in self._reporting.pop(queue):
            self._ending.start(_quietly(member.shard.subscribe(queue, None)))


async def _quietly(ending: Coroutine[Any, Any, object]) -> None:
    try:
        await ending
    except PinLaterError:
        return
    except Exception as error:
        _log.error("queue_not_unsubscribed", exc_info=error)
