"""Callers that wait for the ends of jobs, joined into few calls.

Those that begin to wait in one turn of the event loop share a call, which the server answers when the first of their
jobs has ended or is not there; the others then travel on together with those that came meanwhile. A call waits for a
minute at most, and what fails is asked again, so servers may restart in between.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pinlater.background_tasks import exponential_backoff_s
from pinlater.errors import PinLaterError, ShardConnectionFailed
from pinlater.model import JobInfo, JobState

LONGEST_WAIT_MS = 60_000
LONG_CALLS = 8
"""With more calls under way, further ones are short, so that they are joined soon."""

SHORT_WAIT_MS = 1_000
MOST_CALLS = 64
NAMES_AT_ONCE = 1_000
GATHER_S = 0.02
"""How long names gather while there are many calls."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
"""Before the next call, where one failed, or answered at once without anything new: an older server does not wait."""

MANY_BYTES = 256 * 1024
"""Of results in one answer: from there on some that did not fit may be missing, and are asked for alone."""

Look = Callable[[Sequence[str], int], Awaitable[dict[str, JobInfo]]]
"""Looks these jobs up, and waits so many milliseconds for the first end."""

_ENDED = (JobState.SUCCEEDED, JobState.FAILED)


class _Waiter(NamedTuple):
    future: asyncio.Future[JobInfo | None]
    until_s: float


class JoinedWaits:
    """Waits of one client for ends of jobs. Belongs to one event loop."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[str, list[_Waiter]] = {}
        self._gathering: list[str] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._leaves: asyncio.Handle | None = None

    def wait(self, descriptor: str, until_s: float) -> asyncio.Future[JobInfo | None]:
        """The job as it ended, to come; None: it is not there. Who waits no longer cancels the future. `until_s`: when
        that will be, of the loop's clock, for the servers to know.
        """
        future: asyncio.Future[JobInfo | None] = self._loop.create_future()
        waiters = self._waiters.get(descriptor)
        if waiters is None:
            waiters = self._waiters[descriptor] = []
            self._gathering.append(descriptor)
            self._leave_soon()
        waiters.append(_Waiter(future, until_s))
        return future

    async def close(self, error: Exception) -> None:
        """All who still wait get `error`."""
        if self._leaves is not None:
            self._leaves.cancel()
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        self._fail(list(self._waiters), error)
        await asyncio.gather(*calls, return_exceptions=True)

    # -- calls -----------------------------------------------------------------------------------------------------

    def _leave_soon(self) -> None:
        if self._leaves is not None:
            return
        if len(self._calls) < LONG_CALLS:
            self._leaves = self._loop.call_soon(self._leave)
        else:
            self._leaves = self._loop.call_later(GATHER_S, self._leave)

    def _leave(self) -> None:
        """Those that have gathered leave, as far as there may be calls; the next that returns takes the others."""
        self._leaves = None
        names = [name for name in self._gathering if self._is_awaited(name)]
        self._gathering = []
        for start in range(0, len(names), NAMES_AT_ONCE):
            if len(self._calls) >= MOST_CALLS:
                self._gathering.extend(names[start:])
                return
            self._start(names[start : start + NAMES_AT_ONCE])

    def _start(self, names: Sequence[str]) -> None:
        call = self._loop.create_task(self._ask(names))
        self._calls.add(call)
        call.add_done_callback(self._over)

    def _over(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if self._gathering:
            self._leave_soon()

    def _is_awaited(self, name: str) -> bool:
        waiters = self._waiters.get(name)
        if waiters is None:
            return False
        left = [waiter for waiter in waiters if not waiter.future.done()]
        if left:
            self._waiters[name] = left
        else:
            del self._waiters[name]
        return bool(left)

    async def _ask(self, names: Sequence[str]) -> None:
        """Asks until one of these has ended; then the others gather again."""
        failures = 0
        while True:
            names = [name for name in names if self._is_awaited(name)]
            if not names:
                return
            longest_ms = LONGEST_WAIT_MS if len(self._calls) <= LONG_CALLS else SHORT_WAIT_MS
            began_s = self._loop.time()
            until_s = max(waiter.until_s for name in names for waiter in self._waiters[name])
            wait_ms = int(max(1.0, min((until_s - began_s) * 1000, longest_ms)))
            try:
                found = await self._look(names, wait_ms)
            except PinLaterError as error:
                if not error.retryable:
                    self._fail(names, error)
                    return
                parts = _by_shard(names) if isinstance(error, ShardConnectionFailed) else []
                if len(parts) > 1:  # one that is out keeps nothing from the others
                    for part in parts:
                        self._start(part)
                    return
            except Exception as error:
                self._fail(names, error)
                return
            else:
                left = self._settle(names, found)
                if len(left) < len(names) or self._loop.time() - began_s >= wait_ms / 2000:
                    self._gathering.extend(left)
                    return
            failures += 1
            await asyncio.sleep(exponential_backoff_s(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S))

    # -- answers ---------------------------------------------------------------------------------------------------

    def _settle(self, names: Sequence[str], found: dict[str, JobInfo]) -> list[str]:
        """Tells who waits; the jobs that have not ended. A result that did not fit is asked for alone."""
        left = []
        cut = len(found) > 1 and sum(len(info.result or b"") for info in found.values()) >= MANY_BYTES
        for name in names:
            info = found.get(name)
            if info is not None and info.state not in _ENDED:
                left.append(name)
                continue
            if cut and info is not None and info.state is JobState.SUCCEEDED and info.result is None:
                self._start([name])
                continue
            for waiter in self._waiters.pop(name, ()):
                if not waiter.future.done():
                    waiter.future.set_result(info)
        return left

    def _fail(self, names: Sequence[str], error: Exception) -> None:
        for name in names:
            for waiter in self._waiters.pop(name, ()):
                if not waiter.future.done():
                    waiter.future.set_exception(_own(error))


def _own(error: Exception) -> Exception:
    """An exception for one caller: one raised in many tasks would gather all their tracebacks."""
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own


def _by_shard(names: Sequence[str]) -> list[list[str]]:
    """
    >>> _by_shard(["mail:s1:p1:17", "sms:s2:p1:18", "sms:s1:p1:19"])
    [['mail:s1:p1:17', 'sms:s1:p1:19'], ['sms:s2:p1:18']]
    """
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(name.split(":")[1], []).append(name)
    return list(parts.values())
