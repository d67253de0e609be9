"""The tiers of a server: bodies that go there by the rules, and come back.

enqueue   the object first, the job second. A tier that fails, or that a live server of the cluster lacks, leaves the
          body in its shard; only one that is too large for a shard is refused.
dequeue   bodies are read side by side, those fetched ahead from memory; the hash is checked on each.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from pinlater.bodies.placement import Placement, PlacementRules
from pinlater.bodies.tier import Tier
from pinlater.clock import Clock
from pinlater.errors import BodyGone, TierUnavailable
from pinlater.metrics import Metrics
from pinlater.model import Ack, Job, RequestContext
from pinlater.model.body_reference import BodyReference, body_digest

_log = structlog.get_logger("pinlater.bodies")
MOST_CHARS = 300


class CallersBody(bytes):
    """A body with the name of its caller, where a rule asks for that."""

    caller: str

    @classmethod
    def of(cls, body: bytes, caller: str) -> CallersBody:
        made = cls(body)
        made.caller = caller
        return made


def with_caller(jobs: Sequence[Job], context: RequestContext | None, least_bytes: int) -> Sequence[Job]:
    """The jobs, of which large bodies name their caller, for rules that ask for it."""
    if context is None or not context.source or all(len(job.body) < least_bytes for job in jobs):
        return jobs
    return [
        replace(job, body=CallersBody.of(job.body, context.source)) if len(job.body) >= least_bytes else job
        for job in jobs
    ]


class ReadFailure(NamedTuple):
    """Why a body could not be read. `is_final`: it is gone or damaged, and no later try will find it. `is_tier`: its
    tier answers nobody now, so the failure says nothing of this body.
    """

    reference: BodyReference
    why: str
    is_final: bool
    is_tier: bool


class FetchedBodies:
    """Bodies that were fetched ahead; `room` in bytes. The oldest of the queue that has most of it goes first."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._sizes: Counter[str] = Counter()
        self._bodies: dict[str, OrderedDict[bytes, bytes]] = {}
        """By queue."""

    def __contains__(self, reference: BodyReference) -> bool:
        return reference in self._bodies.get(reference.parts.queue, ())

    def put(self, reference: BodyReference, body: bytes) -> None:
        if reference in self or len(body) > self.room:
            return
        queue = reference.parts.queue
        self._bodies.setdefault(queue, OrderedDict())[reference] = body
        self._sizes[queue] += len(body)
        while self._sizes.total() > self.room:
            most = max(self._sizes, key=self._sizes.__getitem__)
            self._taken(most, self._bodies[most].popitem(last=False)[1])

    def take(self, reference: BodyReference) -> bytes | None:
        """It is handed out once, to the one claim of its job."""
        queue = reference.parts.queue
        of_queue = self._bodies.get(queue)
        body = None if of_queue is None else of_queue.pop(reference, None)
        return None if body is None else self._taken(queue, body)

    def _taken(self, queue: str, body: bytes) -> bytes:
        self._sizes[queue] -= len(body)
        if not self._bodies[queue]:
            del self._bodies[queue], self._sizes[queue]
        return body


def object_path(store_id: str, reference: BodyReference) -> str:
    """Where the object of a reference lies in its tier: STORE/QUEUE/DAY/TIME-ID, by the store that holds the job."""
    parts = reference.parts
    day = datetime.fromtimestamp(parts.stored_at_ms / 1000, UTC).strftime("%Y%m%d")
    return f"{store_id}/{parts.queue}/{day}/{parts.stored_at_ms:012x}-{parts.id}"


class ObjectName(NamedTuple):
    """What the last part of a path says."""

    stored_at_ms: int
    id: int


def object_name(path: str) -> ObjectName | None:
    """None: this is no object of ours."""
    stored_at, _, name = path.rpartition("/")[2].partition("-")
    try:
        return ObjectName(int(stored_at, 16), int(name, 16))
    except ValueError:
        return None


