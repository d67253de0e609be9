"""A shard whose large and long-delayed bodies lie in tiers: outermost of its chain, so that a slow tier holds up no
call to the store.

What goes in is put by the rules of `Tiers`; what comes out is read before it is handed on. Everything else passes
without a frame more. A job whose body cannot be read goes back without an attempt, for a pause that grows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from pinlater.backends.acks import Acks
from pinlater.backends.aged_levels import Level
from pinlater.backends.base import (
    NO_RULES,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimRequest,
    EndRules,
    JobKey,
    ReferenceStore,
    ScanRequest,
    Shard,
)
from pinlater.backends.extended import Offer, Offered, OfferOutcome, RescheduleRequest
from pinlater.background_tasks import BackgroundTasks, exponential_backoff_s
from pinlater.bodies.tiers import ReadFailure, Tiers
from pinlater.clock import Clock
from pinlater.errors import BodyGone, NothingStored, PartMissing, PinLaterError, QueueNotFound
from pinlater.metrics import Metrics
from pinlater.model import (
    Ack,
    ClaimAnswer,
    ClaimOutcome,
    DequeuedJob,
    Job,
    JobInfo,
    RescheduleOutcome,
    claim_source,
    parse_descriptor,
)
from pinlater.model.body_reference import BodyReference
from pinlater.shards.compensation import requeue
from pinlater.shards.decorator import ShardDecorator

_log = structlog.get_logger("pinlater.bodies")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""Of a job whose body cannot be read."""

_MOST_UNREAD = 100_000
"""Jobs whose tries are counted at the same time; the oldest are forgotten first."""

R = TypeVar("R")
_Claims = list[list[DequeuedJob]]
_NO_CHANGE = (NothingStored, QueueNotFound)


