"""The primary of a Redis with replicas: its endpoint, the news of a failover, and answers that wait for replicas.

Each new connection asks all sentinels. One sentinel also tells of a failover, so that the connection to the former
primary is given up at once, even where that primary still answers. A Redis that a sentinel names must confirm with ROLE
that it is a primary.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pinlater.backends.redis.connection import PipelinedConnection, ReplyError, reason
from pinlater.backends.redis.pubsub_connection import PubSubConnection
from pinlater.eager import InlineFuture
from pinlater.errors import NothingStored, OutcomeUnknown, ShardConnectionFailed

ASK_WITHIN_S = 1.0
RECONNECT_AFTER_S = 0.5
SWITCH_MASTER = b"+switch-master"
"""The channel of a sentinel for failovers (https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel)."""

Endpoint = tuple[str, int]
"""Host and port."""


def login(username: str | None, password: str | None) -> tuple[str, ...] | None:
    """The arguments of AUTH; None where there is no password."""
    if password is None:
        return None
    return (username, password) if username else (password,)


@dataclass(frozen=True, slots=True)
class Sentinels:
    """The sentinels that watch the primary which they call `name`."""

    endpoints: tuple[Endpoint, ...]
    name: str
    login: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        return f"{','.join(f'{host}:{port}' for host, port in self.endpoints)}/{self.name}"


@dataclass(frozen=True, slots=True)
class ReplicaWait:
    """The number of replicas that must have a write before it is answered, and the bound of that wait."""

    count: int = 0
    within_ms: int = 1_000


NO_WAIT = ReplicaWait()


async def ask(
    endpoint: Endpoint, login: Sequence[str] | None, tls: ssl.SSLContext | None, command: tuple[str, ...]
) -> Any:
    """The answer to one command, on a connection of its own. OSError, ReplyError, ShardConnectionFailed, all with a
    text; within ASK_WITHIN_S.
    """
    connection = PipelinedConnection(ASK_WITHIN_S)
    try:
        async with asyncio.timeout(ASK_WITHIN_S):
            await asyncio.get_running_loop().create_connection(lambda: connection, *endpoint, ssl=tls)
            if login is not None:
                await connection.send(("AUTH", *login))
            return await connection.send(command)
    except TimeoutError as error:
        raise TimeoutError("no answer") from error
    finally:
        connection.abort()


NO_ANSWER = (OSError, ReplyError, ShardConnectionFailed)
"""The errors of `ask`."""


async def find_primary(sentinels: Sentinels, tls: ssl.SSLContext | None) -> Endpoint:
    """The endpoint that most sentinels name, as soon as they do; else the one that most of those name that answer.
    NothingStored where nobody names one.
    """
    votes: Counter[Endpoint] = Counter()
    failures: list[str] = []
    queries = [asyncio.create_task(_primary_of(sentinels, endpoint, tls)) for endpoint in sentinels.endpoints]
    try:
        for each in asyncio.as_completed(queries):
            found = await each
            if isinstance(found, str):
                failures.append(found)
                continue
            votes[found] += 1
            if votes[found] > len(queries) // 2:
                return found
    finally:
        for query in queries:
            query.cancel()
        await asyncio.wait(queries)
    if votes:
        return votes.most_common(1)[0][0]
    raise NothingStored(f"redis {sentinels.shown}: no sentinel names a primary ({'; '.join(sorted(failures))})")


async def _primary_of(sentinels: Sentinels, endpoint: Endpoint, tls: ssl.SSLContext | None) -> Endpoint | str:
    """The primary that this sentinel names, or why it names none."""
    try:
        found = await ask(endpoint, sentinels.login, tls, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinels.name))
    except NO_ANSWER as error:
        return f"{endpoint[0]}:{endpoint[1]}: {reason(error)}"
    if not found:
        return f"{endpoint[0]}:{endpoint[1]}: it watches nothing called {sentinels.name!r}"
    return found[0].decode(), int(found[1])


class FailoverListener:
    """A subscription to the failovers at one sentinel, and at the next one when that connection ends."""

    def __init__(
        self,
        sentinels: Sentinels,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        on_failover: Callable[[str, int], None],
    ) -> None:
        """`on_failover` gets the host and the port of the new primary."""
        self._sentinels = sentinels
        self._tls = tls
        self._timeout_s = timeout_s
        self._on_failover = on_failover
        self._attempts = 0
        self._connection: PubSubConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Connect, unless it is connected."""
        if self._connection is None and self._connecting is None and not self._is_closed:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            self._connection.close()

    async def _connect(self) -> None:
        endpoint = self._sentinels.endpoints[self._attempts % len(self._sentinels.endpoints)]
        self._attempts += 1
        try:
            self._connection = await PubSubConnection.connect(
                *(endpoint, self._sentinels.login, self._on_message, self._on_close),
                tls=self._tls,
                timeout_s=self._timeout_s,
            )
            await self._connection.subscribe(SWITCH_MASTER)
        except (OSError, ReplyError):
            if self._connection is None:
                self._on_close()
            else:
                self._connection.close()
        finally:
            self._connecting = None

    def _on_message(self, channel: bytes, message: bytes) -> None:
        """A message is five words: the name, the former endpoint, and the new one."""
        words = message.decode(errors="replace").split()
        if len(words) == 5 and words[0] == self._sentinels.name and words[4].isdecimal():
            self._on_failover(words[3], int(words[4]))

    def _on_close(self) -> None:
        self._connection = None
        if not self._is_closed:
            asyncio.get_running_loop().call_later(RECONNECT_AFTER_S, self.start)


