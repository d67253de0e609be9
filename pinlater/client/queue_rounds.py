"""Rounds of plain dequeues, for a dequeue from many queues at a server that does not know that call.

Each round asks the queues one after the other, in an order drawn by their weights, until the limit is full, or until
it has brought jobs and taken a while. Where nothing came the next follows after a pause, as long as the call may wait.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pinlater.errors import DequeueRateLimited, PinLaterError, QueueNotFound
from pinlater.model import (
    AckOutcome,
    Checkpoint,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    in_weighted_order,
    parse_descriptor,
)

SHORTEST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0
_PAUSE_SHARE = 3
"""A pause is so many times as long as the round before it took: a server of many queues is not kept busy by this."""

_LONGEST_ROUND_S = 0.1
"""A round that has brought jobs ends after so long: nothing keeps their claims alive while it goes on."""

_OF_ONE_QUEUE = (DequeueRateLimited, QueueNotFound)
"""Errors that say nothing about the other queues."""

PlainDequeue = Callable[[DequeueRequest], Coroutine[Any, Any, Sequence[DequeuedJob]]]


class QueueRounds:
    """One such dequeue, whose acks have been carried out. `dequeue` waits for nothing, not for a rate either; `requeue`
    gives jobs of one queue back; `is_over` says that nobody wants to wait any longer.
    """

    def __init__(
        self,
        request: DequeueFromQueuesRequest,
        dequeue: PlainDequeue,
        requeue: Callable[[str, Sequence[Checkpoint]], Coroutine[Any, Any, None]],
        is_over: Callable[[], bool],
        rng: random.Random,
    ) -> None:
        self._request = request
        self._dequeue = dequeue
        self._requeue = requeue
        self._is_over = is_over
        self._rng = rng
        self._returning: asyncio.Task[None] | None = None

    async def run(self, wait_until_s: float, ack_outcomes: Sequence[Sequence[AckOutcome]]) -> DequeuedFromQueues:
        """`wait_until_s`: of the loop's clock."""
        loop = asyncio.get_running_loop()
        jobs: list[DequeuedJob] = []
        try:
            while True:
                began_s = loop.time()
                errors = await self._round(jobs)
                now_s = loop.time()
                if jobs or now_s >= wait_until_s or len(errors) == len(self._request.queues) or self._is_over():
                    return DequeuedFromQueues(jobs, errors, ack_outcomes)
                pause_s = min(max(_PAUSE_SHARE * (now_s - began_s), SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
                await asyncio.sleep(min(pause_s, wait_until_s - now_s))
        except asyncio.CancelledError:
            if jobs:
                self._returning = loop.create_task(self._give_back(jobs))
            raise

    async def _round(self, jobs: list[DequeuedJob]) -> dict[str, PinLaterError]:
        """Adds to `jobs`; the errors of queues. An error of the whole call is raised where there are no jobs yet."""
        request, loop = self._request, asyncio.get_running_loop()
        began_s = loop.time()
        errors: dict[str, PinLaterError] = {}
        for share in in_weighted_order(request.queues, self._rng):
            room = request.limit - len(jobs)
            if room <= 0 or (jobs and loop.time() - began_s >= _LONGEST_ROUND_S):
                break
            plain = DequeueRequest(
                share.queue,
                room,
                claim_timeout_ms=request.claim_timeout_ms,
                release_on_disconnect=request.release_on_disconnect,
                confirms_receipt=request.confirms_receipt,
            )
            try:
                jobs += await self._dequeue(plain)
            except _OF_ONE_QUEUE as error:
                errors[share.queue] = error
            except PinLaterError:
                if not jobs:
                    raise
                break
        return errors

    async def _give_back(self, jobs: Sequence[DequeuedJob]) -> None:
        """The caller has gone in the middle of a round."""
        queues: dict[str, list[Checkpoint]] = {}
        for job in jobs:
            ref = parse_descriptor(job.descriptor)
            if ref is not None:
                back = Checkpoint(
                    job.descriptor,
                    move_to_pending=True,
                    run_after_ms=job.run_after_ms,
                    claim_descriptor=job.claim_descriptor,
                )
                queues.setdefault(ref.queue, []).append(back)
        for queue, checkpoints in queues.items():
            try:
                await self._requeue(queue, checkpoints)
            except (PinLaterError, RuntimeError):  # the client was closed; the claims expire
                return
