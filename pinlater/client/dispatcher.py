"""The way of one call through the client: the choice of a server, the retries, and the error at the end.

Dispatcher.call   picks a server (server_list.py), takes a connection to it (pool.py) and sends (connection.py);
                  what fails is judged (retry.py), and goes to the next server or waits for the next round
Dispatcher.begin  the same without a task, for a first attempt that can be sent at once (enqueue_batching.py)

A first attempt is also made by a thread that is alone (straight_calls.py); what fails there goes on in Dispatcher.call.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from pinlater.client.addresses import Address
from pinlater.client.capabilities import Capability
from pinlater.client.connection import CallFailed
from pinlater.client.retry import (
    MAX_ROUNDS,
    SHORTEST_ROUND_S,
    backoff_s,
    blames_server,
    blames_shards,
    first_share,
    may_send_again,
)
from pinlater.client.server_list import LoadBalancer, Server, ServerList
from pinlater.errors import (
    DequeueRateLimited,
    Draining,
    Forbidden,
    MethodUnknown,
    OutcomeUnknown,
    Overloaded,
    PinLaterError,
    ProtocolError,
    ServerUnreachable,
)
from pinlater.log_guard import GuardedLogger
from pinlater.model import RequestContext
from pinlater.wire.faults import error_from_exception
from pinlater.wire.methods import Idempotency, Method

_log = GuardedLogger("pinlater.client")

_REFUSED = os.strerror(errno.ECONNREFUSED)
_NOT_THERE = "; is it running? `pinlater serve` runs one"
_SAY_AGAIN_S = 30.0
"""How long a client is silent after it has said that no server answers."""

Failure = CallFailed | PinLaterError


@dataclass(slots=True)
class CallSpec:
    """One call, to be answered before `deadline_s` of the loop's clock.

    `long_poll`: it goes over a connection of its own kind. `revise` changes `args` before they are sent again. Without
    `wait_for_rate`, it fails at once where its queue's rate is used up. `needs`: it has fields that servers without
    this leave unread, so that these would do something else.
    """

    method: Method[Any]
    args: Any
    idempotency: Idempotency
    deadline_s: float
    long_poll: bool = False
    revise: Callable[[Failure], None] | None = None
    wait_for_rate: bool = True
    needs: Capability | None = None


class CallTransport(Protocol):
    """What carries the calls of a client."""

    async def call(self, call: CallSpec, first: FirstAttempt | None = None) -> Any:
        """What the method returns. The typed errors of `pinlater.errors`. With `first`, that attempt has failed."""

    def begin(self, call: CallSpec, on_end: Callable[[FirstAttempt], None]) -> bool:
        """Send a call at once, where that can be done; False: nothing was done, and it is left to `call`."""

    def cancel_long_polls(self, why: str) -> None:
        """Long polls are answered soon, and none can be made any more."""

    def resume_long_polls(self) -> None:
        """They can be made again."""

    async def close(self, why: str) -> None:
        """No call is carried any more."""


class TransportDecorator:
    """A CallTransport around another one."""

    def __init__(self, calls: CallTransport) -> None:
        self._calls = calls

    async def call(self, call: CallSpec, first: FirstAttempt | None = None) -> Any:
        return await self._calls.call(call, first)

    def begin(self, call: CallSpec, on_end: Callable[[FirstAttempt], None]) -> bool:
        return self._calls.begin(call, on_end)

    def cancel_long_polls(self, why: str) -> None:
        self._calls.cancel_long_polls(why)

    def resume_long_polls(self) -> None:
        self._calls.resume_long_polls()

    async def close(self, why: str) -> None:
        await self._calls.close(why)


class Dispatcher:
    """Sends calls to the servers in turn, each within its deadline.

    Without `retry_unavailable`: where shards cannot be used, each server is asked once, and nothing is waited for;
    where no server can be reached, a few rounds are the end, not the deadline.
    `sticky_s`: about how long calls stay with a server that answers, before the next has its turn. Without
    `wait_for_rate`, a dequeue over its queue's rate fails at once. `renewed`: the context for a call that was refused
    for that one, once more; None: there is no other.
    """

    def __init__(
        self,
        servers: ServerList,
        rng: random.Random,
        *,
        retry_unavailable: bool = True,
        sticky_s: float = 0.0,
        wait_for_rate: bool = True,
        renewed: Callable[[RequestContext], RequestContext | None] = lambda _: None,
    ) -> None:
        self._servers = servers
        self._renewed = renewed
        self._retry_unavailable = retry_unavailable
        self._wait_for_rate = wait_for_rate
        self._rng = rng
        self._balancer: LoadBalancer[Server] = LoadBalancer(rng, sticky_s)
        self._closed = False
        self._say_again_s = 0.0
        self._long_polls_cancelled = False

    def cancel_long_polls(self, why: str) -> None:
        """Long polls are answered soon, and none can be made any more."""
        self._long_polls_cancelled = True
        self._servers.cancel_long_polls(why)

    def resume_long_polls(self) -> None:
        """They can be made again."""
        self._long_polls_cancelled = False
        self._servers.resume_long_polls()

    async def close(self, why: str) -> None:
        """Closes every connection; no call is sent any more."""
        self._closed = True
        await self._servers.close(why)

    async def call(self, call: CallSpec, first: FirstAttempt | None = None) -> Any:
        """What the method returns. The typed errors of `pinlater.errors`.

        With `first`, that was the first attempt, and has failed.
        """
        loop = asyncio.get_running_loop()
        attempts: _Attempts | None = None
        if first is not None:
            assert first.error is not None
            attempts = _Attempts(call, self._retry_unavailable)
            await self._after(first.error, attempts, first.server, self._servers.servers)
        while True:
            servers = self._servers.servers
            now_s = loop.time()
            if self._servers.due_s <= now_s:
                servers = await self._servers.refreshed(call.deadline_s)
                now_s = loop.time()
            server = self._balancer.pick(servers, now_s, () if attempts is None else attempts.tried)
            share = first_share(call.idempotency) if attempts is None else 1.0
            pool = server.long_polls if call.long_poll else server.calls
            method, exclusive = server.name_of(call.method), not call.method.pipelined
            try:
                if now_s >= call.deadline_s:
                    raise CallFailed("no time was left", sent=False, busy=True)
                if call.needs is not None and call.needs not in server.capabilities:
                    await self._ask_for(call.needs, server, call.deadline_s)
                result = await pool.call(method, call.args, call.deadline_s, exclusive=exclusive, share=share)
                return success_in(result, server)
            except MethodUnknown:
                if server.older_name_of(call.method, method) is None:
                    raise
                # nothing was done; the other method goes next, to whichever server
            except (CallFailed, PinLaterError) as error:
                attempts = attempts or _Attempts(call, self._retry_unavailable)
                await self._after(error, attempts, server, servers)

    async def _ask_for(self, needed: Capability, server: Server, deadline_s: float) -> None:
        """The error of what it lacks; CallFailed: it surely did not see the call."""
        method = needed.method
        try:
            await server.calls.call(
                method.name,
                needed.args,
                deadline_s,
                exclusive=not method.pipelined,
                share=first_share(Idempotency.READ),
            )
        except MethodUnknown:
            raise needed.lacking_at(server.address) from None
        except CallFailed as error:
            raise CallFailed(error.why, sent=False, busy=error.busy) from error
        server.capabilities.add(needed)

    def close_straight(self, why: str) -> None:
        """From any thread: closes the connections that threads read themselves."""
        self._servers.close_straight(why)

    def first_server(self, call: CallSpec, now_s: float) -> Server | None:
        """The server of a first attempt; None: something else is to be done before that, which `call` does."""
        if self._servers.due_s <= now_s or now_s >= call.deadline_s:
            return None
        return self._balancer.pick(self._servers.servers, now_s, ())

    def begin(self, call: CallSpec, on_end: Callable[[FirstAttempt], None]) -> bool:
        """Sends a pipelined call of Idempotency.ONCE, if that can be done at once. Its end is told in the very moment.

        False: it cannot, and nothing was done; it is left to `call`.
        """
        server = self.first_server(call, asyncio.get_running_loop().time())
        if server is None or (call.needs is not None and call.needs not in server.capabilities):
            return False
        try:
            return server.calls.begin(call.method.name, call.args, call.deadline_s, FirstAttempt(server, on_end))
        except (CallFailed, PinLaterError):
            return False

    async def _after(self, error: Failure, attempts: _Attempts, server: Server, servers: Sequence[Server]) -> None:
        """Waits until it is time for the next attempt; raises what the caller gets, where there is none."""
        call, now_s = attempts.call, asyncio.get_running_loop().time()
        if isinstance(error, Forbidden) and (context := self._renewed(call.args.context)) is not None:
            call.args.context = context
            return
        if blames_server(error) or isinstance(error, ProtocolError):
            server.health.failed(now_s, self._rng)
            self._servers.mark_stale()
            if isinstance(error, Draining) or (isinstance(error, CallFailed) and error.why == _REFUSED):
                server.renew_connections()
        pause_s = attempts.failed(server, servers, error, self._rng, call.deadline_s - now_s)
        if isinstance(error, DequeueRateLimited) and not (self._wait_for_rate and call.wait_for_rate):
            raise error
        is_over = self._closed or (self._long_polls_cancelled and call.long_poll)
        if pause_s is None or is_over or now_s + pause_s >= call.deadline_s:
            attempts.raise_verdict(error)
        if attempts.rounds > MAX_ROUNDS and isinstance(error, CallFailed):
            self._say_unanswered(call, error, now_s)
        await asyncio.sleep(pause_s)
        if call.revise is not None:
            call.revise(error)

    def _say_unanswered(self, call: CallSpec, error: CallFailed, now_s: float) -> None:
        """A caller that waits for a server that was never there would not know why."""
        if now_s >= self._say_again_s:
            self._say_again_s = now_s + _SAY_AGAIN_S
            addresses = ", ".join(str(server.address) for server in self._servers.servers)
            text = "no server answers at %s (%s); %s goes on for up to %.1f s"
            _log.warning(text, addresses, error.why, call.method.name, call.deadline_s - now_s)


class FirstAttempt:
    """A first attempt under way, and its end: `success`, or `error`. It is the waiter of its connection."""

    __slots__ = ("_on_end", "error", "server", "success")

    def __init__(self, server: Server, on_end: Callable[[FirstAttempt], None]) -> None:
        self._on_end = on_end
        self.server = server
        self.success: Any = None
        self.error: Failure | None = None

    def done(self) -> bool:
        """Nobody gives it up."""
        return self.success is not None or self.error is not None

    def set_result(self, result: Any) -> None:
        try:
            self.success = success_in(result, self.server)
        except PinLaterError as error:
            self.error = error
        self._on_end(self)

    def set_exception(self, error: Failure) -> None:
        self.error = error
        self._on_end(self)


def success_in(result: Any, server: Server) -> Any:
    """What a method returns, in the struct of an answer by that server; the error in it is raised."""
    if server.health.failures:
        server.health.answered()
    if result.e is not None:
        raise error_from_exception(result.e)
    return getattr(result, "success", None)


class _Attempts:
    """What one call has been through, once an attempt has failed."""

    __slots__ = (
        "_busy",
        "_definite",
        "_maybe_done",
        "_retry_unavailable",
        "_why",
        "call",
        "rounds",
        "tried",
    )

    def __init__(self, call: CallSpec, retry_unavailable: bool) -> None:
        self.call = call
        self._retry_unavailable = retry_unavailable
        self._definite: Failure | None = None
        self.rounds = 1
        self._maybe_done = False
        self._busy = False
        self._why: dict[Address, str] = {}
        self.tried: set[Server] = set()

    def failed(
        self, server: Server, servers: Sequence[Server], error: Failure, rng: random.Random, left_s: float
    ) -> float | None:
        """The seconds to wait before the next attempt; None: there is none. `servers`: those that there are."""
        self.tried.add(server)
        if isinstance(error, CallFailed):
            self._note(server.address, error)
        if not may_send_again(error, self.call.idempotency):
            return None
        if not self._retry_unavailable and blames_shards(error):
            self._definite = error
        all_tried = self.tried.issuperset(servers)
        if not all_tried and (self._definite is not None or blames_server(error)):
            return 0.0
        if all_tried:
            self.tried.clear()
        return self._next_round(error, rng, left_s) if self._definite is None else None

    def _note(self, address: Address, error: CallFailed) -> None:
        """What a server itself did says more than that the client then had no time or connection for it."""
        self._maybe_done = self._maybe_done or error.sent
        if not error.busy:
            self._why[address] = error.why
        elif address not in self._why:
            self._why[address] = error.why
            self._busy = True

    def _next_round(self, error: Failure, rng: random.Random, left_s: float) -> float | None:
        """Servers that restart are away for some seconds: a patient client goes on asking for as long as it may."""
        self.rounds += 1
        if isinstance(error, PinLaterError):
            pause_s = backoff_s(self.rounds, error.retry_after_ms, rng)
            return pause_s if left_s - pause_s >= SHORTEST_ROUND_S else None
        if left_s < SHORTEST_ROUND_S or (not self._retry_unavailable and self.rounds > MAX_ROUNDS):
            return None
        return min(backoff_s(self.rounds, None, rng), left_s / 2)

    def raise_verdict(self, error: Failure) -> NoReturn:
        """Raises what the caller gets: the server's own error, or what it means that no answer came. Its message has
        the reasons, so no traceback of a connection stands before it.

        Overloaded: it was this client that had no time or no connection left.
        """
        if isinstance(error, PinLaterError):
            raise error
        method = self.call.method.name
        tried = "; ".join(f"{address}: {why}" for address, why in self._why.items())
        if self._maybe_done and self.call.idempotency in (Idempotency.REPEAT, Idempotency.ONCE):
            message = f"{method} was sent and may have been carried out, but no answer came: {tried}"
            raise OutcomeUnknown(message) from None
        if self._definite is not None:
            raise self._definite
        if self._busy:
            raise Overloaded(f"{method} was not sent: {tried}") from None
        hint = _NOT_THERE if set(self._why.values()) == {_REFUSED} else ""
        raise ServerUnreachable(f"no answer to {method} from any server: {tried}{hint}") from None
