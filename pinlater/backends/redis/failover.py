"""A Redis with replicas: where its primary is, word of a failover, and answers that wait for replicas.

Sentinels are asked at each new connection, and one of them is listened to: it tells of a failover, and the connection
to what was the primary is given up at once. Whoever is named has to say that it is a primary (ROLE).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pinlater.backends.redis.connection import PipelinedConnection, ReplyError
from pinlater.eager import InlineFuture
from pinlater.errors import NothingStored, OutcomeUnknown, ShardConnectionFailed

ASK_WITHIN_S = 1.0
LISTEN_AGAIN_S = 0.5
SWITCHED = b"+switch-master"


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Who watches the primary that they call `name`."""

    places: tuple[tuple[str, int], ...]
    name: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def login(self) -> tuple[str, ...] | None:
        """What AUTH takes."""
        if self.password is None:
            return None
        return (self.username, self.password) if self.username else (self.password,)

    @property
    def shown(self) -> str:
        return f"{','.join(f'{host}:{port}' for host, port in self.places)}/{self.name}"


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas have to have a write before it is answered, and for how long that is waited for."""

    count: int = 0
    within_ms: int = 1_000


NO_REPLICAS = Replicas()


async def find_primary(sentinels: Sentinels, tls: ssl.SSLContext | None) -> tuple[str, int]:
    """What most sentinels say, as soon as they do; else most of those that answer. NothingStored where none does."""
    named: Counter[tuple[str, int]] = Counter()
    silent: list[str] = []
    asked = [asyncio.create_task(_ask(sentinels, place, tls)) for place in sentinels.places]
    try:
        for each in asyncio.as_completed(asked):
            place, answer = await each
            if isinstance(answer, str):
                silent.append(f"{place[0]}:{place[1]}: {answer}")
                continue
            named[answer] += 1
            if named[answer] > len(asked) // 2:
                return answer
    finally:
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)
    if named:
        return named.most_common(1)[0][0]
    raise NothingStored(f"redis {sentinels.shown}: no sentinel names a primary ({'; '.join(sorted(silent))})")


async def _ask(
    sentinels: Sentinels, place: tuple[str, int], tls: ssl.SSLContext | None
) -> tuple[tuple[str, int], tuple[str, int] | str]:
    """Who was asked, and where that one says that it is, or why it does not."""
    connection = PipelinedConnection(ASK_WITHIN_S)
    try:
        async with asyncio.timeout(ASK_WITHIN_S):
            await asyncio.get_running_loop().create_connection(lambda: connection, *place, ssl=tls)
            if sentinels.login is not None:
                await connection.send(("AUTH", *sentinels.login))
            found = await connection.send(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinels.name))
    except TimeoutError:
        return place, "no answer"
    except (OSError, ReplyError, ShardConnectionFailed) as error:
        return place, str(error)
    finally:
        connection.abort()
    if not found:
        return place, f"it watches nothing called {sentinels.name!r}"
    return place, (found[0].decode(), int(found[1]))


class FailoverWatch:
    """Listens to one of the sentinels, and to the next one where that goes. `listen` connects to a place and is told
    messages and the end; `on_failover` is told where the primary is now.
    """

    def __init__(
        self, sentinels: Sentinels, listen: Callable[..., Any], on_failover: Callable[[str, int], None]
    ) -> None:
        self._sentinels = sentinels
        self._listen = listen
        self._on_failover = on_failover
        self._turn = 0
        self._connection: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False

    def begin(self) -> None:
        """Nothing where it has begun."""
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
        place = self._sentinels.places[self._turn % len(self._sentinels.places)]
        self._turn += 1
        try:
            self._connection = await self._listen(place, self._sentinels.login, self._heard, self._ended)
            await self._connection.subscribe(SWITCHED)
        except (OSError, ReplyError):
            if self._connection is None:
                self._ended()
            else:
                self._connection.close()
        finally:
            self._connecting = None

    def _heard(self, channel: bytes, message: bytes) -> None:
        """The name, where the primary was, and where it is: five words."""
        words = message.decode(errors="replace").split()
        if len(words) == 5 and words[0] == self._sentinels.name and words[4].isdecimal():
            self._on_failover(words[3], int(words[4]))

    def _ended(self) -> None:
        self._connection = None
        if not self._is_closed:
            asyncio.get_running_loop().call_later(LISTEN_AGAIN_S, self.begin)


_Call = tuple[InlineFuture[Any], InlineFuture[Any]]
"""The answer of Redis, and what the caller waits for."""


class ReplicatedConnection(PipelinedConnection):
    """Answers when enough replicas have what was written. Calls that are sent in one turn of the loop share a WAIT,
    since a connection that waits takes no further command.
    """

    def __init__(self, timeout_s: float, replicas: Replicas) -> None:
        super().__init__(timeout_s)
        self._replicas = replicas
        self._turn: list[_Call] = []
        self.waits = False
        """Set behind the handshake."""

    def send(self, command: tuple[Any, ...]) -> InlineFuture[Any]:
        if not self.waits:
            return super().send(command)
        answer, settled = super().send(command), InlineFuture[Any](self._loop)
        if not self._turn:
            self._loop.call_soon(self._wait)
        self._turn.append((answer, settled))
        return settled

    def _wait(self) -> None:
        turn, self._turn = self._turn, []
        try:
            waited = super().send(("WAIT", self._replicas.count, self._replicas.within_ms))
        except NothingStored as error:  # it takes no call any more: nobody will know who has what was written
            for _, settled in turn:
                if not settled.done():
                    settled.set_exception(OutcomeUnknown(error.message))
            return
        waited.add_done_callback(lambda _: self._settle(turn, waited))

    def _settle(self, turn: list[tuple[InlineFuture[Any], InlineFuture[Any]]], waited: InlineFuture[Any]) -> None:
        """Answers come in their order, so the calls' are there."""
        short = self._short(waited)
        for answer, settled in turn:
            if settled.done():
                continue
            try:
                value = answer.result()
            except BaseException as error:
                settled.set_exception(error)
                continue
            if short is None:
                settled.set_result(value)
            else:
                settled.set_exception(short())

    def _short(self, waited: InlineFuture[Any]) -> Callable[[], Exception] | None:
        """What is wrong where fewer replicas have it than were asked for."""
        count, within = self._replicas.count, self._replicas.within_ms
        said = "nobody knows whether replicas had it"
        with suppress(ReplyError, ShardConnectionFailed):
            have = int(waited.result())
            if have >= count:
                return None
            said = f"{have} of {count} replicas had it within {within} ms"
        return lambda: OutcomeUnknown(f"redis: {said}; a failover may lose what was written")
