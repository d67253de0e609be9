"""Dequeue over several shards: count what is ready everywhere, plan, and claim everywhere at once.

An empty queue costs one round trip per shard, a full one two. What is planned can be gone when it is claimed; when all
of it was, the round is tried again, a bounded number of times. A shard that takes longer than half its deadline is left
out: a slow one holds up nobody, and breaks the order of priorities only by what it keeps to itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from pinlater.backends.base import ClaimRequest
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob
from pinlater.shards.in_time import ask_in_time
from pinlater.shards.member import Member, answers
from pinlater.shards.plan import plan_claims
from pinlater.shards.undo import GivingBack

_ROUNDS = 3
_Claims = list[list[DequeuedJob]]
_Part = list[tuple[int, ClaimRequest]]
"""What one shard is asked: requests, each with its place among the caller's."""


async def claim_over(
    members: Sequence[Member],
    queue: str,
    requests: Sequence[ClaimRequest],
    now_ms: int,
    giving_back: GivingBack,
    *,
    enforce_quota: bool = False,
) -> _Claims:
    """Jobs for each request, highest priority first over these shards. QueueNotFound if none has the queue."""
    priorities = requests[0].priorities
    limits = [request.limit for request in requests]
    shuffled = random.sample(list(members), len(members))
    for _ in range(max(_ROUNDS, len(shuffled)) if enforce_quota else _ROUNDS):
        outcomes = await ask_in_time(
            shuffled, lambda member: member.shard.count_ready(queue, priorities, sum(limits), now_ms), giving_back
        )
        if len(shuffled) < len(members) and all(isinstance(outcome, PinLaterError) for outcome in outcomes):
            break  # those left out did answer
        ready = answers(outcomes)
        answering = [
            member for member, outcome in zip(shuffled, outcomes, strict=True) if not isinstance(outcome, PinLaterError)
        ]
        plan = plan_claims(ready, limits)
        if plan.levels == 0:
            break
        asked = _split(requests, plan.shares, priorities[: plan.levels])
        parts = [(member, part) for member, part in zip(answering, asked, strict=True) if part]
        claims = await _claim(parts, queue, now_ms, giving_back, enforce_quota)
        if any(jobs for claimed in claims for jobs in claimed):
            return _merge(parts, claims, requests, queue, now_ms, giving_back)
        if enforce_quota:  # these may be at their shares, and would be planned for again
            asked_members = {member for member, _ in parts}
            shuffled = [member for member in shuffled if member not in asked_members]
            if not shuffled:
                break
    return [[] for _ in requests]


def _split(requests: Sequence[ClaimRequest], shares: list[list[int]], priorities: Sequence[int]) -> list[_Part]:
    """Per shard, its part of each request; bytes are shared out like the jobs."""
    totals = [sum(share[index] for share in shares) for index in range(len(requests))]
    return [
        [
            (
                index,
                replace(
                    request,
                    limit=share[index],
                    priorities=priorities,
                    max_bytes=request.max_bytes * share[index] // totals[index],
                ),
            )
            for index, request in enumerate(requests)
            if share[index]
        ]
        for share in shares
    ]


async def _claim(
    parts: list[tuple[Member, _Part]], queue: str, now_ms: int, giving_back: GivingBack, enforce_quota: bool
) -> list[_Claims]:
    """What each shard gave, nothing for one that failed or took too long."""
    asked = dict(parts)

    async def claim(member: Member) -> _Claims:
        """In as many calls as its large bodies take."""
        asking = [request for _, request in asked[member]]
        claims = await member.shard.claim(queue, asking, now_ms, enforce_quota=enforce_quota)
        while claims and len(claims) < len(asking):
            try:
                claims += await member.shard.claim(queue, asking[len(claims) :], now_ms, enforce_quota=enforce_quota)
            except PinLaterError:
                break
            except BaseException:  # whoever asked gets nothing
                undo(member, claims)
                raise
        return claims

    def undo(member: Member, claims: _Claims) -> None:
        giving_back.later(member.shard, queue, [job for jobs in claims for job in jobs], now_ms)

    outcomes = await ask_in_time(list(asked), claim, giving_back, undo)
    answers(outcomes)
    return [[] if isinstance(outcome, PinLaterError) else outcome for outcome in outcomes]


def _merge(
    parts: list[tuple[Member, _Part]],
    claims: list[_Claims],
    requests: Sequence[ClaimRequest],
    queue: str,
    now_ms: int,
    giving_back: GivingBack,
) -> _Claims:
    """Each request's jobs from all shards, in order; what passes its bytes goes back, the least urgent first."""
    merged: list[list[tuple[DequeuedJob, Member]]] = [[] for _ in requests]
    for (member, part), claimed in zip(parts, claims, strict=True):
        for (index, _), jobs in zip(part, claimed, strict=False):
            merged[index] += [(job, member) for job in jobs]
    answer: _Claims = []
    surplus: dict[Member, list[DequeuedJob]] = {}
    for pairs, request in zip(merged, requests, strict=True):
        pairs.sort(key=lambda pair: (pair[0].priority, pair[0].run_after_ms))
        kept = fitting([pair[0] for pair in pairs], request.max_bytes)
        for job, member in pairs[kept:]:
            surplus.setdefault(member, []).append(job)
        answer.append([pair[0] for pair in pairs[:kept]])
    for member, jobs in surplus.items():
        giving_back.later(member.shard, queue, jobs, now_ms)
    return answer


def fitting(jobs: Sequence[DequeuedJob], max_bytes: int) -> int:
    """How many of the first jobs have bodies that fit; at least one."""
    size = 0
    for index, job in enumerate(jobs):
        size += len(job.body)
        if size > max_bytes and index:
            return index
    return len(jobs)
