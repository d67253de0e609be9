"""The way of one call of AsyncClient to the table of methods, for the parts that its calls are in."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, TypeVar

from pinlater.client.capabilities import Capability
from pinlater.client.dispatcher import CallSpec, CallTransport, Failure
from pinlater.client.token import CallerContext
from pinlater.errors import ArgumentInvalid
from pinlater.model import RequestContext
from pinlater.wire.methods import Method

ResultT = TypeVar("ResultT")


class DeadlineClock(Protocol):
    """That of an event loop, mostly."""

    def time(self) -> float:
        """In seconds."""


class ClientCalls:
    """The base of AsyncClient's parts. Each call goes to one server, whichever it is."""

    _dispatcher: CallTransport
    _caller: CallerContext
    _timeout_s: float

    def __init__(self) -> None:
        self._clock: DeadlineClock | None = None
        """None: that of the loop, which the client then belongs to."""

        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def _call(
        self,
        method: Method[ResultT],
        context: RequestContext | None,
        timeout: float | None,
        *values: Any,
        needs: Capability | None = None,
    ) -> ResultT:
        """One call of the table: its arguments in order, and what it returns."""
        spec = CallSpec(
            method,
            method.arguments(self._caller.of(context), *values),
            method.idempotency if method.idempotency_of is None else method.idempotency_of(*values),
            self._deadline_s(timeout),
            needs=needs,
        )
        return method.result(await self._dispatcher.call(spec))

    def _deadline_s(self, timeout: float | None) -> float:
        return self._now_s() + (self._timeout_s if timeout is None else seconds(timeout))

    def _now_s(self) -> float:
        return self._check_usable().time()

    def _check_usable(self) -> DeadlineClock:
        """RuntimeError: the client is closed, or belongs to another loop."""
        if self._clock is not None:
            return self._clock
        loop = asyncio.get_running_loop()
        if self._closed:
            raise RuntimeError("this client is closed")
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise RuntimeError("this client belongs to another event loop; make one client per loop")
        return loop

    async def _call_and_wait(
        self,
        method: Method[ResultT],
        context: RequestContext | None,
        timeout: float | None,
        wait_ms: int,
        *values: Any,
        needs: Capability | None = None,
    ) -> ResultT:
        """One call of the table whose answer may take so much longer, as its `wait_ms` says."""
        args = method.arguments(self._caller.of(context), *values)
        waits_until_s = self._now_s() + wait_ms / 1000

        def revise(error: Failure) -> None:
            args.request.wait_ms = max(1, int((waits_until_s - self._now_s()) * 1000))

        call = CallSpec(
            method,
            args,
            method.idempotency_with(*values),
            self._deadline_s(timeout) + wait_ms / 1000,
            long_poll=True,
            revise=revise,
            needs=needs,
        )
        return method.result(await self._dispatcher.call(call))


def seconds(timeout: float) -> float:
    """ArgumentInvalid: no number."""
    if not isinstance(timeout, int | float) or timeout != timeout:
        raise ArgumentInvalid.of_kind("timeout", timeout, "seconds, as a number")
    return timeout
