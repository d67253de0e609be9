"""Which queues the stores tell this process of, so that it need not look for what other processes bring.

A queue is followed while somebody waits for its jobs, and a while longer: who took a job mostly comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from pinlater.backends.base import Notification
from pinlater.errors import PinLaterError
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.service")

KEEP_S = 30.0
"""How long a queue is followed after the last who waited."""

_TRY_AGAIN_S = 5.0
"""After a shard would not, or could not, tell of a queue."""

_MAX_QUEUES = 10_000
"""Of more, the stores are looked at."""


class Subscriptions:
    """`heard` gets the news of a queue, `changed` is called when its shards begin or cease to tell of it."""

    def __init__(
        self,
        members: ShardSet,
        is_waited_for: Callable[[str], bool],
        heard: Callable[[str, Notification], None],
        changed: Callable[[str], None],
    ) -> None:
        self._members = members
        self._is_waited_for = is_waited_for
        self._heard = heard
        self._changed = changed
        self._telling: dict[str, set[ShardHandle]] = {}
        self._asked: dict[tuple[str, ShardHandle], asyncio.Task[None]] = {}
        self._broken: set[tuple[str, ShardHandle]] = set()
        """Asked, and told that it is over before the answer was read."""
        self._not_before_s: dict[ShardHandle, float] = {}
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def is_subscribed(self, queue: str) -> bool:
        """Whether all shards in use tell of the queue now; those that do not are asked to."""
        telling = self._telling.get(queue)
        if telling is None:
            if len(self._telling) >= _MAX_QUEUES or self._is_closed:
                return False
            telling = self._telling[queue] = set()
        silent = [member for member in self._members.healthy() if member not in telling]
        for member in silent:
            self._ask(queue, member)
        return not silent

    def left(self, queue: str) -> None:
        """Nobody waits for it any more."""
        if queue in self._telling and queue not in self._leaving and not self._is_closed:
            self._leaving[queue] = asyncio.get_running_loop().call_later(KEEP_S, self._leave, queue)

    async def close(self) -> None:
        """Tell nobody anything more, and follow nothing."""
        self._is_closed = True
        for timer in self._leaving.values():
            timer.cancel()
        followed = [*self._asked, *((queue, member) for queue, telling in self._telling.items() for member in telling)]
        tasks = [*self._asked.values(), *self._ending]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._telling.clear()
        for queue, member in followed:
            await _quietly(member.shard.subscribe(queue, None))

    def _ask(self, queue: str, member: ShardHandle) -> None:
        loop = asyncio.get_running_loop()
        if (queue, member) in self._asked or self._is_closed or self._not_before_s.get(member, 0.0) > loop.time():
            return
        self._asked[queue, member] = loop.create_task(self._begin(queue, member))

    async def _begin(self, queue: str, member: ShardHandle) -> None:
        try:
            tells = await member.shard.subscribe(queue, partial(self._hear, queue, member))
        except PinLaterError:
            tells = False
        except Exception as error:
            _log.error("queue_not_followed", queue=queue, shard=member.shard.shard_id, exc_info=error)
            tells = False
        finally:
            del self._asked[queue, member]
        if (queue, member) in self._broken:
            self._broken.remove((queue, member))
            tells = False
        if not tells:
            self._not_before_s[member] = asyncio.get_running_loop().time() + _TRY_AGAIN_S
        elif queue in self._telling:
            self._telling[queue].add(member)
            self._changed(queue)
        else:
            await member.shard.subscribe(queue, None)

    def _hear(self, queue: str, member: ShardHandle, news: Notification | None) -> None:
        if self._is_closed:
            return
        if news is not None:
            self._heard(queue, news)
            return
        if (queue, member) in self._asked:
            self._broken.add((queue, member))
        self._telling.get(queue, set()).discard(member)
        self._changed(queue)

    def _leave(self, queue: str) -> None:
        del self._leaving[queue]
        if self._is_waited_for(queue):
            return
        for member in self._telling.pop(queue):
            self._mind(member.shard.subscribe(queue, None))

    def _mind(self, ending: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(_quietly(ending))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _quietly(ending: Coroutine[Any, Any, object]) -> None:
    try:
        await ending
    except PinLaterError:
        return
    except Exception as error:
        _log.error("queue_not_left", exc_info=error)
