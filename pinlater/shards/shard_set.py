"""The shards of a server: opened, kept apart, and watched.

A shard that cannot be reached at the start is out, and is opened in the background. A store that is not the one it
should be (another shard's, or one store under two names) is refused: descriptors must never reach another job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import structlog

from pinlater.beat import Beat
from pinlater.clock import Clock
from pinlater.errors import NoHealthyShards, PinLaterError, ShardConnectionFailed, StoreRefused, StoreReplaced
from pinlater.shards.handle import NOT_TRIED, ShardHandle, outage_text
from pinlater.shards.health_monitor import HealthMonitor

_log = structlog.get_logger("pinlater.shards")

WATCH_INTERVAL_MS = 1_000
"""How often every shard is pinged, and one that could not be opened is tried again."""

SyncShard = Callable[[ShardHandle], Awaitable[None]]


class ShardSet:
    """All shards, in the order they were configured."""

    def __init__(
        self,
        handles: Sequence[ShardHandle],
        clock: Clock,
        *,
        known_stores: Mapping[str, str] | None = None,
        watch_interval_ms: int = WATCH_INTERVAL_MS,
        beat: Beat | None = None,
    ) -> None:
        """`known_stores`: the store id that each shard id had before; another one is refused. `beat`: that of the
        process.
        """
        self.all = list(handles)
        self._healthy: list[ShardHandle] | None = None
        self._healthy_of = 0
        """How many shards there were when `_healthy` was made: they come and go with the configuration."""
        self.clock = clock
        """The clock by which the skews of the stores' clocks are measured."""
        self.sync_before_serving: SyncShard | None = None
        """Awaited before a shard comes in, at the start and whenever it comes back; an error keeps it out."""
        self._known = dict(known_stores or {})
        self._has_begun = False
        self._monitor = HealthMonitor(
            clock, watch_interval_ms, beat or Beat(), open_late=self._open_late, let_in=self.let_in
        )
        for handle in self.all:
            handle.is_alone = partial(self._is_alone, handle)
            handle.on_health_change = self._health_changed

    def healthy(self) -> list[ShardHandle]:
        """The shards in use now. The list is kept from one change to the next: not to be changed."""
        if self._healthy is None or self._healthy_of != len(self.all):
            self._healthy = [handle for handle in self.all if handle.is_healthy]
            self._healthy_of = len(self.all)
        return self._healthy

    def _health_changed(self) -> None:
        self._healthy = None

    def keep_order(self) -> bool:
        """Whether every store does; see Shard.keeps_order."""
        return all(handle.shard.keeps_order for handle in self.all)

    def require_any(self) -> None:
        """NoHealthyShards."""
        if not self.healthy():
            raise self.none_left()

    def none_left(self) -> NoHealthyShards:
        return NoHealthyShards(f"no shard can be used now: {outage_text(self.all)}", retry_after_ms=1_000)

    def full(self) -> list[ShardHandle]:
        """The shards in use that lack room for new jobs."""
        return [handle for handle in self.healthy() if handle.full]

    def by_id(self, shard_id: str) -> ShardHandle | None:
        for handle in self.all:
            if handle.shard.shard_id == shard_id:
                return handle
        return None

    def has_unknown_ids(self) -> bool:
        """Whether a shard without a configured id could not be opened yet."""
        return any(not handle.shard.shard_id for handle in self.all)

    def failures(self) -> list[str]:
        """The errors of stores that could not be opened, of each for which that was tried."""
        unopened = [handle for handle in self.all if handle.store_id is None]
        return [handle.last_error for handle in unopened if handle.last_error != NOT_TRIED]

    def store_ids(self) -> dict[str, str]:
        """The store behind each shard id that was opened."""
        return {handle.shard.shard_id: handle.store_id for handle in self.all if handle.store_id is not None}

    # -- opening -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open what can be reached. StoreRefused, and all closed again, for a store that is not the right one."""
        try:
            self._refuse_same_ids()
            failures = await asyncio.gather(*[self._try_open(handle) for handle in self.all], return_exceptions=True)
            for failure in filter(None, failures):
                raise failure
            await self._assign_ids()
        except BaseException:
            await self.close()
            raise
        await self._let_all_in([handle for handle in self.all if handle.store_id is not None])
        await asyncio.gather(*[self.check(handle) for handle in self.healthy()])
        self._monitor.start(self.all)
        self._has_begun = True

    async def close(self) -> None:
        await self._monitor.close()
        await asyncio.gather(*[handle.shard.close() for handle in self.all])

    async def _try_open(self, handle: ShardHandle) -> None:
        try:
            store_id = await handle.shard.open()
        except ShardConnectionFailed as error:
            _unreachable(handle, error)
        except StoreRefused:
            if handle.shard.shard_id:
                raise
        else:
            self._admit(handle, store_id)

    async def _assign_ids(self) -> None:
        """Stores that are new and have no id get the smallest number that is free, once all other ids are known."""
        fresh = [handle for handle in self.all if not handle.shard.shard_id]
        for handle in fresh:
            try:
                store_id = await handle.shard.open()
            except StoreRefused:
                continue
            except ShardConnectionFailed as error:
                _unreachable(handle, error)
                return
            self._admit(handle, store_id)
        for handle in fresh:
            if not handle.shard.shard_id:
                await self._open_as(handle, self._free_id())

    async def _open_as(self, handle: ShardHandle, shard_id: str) -> None:
        handle.shard.shard_id = shard_id
        try:
            self._admit(handle, await handle.shard.open())
        except ShardConnectionFailed as error:
            _unreachable(handle, error)
            handle.shard.shard_id = ""

    def _free_id(self) -> str:
        taken = {handle.shard.shard_id for handle in self.all}
        number = 1
        while str(number) in taken:
            number += 1
        return str(number)

    def _refuse_same_ids(self) -> None:
        ids = [handle.shard.shard_id for handle in self.all if handle.shard.shard_id]
        for shard_id in ids:
            if ids.count(shard_id) > 1:
                raise StoreRefused(f"two stores are both configured as, or carry the id of, shard {shard_id}")

    def _admit(self, handle: ShardHandle, store_id: str) -> None:
        """The store is open: note it, if it is the right one. StoreRefused."""
        shard_id = handle.shard.shard_id
        self._refuse_same_ids()
        for other in self.all:
            if other is not handle and other.store_id == store_id:
                raise StoreRefused(f"shards {other.shard.shard_id} and {shard_id} are one and the same store")
        expected = self._known.setdefault(shard_id, store_id)
        if expected != store_id:
            raise StoreReplaced.since(expected, store_id, f"shard {shard_id}")
        handle.store_id = store_id

    # -- coming in ---------------------------------------------------------------------------------------------------

    async def _let_all_in(self, handles: Sequence[ShardHandle]) -> None:
        """Let these shards in. Each may know what the others lack, so several are synced first: `let_in` then gives
        each what all know.
        """
        if len(handles) > 1:
            met = await asyncio.gather(*[self._synced(handle) for handle in handles])
            handles = [handle for handle, is_up in zip(handles, met, strict=True) if is_up]
        await asyncio.gather(*[self.let_in(handle) for handle in handles])

    async def let_in(self, handle: ShardHandle) -> None:
        """Bring it up, and use it. Raises nothing; what fails keeps it out."""
        if await self._synced(handle):
            handle.readmit()
            if self._has_begun:
                _log.info("shard_in", shard=handle.shard.shard_id)

    async def _synced(self, handle: ShardHandle) -> bool:
        """Whether it knows now what the other shards know."""
        try:
            if handle.skew_error_ms is None:
                await self._monitor.ping(handle)  # what time it is there has to be known before jobs are handed out
            if self.sync_before_serving is not None:
                await self.sync_before_serving(handle)
        except PinLaterError as error:
            handle.eject(error.message)
        except TimeoutError:
            handle.eject("it does not answer a ping")
        except Exception:
            _log.exception("shard_not_synced", shard=handle.shard.shard_id)
            handle.eject("it could not be synced with the others: the server's log has why (shard_not_synced)")
        else:
            return True
        return False

    # -- watching ----------------------------------------------------------------------------------------------------

    async def check(self, handle: ShardHandle) -> None:
        """One ping where one is due, or one try to open; what it finds is kept in its handle. Raises nothing."""
        await self._monitor.check(handle)

    def _is_alone(self, handle: ShardHandle) -> bool:
        others = [other for other in self.healthy() if other is not handle]
        return not others or (not handle.dequeue_only and not any(other.takes_jobs for other in others))

    async def _open_late(self, handle: ShardHandle) -> None:
        unopened = [each for each in self.all if each.store_id is None]
        if handle.shard.shard_id:
            self._admit(handle, await handle.shard.open())
        else:
            await self._assign_ids()
        await self._let_all_in([each for each in unopened if each.store_id is not None])


def _unreachable(handle: ShardHandle, error: ShardConnectionFailed) -> None:
    handle.last_error = error.message
    _log.warning("shard_unreachable", shard=handle.shard.shard_id, error=error.message)