_Call = tuple[InlineFuture[Any], InlineFuture[Any]]
"""The answer of Redis, and the future of the caller."""


class ReplicatedConnection(PipelinedConnection):
    """A connection whose answers wait until enough replicas have what was written.

    Calls that are sent in one turn of the loop share a WAIT, since Redis reads no further command of a connection that
    waits.
    """

    def __init__(self, timeout_s: float, wait: ReplicaWait) -> None:
        super().__init__(timeout_s)
        self._replica_wait = wait
        self._batch: list[_Call] = []
        self.waits = False
        """Set after the handshake."""

    def send(self, command: tuple[Any, ...]) -> InlineFuture[Any]:
        if not self.waits:
            return super().send(command)
        answer, future = super().send(command), InlineFuture[Any](self._loop)
        if not self._batch:
            self._loop.call_soon(self._send_wait)
        self._batch.append((answer, future))
        return future

    def _send_wait(self) -> None:
        batch, self._batch = self._batch, []
        try:
            waited = super().send(("WAIT", self._replica_wait.count, self._replica_wait.within_ms))
        except NothingStored as error:  # the connection takes no call any more, so nobody knows what replicas have
            for _, future in batch:
                if not future.done():
                    future.set_exception(OutcomeUnknown(error.message))
            return
        waited.add_done_callback(lambda _: self._resolve(batch, waited))

    def _resolve(self, batch: Sequence[_Call], waited: InlineFuture[Any]) -> None:
        """Redis answers in order, so the answers of the calls are there."""
        shortfall = self._shortfall(waited)
        for answer, future in batch:
            if future.done():
                continue
            try:
                value = answer.result()
            except BaseException as error:
                future.set_exception(error)
                continue
            if shortfall:
                future.set_exception(OutcomeUnknown(shortfall))
            else:
                future.set_result(value)

    def _shortfall(self, waited: InlineFuture[Any]) -> str:
        """Why too few replicas have it; "" where enough do."""
        count, within_ms = self._replica_wait.count, self._replica_wait.within_ms
        why = "no answer to WAIT"
        with suppress(*NO_ANSWER):
            have = int(waited.result())
            if have >= count:
                return ""
            why = f"{have} of {count} replicas had it within {within_ms} ms"
        return f"redis: {why}; a failover may lose what was written"
