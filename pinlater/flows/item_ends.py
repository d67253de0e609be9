"""The ends of items: an ack, an expiry or a broken connection is recorded in the database of flows before the store
learns of it.

    ack of a job ──► ItemEnds ──► FlowDatabase.record ──► the ack as the store gets it
                     (joined with those of others)         first result: a success; a failure with attempts left: put
                                                           off by the stage's backoff; the last one: for good

So nothing that a worker was told is lost with a store, and a job whose item has ended never runs another time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pinlater.backends.acks import Acks
from pinlater.backends.base import AckRequest, EndRules, JobKey
from pinlater.backends.requests import ExpiryRequest
from pinlater.background_tasks import BackgroundTasks
from pinlater.clock import Clock
from pinlater.errors import FlowsUnavailable
from pinlater.flows.child_maker import MAX_ACK_STEPS, ChildMaker
from pinlater.flows.connection import FlowConnection
from pinlater.flows.ends import EndOutcome, ItemEnd, Recorded, RecordedEnd
from pinlater.flows.flow_limits import STEP_BYTES, json_mistake
from pinlater.flows.item_jobs import item_number
from pinlater.model import AckOutcome, JobInfo, JobState, claim_source, parse_descriptor
from pinlater.model.jobs import descriptor_prefix
from pinlater.shards.router import Router

MAX_JOINED = 2_000
"""Ends in one transaction."""

NO_RESULT = b"null"
_NOT_JSON = "the result is no JSON: "
_TO_COME = frozenset((EndOutcome.UNMADE, EndOutcome.LATER))


class _Waiting(NamedTuple):
    """Ends, who is told what became of them, and whether they have a transaction of their own."""

    ends: Sequence[ItemEnd]
    recorded: asyncio.Future[list[RecordedEnd]]
    is_alone: bool


class ItemEnds:
    """Records ends, for one process. `recorded` hears of what follows from them."""

    def __init__(
        self,
        connection: FlowConnection,
        router: Router,
        clock: Clock,
        recorded: Callable[[Recorded], None],
        maker: ChildMaker | None = None,
    ) -> None:
        self.maker = maker or ChildMaker()
        self._connection = connection
        self._router = router
        self._clock = clock
        self._recorded = recorded
        self._waiting: list[_Waiting] = []
        self._is_recording = False
        self._succeeding: set[str] = set()
        """Jobs whose success is being recorded, which takes a while where their children are dear to make."""
        self._tasks = BackgroundTasks()

    async def drain(self) -> None:
        """Until nothing is under way."""
        await self._tasks.drain()

    # -- acks ----------------------------------------------------------------------------------------------------------

    async def record_acks(self, queue: str, by_shard: Mapping[str, Acks], now_ms: int, caller: str) -> dict[str, Acks]:
        """The acks as the stores are to be told them. `caller`: who pays for expressions, see ChildMaker.make.
        FlowsUnavailable: not all were recorded, and nothing is to be told: they come again, which changes nothing.
        """
        requests = [(shard_id, ack) for shard_id, acks in by_shard.items() for ack in acks]
        ends: list[ItemEnd] = []
        read_bytes = 0
        for shard_id, ack in requests:
            ends.append(_end_of(queue, shard_id, ack))
            read_bytes += len(ack.result or b"")
            if read_bytes > STEP_BYTES:
                read_bytes = 0
                await asyncio.sleep(0)  # others have their turn between two steps
        recorded_acks: dict[str, list[AckRequest]] = {shard_id: [] for shard_id in by_shard}
        for (shard_id, ack), recorded in zip(requests, await self.record(queue, ends, caller), strict=True):
            recorded_acks[shard_id].append(_recorded_ack(ack, recorded, now_ms))
        return {shard_id: Acks.of(acks) for shard_id, acks in recorded_acks.items()}

    # -- expiries ------------------------------------------------------------------------------------------------------

    async def expire(
        self, queue: str, shard_id: str, claims: Sequence[ExpiryRequest], reason: str, rules: EndRules
    ) -> list[AckOutcome]:
        """End these claims as failures with this reason: what became of each, IGNORED for one that was renewed or ended
        meanwhile, or whose success is about to be recorded. FlowsUnavailable; errors of the shard.
        """
        has_ended = [_descriptor(queue, shard_id, claim) in self._succeeding for claim in claims]
        if any(has_ended):
            rest = [claim for claim, each in zip(claims, has_ended, strict=True) if not each]
            outcomes = iter(await self.expire(queue, shard_id, rest, reason, rules) if rest else ())
            return [AckOutcome.IGNORED if each else next(outcomes) for each in has_ended]
        ends = [
            ItemEnd(
                _descriptor(queue, shard_id, claim),
                None,
                claim.claim_descriptor,
                claim_source(claim.claim_descriptor),
                reason,
            )
            for claim in claims
        ]
        now_ms = self._clock.now_ms()
        listed: list[ExpiryRequest] = []
        acks: list[AckRequest] = []
        is_listed: list[bool] = []
        for claim, recorded in zip(claims, await self.record(queue, ends), strict=True):
            is_retried = recorded.outcome in (EndOutcome.RETRY, EndOutcome.NO_ITEM)
            is_listed.append(is_retried)
            if is_retried:
                listed.append(claim._replace(retry_delay_ms=max(0, recorded.retry_ms - now_ms)))
            else:
                ack = AckRequest(claim.priority, claim.id, False, f"[{reason}]\n", 0, claim.claim_descriptor)
                acks.append(_recorded_ack(ack, recorded, now_ms))
        listed_outcomes, acked_outcomes = await self._router.call_by_shard(
            [
                (shard_id, lambda shard: shard.expire_listed(queue, listed, now_ms, rules)),
                (shard_id, lambda shard: shard.ack(queue, Acks.of(acks), now_ms, rules)),
            ]
        )
        of_listed, of_acked = iter(listed_outcomes or ()), iter(acked_outcomes or ())
        return [next(of_listed if each else of_acked, AckOutcome.IGNORED) for each in is_listed]

    async def lose(
        self, queue: str, shard_id: str, claims: Sequence[ExpiryRequest], reason: str, rules: EndRules
    ) -> list[AckOutcome]:
        """As `expire`, for claims that have time left: of those alone that nobody has renewed since."""
        infos = await self._look_up(queue, shard_id, [JobKey(claim.priority, claim.id) for claim in claims])
        standing = [
            claim
            for claim, info in zip(claims, infos, strict=False)
            if info is not None
            and info.state is JobState.IN_PROGRESS
            and info.claim_descriptor == claim.claim_descriptor
            and info.claim_expires_at_ms == claim.expires_at_ms
        ]
        return await self.expire(queue, shard_id, standing, reason, rules) if standing else []

    # -- recording -----------------------------------------------------------------------------------------------------

    async def record(self, queue: str, ends: Sequence[ItemEnd], caller: str = "") -> list[RecordedEnd]:
        """An outcome for each. Jobs that the database does not know yet, as the feeder was about to say which items
        they carry, are known by their keys.
        """
        outcomes = await self._recorded_with_children(ends, caller)
        unknown = [index for index, each in enumerate(outcomes) if each.outcome is EndOutcome.NO_ITEM]
        if unknown:
            numbers = await self._numbers(queue, [ends[index].job for index in unknown])
            known = [index for index in unknown if numbers.get(ends[index].job)]
            if known:
                numbered = [ends[index]._replace(number=numbers[ends[index].job]) for index in known]
                again = await self._recorded_with_children(numbered, caller)
                for index, outcome in zip(known, again, strict=True):
                    outcomes[index] = outcome
        return outcomes

    async def _recorded_with_children(self, ends: Sequence[ItemEnd], caller: str) -> list[RecordedEnd]:
        """Those whose children are still to be made come again with them, and those for which a transaction has no room
        in others: as many at once as may be held in memory.
        """
        jobs = [end.job for end in ends if end.result is not None]
        self._succeeding.update(jobs)
        try:
            outcomes = await self._joined(ends)
            if not _TO_COME.isdisjoint(each.outcome for each in outcomes):
                await self._make_and_record(list(ends), outcomes, caller)
        finally:
            self._succeeding.difference_update(jobs)
        return outcomes

    async def _make_and_record(self, ends: list[ItemEnd], outcomes: list[RecordedEnd], caller: str) -> None:
        """Fills in the outcomes of those that are UNMADE or come LATER."""
        steps, most = MAX_ACK_STEPS, _twice_as_many(outcomes)
        while waiting := [index for index, each in enumerate(outcomes) if each.outcome in _TO_COME]:
            unmade = [(index, each) for index in waiting if (each := outcomes[index].unmade) is not None]
            some = [index for index in waiting if ends[index].made and outcomes[index].unmade is None][:most]
            is_alone = bool(some) or not unmade  # else what others have large might put it off again and again
            if not is_alone:  # what is made is recorded before more is
                made, steps = await self.maker.make([each for _, each in unmade], caller, steps)
                for (index, _), children in zip(unmade, made, strict=False):
                    ends[index] = ends[index]._replace(made=(*ends[index].made, *children))
                    some.append(index)
            some = some or waiting[:most]
            again = await self._joined([ends[index] for index in some], is_alone=is_alone)
            for index, outcome in zip(some, again, strict=True):
                outcomes[index] = outcome
            most = _twice_as_many(again)

    async def _joined(self, ends: Sequence[ItemEnd], *, is_alone: bool = False) -> list[RecordedEnd]:
        """In one transaction with those that others bring while one is under way."""
        future: asyncio.Future[list[RecordedEnd]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(ends, future, is_alone))
        if not self._is_recording:
            self._is_recording = True
            self._tasks.start(self._record_all())
        return await future

    async def _record_all(self) -> None:
        try:
            while self._waiting:
                batch = self._take()
                try:
                    await self._record_batch(batch)
                except Exception as error:
                    if len(batch) == 1 or isinstance(error, FlowsUnavailable):
                        _fail(batch, error)
                        continue
                    for each in batch:  # what one of them says does not keep the others from being recorded
                        try:
                            await self._record_batch([each])
                        except Exception as own:
                            _fail([each], own)
        finally:
            self._is_recording = False

    async def _record_batch(self, batch: Sequence[_Waiting]) -> None:
        ends, now_ms = [end for each in batch for end in each.ends], self._clock.now_ms()
        recorded = await self._connection.call(lambda database: database.record_step(ends, now_ms))
        start = 0
        for some, future, _ in batch:
            if not future.done():
                future.set_result(recorded.ends[start : start + len(some)])
            start += len(some)
        self._recorded(recorded)

    def _take(self) -> list[_Waiting]:
        amount = taken = 0
        for each in self._waiting:
            amount += len(each.ends)
            if taken and (amount > MAX_JOINED or each.is_alone or self._waiting[0].is_alone):
                break
            taken += 1
        batch, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batch

    async def _numbers(self, queue: str, descriptors: Sequence[str]) -> dict[str, int]:
        """The items that these jobs carry, as the stores know; 0 for a job that carries none."""
        places: dict[str, list[tuple[str, JobKey]]] = {}
        for text in descriptors:
            ref = parse_descriptor(text)
            if ref is not None:
                places.setdefault(ref.shard, []).append((text, JobKey(ref.priority, ref.id)))
        numbers: dict[str, int] = {}
        for shard_id, jobs in places.items():
            infos = await self._look_up(queue, shard_id, [key for _, key in jobs])
            for (text, _), info in zip(jobs, infos, strict=False):
                numbers[text] = 0 if info is None else item_number(info.dedupe_key)
        return numbers

    async def _look_up(self, queue: str, shard_id: str, jobs: Sequence[JobKey]) -> Sequence[JobInfo | None]:
        (infos,) = await self._router.call_by_shard(
            [(shard_id, lambda shard: shard.lookup(queue, jobs, with_body=False, max_bytes=0))]
        )
        return infos or ()


def _twice_as_many(outcomes: Sequence[RecordedEnd]) -> int:
    """As were taken of these; so what a transaction has no room for is not read again and again."""
    return max(1, 2 * sum(each.outcome is not EndOutcome.LATER for each in outcomes))


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for _, future, _ in batch:
        if not future.done():
            future.set_exception(error)


def _descriptor(queue: str, shard_id: str, job: AckRequest | ExpiryRequest) -> str:
    return f"{descriptor_prefix(queue, shard_id, job.priority)}{job.id:016d}"


def _end_of(queue: str, shard_id: str, ack: AckRequest) -> ItemEnd:
    job, claim = _descriptor(queue, shard_id, ack), ack.claim_descriptor
    if ack.succeeded:
        result = ack.result or NO_RESULT
        mistake = json_mistake(result)
        if not mistake:
            return ItemEnd(job, result, claim, claim_source(claim))
        return ItemEnd(job, None, claim, claim_source(claim), _NOT_JSON + mistake)
    return ItemEnd(job, None, claim, claim_source(claim), _reason(ack.append_status), ack.permanent)


def _reason(status: str) -> str:
    """The line of a status that a failure appends, without what frames it."""
    return status.strip() or "the worker reported a failure without a reason"


def _recorded_ack(ack: AckRequest, recorded: RecordedEnd, now_ms: int) -> AckRequest:
    """The ack as the store is to be told it. The result is in the database."""
    outcome = recorded.outcome
    if outcome is EndOutcome.NO_ITEM:
        return ack
    if outcome in (EndOutcome.SUCCEEDED, EndOutcome.ENDED):
        return replace(ack, succeeded=True, permanent=False, retry_delay_ms=0, result=None)
    if outcome is EndOutcome.FAILED:
        return replace(ack, succeeded=False, permanent=True, retry_delay_ms=0, result=None)
    return replace(
        ack, succeeded=False, permanent=False, retry_delay_ms=max(1, recorded.retry_ms - now_ms), result=None
    )