class Tiers:
    """All tiers of a process. `lacking` names the live processes of others that do not have a tier, `fail_for_good`
    acks jobs whose bodies nobody will ever read.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        rules: PlacementRules,
        clock: Clock,
        metrics: Metrics,
        lacking: Callable[[str], Sequence[str]],
        rule_of_queue: Callable[[str], str],
        fail_for_good: Callable[[str, Sequence[Ack]], Awaitable[object]],
        *,
        max_in_shard: int,
        cache_bytes: int,
    ) -> None:
        self.all = {tier.name: tier for tier in tiers}
        self.rules = rules
        self.lacking = lacking
        self.fail_for_good = fail_for_good
        self.fetched = FetchedBodies(cache_bytes)
        self.least_bytes = rules.least_bytes
        """No smaller body ever goes to a tier."""
        self._rule_of_queue = rule_of_queue
        self._clock = clock
        self._metrics = metrics
        self._max_in_shard = max_in_shard

    def away(self) -> Mapping[str, str]:
        """The tiers that cannot be used, as far as that was tried lately, and why."""
        return {tier.name: tier.away[:MOST_CHARS] for tier in self.all.values() if tier.away}

    async def open(self) -> None:
        """Try each tier once. Raises nothing: what is wrong is in `Tier.error`."""
        await asyncio.gather(*[tier.open() for tier in self.all.values()])
        for tier in self.all.values():
            if tier.error:
                _log.warning("tier_unavailable", tier=tier.name, url=tier.url, error=tier.error)

    async def close(self) -> None:
        await asyncio.gather(*[tier.close() for tier in self.all.values()])

    def place(self, queue: str, size: int, delay_ms: int, caller: str) -> Placement | None:
        """Where the rules of now would put such a body; None: into its shard."""
        return self.rules.place(queue, size, delay_ms, caller, self._rule_of_queue(queue))

    # -- bodies that come ----------------------------------------------------------------------------------------------

    async def put(self, store_id: str, queue: str, body: bytes, delay_ms: int, caller: str) -> bytes:
        """What the shard is to store: a reference, or the body itself. TierUnavailable: too large for the shard."""
        if isinstance(body, CallersBody):
            caller = body.caller
        placed = self.place(queue, len(body), delay_ms, caller)
        if placed is None:
            return body
        try:
            return await self.put_to(placed, store_id, queue, body)
        except TierUnavailable as error:
            if len(body) > self._max_in_shard:
                raise TierUnavailable(
                    f"a body of {len(body)} bytes is too large for a shard (body-in-shard is {self._max_in_shard}), "
                    f"and its tier cannot take it now: {error.message}",
                    retry_after_ms=error.retry_after_ms or 1_000,
                ) from error
            self._metrics.add(1, "body_fallbacks", placed.tier)
            return body

    async def put_to(self, placed: Placement, store_id: str, queue: str, body: bytes) -> BodyReference:
        """TierUnavailable."""
        lacking = self.lacking(placed.tier)
        if lacking:
            raise TierUnavailable(
                f"server {lacking[0]} does not have the tier {placed.tier}: start all servers with the same --bodies"
            )
        reference = BodyReference.new(placed.tier, queue, body, self._clock.now_ms(), placed.rule)
        await self.all[placed.tier].put(object_path(store_id, reference), body, queue=queue)
        return reference

    async def discard(self, store_id: str, references: Sequence[BodyReference]) -> None:
        """Delete objects that no job came to refer to. What fails is left to the sweep."""
        try:
            await self.delete(store_id, references)
        except TierUnavailable as error:
            _log.info("bodies_left_to_the_sweep", bodies=len(references), error=error.message)

    async def delete(self, store_id: str, references: Sequence[BodyReference]) -> list[BodyReference]:
        """Those that are deleted, or were not there. TierUnavailable: none of them."""
        by_tier: dict[str, list[BodyReference]] = {}
        for reference in references:
            by_tier.setdefault(reference.parts.tier, []).append(reference)
        done: list[BodyReference] = []
        failure = None
        for name, some in by_tier.items():
            tier = self.all.get(name)
            try:
                if tier is None:
                    raise TierUnavailable(_no_tier(name))
                await tier.delete([object_path(store_id, reference) for reference in some])
            except TierUnavailable as error:
                failure = error
            else:
                self._metrics.add(len(some), "bodies_deleted", name)
                done += some
        if failure is not None and not done:
            raise failure
        return done

    # -- bodies that go ------------------------------------------------------------------------------------------------

    async def get(self, store_id: str, queue: str, reference: BodyReference) -> bytes:
        """The body, checked. TierUnavailable; BodyGone: it is not there, or other bytes are."""
        fetched = self.fetched.take(reference)
        return fetched if fetched is not None else await self.read(store_id, queue, reference)

    async def read(self, store_id: str, queue: str, reference: BodyReference) -> bytes:
        """As `get`, from the tier itself. `queue` is the one that it is read for."""
        parts = reference.parts
        tier = self.all.get(parts.tier)
        if tier is None:
            raise TierUnavailable(_no_tier(parts.tier))
        body = await tier.get(object_path(store_id, reference), queue=queue)
        if len(body) != parts.length or body_digest(body) != parts.digest:
            raise BodyGone(f"the object of {reference.text} has other bytes than its job was stored with")
        return body

    async def read_all(
        self, store_id: str, queue: str, references: Sequence[BodyReference]
    ) -> list[bytes | ReadFailure]:
        """Each body, or why it could not be read."""

        async def one(reference: BodyReference) -> bytes | ReadFailure:
            try:
                return await self.get(store_id, queue, reference)
            except BodyGone as error:
                return ReadFailure(reference, error.message, True, False)
            except TierUnavailable as error:
                tier = self.all.get(reference.parts.tier)
                return ReadFailure(reference, error.message, False, tier is None or bool(tier.error))

        if len(references) == 1:
            return [await one(references[0])]
        return await asyncio.gather(*[one(reference) for reference in references])


def _no_tier(name: str) -> str:
    return f"this server has no tier {name}: start all servers with the same --bodies"
