"""Claims of a poller that knows which shards may have jobs (known_queue.py).

A job of the first priority may be handed out as soon as its shard has it, as none is more urgent. One of a later
priority is given only to callers who were there at a moment when all shards had nothing more urgent. So where somebody
who waits has not asked all shards, only the first priority is claimed from some; if they have others, all are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pinlater.backends.base import ClaimRequest
from pinlater.model import DequeuedJob
from pinlater.service.longpoll.known_queue import KnownQueue
from pinlater.service.longpoll.poller_context import PollerContext

MOST_ASKED = 4
"""So many shards that may have jobs are asked alone by a dequeue that comes; with more of them there is a backlog, of
which the last counts tell more (shards/cross_shard.py).
"""


def all_notify(context: PollerContext, queue: str) -> bool:
    """All shards notify of jobs that come, and when the next one is due is known."""
    return context.due.is_known(queue) and context.subscriptions.is_subscribed(queue)


def known_shards(context: PollerContext, queue: str, known: KnownQueue) -> set[str] | None:
    """The few shards that may have jobs; None: any may have, many do, or the only one does."""
    shard_ids = known.worth_asking()
    if shard_ids is None or len(shard_ids) > MOST_ASKED or not all_notify(context, queue):
        return None
    return shard_ids if not shard_ids or context.router.has_several_shards() else None


async def claim_at_sole(
    context: PollerContext, queue: str, known: KnownQueue, requests: Sequence[ClaimRequest], expected: int
) -> list[list[DequeuedJob]]:
    """Jobs for those who wait, where there is one shard; `known` learns whether it may have more than was expected."""
    if not all_notify(context, queue):
        return await context.router.claim(queue, requests, context.clock.now_ms())
    candidates, changes = known.take_candidates().shard_ids, known.changes
    claimed = await context.router.claim(queue, requests, context.clock.now_ms())
    if len(claimed) == len(requests) and any(
        len(jobs) < request.limit and sum(len(job.body) for job in jobs) < request.max_bytes // 2
        for jobs, request in zip(claimed, requests, strict=True)
    ):
        known.found_at((), changes)
    elif sum(map(len, claimed)) < expected:
        known.give_back(candidates)
    return claimed


async def claim_at_candidates(
    context: PollerContext, queue: str, known: KnownQueue, requests: Sequence[ClaimRequest]
) -> list[list[DequeuedJob]]:
    """Jobs for those who wait, from the shards that may have some, or from all; `known` learns what that finds."""
    router, claims = context.router, context.router.claims
    if not (is_subscribed := context.subscriptions.is_subscribed(queue)):
        known.forget_shards()
    (candidates, in_order, got_jobs), unsure = known.take_candidates(), claims.unsure
    if candidates:
        claimed: list[list[DequeuedJob]] | None = None
        if got_jobs:
            first = requests if in_order else [replace(each, priorities=each.priorities[:1]) for each in requests]
            claimed = await router.claim_at(candidates, queue, first, context.clock.now_ms())
        if not any(claimed or ()) and not (in_order and got_jobs):
            claimed = await router.claim_of_first(candidates, queue, requests, context.clock.now_ms())
        is_sure = claims.unsure == unsure
        if claimed is not None and (any(claimed) or is_sure):
            if not is_sure:
                known.forget_shards()
            elif any(claimed):
                known.give_back(candidates)
            return claimed
        known.forget_shards()  # any may have jobs, or these have some of later priorities
    changes, looks = known.changes, claims.looks
    claimed = await router.claim(queue, requests, context.clock.now_ms())
    look = claims.last_look(queue, requests[0].priorities)
    if is_subscribed and look is not None and look.number > looks:
        known.found_at(look.shard_ids, changes)
    return claimed
