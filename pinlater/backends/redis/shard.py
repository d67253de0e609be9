"""One shard in a Redis database: each call is one script (lua/), and so atomic as a whole."""

from __future__ import annotations

import secrets

from pinlater.backends.base import Shard, StoreStatus
from pinlater.backends.redis.address import parse_address
from pinlater.backends.redis.conditions import warn_of, warn_of_channels
from pinlater.backends.redis.connection import FULL
from pinlater.backends.redis.coordination import ConfigCommands, Coordination, Maintenance
from pinlater.backends.redis.extended_jobs import ExtendedCommands, KeyHomes
from pinlater.backends.redis.jobs import AdminCommands, JobCommands, Queries
from pinlater.backends.redis.permits import PermitCommands
from pinlater.backends.redis.pubsub import PubSub
from pinlater.backends.redis.redis_transfer import RedisTransfer
from pinlater.backends.redis.scripts import RedisStore
from pinlater.backends.redis.store_version import LAST_VERSION, shard_and_version
from pinlater.backends.store_transfer import MARK_STEP, refuse_mark
from pinlater.errors import StoreRefused

CONNECT_TIMEOUT_MS = 2_000
CALL_TIMEOUT_MS = 5_000


class RedisShard(
    ConfigCommands,
    JobCommands,
    ExtendedCommands,
    PermitCommands,
    PubSub,
    Queries,
    AdminCommands,
    Maintenance,
    KeyHomes,
    Coordination,
    Shard,
):
    """A shard in Redis. Takes a `redis://`, `rediss://` or `redis+sentinel://` URL (see address.py); an id
    of "" lets the store's own record decide.
    """

    keeps_order = True  # one connection
    has_own_clock = True

    def __init__(
        self,
        url: str,
        shard_id: str = "",
        *,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        call_timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> None:
        super().__init__(shard_id, RedisStore(parse_address(url), connect_timeout_ms / 1000, call_timeout_ms / 1000))
        self.opens_marked = False
        """Whether `open` opens a store that is no server's to open; for a transfer."""

    def transfer(self) -> RedisTransfer:
        """How what the store holds is exported and imported."""
        return RedisTransfer(self._store)

    async def open(self) -> str:
        store, given = self._store, self.shard_id
        answer = await store.call("open", given, secrets.token_hex(16))
        about, store_id = (str(part, "ascii") for part in answer)
        shard, version = shard_and_version(about)
        if not self.opens_marked:
            refuse_mark(version, f"redis {store.address.shown}: ")
        if version % MARK_STEP > LAST_VERSION:
            raise StoreRefused(
                f"redis {store.address.shown} has jobs of a newer PinLater (version {version}, this one knows "
                f"{LAST_VERSION}): run that one"
            )
        if not shard:
            raise StoreRefused(f"redis {store.address.shown} has no shard id yet: give it one, as in ID=URL")
        if given and shard != given:
            raise StoreRefused(f"redis {store.address.shown} is shard {shard!r}, not {given!r}")
        self.shard_id = shard
        store.identity = (shard, store_id)
        warn_of(await store.about(), store.address)
        if not await store.may_publish():
            warn_of_channels(store.address, store.root)
        return store_id

    async def close(self) -> None:
        await self.close_pubsub()
        await self._store.close()

    async def ping(self) -> StoreStatus:
        shard, store_id, seconds, micros, is_full, last_id = await self._store.call("ping")
        self._store.check_identity(shard.decode(), store_id.decode())
        full = f"redis {self._store.address.shown}: {FULL}" if is_full else ""
        return StoreStatus(store_id.decode(), int(seconds) * 1000 + int(micros) // 1000, full, int(last_id) // 1000)
