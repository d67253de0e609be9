"""The short way of a call of Client: the thread that makes it sends it and reads the answer.

The calls of AsyncClient are coroutines. Here one is run by hand in the thread that makes it: what it awaits is either
done at once, over a connection that this thread reads itself (blocking_pool.py), or is an OnLoop, which the event loop
of the client does. So a failed attempt goes on in the same Dispatcher as every other, and enqueues that meet others
join them there.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from pinlater.client.async_client import AsyncClient, carried_by
from pinlater.client.connection import CallFailed
from pinlater.client.dispatcher import CallSpec, Dispatcher, FirstAttempt, TransportDecorator, success_in
from pinlater.client.enqueue_batching import Enqueuer, Joins
from pinlater.client.retry import first_share
from pinlater.client.server_list import Server
from pinlater.errors import MethodUnknown, PinLaterError
from pinlater.model import Job, RequestContext

P = ParamSpec("P")
R = TypeVar("R")

NEEDS_LOOP = frozenset({"counts", "dequeue_from_queues", "wait"})
"""Calls of AsyncClient that await several things at once: the loop runs them as a whole."""

MOST_CALLS = 32
"""Calls that go straight at one time, each over a connection of its own; those beyond share those of the loop."""

MOST_ENQUEUES = 4
"""Single jobs that are enqueued straight at one time. Those beyond join, which costs the caller more and the server
less: with two threads straight is 1.6 times as fast, with eight about as fast, with 32 half as fast.
"""


class OnLoop(Generic[R]):
    """What a coroutine that is run by hand awaits: `begin` is called on the client's loop, and awaited there."""

    __slots__ = ("begin",)

    def __init__(self, begin: Callable[[], Awaitable[R]]) -> None:
        self.begin = begin

    def __await__(self) -> Generator[OnLoop[R], R, R]:
        return (yield self)


def run_by_hand(call: Coroutine[Any, Any, R], on_loop: Callable[[Callable[[], Awaitable[Any]]], Any]) -> R:
    """What a coroutine returns or raises. `on_loop` does what it awaits, and blocks meanwhile."""
    try:
        awaited = call.send(None)
        while True:
            try:
                result = on_loop(awaited.begin)
            except BaseException as error:
                awaited = call.throw(error)
            else:
                awaited = call.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class StraightWay:
    """A client whose coroutines are run by hand, by any number of threads."""

    def __init__(self, client: AsyncClient, dispatcher: Dispatcher) -> None:
        calls = StraightCalls(dispatcher)
        self._dispatcher = dispatcher
        self._client = carried_by(client, calls, StraightEnqueuer(calls, client.enqueuer), MonotonicClock())

    def run(
        self,
        method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]],
        on_loop: Callable[[Callable[[], Awaitable[Any]]], Any],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """What a method of AsyncClient returns or raises. `on_loop`: see `run_by_hand`."""
        return run_by_hand(method(self._client, *args, **kwargs), on_loop)

    def end(self) -> None:
        """From any thread. Closes the connections; calls under way fail."""
        self._dispatcher.close_straight("the client was closed")


class MonotonicClock:
    """As asyncio's loops and uvloop count: what begins here may go on there."""

    def time(self) -> float:
        return time.monotonic()


class StraightCalls(TransportDecorator):
    """The transport of coroutines that are run by hand, around the one that the loop has."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__(dispatcher)
        self._dispatcher = dispatcher
        self._under_way: set[object] = set()
        """One for each call but long polls. It needs no lock: of those that begin at once, a few too many may be told
        to go by the loop.
        """

    async def call(self, call: CallSpec, first: FirstAttempt | None = None) -> Any:
        """What the method returns. The typed errors of `pinlater.errors`. With `first`, that attempt has failed."""
        if call.long_poll:
            return await OnLoop(partial(self._dispatcher.call, call, first))
        mine = object()
        self._under_way.add(mine)
        try:
            if first is None and len(self._under_way) <= MOST_CALLS and not _is_bound(call):
                server = self._dispatcher.first_server(call, time.monotonic())
                if server is not None:
                    try:
                        result = _attempt(call, server)
                        if result is not None:
                            return success_in(result, server)
                    except (CallFailed, PinLaterError) as error:
                        first = FirstAttempt(server, _do_nothing)
                        first.set_exception(error)
            return await OnLoop(partial(self._dispatcher.call, call, first))
        finally:
            self._under_way.discard(mine)


class StraightEnqueuer(Enqueuer):
    """Enqueues of one job go straight where there are few, and else join on the loop."""

    def __init__(self, calls: StraightCalls, on_loop: Enqueuer) -> None:
        super().__init__(calls, on_loop.caller, on_loop.limits)
        self._on_loop = on_loop
        self._under_way: set[object] = set()

    async def join(
        self,
        queue: str,
        job: Job,
        timeout_s: float,
        kind: Joins = "plain",
        resend: bool = False,
        context: RequestContext | None = None,
    ) -> str:
        mine = object()
        self._under_way.add(mine)
        try:
            if len(self._under_way) > MOST_ENQUEUES:
                descriptor: str = await OnLoop(
                    partial(self._on_loop.join, queue, job, timeout_s, kind, resend, context)
                )
                return descriptor
            deadline_s, own = time.monotonic() + timeout_s, context or self.caller.context
            return (await self.send(queue, [job], deadline_s, own, resend, has_extended=kind != "plain"))[0]
        except PinLaterError as error:
            stored, error.job_descriptors = error.job_descriptors, None
            if stored and stored[0]:
                return stored[0]
            raise
        finally:
            self._under_way.discard(mine)


def _is_bound(call: CallSpec) -> bool:
    """Its claims are bound to the connection, or to a receipt over it: see ClientConnection."""
    wanted = getattr(call.args, "request", None)
    return bool(getattr(wanted, "release_on_disconnect", False) or getattr(wanted, "confirms_receipt", False))


def _attempt(call: CallSpec, server: Server) -> Any:
    """The struct of the answer; None: nothing was sent, since the server is to be asked what it has. CallFailed, and
    the errors of BlockingConnection.call.
    """
    now_s = time.monotonic()
    ends_s = now_s + (call.deadline_s - now_s) * first_share(call.idempotency)
    connection = server.straight.take(ends_s)
    try:
        if call.needs is not None and call.needs not in server.capabilities:
            return None
        name = server.name_of(call.method)
        try:
            return connection.call(name, call.args, ends_s)
        except MethodUnknown:
            older = server.older_name_of(call.method, name)
            if older is None:
                raise
            return connection.call(older, call.args, ends_s)
    finally:
        server.straight.give_back(connection)


def _do_nothing(_: FirstAttempt) -> None: ...
