"""The commands on jobs: enqueue, claim, ack, checkpoint; queries; and what operators do to jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pinlater.backends.acks import Acks
from pinlater.backends.aged_levels import AgedLevel, Level, split_levels, sum_levels
from pinlater.backends.base import (
    NO_RULES,
    SLICE_BYTES,
    STORED_STATES,
    UNDELIVERED_IN_A_ROW,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    EndRules,
    ExpiryCounts,
    ExpiryRequest,
    JobKey,
    LevelCounts,
    ScanPosition,
    ScanRequest,
    SilentClaim,
    StatsPage,
    StatsPosition,
    StoredState,
    UnrenewedClaim,
)
from pinlater.backends.group_store import MOST_COUNTED, ClearedGroups, GroupCounts, ReadyCounts
from pinlater.backends.redis.claim_ends import PLACEHOLDER, expiry_rules, expiry_templates
from pinlater.backends.redis.pubsub import PubSub, announcement
from pinlater.backends.redis.records import (
    ID,
    MAX_PRIORITY,
    Args,
    ack_args,
    bounds_of,
    checkpoint_args,
    claim_args,
    dequeued,
    described,
    descriptors,
    enqueue_args,
    key_args,
    level_args,
    level_bytes,
)
from pinlater.backends.redis.scripts import ScriptCaller, lowest_id
from pinlater.backends.redis.trail_records import trail_args, trails
from pinlater.backends.status_lines import expired_status, released_status
from pinlater.errors import HomesChanged
from pinlater.model import (
    CancelOutcome,
    ClaimAnswer,
    ClaimOutcome,
    DequeuedJob,
    Job,
    JobInfo,
    JobState,
    JobTrail,
)
from pinlater.model.body_reference import body_length

_ACK_OUTCOMES = {ord(str(int(outcome))): outcome for outcome in AckOutcome}
_CLAIM_OUTCOMES = tuple(ClaimOutcome)
_CANCEL_OUTCOMES = {ord(str(int(outcome))): outcome for outcome in CancelOutcome}


class JobCommands(PubSub):
    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        if not jobs:
            await self._store.call_queue("count_ready", queue, (queue, now_ms))
            return []
        args, priorities = enqueue_args(jobs, now_ms)
        is_deferred = self.defers(queue, jobs, now_ms)
        notification = b"" if is_deferred else announcement(self._store.publisher_id, jobs, now_ms)
        try:
            first = await self._store.call_queue("enqueue", queue, (queue, lowest_id(now_ms), notification, *args))
        except BaseException:
            if is_deferred:  # they may be stored
                self.publish(queue, len(jobs))
            raise
        stored = descriptors(queue, self.shard_id, priorities, int(first), len(jobs))
        if is_deferred:
            self.deferred.defer(queue, stored)
        return stored

    async def count_ready(self, queue: str, priorities: Sequence[Level], limit: int, now_ms: int) -> list[int]:
        wanted, last = split_levels(priorities)
        if last is not None:
            return await self._count_levels(queue, priorities, wanted, limit, now_ms)
        counts = await self._store.call_queue("count_ready", queue, (queue, now_ms, *wanted))
        ready = [min(count, limit) for count in counts[: len(priorities)]]
        return ready if len(counts) == len(ready) else ReadyCounts(ready, counts[len(priorities) :])

    async def _count_levels(
        self, queue: str, levels: Sequence[Level], priorities: Sequence[int], limit: int, now_ms: int
    ) -> list[int]:
        found: list[int] = await self._store.call_queue("count_levels", queue, (queue, now_ms, level_bytes(levels)))
        amounts, groups = found[: len(levels) * len(priorities)], found[len(levels) * len(priorities) :]

        def count(level: AgedLevel, priority: int) -> int:
            return amounts[(level.number - 1) * len(priorities) + priorities.index(priority)]

        return sum_levels(levels, count, limit, dict(zip(priorities, groups, strict=True)) if groups else None)

    async def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        times = await self._store.call("next_due", len(priorities), *priorities, *queues)
        return {
            queue: int(time_ms) if time_ms else None
            for queue, time_ms in zip(queues, times, strict=True)
            if time_ms is not None
        }

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        args = (queue, now_ms, *claim_args(requests, now_ms, enforce_quota))
        answer = await self._store.call_queue("claim", queue, args)
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
        args = (queue, now_ms, *_ack_args(acks, rules), *claim_args(requests, now_ms, enforce_quota))
        codes, answer = await self._store.call_queue("ack_and_claim", queue, args)
        return _ack_outcomes(codes), self._claimed(queue, requests, now_ms, answer)

    def _claimed(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, answer: Sequence[Any]
    ) -> list[list[DequeuedJob]]:
        shard, claims = self.shard_id, []
        for flat, request in zip(answer, requests, strict=False):
            expires_at_ms = now_ms + request.spare_ms + request.claim_timeout_ms
            claims.append(dequeued(flat, queue, shard, request.claim_descriptor, expires_at_ms))
            self.deferred.claimed(claims[-1])
        return claims

    async def claim_listed(
        self, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool = False
    ) -> list[ClaimAnswer]:
        bounds = bounds_of((request,), enforce_quota)
        args: Args = [queue, now_ms, bounds, now_ms + request.spare_ms, request.claim_timeout_ms]
        args += (int(request.is_default_timeout), request.claim_descriptor, min(request.max_bytes, SLICE_BYTES))
        answers: list[ClaimAnswer] = []
        found = await self._store.call_queue("claim_listed", queue, [*args, *key_args(jobs)])
        for job, each in zip(jobs, found, strict=False):
            if isinstance(each, int):
                answers.append(ClaimAnswer(_CLAIM_OUTCOMES[each]))
                continue
            run_after, value, changed, expiry, *group = each
            flat = (ID.pack(job.id), run_after, [value], [changed], (), *([group] if group else ()))
            (handed_out,) = dequeued(flat, queue, self.shard_id, request.claim_descriptor, int(expiry))
            answers.append(ClaimAnswer(ClaimOutcome.CLAIMED, handed_out))
        return answers

    async def peek(
        self, queue: str, priorities: Sequence[Level], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        flat = await self._store.call_queue("peek", queue, (queue, now_ms, limit, max_bytes, *level_args(priorities)))
        return dequeued(flat, queue, self.shard_id, "", 0)

    async def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        if not acks:
            return []
        return _ack_outcomes(await self._store.call_queue("ack", queue, (queue, now_ms, *_ack_args(acks, rules))))

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        codes = await self._store.call_queue("checkpoint", queue, checkpoint_args(queue, checkpoints, now_ms))
        return [code == ord("1") for code in codes]

    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        count: int = await self._store.call_queue("requeue", queue, [queue, now_ms, *key_args(claims)])
        return count

    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        words = expiry_templates(released_status(now_ms, PLACEHOLDER))
        args = [queue, now_ms, *expiry_rules(rules), *words, *key_args(claims)]
        return ExpiryCounts(*await self._store.call_queue("expire_disconnected", queue, args))

    async def expire_listed(
        self, queue: str, claims: Sequence[ExpiryRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        words = expiry_templates(expired_status(now_ms, PLACEHOLDER))
        args = [queue, now_ms, *expiry_rules(rules), *words, *key_args(claims)]
        return _ack_outcomes(await self._store.call_queue("expire_listed", queue, args))

    async def requeue_undelivered(self, queue: str, claims: Sequence[UnrenewedClaim], now_ms: int) -> int:
        args = [queue, now_ms, UNDELIVERED_IN_A_ROW, *key_args(claims)]
        count: int = await self._store.call_queue("requeue_undelivered", queue, args)
        return count

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int, by: str = "") -> list[CancelOutcome]:
        codes = await self._store.call_queue("cancel", queue, [queue, now_ms, by, *key_args(jobs)])
        return [_CANCEL_OUTCOMES[code] for code in codes]


def _ack_args(acks: Sequence[AckRequest], rules: EndRules) -> Args:
    return [
        int(rules.keep_succeeded),
        int(rules.keep_failed),
        int(rules.dead_letters),
        *ack_args(Acks.of(acks), rules.result_ttl_ms),
    ]


def _ack_outcomes(codes: bytes) -> list[AckOutcome]:
    outcomes = _ACK_OUTCOMES
    if codes.count(codes[:1]) == len(codes):
        return [outcomes[codes[0]]] * len(codes) if codes else []
    return [outcomes[code] for code in codes]


def _digits(states: Sequence[StoredState]) -> str:
    return "".join(str(int(state)) for state in states)


_STATES = {state: _digits(stored) for state, stored in STORED_STATES.items()}

_NO_BODIES, _BODIES_THAT_FIT, _FIRST_HOWEVER_LARGE = 0, 1, 2
_LEAST_KEYS = 16
"""The fewest jobs of a slice behind large values; it names twice as many as the last one could read."""


class Queries(ScriptCaller):
    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> list[JobInfo | None]:
        """A script reads a slice, and the next one goes on behind it."""
        found: list[JobInfo | None] = [None] * len(jobs)
        start, slice_jobs, room, is_first = 0, len(jobs), max_bytes, max_bytes > 0
        while start < len(jobs):
            options = (int(with_body), room, int(with_result), int(is_first))
            args = [*options, *key_args(jobs[start : start + slice_jobs])]
            examined, *flat = await self._store.call_queue("lookup", queue, args)
            for place, info in described(flat, queue, self.shard_id, with_body=with_body):
                found[start + place] = info
                is_first = is_first and info.body is None and info.result is None
                room = max(0, room - body_length(info.body or b"") - body_length(info.result or b""))
                if info.body_left_out or info.result_left_out:
                    room = 0
            start += examined
            slice_jobs = max(_LEAST_KEYS, 2 * examined)
        return found

    async def read_trails(self, queue: str, jobs: Sequence[JobKey]) -> list[JobTrail | None]:
        return trails(await self._store.call_queue("read_trails", queue, [queue, *key_args(jobs)]), len(jobs))

    async def put_trails(self, queue: str, given: Sequence[tuple[JobKey, JobTrail]]) -> list[bool]:
        codes = await self._store.call_queue("put_trails", queue, [queue, *trail_args(given)])
        return [code == ord("1") for code in codes]

    async def list_groups(
        self, queue: str, priorities: Sequence[int], first: str, limit: int, limited_at_ms: int | None = None
    ) -> dict[str, GroupCounts]:
        args: Args = [queue, first, limit, MOST_COUNTED, "" if limited_at_ms is None else limited_at_ms, *priorities]
        found: dict[str, GroupCounts] = {}
        for flat in await self._store.call_queue("list_groups", queue, args):
            for group, ready, oldest_ms, is_held in zip(*[iter(flat)] * 4, strict=True):
                name, counts = group.decode(), GroupCounts(ready, int(oldest_ms), ready * is_held)
                found[name] = found[name].plus(counts) if name in found else counts
        return {name: found[name] for name in sorted(found, key=str.encode)[:limit]}

    async def count_groups(
        self,
        queue: str,
        priorities: Sequence[int],
        groups: Sequence[str],
        most: int = MOST_COUNTED,
        limited_at_ms: int | None = None,
    ) -> dict[str, GroupCounts]:
        if not groups:
            return {}
        args: Args = [queue, most, "" if limited_at_ms is None else limited_at_ms, len(priorities)]
        found = await self._store.call_queue("count_groups", queue, [*args, *priorities, *groups])
        counts = zip(groups, found[::3], found[1::3], found[2::3], strict=True)
        return {group: GroupCounts(ready, int(oldest), limited) for group, ready, oldest, limited in counts if ready}

    async def waiting_groups(self, queue: str, priorities: Sequence[int]) -> dict[int, dict[str, int]]:
        found = await self._store.call_queue("waiting_groups", queue, [queue, *priorities])
        return {
            priority: dict(zip((name.decode() for name in names), weights, strict=True))
            for priority, (names, weights) in zip(priorities, found, strict=bool(found))
        }

    async def clear_groups(self, queue: str, position: str, limit: int, dry_run: bool) -> ClearedGroups:
        cursor, _, marked_at = (position or "0:").partition(":")
        args: Args = [queue, cursor, marked_at, limit, MAX_PRIORITY, int(dry_run)]
        jobs, *place = await self._store.call_queue("clear_groups", queue, args)
        behind, marked_at = (text.decode() for text in place)
        return ClearedGroups(jobs, f"{behind}:{marked_at}" if behind else "")

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        low, high = _run_after_range(future, now_ms)
        count: int = await self._store.call_queue("count", queue, (queue, _STATES[state], low, high, *priorities))
        return count

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        """A script reads a slice, and the next one goes on behind its last job."""
        found: list[JobInfo] = []
        bodies = _FIRST_HOWEVER_LARGE if request.with_body else _NO_BODIES
        after, limit, room = request.after, request.limit, request.max_bytes
        states = _digits(request.states)
        while True:
            low, high, *place = _behind(after, request.future, now_ms, request.tag)
            args = (queue, states, low, high, limit, *place, bodies, room, request.tag, *request.priorities)
            goes_on, *flat = await self._store.call_queue("scan", queue, args)
            page = [info for _, info in described(flat, queue, self.shard_id)]
            found += page
            left = request.limit - len(found)
            is_over = not goes_on if request.tag else not page or not (goes_on or len(page) == limit)
            if left <= 0 or is_over:
                return found
            room -= sum([body_length(info.body or b"") for info in page])
            if bodies:
                bodies = _BODIES_THAT_FIT
            if request.tag:
                after = ScanPosition(0, ID.unpack(goes_on)[0])
            else:
                after = ScanPosition(page[-1].run_after_ms, int(page[-1].descriptor.rpartition(":")[2]))
            limit = min(left, max(_LEAST_KEYS, 2 * len(page)))

    async def stats(
        self,
        queue: str,
        priorities: Sequence[int],
        now_ms: int,
        after: StatsPosition | None,
        limit: int,
        states: Collection[StoredState] = tuple(StoredState),
    ) -> StatsPage:
        """Redis keeps counts, so everything is in one page, and of one moment."""
        parts = iter(await self._store.call_queue("stats", queue, (queue, now_ms, *priorities)))
        levels = {}
        for priority, *counts in zip(priorities, *[parts] * 10, strict=True):
            ready, scheduled, in_progress, succeeded, failed, oldest, *apart = counts
            oldest_ms = int(oldest) if oldest else None
            level = LevelCounts(ready, scheduled, in_progress, succeeded, failed, oldest_ms, *apart)
            levels[priority] = level.only(states)
        return StatsPage(levels, None)


def _behind(after: ScanPosition | None, future: bool, now_ms: int, tag: str) -> tuple[int | str, ...]:
    """The run_after of what is scanned, lowest and highest, and the place in the order to go on from."""
    low, high = _run_after_range(future, now_ms)
    place: tuple[int | str, int | str] = ("", "")
    if after is not None and tag:
        place = (0, after.id)
    elif after is not None:
        if future or after.run_after_ms <= now_ms:
            high = f"({after.run_after_ms}"
        if (after.run_after_ms > now_ms) is future:
            place = (after.run_after_ms, after.id)
    return (low, high, *place)


def _run_after_range(future: bool, now_ms: int) -> tuple[str, str]:
    return (f"({now_ms}", "+inf") if future else ("-inf", f"{now_ms}")


def _unless_changed(answer: Any) -> Any:
    if answer == -1:
        raise HomesChanged.of_store()
    return answer


class AdminCommands(ScriptCaller):
    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        run_after_ms = now_ms if run_after_ms is None else run_after_ms
        args = (queue, priority, attempts, run_after_ms, limit, now_ms)
        count: int = await self._store.call_queue("retry_failed", queue, args)
        return count

    async def retry_listed(
        self,
        queue: str,
        jobs: Sequence[JobKey],
        attempts: int | None,
        run_after_ms: int | None,
        now_ms: int,
        homes_version: str = "",
    ) -> int:
        run_after_ms = now_ms if run_after_ms is None else run_after_ms
        args = [queue, "" if attempts is None else attempts, run_after_ms, now_ms, homes_version, *key_args(jobs)]
        count: int = _unless_changed(await self._store.call_queue("retry_listed", queue, args))
        return count

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        count: int = await self._store.call_queue(
            "delete_jobs", queue, (queue, _STATES[state], priority, limit, now_ms)
        )
        return count

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        count: int = await self._store.call_queue(
            "delete_listed", queue, [queue, _STATES[state], now_ms, *key_args(jobs)]
        )
        return count

    async def replay(
        self,
        queue: str,
        jobs: Sequence[JobKey],
        now_ms: int,
        attempts: int | None,
        homes_version: str = "",
        marks_originals: bool = True,
    ) -> list[str | None]:
        allowed = "" if attempts is None else attempts
        args: Args = [queue, now_ms, lowest_id(now_ms), self.shard_id, allowed, homes_version, int(marks_originals)]
        args += key_args(jobs)
        answer = _unless_changed(await self._store.call_queue("replay", queue, args))
        return [descriptor.decode() or None for descriptor in answer]

    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        args: Args = [queue, now_ms]
        for claim, descriptor in moved:
            args += (claim.priority, ID.pack(claim.id), claim.claim_descriptor, descriptor)
        return [code == ord("1") for code in await self._store.call_queue("mark_moved", queue, args)]
