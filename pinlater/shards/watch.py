"""Pings in the background: an idle shard is known too, one that is out is tried again and let in, and one that is full
takes new jobs again when it has room.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

import structlog

from pinlater.clock import Clock
from pinlater.errors import PinLaterError, StoreFull, StoreRefused
from pinlater.shards.health import PING
from pinlater.shards.member import Member

_log = structlog.get_logger("pinlater.shards")

PING_TIMEOUT_MS = 2_000
ROOM_KIND, ROOM_BYTES, ROOM_KEPT_MS = "room", 64 << 10, 60_000
"""A note of that kind and size is written, and removed, to see whether a store that was full has room again. Not every
store can tell otherwise: MariaDB says that a table cannot grow only to who makes it grow.
"""
_WAY_OUT = "if the store was replaced or emptied on purpose, start once with --accept-new-store and the shard's id"
Step = Callable[[Member], Awaitable[None]]


class Watch:
    """Looks at every shard each interval, at one that is being probed more often, and at once at one that refuses."""

    def __init__(self, clock: Clock, interval_ms: int, *, open_late: Step, let_in: Step) -> None:
        """`open_late` opens a shard that could not be opened before; `let_in` follows the last probe."""
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._open_late = open_late
        self._let_in = let_in
        self._me = secrets.token_hex(8)
        self._watches: list[asyncio.Task[None]] = []
        self._confirming: dict[Member, asyncio.Task[None]] = {}

    def start(self, members: Sequence[Member]) -> None:
        for member in members:
            member.on_refusal = self._confirm
        self._watches = [asyncio.create_task(self._watch(member)) for member in members]

    async def close(self) -> None:
        tasks = [*self._watches, *self._confirming.values()]
        self._watches = []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, member: Member) -> None:
        while True:
            gap_s = member.health.probe_gap_ms / 1000
            await asyncio.sleep(min(gap_s, self._interval_s) if member.health.is_probing else self._interval_s)
            await self.check(member)

    async def check(self, member: Member) -> None:
        """One ping where one is due, or one try to open; what it finds is kept in the member. Raises nothing."""
        if member.store_id is None:
            await self._found(member, self._open_late, is_final=False)
        elif member.is_in:
            await self._found(member, self._ping, is_final=False)
        elif member.is_due():
            await self._found(member, self._probe, is_final=True)

    def _confirm(self, member: Member) -> None:
        """The store refused a call: a ping now says whether it is gone."""
        if member not in self._confirming and self._watches:
            task = asyncio.get_running_loop().create_task(self._found(member, self._ping, is_final=True))
            self._confirming[member] = task
            task.add_done_callback(lambda _: self._confirming.pop(member, None))

    async def _found(self, member: Member, look: Step, *, is_final: bool) -> None:
        """`is_final`: with a failure the shard is out, for another pause if it was already."""
        was_in = member.is_in
        try:
            await look(member)
        except StoreRefused as error:
            if member.trouble != error.message:
                _log.error("store_refused", shard=member.shard.shard_id, error=error.message, hint=_WAY_OUT)
            member.go_out(error.message)
        except (PinLaterError, TimeoutError) as error:
            self._failed(member, was_in, is_final, str(error) or f"no answer to a ping within {PING_TIMEOUT_MS} ms")
        except Exception as error:
            _log.exception("shard_not_checked", shard=member.shard.shard_id)
            self._failed(member, was_in, is_final, repr(error))

    def _failed(self, member: Member, was_in: bool, is_final: bool, trouble: str) -> None:
        if was_in and not member.is_in:
            return  # calls were quicker to say so
        if is_final:
            member.go_out(trouble)
        else:
            member.note_failure(PING, trouble)

    async def _ping(self, member: Member) -> None:
        asked_s = asyncio.get_running_loop().time()
        await self.greet(member)
        if member.is_in:
            member.trouble = ""
            member.learn(PING, asyncio.get_running_loop().time() - asked_s > member.deadline_ms / 2000, None)
            if member.may_have_room():
                await self._look_for_room(member)

    async def _look_for_room(self, member: Member) -> None:
        now_ms = self._clock.now_ms() + member.skew_ms
        try:
            async with asyncio.timeout(PING_TIMEOUT_MS / 1000):
                for body, until_ms in ((bytes(ROOM_BYTES), now_ms + ROOM_KEPT_MS), (b"", 0)):
                    await member.shard.kv_put(ROOM_KIND, self._me, body, until_ms, now_ms)
        except StoreFull:
            member.no_room_yet()
        else:
            member.note_room()

    async def _probe(self, member: Member) -> None:
        await self.greet(member)
        if member.health.probe_succeeded(self._clock.now_ms()):
            await self._let_in(member)

    async def greet(self, member: Member) -> None:
        """One ping, which tells whose store it is and what time. StoreRefused: it is another store now."""
        asked_ms = self._clock.now_ms()
        async with asyncio.timeout(PING_TIMEOUT_MS / 1000):  # wait_for may swallow a cancellation before Python 3.12
            status = await member.shard.ping()
        answered_ms = self._clock.now_ms()
        member.heard_clock(status.now_ms, asked_ms, answered_ms)
        member.newest_ms = status.newest_ms
        if status.store_id != member.store_id:
            raise StoreRefused(f"shard {member.shard.shard_id} became another store: {status.store_id}")
        if status.full:
            member.note_full(status.full)
