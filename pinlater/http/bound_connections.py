"""The connections of callers to which claims are bound: `release_on_disconnect` in the form of a dequeue.

A server binds claims to its own caller's connection, and here callers share those of one client. So each connection of
a caller that asks for it gets a client of its own, whose connections are closed when the caller's is. What says
something of a claim goes by way of the client that holds it, over whichever connection of the caller it came. What goes
by way of the shared client binds nothing (`RequestContext.shares_connection`): such a claim is left to its time-out.

A process that ends leaves all claims to their time-outs, as a server does that ends.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from aiohttp import web

from pinlater.api import Api
from pinlater.background_tasks import BackgroundTasks
from pinlater.client.async_client import AsyncClient
from pinlater.client.pool import PoolLimits
from pinlater.errors import PinLaterError
from pinlater.http.fair_shares import FairPlaces
from pinlater.listener import HttpConnection
from pinlater.model import (
    Ack,
    Checkpoint,
    DequeuedJob,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatAnswers,
    HeartbeatOutcome,
    RequestContext,
    WorkerReport,
)

R = TypeVar("R")

OWN_POOL = PoolLimits(connections=1, long_poll_connections=1, idle_s=math.inf)
"""Of the client of one caller's connection: its claims hang on these two, however long nothing is said there."""

STAYS_S = 86_400.0
"""About as long a client stays with one of several servers."""

MAX_BOUND = 256
"""Connections of callers that have clients of their own."""

_SLACK_S = 60.0
"""So much longer than its time-out a claim is held here: the clocks of the servers may be others."""

_OF_PROXIES = ("Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP")
"""Who sends one of these shares its connections among callers, and closes them when it likes."""


CLAIMS: web.AppKey[BoundConnections] = web.AppKey("claims")


class _Claim:
    """A claim that is bound. `seconds`: its time-out, and the slack."""

    __slots__ = ("claim_descriptor", "ends_s", "held_by", "seconds")

    def __init__(self, claim_descriptor: str, seconds: float, held_by: BoundConnection) -> None:
        self.claim_descriptor = claim_descriptor
        self.seconds = seconds
        self.held_by = held_by
        self.renew()

    def renew(self) -> None:
        self.ends_s = time.monotonic() + self.seconds


