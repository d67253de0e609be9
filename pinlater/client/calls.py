"""One call of the client, whatever it takes: which server, sent again or not, and the error at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.client.address import Address
from pinlater.client.retry import MAX_ROUNDS, attempt_deadline_s, backoff_s, blames_server, may_send_again
from pinlater.client.rotation import Rotation
from pinlater.client.safety import Safety
from pinlater.client.server import Server
from pinlater.client.transport_errors import CallFailed
from pinlater.errors import OutcomeUnknown, PinLaterError, ProtocolError, ServerUnreachable
from pinlater.wire.faults import error_from_exception

Failure = CallFailed | PinLaterError
Revise = Callable[[Failure], None]
"""Changes the arguments before they are sent again."""


class Dispatcher:
    """Sends calls to the servers in turn, within each call's deadline (seconds of the loop's clock)."""

    def __init__(self, servers: Sequence[Server], rng: random.Random) -> None:
        self._servers = servers
        self._rng = rng
        self._rotation = Rotation(len(servers), rng)

    async def call(
        self,
        method: str,
        args: Any,
        safety: Safety,
        deadline_s: float,
        *,
        pipelined: bool = False,
        long_poll: bool = False,
        revise: Revise | None = None,
    ) -> Any:
        """What the method returns. `pipelined`: short enough to share a connection with others of its kind."""
        loop = asyncio.get_running_loop()
        attempts = _Attempts(method, safety, len(self._servers))
        while True:
            now_s = loop.time()
            server = self._rotation.pick(self._servers, now_s, attempts.tried)
            try:
                if now_s >= deadline_s:
                    raise CallFailed("no time was left", sent=False)
                pool = server.long_polls if long_poll else server.calls
                until_s = attempt_deadline_s(safety, now_s, deadline_s)
                reply = await pool.call(method, args, until_s, exclusive=not pipelined)
                if server.standing.failures:
                    server.standing.answered()
                if reply.exception is None:
                    return reply.success
                raise error_from_exception(reply.exception)
            except (CallFailed, PinLaterError) as error:
                self._judge(server, error, loop.time())
                pause_s = attempts.failed(server, error, self._rng)
                if pause_s is None or loop.time() + pause_s >= deadline_s:
                    if isinstance(error, CallFailed):
                        raise attempts.verdict() from error
                    raise
                if revise is not None:
                    revise(error)
                await asyncio.sleep(pause_s)

    def _judge(self, server: Server, error: Failure, now_s: float) -> None:
        if blames_server(error) or isinstance(error, ProtocolError):
            server.standing.failed(now_s, self._rng)


class _Attempts:
    """What one call has been through so far."""

    __slots__ = ("_maybe_done", "_method", "_round", "_safety", "_size", "_why", "tried")

    def __init__(self, method: str, safety: Safety, servers: int) -> None:
        self._method = method
        self._safety = safety
        self._size = servers
        self._round = 1
        self._maybe_done = False
        self._why: dict[Address, str] = {}
        self.tried: set[Server] = set()

    def failed(self, server: Server, error: Failure, rng: random.Random) -> float | None:
        """The seconds to wait before the next attempt; None: there is none."""
        self.tried.add(server)
        if isinstance(error, CallFailed):
            self._why[server.address] = error.why
            self._maybe_done = self._maybe_done or error.sent
        if not may_send_again(error, self._safety):
            return None
        if len(self.tried) < self._size and blames_server(error):
            return 0.0
        self._round += 1
        if self._round > MAX_ROUNDS and isinstance(error, CallFailed):
            return None
        if len(self.tried) >= self._size:
            self.tried.clear()
        return backoff_s(self._round, error.retry_after_ms if isinstance(error, PinLaterError) else None, rng)

    def verdict(self) -> PinLaterError:
        """The error that the caller gets where no answer came."""
        tried = "; ".join(f"{address}: {why}" for address, why in self._why.items())
        if self._maybe_done and self._safety in (Safety.REPEAT, Safety.ONCE):
            return OutcomeUnknown(f"{self._method} was sent and may have been carried out, but no answer came: {tried}")
        return ServerUnreachable(f"no answer to {self._method} from any server: {tried}")
