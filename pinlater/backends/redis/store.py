"""A Redis to call scripts on: connects when it has to, checks that the store is the same one, never sends a call twice.

A script is sent by its hash; only when Redis answers that it does not know it, and so ran nothing, its text is sent.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
from contextlib import suppress
from typing import Any, NoReturn

from pinlater.backends.redis.address import Address
from pinlater.backends.redis.errors import ReplyError, is_read_only, mapped
from pinlater.backends.redis.keys import root_key
from pinlater.backends.redis.link import Link
from pinlater.backends.redis.scripts import load_scripts
from pinlater.errors import NothingStored, OutcomeUnknown, ShardConnectionFailed, StoreRefused

Arg = str | bytes | int


class RedisStore:
    """`connect_timeout_s` bounds connecting with its handshake, `call_timeout_s` the wait for one answer."""

    def __init__(self, address: Address, connect_timeout_s: float, call_timeout_s: float) -> None:
        self.address = address
        self.root = root_key(address.prefix)
        self.identity: tuple[str, str] | None = None
        self.origin = secrets.token_hex(4).encode()
        """What this process signs its news with."""
        self.connect_timeout_s = connect_timeout_s
        self._call_timeout_s = call_timeout_s
        self._scripts = load_scripts()
        self._link: Link | None = None
        self._attempt: asyncio.Task[Link] | None = None
        self._closed = False

    async def call(self, name: str, keys: tuple[bytes, ...], args: list[Arg] | tuple[Arg, ...] = ()) -> Any:
        """What the script answers; NothingStored, OutcomeUnknown, StoreRefused (found when connecting)."""
        script = self._scripts[name]
        link = self._link
        if link is None or not link.open:
            link = await self._connected()
        try:
            return await link.send(("EVALSHA", script.sha, len(keys), *keys, *args))
        except ReplyError as error:
            if error.code != "NOSCRIPT":
                raise _mapped(error, link) from error
        try:
            return await link.send(("EVAL", script.source, len(keys), *keys, *args))
        except ReplyError as error:
            raise _mapped(error, link) from error

    async def may_publish(self) -> bool:
        """Whether scripts may tell anybody anything. NothingStored, OutcomeUnknown."""
        link = await self._connected()
        try:
            await link.send(("PUBLISH", self.root + b":news", b""))
        except ReplyError:
            return False
        return True

    async def eviction_policy(self) -> str:
        """What Redis removes when its memory is full, as `allkeys-lru`; "" where it has no bound or does not say."""
        link = await self._connected()
        try:
            lines = (await link.send(("INFO", "memory"))).decode().splitlines()
        except ReplyError:
            return ""
        about = dict(line.split(":", 1) for line in lines if ":" in line)
        return about.get("maxmemory_policy", "") if about.get("maxmemory", "0") != "0" else ""

    async def close(self) -> None:
        self._closed = True
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    # -- connecting --------------------------------------------------------------------------------------------------

    async def _connected(self) -> Link:
        """The link, made anew where it has to; callers that come while it is being made share the attempt."""
        if self._closed:
            raise NothingStored("redis: the shard is closed")
        if self._link is not None and self._link.open:
            return self._link
        attempt = self._attempt
        if attempt is None:
            attempt = self._attempt = asyncio.create_task(self._connect())
            attempt.add_done_callback(self._attempted)
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled():
                raise NothingStored("redis: the shard was closed") from None
            raise

    def _attempted(self, attempt: asyncio.Task[Link]) -> None:
        self._attempt = None
        if not attempt.cancelled() and attempt.exception() is None:
            self._link = attempt.result()

    async def _connect(self) -> Link:
        """A link that is logged in, on the right database, and on the right store."""
        address, loop = self.address, asyncio.get_running_loop()
        link = Link(self._call_timeout_s)
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await loop.create_connection(lambda: link, address.host, address.port, ssl=address.tls)
                await self._handshake(link)
        except ReplyError as error:
            await self._give_up(link, str(error), error)
        except TimeoutError as error:
            tls = "; does it speak TLS?" if address.tls else ""
            await self._give_up(link, f"no connection within {self.connect_timeout_s:g} s{tls}", error)
        except (OSError, ssl.SSLError, OutcomeUnknown) as error:
            await self._give_up(link, _reason(error), error)
        except BaseException:
            link.abort()
            raise
        return link

    async def _give_up(self, link: Link, why: str, error: Exception) -> NoReturn:
        link.abort()
        raise NothingStored(f"redis {self.address.shown}: {why}") from error

    async def _handshake(self, link: Link) -> None:
        address = self.address
        if address.password is not None:
            login = (address.username, address.password) if address.username else (address.password,)
            await link.send(("AUTH", *login))
        if address.db:
            await link.send(("SELECT", address.db))
        if self.identity is not None:
            shard, store = await link.send(("HMGET", self.root, "shard", "store"))
            self.check_identity((shard or b"").decode(), (store or b"").decode())
        # Where that is not allowed, a call that is answered with NOSCRIPT brings its script along.
        loaded = [link.send(("SCRIPT", "LOAD", script.source)) for script in self._scripts.values()]
        for each in loaded:
            with suppress(ReplyError):
                await each

    def check_identity(self, shard: str, store: str) -> None:
        """StoreRefused where the store is not the one that was opened."""
        if (shard, store) != self.identity:
            was = "nothing (it was wiped)" if not store else f"shard {shard!r}, store {store}"
            raise StoreRefused(f"redis {self.address.shown} carries {was}; opened was shard and store {self.identity}")


def _mapped(error: ReplyError, link: Link) -> ShardConnectionFailed:
    """A Redis that is a replica by now is left: after a failover its address leads to another one."""
    if is_read_only(error):
        link.retire()
    return mapped(error)


def _reason(error: Exception) -> str:
    """Why there is no connection, in words without addresses."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is it running?"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error)
