"""The claims that are bound to connections, and their release when a connection broke: as if they had expired now.

A process keeps of each what it wrote last, the time that the claim was seen. That is enough to release none that
another process or server saw since: the store compares. So an entry that is stale does no harm; those whose claims must
have expired are dropped now and then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import structlog

from pinlater.backends.base import CheckpointRequest, ExpiryCounts, JobKey, SilentClaim
from pinlater.backends.extended import HeartbeatRequest
from pinlater.backends.requests import ExpiryRequest
from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import PinLaterError
from pinlater.model import (
    Ack,
    AckOutcome,
    BoundClaim,
    ConnectionRef,
    DequeuedJob,
    JobState,
    Unreceived,
    descriptor_prefix,
)
from pinlater.model.connection_ref import host_of
from pinlater.service.descriptors import bound_timeout
from pinlater.service.requeuer import CLAIMS_PER_CALL, Requeuer
from pinlater.service.service_context import ServiceContext
from pinlater.shared_pool import equal_share

C = TypeVar("C", SilentClaim, ExpiryRequest)

SWEEP_FROM = 1_024
"""A table of at most this many claims is never searched for stale ones."""

MAX_KEPT = 100_000
"""Kept when they are looked through: where acks go by other processes and claims live for long, they would pile up."""


class ConnectionClaims:
    """The claims that are bound to connections. `reaper` gets those of a broken one, when the grace is over."""

    def __init__(self, context: ServiceContext, reaper: DisconnectReaper) -> None:
        self._clock = context.clock
        self._grace_ms = context.settings.release_grace_ms
        self._reaper = reaper
        self._by_job: dict[str, BoundClaim] = {}
        self._sweep_at = SWEEP_FROM
        self._graces: dict[ConnectionRef, asyncio.TimerHandle] = {}
        self._releasing = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._by_job)

    def __iter__(self) -> Iterator[str]:
        """The descriptors of the jobs whose claims are bound."""
        return iter(self._by_job)

    @property
    def in_grace(self) -> int:
        """Connections that broke and whose grace is not over."""
        return len(self._graces)

    @property
    def releases(self) -> int:
        """Releases that are under way."""
        return len(self._releasing)

    # -- what binds --------------------------------------------------------------------------------------------------

    def bind(self, connection: ConnectionRef, jobs: Sequence[DequeuedJob]) -> None:
        """These were handed out by way of a connection, under one claim; nothing where that is not to be bound."""
        timeout_ms = bound_timeout(jobs[0].claim_descriptor) if jobs else None
        if timeout_ms is None:
            return
        by_job, mine = self._by_job, connection.claims
        for job in jobs:
            descriptor, expires_at_ms = job.descriptor, job.claim_expires_at_ms
            if descriptor in by_job:
                self._drop(by_job[descriptor])
            # from the expiry: where calls waited for each other, the store was told a later now than ours
            claim = BoundClaim(descriptor, job.claim_descriptor, expires_at_ms - timeout_ms, expires_at_ms, connection)
            by_job[descriptor] = mine[descriptor] = claim
        self._bound(connection)

    def on_checkpoints(
        self,
        connection: ConnectionRef | None,
        queue: str,
        shard_id: str,
        checkpoints: Sequence[CheckpointRequest],
        were_taken: Sequence[bool],
        now_ms: int,
    ) -> None:
        """Checkpoints came by way of a connection; those that were taken bind their claims to it. A claim says itself
        that it is to be bound; where a checkpoint does not name it, only the process that knows it can tell.
        """
        for each, was_taken in zip(checkpoints, were_taken, strict=False):
            claim_descriptor = each.claim_descriptor
            timeout_ms = bound_timeout(claim_descriptor) if claim_descriptor else None
            if not was_taken or (timeout_ms is None and not self._by_job):
                continue
            descriptor = f"{descriptor_prefix(queue, shard_id, each.priority)}{each.id}"
            claim = self._by_job.get(descriptor)
            if claim is not None and claim.last_seen_ms > now_ms:
                continue  # told late: something newer came meanwhile
            if claim is not None and not claim_descriptor:
                claim_descriptor = claim.claim_descriptor
                timeout_ms = bound_timeout(claim_descriptor)
            if timeout_ms is None:
                continue
            self._drop(claim)
            if connection is not None and not each.move_to_pending:
                expires_at_ms = each.expiry_ms(timeout_ms, now_ms)
                self._renew(BoundClaim(descriptor, claim_descriptor, now_ms, expires_at_ms, connection))

    def on_heartbeats(
        self,
        connection: ConnectionRef | None,
        queue: str,
        shard_id: str,
        heartbeats: Sequence[HeartbeatRequest],
        stand: Sequence[bool],
        now_ms: int,
    ) -> None:
        """Heartbeats came by way of a connection: the claims that stand are bound to it from now on, where they are to
        be bound.
        """
        for each, stands in zip(heartbeats, stand, strict=True):
            timeout_ms = bound_timeout(each.claim_descriptor) if stands else None
            if timeout_ms is None:
                continue
            descriptor = f"{descriptor_prefix(queue, shard_id, each.priority)}{each.id}"
            claim = self._by_job.get(descriptor)
            if claim is not None and claim.last_seen_ms > now_ms:
                continue
            self._drop(claim)
            if connection is not None:
                expires_at_ms = now_ms + timeout_ms
                self._renew(BoundClaim(descriptor, each.claim_descriptor, now_ms, expires_at_ms, connection))

    def _renew(self, claim: BoundClaim) -> None:
        self._by_job[claim.descriptor] = claim.connection.claims[claim.descriptor] = claim
        self._bound(claim.connection)

    def _bound(self, connection: ConnectionRef) -> None:
        if connection.is_broken:  # it broke while the store was asked
            self._wait(connection, self._grace_ms)
        if len(self._by_job) > self._sweep_at:
            self._sweep()

    # -- what unbinds ----------------------------------------------------------------------------------------------

    def ended_by(self, *acks: Sequence[Ack]) -> list[BoundClaim]:
        """The claims that end when these acks were carried out."""
        by_job = self._by_job
        if not by_job:
            return []
        return [
            claim
            for some in acks
            for ack in some
            if (claim := by_job.get(ack.descriptor)) is not None
            and (not ack.claim_descriptor or ack.claim_descriptor == claim.claim_descriptor)
        ]

    def drop(self, claims: Iterable[BoundClaim]) -> None:
        """These end, where they are still there."""
        by_job = self._by_job
        for claim in claims:
            descriptor = claim.descriptor
            if by_job.get(descriptor) is claim:
                del by_job[descriptor]
                del claim.connection.claims[descriptor]

    def requeued(self, jobs: Iterable[DequeuedJob]) -> None:
        for job in jobs:
            claim = self._by_job.get(job.descriptor)
            if claim is not None and claim.claim_descriptor == job.claim_descriptor:
                self._drop(claim)

    def unbind(self, connection: ConnectionRef) -> None:
        """A connection that did not break, but was handed over or closed by this server: the time-outs decide."""
        self.drop(list(connection.claims.values()))

    def _drop(self, claim: BoundClaim | None) -> None:
        if claim is not None:
            self.drop((claim,))

    def _sweep(self) -> None:
        """Drop what is stale: by now these claims expired, or were renewed elsewhere; and of too many those of the
        callers with most that were renewed the longest ago, whose time-outs decide. Linear, and run only after the
        table doubled: constant cost per claim.
        """
        now_ms = self._clock.now_ms()
        self.drop([claim for claim in self._by_job.values() if claim.expires_at_ms < now_ms])
        if len(self._by_job) > MAX_KEPT:
            self._drop_of_most()
        self._sweep_at = max(SWEEP_FROM, 2 * len(self._by_job))

    def _drop_of_most(self) -> None:
        holders = {claim: claim.connection.holder or host_of(claim.connection.peer) for claim in self._by_job.values()}
        beyond = Counter(holders.values())
        share = equal_share(beyond.values(), MAX_KEPT)
        for holder, amount in beyond.items():
            beyond[holder] = amount - share
        dropped = []
        for claim, holder in holders.items():
            if beyond[holder] > 0:
                beyond[holder] -= 1
                dropped.append(claim)
        self.drop(dropped)

    # -- when a connection breaks ------------------------------------------------------------------------------------

    def broke(self, connection: ConnectionRef, idle_ms: int = 0) -> None:
        """Release what is bound to it after the grace, of which `idle_ms` are over."""
        connection.is_broken = True
        if connection.claims:
            self._wait(connection, max(0, self._grace_ms - idle_ms))

    def _wait(self, connection: ConnectionRef, grace_ms: int) -> None:
        if connection not in self._graces:
            loop = asyncio.get_running_loop()
            self._graces[connection] = loop.call_later(grace_ms / 1000, self._grace_is_over, connection)

    def _grace_is_over(self, connection: ConnectionRef) -> None:
        del self._graces[connection]
        claims = list(connection.claims.values())
        self.drop(claims)
        if claims:
            self._releasing.start(self._reaper.release(claims))

    async def end_grace(self, connection: ConnectionRef) -> None:
        """End the grace of this connection now; returns when its claims were released."""
        self._graces[connection].cancel()
        self._grace_is_over(connection)
        await self._releasing.drain()

    async def close(self) -> None:
        """Nothing is released any more: the time-outs decide."""
        for timer in self._graces.values():
            timer.cancel()
        self._graces.clear()
        await self._releasing.cancel()


_log = structlog.get_logger("pinlater.service")

TRIES = 6
_BROKE = "the connection of the worker broke"
FIRST_PAUSE_S = 0.5
"""Doubled from try to try."""


class DisconnectReaper:
    """Releases the claims of broken connections, for one service."""

    def __init__(self, context: ServiceContext, requeuer: Requeuer) -> None:
        self._router = context.router
        self._clock = context.clock
        self._parser = context.parser
        self._queues = context.queues
        self._metrics = context.metrics
        self._requeuer = requeuer
        self._events = context.events
        self._group_limits = context.limits.groups
        self._flows = context.features.flows

    async def release(self, claims: Sequence[BoundClaim]) -> None:
        """Release the claims that still stand, and which no server renewed since. Raises nothing: a shard that cannot
        be reached after some tries leaves its claims to their time-outs. What nobody received goes back first, without
        an attempt.
        """
        lost = [
            Unreceived(claim.descriptor, claim.claim_descriptor, claim.expires_at_ms)
            for claim in claims
            if claim.is_undelivered
        ]
        if lost:
            await self._requeuer.requeue_undelivered(lost)
        groups: dict[tuple[str, str], list[SilentClaim]] = {}
        items: dict[tuple[str, str], list[ExpiryRequest]] = {}
        for claim in claims:
            ref = self._parser.parse(claim.descriptor)
            if ref is not None and ref.queue in self._queues.flow_queues:
                expiry = ExpiryRequest(ref.priority, ref.id, claim.claim_descriptor, claim.expires_at_ms)
                items.setdefault((ref.queue, ref.shard), []).append(expiry)
            elif ref is not None:
                silent = SilentClaim(ref.priority, ref.id, claim.claim_descriptor, claim.last_seen_ms)
                groups.setdefault((ref.queue, ref.shard), []).append(silent)
        await asyncio.gather(
            *[self._release_some(*place, part, self._ask) for place in groups for part in _parts(groups[place])],
            *[self._release_some(*place, part, self._lose_items) for place in items for part in _parts(items[place])],
        )

    async def _release_some(
        self,
        queue: str,
        shard_id: str,
        claims: Sequence[C],
        ask: Callable[[str, str, Sequence[C]], Awaitable[ExpiryCounts]],
    ) -> None:
        for attempt in range(TRIES):
            try:
                released = await ask(queue, shard_id, claims)
            except PinLaterError as error:
                message = error.message
            else:
                self._released(queue, shard_id, released)
                self._group_limits.may_have_ended(queue, shard_id, [claim.id for claim in claims])
                return
            if attempt < TRIES - 1:
                await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
        _log.warning("claims_not_released", queue=queue, shard=shard_id, claims=len(claims), error=message)

    async def _ask(self, queue: str, shard_id: str, claims: Sequence[SilentClaim]) -> ExpiryCounts:
        released = await self._expire(queue, shard_id, claims)
        if sum(released) < len(claims):
            own = await self._with_own_timeouts(queue, shard_id, claims)
            if own:
                released = ExpiryCounts(*map(sum, zip(released, await self._expire(queue, shard_id, own), strict=True)))
        return released

    async def _lose_items(self, queue: str, shard_id: str, claims: Sequence[ExpiryRequest]) -> ExpiryCounts:
        """Release claims of items' jobs, once the flow has recorded it. How many retry, failed and were cancelled."""
        if self._flows is None:
            return ExpiryCounts(0, 0)
        rules = self._queues.end_rules().get(queue)
        outcomes = await self._flows.ends.lose(queue, shard_id, claims, _BROKE, rules)
        return ExpiryCounts(
            outcomes.count(AckOutcome.RETRIED), outcomes.count(AckOutcome.FAILED), outcomes.count(AckOutcome.CANCELLED)
        )

    async def _with_own_timeouts(self, queue: str, shard_id: str, claims: Sequence[SilentClaim]) -> list[SilentClaim]:
        """The claims of jobs with a time-out of their own that were not renewed since they were made, each with the
        time at which it was made: the expiry of such a claim does not show that time.
        """
        keys = [JobKey(claim.priority, claim.id) for claim in claims]
        (found,) = await self._router.call_by_shard(
            [(shard_id, lambda shard: shard.lookup(queue, keys, with_body=False, max_bytes=0))]
        )
        own = []
        for claim, info in zip(claims, found or (), strict=False):
            if info is None or info.claim_timeout_ms is None or info.claimed_at_ms is None:
                continue
            is_same = info.state is JobState.IN_PROGRESS and info.claim_descriptor == claim.claim_descriptor
            if is_same and info.claim_expires_at_ms == info.claimed_at_ms + info.claim_timeout_ms:
                own.append(claim._replace(last_seen_ms=info.claimed_at_ms))
        return own

    async def _expire(self, queue: str, shard_id: str, claims: Sequence[SilentClaim]) -> ExpiryCounts:
        rules = self._queues.end_rules().get(queue)
        now_ms = self._clock.now_ms()
        (released,) = await self._router.call_by_shard(
            [(shard_id, lambda shard: shard.expire_disconnected(queue, claims, now_ms, rules))]
        )
        return released or ExpiryCounts(0, 0)

    def _released(self, queue: str, shard_id: str, released: ExpiryCounts) -> None:
        if not any(released):
            return
        outcomes = released._asdict()
        for outcome, jobs in outcomes.items():
            if jobs:
                self._metrics.add(jobs, "claims_released", queue, outcome)
        if released.cancelled:
            self._metrics.add(released.cancelled, "jobs_cancelled", queue)
        _log.info("claims_released", queue=queue, shard=shard_id, **outcomes)
        self._events.ready(queue, released.retried)
        self._events.freed(queue)


def _parts(claims: Sequence[C]) -> Iterator[Sequence[C]]:
    """The claims in parts of as many as one call may name."""
    for start in range(0, len(claims), CLAIMS_PER_CALL):
        yield claims[start : start + CLAIMS_PER_CALL]