class TieredShard(ShardDecorator):
    """`max_tries`: of reading one body, while its tier reads others."""

    def __init__(self, inner: Shard, tiers: Tiers, clock: Clock, metrics: Metrics, *, max_tries: int = 20) -> None:
        super().__init__(inner)
        self.tiers = tiers
        self.store_id = ""
        self.dequeued_from: dict[str, int] = {}
        """When a body from a tier was last asked for, by queue: for who fetches ahead."""
        self._clock = clock
        self._metrics = metrics
        self._max_tries = max_tries
        self._tasks = BackgroundTasks()
        self._unread: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """How often a job's body could not be read, and how often of these its tier was well."""

    def over(self, inner: Shard) -> TieredShard:
        """The same over another chain to the same store."""
        other = TieredShard(inner, self.tiers, self._clock, self._metrics, max_tries=self._max_tries)
        other.store_id = self.store_id
        return other

    async def open(self) -> str:
        """PartMissing: the store cannot keep references."""
        if ReferenceStore in self.lacks:
            raise PartMissing.in_store(self.shard_id, ReferenceStore.__name__, "a tier of bodies")
        self.store_id = await self.inner.open()
        return self.store_id

    async def close(self) -> None:
        await self._tasks.drain()
        await self.inner.close()

    @property
    def keeps_order(self) -> bool:
        """That of the store, but for an enqueue whose bodies go to a tier first: who begins a claim behind that is told
        of its jobs when they are stored.
        """
        return self.inner.keeps_order

    # -- what goes in --------------------------------------------------------------------------------------------------

    def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> Coroutine[Any, Any, list[str]]:
        least = self.tiers.least_bytes
        for job in jobs:
            if len(job.body) >= least:
                return self._enqueue(queue, jobs, now_ms)
        return self.inner.enqueue(queue, jobs, now_ms)

    async def _enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        bodies = await self._put_all(queue, [(job.body, _delay(job.run_after_ms, now_ms), "") for job in jobs])
        stored = [job if body is job.body else replace(job, body=body) for job, body in zip(jobs, bodies, strict=True)]
        return await self._storing(self.inner.enqueue(queue, stored, now_ms), bodies)

    async def enqueue_extended(
        self, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
    ) -> list[Offered]:
        bodies: Sequence[bytes] = [offer.job.body for offer in offers]
        if any(len(body) >= self.tiers.least_bytes for body in bodies):
            bodies = await self._put_all(
                queue, [(offer.job.body, _delay(offer.job.run_after_ms, now_ms), "") for offer in offers]
            )
            offers = [
                offer if body is offer.job.body else replace(offer, job=replace(offer.job, body=body))
                for offer, body in zip(offers, bodies, strict=True)
            ]
        offered = await self._storing(self.inner.enqueue_extended(queue, offers, now_ms, homes_version), bodies)
        self._discard(
            [body for body, each in zip(bodies, offered, strict=True) if each.outcome not in _STORED_OUTCOMES]
        )
        return offered

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        bodies = [each.new_body or b"" for each in checkpoints]
        if any(len(body) >= self.tiers.least_bytes for body in bodies):
            bodies = await self._put_all(
                queue,
                [
                    (each.new_body or b"", _delay(each.run_after_ms, now_ms), each.source or _caller(each))
                    for each in checkpoints
                ],
            )
            checkpoints = [
                each if each.new_body is None else replace(each, new_body=body)
                for each, body in zip(checkpoints, bodies, strict=True)
            ]
        matched = await self._storing(self.inner.checkpoint(queue, checkpoints, now_ms), bodies)
        self._discard([body for body, is_done in zip(bodies, matched, strict=True) if not is_done])
        return matched

    async def reschedule(
        self, queue: str, requests: Sequence[RescheduleRequest], now_ms: int
    ) -> list[RescheduleOutcome]:
        bodies = [each.body or b"" for each in requests]
        if any(len(body) >= self.tiers.least_bytes for body in bodies):
            bodies = await self._put_all(
                queue, [(each.body or b"", _delay(each.run_after_ms, now_ms), "") for each in requests]
            )
            requests = [
                each if each.body is None else replace(each, body=body)
                for each, body in zip(requests, bodies, strict=True)
            ]
        outcomes = await self._storing(self.inner.reschedule(queue, requests, now_ms), bodies)
        done = RescheduleOutcome.RESCHEDULED
        self._discard([body for body, outcome in zip(bodies, outcomes, strict=True) if outcome is not done])
        return outcomes

    def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        if self._has_large_results(acks):
            return self._ack(queue, acks, now_ms, rules)
        return self.inner.ack(queue, acks, now_ms, rules)

    def _has_large_results(self, acks: Sequence[AckRequest]) -> bool:
        least = self.tiers.least_bytes
        return any(kind.result is not None and len(kind.result) >= least for kind, _ in Acks.of(acks).runs)

    async def _ack(self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules) -> list[AckOutcome]:
        placed, results = await self._with_results_put(queue, acks)
        outcomes = await self._storing(self.inner.ack(queue, placed, now_ms, rules), results)
        self._discard_results(placed, outcomes)
        return outcomes

    async def _with_results_put(
        self, queue: str, acks: Sequence[AckRequest]
    ) -> tuple[Sequence[AckRequest], Sequence[bytes]]:
        """One by one: a result that is a reference belongs to one job."""
        each = list(acks)
        results = await self._put_all(
            queue, [(ack.result or b"", 0, claim_source(ack.claim_descriptor)) for ack in each]
        )
        placed = [
            ack if ack.result is None else replace(ack, result=result)
            for ack, result in zip(each, results, strict=True)
        ]
        return Acks.of(placed), results

    def _discard_results(self, acks: Sequence[AckRequest], outcomes: Sequence[AckOutcome]) -> None:
        done = AckOutcome.SUCCEEDED
        self._discard([ack.result or b"" for ack, each in zip(acks, outcomes, strict=False) if each is not done])

    async def _put_all(self, queue: str, bodies: Sequence[tuple[bytes, int, str]]) -> list[bytes]:
        """What to store in place of each body, its delay and its caller. TierUnavailable, and then nothing is left."""
        least = self.tiers.least_bytes
        large = [number for number, (body, _, _) in enumerate(bodies) if len(body) >= least]
        puts = [self.tiers.put(self.store_id, queue, *bodies[number]) for number in large]
        if len(puts) == 1:
            outcomes: list[bytes | BaseException] = [await puts[0]]
        else:
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
        stored = [body for body, _, _ in bodies]
        for number, outcome in zip(large, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                stored[number] = outcome
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self._discard(stored)
                raise outcome
        return stored

    async def _storing(self, call: Coroutine[Any, Any, R], bodies: Sequence[bytes]) -> R:
        """The call that stores them; where it surely stored nothing, no object stays."""
        try:
            return await call
        except _NO_CHANGE:
            self._discard(bodies)
            raise

    def _discard(self, bodies: Sequence[bytes]) -> None:
        references = [body for body in bodies if isinstance(body, BodyReference)]
        if references:
            self._tasks.start(self.tiers.discard(self.store_id, references))

    # -- what comes out ------------------------------------------------------------------------------------------------

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> _Claims:
        claims = await self.inner.claim(queue, requests, now_ms, enforce_quota=enforce_quota)
        for jobs in claims:
            for job in jobs:
                if type(job.body) is BodyReference:
                    return await self._resolved(queue, claims)
        return claims

    async def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> tuple[list[AckOutcome], _Claims]:
        results: Sequence[bytes] = ()
        if self._has_large_results(acks):
            acks, results = await self._with_results_put(queue, acks)
        outcomes, claims = await self._storing(
            self.inner.ack_and_claim(queue, acks, requests, now_ms, rules, enforce_quota=enforce_quota), results
        )
        if results:
            self._discard_results(acks, outcomes)
        if any(type(job.body) is BodyReference for jobs in claims for job in jobs):
            claims = await self._resolved(queue, claims)
        return outcomes, claims

    async def claim_listed(
        self, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool = False
    ) -> list[ClaimAnswer]:
        claimed = await self.inner.claim_listed(queue, jobs, request, now_ms, enforce_quota=enforce_quota)
        found = [answer.job for answer in claimed if answer.job is not None]
        if not any(type(job.body) is BodyReference for job in found):
            return claimed
        (readable,) = await self._resolved(queue, [found])
        known = {id(job) for job in readable}
        return [
            answer if answer.job is None or id(answer.job) in known else ClaimAnswer(ClaimOutcome.NOT_DUE)
            for answer in claimed
        ]

    async def peek(
        self, queue: str, priorities: Sequence[Level], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        jobs = await self.inner.peek(queue, priorities, limit, max_bytes, now_ms)
        await self._read_into(queue, jobs)
        return [job for job in jobs if type(job.body) is not BodyReference]

    async def _read_into(self, queue: str, jobs: Sequence[DequeuedJob]) -> dict[int, ReadFailure]:
        """Bodies in place of references; by `id` of its job, what could not be read."""
        referring = [job for job in jobs if type(job.body) is BodyReference]
        references = [job.body for job in referring if isinstance(job.body, BodyReference)]
        failures = {}
        for job, body in zip(referring, await self.tiers.read_all(self.store_id, queue, references), strict=True):
            if isinstance(body, ReadFailure):
                failures[id(job)] = body
            else:
                job.body = body
        return failures

    async def _resolved(self, queue: str, claims: _Claims) -> _Claims:
        """The claims without jobs whose bodies cannot be read, which go back."""
        jobs = [job for each in claims for job in each]
        self.dequeued_from[queue] = self._clock.now_ms()
        try:
            failures = await self._read_into(queue, jobs)
        except asyncio.CancelledError:  # nobody waits for them any more
            self._tasks.start(requeue(self.inner, queue, jobs, self._clock.now_ms()))
            raise
        if self._unread:
            for job in jobs:
                if id(job) not in failures:
                    self._unread.pop(job.descriptor, None)
        if not failures:
            return claims
        self._tasks.start(self._put_back(queue, [(job, failures[id(job)]) for job in jobs if id(job) in failures]))
        return [[job for job in each if id(job) not in failures] for each in claims]

    async def _put_back(self, queue: str, unread: Sequence[tuple[DequeuedJob, ReadFailure]]) -> None:
        """PENDING again without an attempt, for later; what has no hope fails for good, and keeps its reference."""
        now_ms = self._clock.now_ms()
        checkpoints, acks = [], []
        for job, failure in unread:
            ref = parse_descriptor(job.descriptor)
            assert ref is not None
            tries, counted = self._unread.pop(job.descriptor, (0, 0))
            tries, counted = tries + 1, counted + (not failure.is_tier)
            self._metrics.add(1, "bodies_unread", failure.reference.parts.tier)
            if failure.is_final or counted >= self._max_tries:
                line = f"[BODY_UNAVAILABLE: {failure.reference.text}: {failure.why}]\n"
                acks.append(
                    Ack(job.descriptor, append_status=line, claim_descriptor=job.claim_descriptor, permanent=True)
                )
                _log.warning("body_unavailable", job=job.descriptor, body=failure.reference.text, error=failure.why)
                continue
            self._unread[job.descriptor] = (tries, counted)
            pause_ms = int(exponential_backoff_s(tries, FIRST_PAUSE_S, LONGEST_PAUSE_S) * 1000)
            _log.info("body_not_read", job=job.descriptor, tries=tries, again_in_ms=pause_ms, error=failure.why)
            checkpoints.append(
                CheckpointRequest(
                    ref.priority,
                    ref.id,
                    "",
                    claim_descriptor=job.claim_descriptor,
                    move_to_pending=True,
                    run_after_ms=max(job.run_after_ms, now_ms + pause_ms),
                )
            )
        while len(self._unread) > _MOST_UNREAD:
            self._unread.popitem(last=False)
        try:
            if checkpoints:
                await self.inner.checkpoint(queue, checkpoints, now_ms)
            if acks:
                await self.tiers.fail_for_good(queue, acks)
        except PinLaterError as error:  # their claims expire
            _log.warning("unread_jobs_not_put_back", shard=self.shard_id, queue=queue, error=error.message)

    # -- queries -------------------------------------------------------------------------------------------------------

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> list[JobInfo | None]:
        infos = await self.inner.lookup(queue, jobs, with_body=with_body, max_bytes=max_bytes, with_result=with_result)
        if with_body or with_result:
            await self._fill(queue, infos)
        return infos

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        infos = await self.inner.scan(queue, request, now_ms)
        if request.with_body:
            await self._fill(queue, infos)
        return infos

    async def _fill(self, queue: str, infos: Sequence[JobInfo | None]) -> None:
        """Bodies and results in place of references; None for what is gone. TierUnavailable."""
        places = [
            (info, name)
            for info in infos
            if info is not None
            for name in ("body", "result")
            if type(getattr(info, name)) is BodyReference
        ]
        if not places:
            return
        references = [getattr(info, name) for info, name in places]
        outcomes = await asyncio.gather(
            *[self.tiers.read(self.store_id, queue, reference) for reference in references], return_exceptions=True
        )
        for (info, name), outcome in zip(places, outcomes, strict=True):
            if isinstance(outcome, BodyGone):
                setattr(info, name, None)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                setattr(info, name, outcome)


_STORED_OUTCOMES = (OfferOutcome.STORED, OfferOutcome.REPLACED)


def _delay(run_after_ms: int | None, now_ms: int) -> int:
    return 0 if run_after_ms is None else max(0, run_after_ms - now_ms)


def _caller(checkpoint: CheckpointRequest) -> str:
    return claim_source(checkpoint.claim_descriptor)
