"""The Lua scripts of lua/, and the Redis they are called on.

`--#include NAME` takes in _NAME.lua, and `$NAME` is a number or format of LUA_LAYOUT, KEY_LAYOUT or TRAIL_LAYOUT. A
script is sent by its SHA1; only when Redis answers that it does not know it, and so ran nothing, its text is sent. No
call is sent twice otherwise. The store connects when it has to, and checks each time that it is still the same store.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NoReturn

from redis.crc import key_slot

from pinlater.backends.redis.address import RedisAddress
from pinlater.backends.redis.cluster_slots import GUARD, ClusterNodes
from pinlater.backends.redis.connection import PipelinedConnection, ReplyError, is_read_only, mapped, reason
from pinlater.backends.redis.failover import Endpoint, FailoverListener, ReplicatedConnection, find_primary
from pinlater.backends.redis.key_records import KEY_LAYOUT
from pinlater.backends.redis.records import LUA_LAYOUT, Arg, root_key
from pinlater.backends.redis.store_version import shard_and_version
from pinlater.backends.redis.trail_records import TRAIL_LAYOUT
from pinlater.backends.store_transfer import refuse_closed
from pinlater.errors import (
    NothingStored,
    OutcomeUnknown,
    QueueNotFound,
    ShardConnectionFailed,
    StoreReplaced,
)

_INCLUDE = re.compile(r"^--#include ([a-z]+)$", re.MULTILINE)
_LAYOUT = re.compile(r"\$([A-Z_]+)")


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    source: str
    sha: str


@cache
def load_scripts(before: str = "") -> dict[str, Script]:
    """All scripts by name, each behind that text."""
    folder = files("pinlater.backends.redis") / "lua"
    texts = {entry.name[:-4]: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".lua")}
    scripts, layout = {}, LUA_LAYOUT | KEY_LAYOUT | TRAIL_LAYOUT
    for name, text in texts.items():
        if not name.startswith("_"):
            source = before + _INCLUDE.sub(lambda match: texts["_" + match[1]], text)
            source = _LAYOUT.sub(lambda match: layout[match[1]], source)
            scripts[name] = Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
    return scripts


class RedisStore:
    """One Redis server with its connections and scripts.

    `connect_timeout_s` bounds connecting with its handshake, `call_timeout_s` the wait for one answer.
    """

    def __init__(self, address: RedisAddress, connect_timeout_s: float, call_timeout_s: float) -> None:
        self.address = address
        self.root = root_key(address.prefix)
        self.identity: tuple[str, str] | None = None
        self.publisher_id = secrets.token_hex(4).encode()
        """What this process signs its news with."""
        self.connect_timeout_s = connect_timeout_s
        self._call_timeout_s = call_timeout_s
        self._scripts = load_scripts(GUARD) if address.nodes else load_scripts()
        self._nodes = ClusterNodes(address.nodes, address.login, address.tls) if address.nodes else None
        self._connection: PipelinedConnection | None = None
        self._attempt: asyncio.Task[PipelinedConnection] | None = None
        self._closed = False
        self._endpoint: Endpoint | None = None
        """The endpoint to which the connection leads."""
        self.on_failover: Callable[[], None] = _ignore
        """Called when another Redis has become the primary."""
        self._failovers: FailoverListener | None = None
        if address.sentinels is not None:
            self._failovers = FailoverListener(
                address.sentinels, address.tls, connect_timeout_s, self._on_switched_primary
            )

    async def call(self, name: str, *args: Arg) -> Any:
        """What a script answers that works on the whole shard. NothingStored, OutcomeUnknown, StoreRefused (found when
        connecting).
        """
        connection = self._connection
        if connection is None or not connection.open:
            connection = await self._connected()
        script = self._scripts[name]
        try:
            return await connection.send(("EVALSHA", script.sha, 1, self.root, *args))
        except ReplyError as error:
            return await self._call_again(connection, error, script, (1, self.root, *args))

    async def call_queue(self, name: str, queue: str, args: Sequence[Arg]) -> Any:
        """What a script answers that works on one queue; QueueNotFound where that is nil. Else as `call`."""
        connection = self._connection
        if connection is None or not connection.open:
            connection = await self._connected()
        script, base = self._scripts[name], b"%s:q:%s" % (self.root, queue.encode())
        try:
            answer = await connection.send(("EVALSHA", script.sha, 2, self.root, base, *args))
        except ReplyError as error:
            answer = await self._call_again(connection, error, script, (2, self.root, base, *args))
        if answer is None:
            raise QueueNotFound.of(queue)
        return answer

    async def _call_again(
        self, connection: PipelinedConnection, error: ReplyError, script: Script, keys_and_args: tuple[Arg, ...]
    ) -> Any:
        """Send a call again that Redis has not run, since it lacks the script or, in a cluster, the slot; raise any
        other error.
        """
        if error.code not in ("NOSCRIPT", "MOVED"):
            raise _mapped(error, connection) from error
        run: tuple[Arg, ...] = ("EVAL", script.source)
        if error.code == "MOVED":
            connection.retire()
            connection, run = await self._connected(), ("EVALSHA", script.sha)
        try:
            return await connection.send((*run, *keys_and_args))
        except ReplyError as failure:
            raise _mapped(failure, connection) from failure

    async def commands(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers to plain commands, sent as one, for what works on a store that no server uses. NothingStored,
        OutcomeUnknown.
        """
        connection = await self._connected()
        answers: list[Any] = []
        for answer in connection.send_all(commands):
            try:
                answers.append(await answer)
            except ReplyError as error:
                answers.append(error)
        inside = answers[-1] if answers and isinstance(answers[-1], list) else []  # of a transaction
        for each in (*answers, *inside):
            if isinstance(each, ReplyError):
                raise _mapped(each, connection) from each
        return answers

    async def may_publish(self) -> bool:
        """Whether scripts may tell anybody anything. NothingStored, OutcomeUnknown."""
        connection = await self._connected()
        try:
            await connection.send(("PUBLISH", self.root + b":news", b""))
        except ReplyError:
            return False
        return True

    async def about(self) -> dict[str, str]:
        """What Redis says of itself (INFO); nothing where this user may not ask."""
        connection = await self._connected()
        try:
            lines = (await connection.send(("INFO",))).decode().splitlines()
        except ReplyError:
            return {}
        return dict(line.split(":", 1) for line in lines if ":" in line)

    async def close(self) -> None:
        self._closed = True
        if self._failovers is not None:
            await self._failovers.close()
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # -- connecting --------------------------------------------------------------------------------------------------

    async def _connected(self) -> PipelinedConnection:
        """The connection, made anew where it has to; callers that come while it is being made share the attempt."""
        if self._closed:
            raise NothingStored("redis: the shard is closed")
        if self._connection is not None and self._connection.open:
            return self._connection
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

    def _attempted(self, attempt: asyncio.Task[PipelinedConnection]) -> None:
        self._attempt = None
        if not attempt.cancelled() and attempt.exception() is None:
            self._connection = attempt.result()

    async def _connect(self) -> PipelinedConnection:
        """A connection that is logged in, on the right database, and on the right store."""
        address, loop = self.address, asyncio.get_running_loop()
        connection = _connection(address, self._call_timeout_s)
        endpoint = await self.endpoint()
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await loop.create_connection(lambda: connection, *endpoint, ssl=address.tls)
                await self._handshake(connection)
        except ReplyError as error:
            await self._give_up(connection, str(error), error)
        except TimeoutError as error:
            tls = "; does it speak TLS?" if address.tls else ""
            await self._give_up(connection, f"no connection within {self.connect_timeout_s:g} s{tls}", error)
        except (OSError, ssl.SSLError, OutcomeUnknown) as error:
            await self._give_up(connection, reason(error), error)
        except BaseException:
            connection.abort()
            raise
        self._endpoint = endpoint
        if isinstance(connection, ReplicatedConnection):
            connection.waits = True
        return connection

    async def endpoint(self) -> Endpoint:
        """The endpoint of Redis; of several, of the primary. NothingStored where no sentinel and no node names it."""
        address = self.address
        if self._nodes is not None:
            return await self._nodes.owner(key_slot(self.root))
        if address.sentinels is None:
            return address.host, address.port
        assert self._failovers is not None
        self._failovers.start()
        return await find_primary(address.sentinels, address.tls)

    def _on_switched_primary(self, host: str, port: int) -> None:
        """Give up the former primary: it may hang, or answer although its writes will be lost."""
        if self._endpoint != (host, port):
            if self._connection is not None:
                self._connection.abort()
            self.on_failover()

    async def _give_up(self, connection: PipelinedConnection, why: str, error: Exception) -> NoReturn:
        connection.abort()
        raise NothingStored(f"redis {self.address.shown}: {why}") from error

    async def _handshake(self, connection: PipelinedConnection) -> None:
        address = self.address
        if address.login is not None:
            await connection.send(("AUTH", *address.login))
        if address.sentinels is not None and (await connection.send(("ROLE",)))[0] != b"master":
            raise ReplyError("READONLY this is a replica; the failover is not over")
        if address.db:
            await connection.send(("SELECT", address.db))
        # Before the scripts also where nothing is known yet: a Redis that wants a password says so to a short command,
        # and closes the connection without a word at a text of more than 16 KiB.
        shard, store = await connection.send(("HMGET", self.root, "shard", "store"))
        if self.identity is not None:
            self.check_identity((shard or b"").decode(), (store or b"").decode())
        with suppress(ReplyError):  # where that is not allowed, it is taken for what it is where nobody set it
            for value in (await connection.send(("CONFIG", "GET", "proto-max-bulk-len")))[1:]:
                connection.most_bytes = int(value)
        # Where that is not allowed, a call that is answered with NOSCRIPT brings its script along.
        loaded = [connection.send(("SCRIPT", "LOAD", script.source)) for script in self._scripts.values()]
        for each in loaded:
            with suppress(ReplyError):
                await each

    def check_identity(self, shard: str, store: str) -> None:
        """StoreRefused where the store is not the one that was opened."""
        shard, _ = shard_and_version(shard)
        opened = self.identity or ("", "")
        if (shard, store) != opened:
            refuse_closed(store, f"redis {self.address.shown}: ")
            now = f"{store} of shard {shard}" if store else ""
            raise StoreReplaced.since(opened[1], now, f"redis {self.address.shown}")


def _ignore() -> None:
    """Do nothing: without listeners nobody needs to know of a failover."""


def _connection(address: RedisAddress, timeout_s: float) -> PipelinedConnection:
    if address.wait.count:
        return ReplicatedConnection(timeout_s, address.wait)
    return PipelinedConnection(timeout_s)


def _mapped(error: ReplyError, connection: PipelinedConnection) -> ShardConnectionFailed:
    """A Redis that is a replica by now is left: after a failover its address leads to another one."""
    if is_read_only(error) or error.code == "MOVED":
        connection.retire()
    return mapped(error)


SMALLEST_ID = 10**15
"""Ids are 16 digits wide, even where a machine woke up without the time."""


class ScriptCaller:
    """The calls are methods of the classes derived from this; each is one script (lua/), and so atomic as a whole."""

    def __init__(self, shard_id: str, store: RedisStore) -> None:
        self.shard_id = shard_id
        self._store = store


def lowest_id(now_ms: int) -> int:
    """The lowest id that may be given now: the time in microseconds."""
    return max(now_ms * 1000, SMALLEST_ID)
