"""The way of a dequeue from many queues: checked, its acks carried out, its limit shared among those that have jobs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from pinlater.errors import DequeueRateLimited, PinLaterError, QueueNotFound
from pinlater.model import (
    AckOutcome,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    RequestContext,
    in_weighted_order,
)
from pinlater.service.dequeuer import Dequeuer
from pinlater.service.job_lifecycle import JobLifecycle
from pinlater.service.longpoll import LongPolls
from pinlater.service.validation import Validator

_PAUSE_S = 0.05


class QueuesDequeuer:
    """Dequeues from many queues of one service."""

    def __init__(
        self, validator: Validator, dequeuer: Dequeuer, lifecycle: JobLifecycle, long_polls: LongPolls
    ) -> None:
        self._validator = validator
        self._dequeuer = dequeuer
        self._lifecycle = lifecycle
        self._long_polls = long_polls
        self._rng = random.Random()

    async def dequeue(self, request: DequeueFromQueuesRequest, context: RequestContext | None) -> DequeuedFromQueues:
        """RequestInvalid; errors of all queues as of a plain dequeue. An error says whether the acks were applied."""
        try:
            outcomes = await self._ack(request, context)
        except PinLaterError as error:
            error.acks_applied = bool(error.acks_applied)
            raise
        try:
            limit = self._validator.dequeue_from_queues(request, "" if context is None else context.source)
            return DequeuedFromQueues(*await self._dequeue(request, limit, context), outcomes)
        except PinLaterError as error:
            error.acks_applied = True
            raise

    async def _ack(
        self, request: DequeueFromQueuesRequest, context: RequestContext | None
    ) -> list[Sequence[AckOutcome]]:
        """Empty where all had an effect."""
        acked = []
        for each in request.acks:
            acking = self._lifecycle.ack(each.queue, each.succeeded, each.failed, context)
            acked.append(await (self._lifecycle.finish_even_if_cancelled(acking) if request.wait_ms else acking))
        for each_acked in acked:
            if each_acked.error is not None:
                raise each_acked.error
        return [] if all(each.had_effect for each in acked) else [each.outcomes for each in acked]

    async def _dequeue(
        self, request: DequeueFromQueuesRequest, limit: int, context: RequestContext | None
    ) -> tuple[list[DequeuedJob], dict[str, PinLaterError]]:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + request.wait_ms / 1000
        while True:
            jobs: list[DequeuedJob] = []
            errors: dict[str, PinLaterError] = {}
            for share in in_weighted_order(request.queues, self._rng):
                if len(jobs) >= limit:
                    break
                plain = DequeueRequest(
                    share.queue,
                    limit - len(jobs),
                    claim_timeout_ms=request.claim_timeout_ms,
                    release_on_disconnect=request.release_on_disconnect,
                )
                try:
                    jobs += await self._dequeuer.dequeue(plain, context)
                except (DequeueRateLimited, QueueNotFound) as error:
                    errors[share.queue] = error
                except PinLaterError:
                    if not jobs:
                        raise
                    break
                except BaseException:
                    self._long_polls.requeuer.requeue_later(jobs)
                    raise
            now_s = loop.time()
            over = now_s >= ends_s or self._long_polls.is_draining or len(errors) == len(request.queues)
            if jobs or over:
                return jobs, errors
            await asyncio.sleep(min(_PAUSE_S, ends_s - now_s))
