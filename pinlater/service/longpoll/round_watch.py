"""A watch over the rounds of all pollers of a process. A round that fails or takes long holds up all callers that wait
for its queue, and they learn of it when their time is over, if at all; operators learn of it here.
"""

from __future__ import annotations

import asyncio

import structlog

from pinlater.errors import NoHealthyShards, PinLaterError
from pinlater.listener import RateLimitedLog
from pinlater.service.longpoll.poller_state import Poller

_log = structlog.get_logger("pinlater.service")

LONG_S = 1.0
"""A round that takes so long is reported."""


class RoundWatch:
    """Logs at most one line a minute for all rounds that take long, one for all that find no shard, and one for each
    queue whose rounds fail otherwise: a store that hangs or is gone holds up all queues, and one line says so.

    A timer runs only while rounds do.
    """

    def __init__(self) -> None:
        self._began_s: dict[Poller, float] = {}
        """When each poller's round began, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None
        self._log = RateLimitedLog(_log.warning, _time)

    def begun(self, poller: Poller) -> None:
        loop = asyncio.get_running_loop()
        self._began_s[poller] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(LONG_S, self._check)

    def ended(self, poller: Poller) -> None:
        took_s = _time() - self._began_s.pop(poller)
        if took_s >= LONG_S:
            self._log.note("dequeue_round_slow", queue=poller.queue, took_s=round(took_s, 3))

    def failed(self, queue: str, waiters: int, error: PinLaterError) -> None:
        """They wait on, and the queue is polled again."""
        kind = "" if isinstance(error, NoHealthyShards) else queue
        self._log.note("dequeue_round_failed", kind, queue=queue, waiters=waiters, error=error.message)

    def longest_s(self) -> float:
        """How long the oldest round that is under way has been so; 0: none is."""
        began_s = next(iter(self._began_s.values()), None)
        return 0.0 if began_s is None else _time() - began_s

    def _check(self) -> None:
        self._timer = None
        if not self._began_s:
            return
        self._timer = asyncio.get_running_loop().call_later(LONG_S, self._check)
        for_s = self.longest_s()
        if for_s >= LONG_S:
            poller = next(iter(self._began_s))
            self._log.note(
                "dequeue_round_hangs",
                queue=poller.queue,
                doing=poller.state.value,
                waiters=len(poller.waiters),
                for_s=round(for_s, 3),
                rounds_under_way=len(self._began_s),
            )


def _time() -> float:
    return asyncio.get_running_loop().time()