class BoundConnection:
    """A connection of a caller, with a client of its own, and the claims that hang on it, by their jobs."""

    def __init__(self, owner: str, connection: HttpConnection, connect: Callable[..., AsyncClient]) -> None:
        self.owner = owner
        self.connection = connection
        self.client = connect(pool=OWN_POOL, sticky_s=STAYS_S, on_disconnect=self._renew_soon)
        self.claims: dict[str, _Claim] = {}
        self.context: RequestContext | None = None
        """That of the last dequeue which brought jobs."""
        self.is_over = False
        self._tasks = BackgroundTasks()
        self._expiry: asyncio.TimerHandle | None = None

    def drop_expired(self) -> list[str]:
        """The jobs whose claims have ended by now, which are taken off; and the next look is set."""
        now_s = time.monotonic()
        ended = [job for job, claim in self.claims.items() if claim.ends_s <= now_s]
        for job in ended:
            del self.claims[job]
        return ended

    def hold(self, on_expiry: Callable[[], None]) -> None:
        """Keep the caller's connection open while claims hang on it; `on_expiry` is called when one may have ended."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if not self.claims:
            self.connection.let_go()
            return
        self.connection.hold()
        soonest_s = min(claim.ends_s for claim in self.claims.values()) - time.monotonic()
        self._expiry = asyncio.get_running_loop().call_later(max(0.0, soonest_s), on_expiry)

    async def renew(self, api: Api, *, shares_connection: bool | None) -> None:
        """Send a heartbeat for each claim. What cannot be reached is left to its time-out."""
        if self.context is None:
            return
        context = replace(self.context, shares_connection=shares_connection)
        by_queue: dict[str, list[Heartbeat]] = {}
        for job, claim in self.claims.items():
            by_queue.setdefault(job.partition(":")[0], []).append(Heartbeat(job, claim.claim_descriptor))
        for queue, heartbeats in by_queue.items():
            with suppress(PinLaterError):
                await api.heartbeat(queue, heartbeats, context=context)

    def _renew_soon(self) -> None:
        """A connection to a server broke, and that of the caller did not: the claims are bound to the next one."""
        if self.claims and not self.is_over:
            self._tasks.start(self.renew(self.client, shares_connection=None))

    async def end(self) -> None:
        """Close the connections to the servers: what still hangs on them is released after the grace."""
        if self._expiry is not None:
            self._expiry.cancel()
        await self._tasks.cancel()
        await self.client.close()


class BoundConnections:
    """All of one process. `connection_of` knows the connection of a transport; `connect` makes a client of the same
    servers, with options of AsyncClient beside its own; None: nothing is bound.
    """

    def __init__(
        self,
        api: Api,
        connection_of: Callable[[asyncio.BaseTransport | None], HttpConnection | None],
        connect: Callable[..., AsyncClient] | None = None,
        most: int = MAX_BOUND,
    ) -> None:
        self.places = FairPlaces("http_bound_connections", most, "connections with bound claims", "use fewer of them")
        self._api = api
        self._connection_of = connection_of
        self._connect = connect
        self._bound: dict[HttpConnection, BoundConnection] = {}
        self._by_job: dict[str, _Claim] = {}
        self._ending = BackgroundTasks()
        self._is_draining = False

    def __len__(self) -> int:
        """Claims that are bound here."""
        return len(self._by_job)

    def of(self, request: web.Request, owner: str) -> BoundConnection | None:
        """The connection by which a request came, to bind claims to; None: they cannot be, since the connection ends
        with the request, is a proxy's, or has no place here; or since this process ends.
        """
        connection = self._connection_of(request.transport)
        if self._connect is None or connection is None or connection.is_lost or self._is_draining:
            return None
        if not request.keep_alive or any(name in request.headers for name in _OF_PROXIES):
            return None
        bound = self._bound.get(connection)
        if bound is None:
            if not self.places.has_room(owner):
                self.places.hits += 1
                return None
            self.places.take(owner)
            bound = self._bound[connection] = BoundConnection(owner, connection, self._connect)
            connection.on_lost = lambda: self._lost(bound)
        return bound

    # -- what is said of claims ------------------------------------------------------------------------------------

    def dequeued(self, bound: BoundConnection, jobs: Iterable[DequeuedJob], context: RequestContext) -> None:
        """These were claimed by way of the client of that connection."""
        if bound.is_over:
            return
        now_ms = time.time() * 1000
        for job in jobs:
            if job.claim_descriptor:
                self._drop([job.descriptor])
                seconds = max(0.0, job.claim_expires_at_ms - now_ms) / 1000 + _SLACK_S
                claim = self._by_job[job.descriptor] = _Claim(job.claim_descriptor, seconds, bound)
                bound.claims[job.descriptor] = claim
                bound.context = context
        self._hold(bound)

    def put_back(self, jobs: Iterable[DequeuedJob], context: RequestContext) -> None:
        """Whoever these were claimed for is gone: they go back to their places, with no attempt spent."""
        by_queue: dict[str, list[Checkpoint]] = {}
        for job in jobs:
            back = Checkpoint(
                job.descriptor,
                move_to_pending=True,
                run_after_ms=job.run_after_ms,
                claim_descriptor=job.claim_descriptor,
            )
            by_queue.setdefault(job.descriptor.partition(":")[0], []).append(back)
        for queue, backs in by_queue.items():
            self._ending.start(self._requeue(queue, backs, replace(context, shares_connection=True)))

    async def _requeue(self, queue: str, backs: Sequence[Checkpoint], context: RequestContext) -> None:
        with suppress(PinLaterError):  # their claims end by themselves
            await self._api.checkpoint(queue, backs, context=context)

    def acked(self, *acks: Iterable[Ack]) -> None:
        """These acks were carried out: their claims have ended."""
        if self._by_job:
            self._drop([ack.descriptor for some in acks for ack in some if self._claim(ack) is not None])

    async def heartbeat(
        self,
        queue: str,
        heartbeats: Sequence[Heartbeat],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext,
    ) -> Sequence[HeartbeatAnswer]:
        """As that of Api."""
        parts = self._parts(heartbeats)
        reporting = next(iter(parts))

        async def part(bound: BoundConnection | None) -> Sequence[HeartbeatAnswer]:
            mine, report = parts[bound], worker if bound is reporting else None
            return await self._by_way_of(
                bound, context, lambda api, own: api.heartbeat(queue, mine, worker=report, context=own)
            )

        answered = await asyncio.gather(*map(part, parts))
        by_beat = {id(each): answer for bound, some in zip(parts, answered, strict=True)
                   for each, answer in zip(parts[bound], some, strict=True)}  # fmt: skip
        answers = HeartbeatAnswers(by_beat[id(each)] for each in heartbeats)
        if isinstance(answered[0], HeartbeatAnswers):
            answers.command = answered[0].command
        self._answered(heartbeats, answers)
        return answers

    async def checkpoint(
        self,
        queue: str,
        checkpoints: Sequence[Checkpoint],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext,
    ) -> None:
        """As that of Api."""
        parts = self._parts(checkpoints)
        reporting = next(iter(parts))

        async def part(bound: BoundConnection | None) -> None:
            mine, report = parts[bound], worker if bound is reporting else None
            await self._by_way_of(
                bound, context, lambda api, own: api.checkpoint(queue, mine, worker=report, context=own)
            )

        await asyncio.gather(*map(part, parts))
        self._drop([each.descriptor for each in checkpoints if each.move_to_pending])
        for each in checkpoints:
            if (claim := self._claim(each)) is not None:
                claim.renew()

    async def _by_way_of(
        self,
        bound: BoundConnection | None,
        context: RequestContext,
        call: Callable[[Api, RequestContext], Awaitable[R]],
    ) -> R:
        """A call over the connection to which the claims that it names are bound."""
        if bound is not None:
            try:
                return await call(bound.client, context)
            except PinLaterError:
                if not bound.is_over:
                    raise
        return await call(self._api, replace(context, shares_connection=True))

    def _parts(self, signs: Sequence[Any]) -> dict[BoundConnection | None, list[Any]]:
        """What is said of claims, by the connection to which each is bound; None: to none."""
        parts: dict[BoundConnection | None, list[Any]] = {}
        for each in signs:
            claim = self._claim(each)
            parts.setdefault(None if claim is None else claim.held_by, []).append(each)
        return parts or {None: []}

    def _claim(self, sign: Any) -> _Claim | None:
        """The claim that is meant, where it is bound here."""
        claim = self._by_job.get(sign.descriptor)
        meant = claim is not None and sign.claim_descriptor in ("", claim.claim_descriptor)
        return claim if meant else None

    def _answered(self, heartbeats: Sequence[Heartbeat], answers: Sequence[HeartbeatAnswer]) -> None:
        lost = []
        for each, answer in zip(heartbeats, answers, strict=True):
            claim = self._claim(each)
            if claim is not None and answer.outcome is HeartbeatOutcome.LOST:
                lost.append(each.descriptor)
            elif claim is not None:
                claim.renew()
        self._drop(lost)

    def _drop(self, jobs: Iterable[str]) -> None:
        """The claims of these jobs have ended, where they were bound here."""
        held_by = []
        for job in jobs:
            claim = self._by_job.pop(job, None)
            if claim is not None:
                claim.held_by.claims.pop(job, None)
                held_by.append(claim.held_by)
        for bound in dict.fromkeys(held_by):
            self._hold(bound)

    def _hold(self, bound: BoundConnection) -> None:
        def expired() -> None:
            for job in bound.drop_expired():
                self._by_job.pop(job, None)
            self._hold(bound)

        bound.hold(expired)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _lost(self, bound: BoundConnection) -> None:
        """The caller's connection is there no more."""
        del self._bound[bound.connection]
        self.places.give_back(bound.owner)
        self._ending.start(self._end(bound))

    async def _end(self, bound: BoundConnection) -> None:
        bound.is_over = True
        if self._is_draining:  # we may have closed it
            await bound.renew(self._api, shares_connection=True)
        for job in bound.claims:
            self._by_job.pop(job, None)
        bound.claims.clear()
        await bound.end()

    def start_draining(self) -> None:
        """The process ends: no claims are bound any more, and dequeues that wait end soon."""
        self._is_draining = True
        for bound in self._bound.values():
            bound.client.cancel_long_polls()

    async def leave(self) -> None:
        """Leave all claims to their time-outs, once the dequeues have ended."""
        await asyncio.gather(*[self._end(bound) for bound in self._bound.values()], self._ending.drain())

    async def close(self) -> None:
        await self._ending.drain()
        for bound in self._bound.values():
            await bound.end()
