"""The life of a job: enqueue, claim, ack, checkpoint, and what ends a claim otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.backends.acks import Acks
from pinlater.backends.base import (
    NO_RULES,
    UNDELIVERED_IN_A_ROW,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    EndRules,
    ExpiryCounts,
    FreshClaim,
    JobKey,
    SilentClaim,
    released_status,
)
from pinlater.backends.redis.calling import Calling, lowest_id
from pinlater.backends.redis.news import announcement
from pinlater.backends.redis.packing import (
    Args,
    ack_args,
    checkpoint_args,
    claim_args,
    dequeued,
    descriptors,
    enqueue_args,
    key_args,
)
from pinlater.backends.redis.wording import MARK, lapse_rules, lapse_words
from pinlater.model import CancelOutcome, DequeuedJob, Job

_ACK_OUTCOMES = {ord(str(int(outcome))): outcome for outcome in AckOutcome}
_CANCEL_OUTCOMES = {ord(str(int(outcome))): outcome for outcome in CancelOutcome}


class Working(Calling):
    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        if not jobs:
            await self._known("ready", queue, (queue, now_ms))
            return []
        args, priorities = enqueue_args(jobs, now_ms)
        news = announcement(self._store.origin, jobs, now_ms)
        first = await self._known("enqueue", queue, (queue, lowest_id(now_ms), news, *args))
        return descriptors(queue, self.shard_id, priorities, int(first), len(jobs))

    async def count_ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        counts = await self._known("ready", queue, (queue, now_ms, *priorities))
        return [min(count, limit) for count in counts]

    async def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        times = await self._store.call("next_due", (self._root,), (len(priorities), *priorities, *queues))
        return {
            queue: int(time_ms) if time_ms else None
            for queue, time_ms in zip(queues, times, strict=True)
            if time_ms is not None
        }

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        answer = await self._known("claim", queue, (queue, now_ms, int(enforce_quota), *claim_args(requests, now_ms)))
        return self._claimed(queue, requests, now_ms, answer)

    async def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
        args = (queue, now_ms, int(enforce_quota), *_ack_args(acks, rules), *claim_args(requests, now_ms))
        codes, answer = await self._known("ack_and_claim", queue, args)
        return _ack_outcomes(codes), self._claimed(queue, requests, now_ms, answer)

    def _claimed(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, answer: Sequence[Any]
    ) -> list[list[DequeuedJob]]:
        shard = self.shard_id
        return [
            dequeued(flat, queue, shard, request.claim_descriptor, now_ms + request.spare_ms + request.claim_timeout_ms)
            for flat, request in zip(answer, requests, strict=False)
        ]

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        flat = await self._known("peek", queue, (queue, now_ms, limit, max_bytes, *priorities))
        return dequeued(flat, queue, self.shard_id, "", 0)

    async def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        if not acks:
            return []
        return _ack_outcomes(await self._call("ack", queue, (queue, now_ms, *_ack_args(acks, rules))))

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        codes = await self._call("checkpoint", queue, checkpoint_args(queue, checkpoints, now_ms))
        return [code == ord("1") for code in codes]

    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        count: int = await self._call("give_back", queue, [now_ms, *key_args(claims)])
        return count

    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        words = lapse_words(released_status(now_ms, MARK))
        args = [queue, now_ms, *lapse_rules(rules), *words, *key_args(claims)]
        return ExpiryCounts(*await self._call("release", queue, args))

    async def requeue_undelivered(self, queue: str, claims: Sequence[FreshClaim], now_ms: int) -> int:
        args = [now_ms, UNDELIVERED_IN_A_ROW, *key_args(claims)]
        count: int = await self._call("requeue_undelivered", queue, args)
        return count

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int) -> list[CancelOutcome]:
        return [_CANCEL_OUTCOMES[code] for code in await self._call("cancel", queue, key_args(jobs))]


def _ack_args(acks: Sequence[AckRequest], rules: EndRules) -> Args:
    return [int(rules.keep_succeeded), int(rules.keep_failed), int(rules.dead_letters), *ack_args(Acks.of(acks))]


def _ack_outcomes(codes: bytes) -> list[AckOutcome]:
    outcomes = _ACK_OUTCOMES
    if codes.count(codes[:1]) == len(codes):
        return [outcomes[codes[0]]] * len(codes) if codes else []
    return [outcomes[code] for code in codes]
