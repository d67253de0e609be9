"""The monitor that pings shards in the background.

An idle shard is known too, one that is out is tried again and let in, and one that is full takes new jobs again when it
has room.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

import structlog

from pinlater.beat import Beat
from pinlater.clock import Clock
from pinlater.errors import PinLaterError, StoreFull, StoreRefused, StoreReplaced
from pinlater.shards.handle import ShardHandle

_log = structlog.get_logger("pinlater.shards")

PING = "ping"
PING_TIMEOUT_MS = 2_000
PINGED_TOGETHER = 8
"""Shards that are pinged on the same beat; more of them would keep callers waiting."""

ROOM_KIND, ROOM_BYTES, ROOM_KEPT_MS = "room", 64 << 10, 60_000
"""An entry of that kind and size is written, and removed, to see whether a store that was full has room again. Not
every store can tell otherwise: MariaDB says that a table cannot grow only to who makes it grow.
"""
_WAY_OUT = "if the store was replaced or emptied on purpose, start once with --accept-new-store and the shard's id"
Step = Callable[[ShardHandle], Awaitable[None]]


class HealthMonitor:
    """Pings every shard each interval, one that is being probed more often, and one that refuses at once."""

    def __init__(self, clock: Clock, interval_ms: int, beat: Beat, *, open_late: Step, let_in: Step) -> None:
        """`open_late` opens a shard that could not be opened before; `let_in` follows the last probe. `beat`: that of
        the process.
        """
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._beat = beat
        self._open_late = open_late
        self._let_in = let_in
        self._me = secrets.token_hex(8)
        self._watches: list[asyncio.Task[None]] = []
        self._confirming: dict[ShardHandle, asyncio.Task[None]] = {}

    def start(self, handles: Sequence[ShardHandle]) -> None:
        for handle in handles:
            handle.on_refusal = self._confirm
        others = [Beat() for _ in handles[PINGED_TOGETHER::PINGED_TOGETHER]]
        beats = [each for each in (self._beat, *others) for _ in range(PINGED_TOGETHER)]
        self._watches = [asyncio.create_task(self._watch(*each)) for each in zip(handles, beats, strict=False)]

    async def close(self) -> None:
        tasks = [*self._watches, *self._confirming.values()]
        self._watches = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, handle: ShardHandle, beat: Beat) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            pause_s = beat.pause_s(self._interval_s, now_s())
            gap_s = handle.health.probe_gap_ms / 1000
            await asyncio.sleep(min(gap_s, pause_s) if handle.health.is_probing else pause_s)
            await self.check(handle)

    async def check(self, handle: ShardHandle) -> None:
        """One ping where one is due, or one try to open; what it finds is kept in its handle. Raises nothing."""
        if handle.store_id is None:
            await self._found(handle, self._open_late, is_final=False)
        elif handle.is_healthy:
            await self._found(handle, self._ping, is_final=False)
        elif handle.is_due():
            await self._found(handle, self._probe, is_final=True)

    def _confirm(self, handle: ShardHandle) -> None:
        """The store refused a call: a ping now says whether it is gone."""
        if handle not in self._confirming and self._watches:
            task = asyncio.get_running_loop().create_task(self._found(handle, self._ping, is_final=True))
            self._confirming[handle] = task
            task.add_done_callback(lambda _: self._confirming.pop(handle, None))

    async def _found(self, handle: ShardHandle, step: Step, *, is_final: bool) -> None:
        """`is_final`: with a failure the shard is out, for another pause if it was already."""
        was_in = handle.is_healthy
        try:
            await step(handle)
        except StoreRefused as error:
            if handle.last_error != error.message:
                hint = {"hint": _WAY_OUT} if isinstance(error, StoreReplaced) else {}
                _log.error("store_refused", shard=handle.shard.shard_id, error=error.message, **hint)
            handle.eject(error.message)
        except (PinLaterError, TimeoutError) as error:
            self._failed(handle, was_in, is_final, str(error) or f"no answer to a ping within {PING_TIMEOUT_MS} ms")
        except Exception:
            _log.exception("shard_not_checked", shard=handle.shard.shard_id)
            self._failed(handle, was_in, is_final, "it cannot be checked: the server's log has why (shard_not_checked)")

    def _failed(self, handle: ShardHandle, was_in: bool, is_final: bool, error: str) -> None:
        if was_in and not handle.is_healthy:
            return  # calls were quicker to say so
        if is_final:
            handle.eject(error)
        else:
            handle.note_failure(PING, error)

    async def _ping(self, handle: ShardHandle) -> None:
        sent_s = asyncio.get_running_loop().time()
        await self.ping(handle)
        if handle.is_healthy:
            handle.last_error = ""
            handle.learn(PING, asyncio.get_running_loop().time() - sent_s > handle.deadline_ms / 2000, None)
            if handle.may_have_room():
                await self._look_for_room(handle)

    async def _look_for_room(self, handle: ShardHandle) -> None:
        now_ms = self._clock.now_ms() + handle.skew_ms
        try:
            async with asyncio.timeout(PING_TIMEOUT_MS / 1000):
                for body, until_ms in ((bytes(ROOM_BYTES), now_ms + ROOM_KEPT_MS), (b"", 0)):
                    await handle.shard.kv_put(ROOM_KIND, self._me, body, until_ms, now_ms)
        except StoreFull:
            handle.no_room_yet()
        else:
            handle.note_room()

    async def _probe(self, handle: ShardHandle) -> None:
        await self.ping(handle)
        if handle.health.probe_succeeded(self._clock.now_ms()):
            await self._let_in(handle)

    async def ping(self, handle: ShardHandle) -> None:
        """One ping, which tells whose store it is and what time. StoreRefused: it is another store now."""
        sent_ms = self._clock.now_ms()
        async with asyncio.timeout(PING_TIMEOUT_MS / 1000):  # wait_for may swallow a cancellation before Python 3.12
            status = await handle.shard.ping()
        answered_ms = self._clock.now_ms()
        handle.note_clock(status.now_ms, sent_ms, answered_ms)
        handle.newest_ms = status.newest_ms
        if status.store_id != handle.store_id:
            raise StoreReplaced.since(handle.store_id or "", status.store_id, f"shard {handle.shard.shard_id}")
        if status.full:
            handle.note_full(status.full)
