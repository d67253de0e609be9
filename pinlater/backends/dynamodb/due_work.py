"""Maintenance, one bounded step each: claims and jobs that expire, dead letters, and what is to be pruned.

The agenda says which partitions have something due; only those are looked at. Two servers that do it at once look at
the same jobs, and one of them changes each.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from pinlater.backends.base import (
    AckOutcome,
    DeadLetterTarget,
    EndRules,
    ExpiredClaim,
    ExpiryCounts,
    PerQueue,
    Retention,
)
from pinlater.backends.dynamodb.agenda import (
    CLAIMS,
    FAILED_JOBS,
    LEFT_MS,
    LETTERS,
    SPAN_MS,
    SUCCEEDED_JOBS,
    WHERE,
    AgendaMark,
    agenda_of,
)
from pinlater.backends.dynamodb.attempt_steps import counted, end, expire
from pinlater.backends.dynamodb.enqueue import show_keys
from pinlater.backends.dynamodb.items import DUE, DUE_KEY, LAST, Item, ItemKey, at, qid_of
from pinlater.backends.dynamodb.key_items import KeysLeft, leave
from pinlater.backends.dynamodb.operators import remove
from pinlater.backends.dynamodb.queue_records import GONE, LATE_MS, queue_key, remove_tombstones
from pinlater.backends.dynamodb.steps import Step
from pinlater.backends.dynamodb.store_parts import Store, in_turns
from pinlater.backends.dynamodb.stored_job import FAILED, IN_PROGRESS, PENDING, WAITING, StoredJob
from pinlater.backends.status_lines import dead_letter_status, expired_status
from pinlater.model import MAX_STATUS_CHARS
from pinlater.model.status_text import job_expired_status

LEFTOVERS = ""
GONE_AT_ONCE = 100


async def _due_in(store: Store, kind: str, pk: str, before_ms: int, limit: int) -> list[ItemKey]:
    """The jobs of a kind in a partition whose time is below that."""
    keys: list[ItemKey] = []
    for index, begin in WHERE[kind]:
        entries = await store.table.first(pk, limit - len(keys), begin, f"{begin}{at(before_ms)}", index=index)
        keys += [ItemKey(entry["pk"], entry["sk"]) for entry in entries]
        if len(keys) >= limit:
            break
    return keys


# -- claims ------------------------------------------------------------------------------------------------------------


async def expire_claims(store: Store, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
    marks = await store.agenda.due(CLAIMS, now_ms)
    names = await store.queues.names_of({qid_of(mark.partition) for mark in marks})
    counts: dict[str, ExpiryCounts] = {}
    for pk, of_partition in _by_partition(marks).items():
        if limit <= 0:
            break
        queue = names.get(qid_of(pk))
        if queue is None:
            await store.agenda.drop(mark for mark in of_partition if store.agenda.is_over(mark, now_ms))
            continue
        if rules.get(queue).lists_expired:
            continue
        keys = await _due_in(store, CLAIMS, pk, now_ms, limit)

        async def change(step: Step, job: StoredJob | None, position: int, queue: str = queue) -> AckOutcome:
            if job is None or job.state != IN_PROGRESS or (job.expires_at_ms or 0) >= now_ms:
                return AckOutcome.IGNORED
            return await expire(step, store, job, now_ms, rules.get(queue), expired_status)

        outcomes = await store.per_job(keys, change)
        if any(outcomes):
            before = counts.get(queue, ExpiryCounts(0, 0))
            counts[queue] = ExpiryCounts(*(sum(each) for each in zip(before, counted(outcomes), strict=True)))
        limit -= len(outcomes) - outcomes.count(AckOutcome.IGNORED)
        if not keys:
            await store.agenda.drop(mark for mark in of_partition if store.agenda.is_over(mark, now_ms))
    return counts


def _by_partition(marks: Sequence[AgendaMark]) -> dict[str, list[AgendaMark]]:
    found: dict[str, list[AgendaMark]] = defaultdict(list)
    for mark in marks:
        found[mark.partition].append(mark)
    return found


async def expired_claims(store: Store, queues: Sequence[str], limit: int, now_ms: int) -> dict[str, list[ExpiredClaim]]:
    qids = {qid: queue for queue, qid in (await store.queues.find_all(queues)).items()}
    due: dict[str, dict[str, None]] = defaultdict(dict)
    for mark in await store.agenda.due(CLAIMS, now_ms):
        if qid_of(mark.partition) in qids:
            due[qid_of(mark.partition)][mark.partition] = None
    found: dict[str, list[ExpiredClaim]] = {}
    for qid, partitions in due.items():
        keys = [key for pk in partitions for key in await _due_in(store, CLAIMS, pk, now_ms, limit)]
        jobs = [StoredJob.of_item(item) for item in (await store.table.read_all(keys)).values()]
        jobs = [job for job in jobs if job.state == IN_PROGRESS and (job.expires_at_ms or 0) < now_ms]
        jobs.sort(key=lambda job: (job.expires_at_ms or 0, job.id))
        claims = [
            ExpiredClaim(
                *(job.priority, job.id, job.claim or "", job.expires_at_ms or 0),
                *(job.attempts_allowed, job.attempts_remaining, job.crashes, bool(job.stop_by)),
            )
            for job in jobs[:limit]
        ]
        if claims:
            found[qids[qid]] = claims
        limit -= len(claims)
        if limit <= 0:
            break
    return found


# -- jobs whose time is over -------------------------------------------------------------------------------------------


async def _first_due(store: Store, begin: str, now_ms: int, limit: int) -> list[Item]:
    """The items beside jobs, of one kind, whose time has come, the first to come first."""
    found = await asyncio.gather(
        *[
            store.table.first(pk, limit, begin, f"{begin}{at(now_ms)}{LAST}", index=DUE)
            for pk in store.places.all_of("k")
        ]
    )
    return sorted((entry for entries in found for entry in entries), key=lambda entry: str(entry[DUE_KEY]))[:limit]


async def expire_jobs(store: Store, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, int]:
    entries = await _first_due(store, "x", now_ms, limit)
    items = await store.table.read_all([ItemKey(entry["pk"], entry["sk"]) for entry in entries])
    whose = {store.places.job(*item["job"]): item["job"][0] for item in items.values()}
    names = await store.queues.names_of(set(whose.values()))
    keys = [key for key, qid in whose.items() if qid in names]

    async def change(step: Step, job: StoredJob | None, position: int) -> bool:
        if job is None or job.state not in (PENDING, WAITING) or not job.is_over(now_ms):
            return False
        job.append_status(job_expired_status(now_ms, job.over_at_ms or 0))
        job.updated_at_ms, job.attempts_remaining = now_ms, 0
        job.is_dead_letter_pending = rules.get(names[job.qid]).dead_letters
        await end(step, store, job, FAILED, now_ms)
        return True

    ended = await store.per_job(keys, change)
    return Counter(names[whose[key]] for key, is_done in zip(keys, ended, strict=True) if is_done)


# -- dead letters ------------------------------------------------------------------------------------------------------


async def dead_letter(
    store: Store, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]
) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    marks = await store.agenda.due(LETTERS, now_ms) if targets else []
    names = await store.queues.names_of({qid_of(mark.partition) for mark in marks})
    homes = await store.queues.find_all(target.queue for target in targets.values()) if marks else {}
    await store.agenda.drop(
        mark for mark in marks if qid_of(mark.partition) not in names and store.agenda.is_over(mark, now_ms)
    )
    for qid, queue in names.items():
        target = targets.get(queue)
        home = None if target is None else homes.get(target.queue)
        if target is None or home is None or limit <= 0:
            continue
        of_queue = [mark for mark in marks if qid_of(mark.partition) == qid]
        due = [await _due_in(store, LETTERS, pk, 10**15, limit) for pk in _by_partition(of_queue)]
        keys = sorted((key for some in due for key in some), key=lambda key: key.sk)[:limit]
        ids = await store.ids.take(len(keys), now_ms)

        async def change(
            step: Step,
            job: StoredJob | None,
            position: int,
            queue: str = queue,
            target: DeadLetterTarget = target,
            home: str = home,
            ids: Sequence[int] = ids,
        ) -> bool:
            if job is None or not job.is_dead_letter_pending:
                return False
            _copy_letter(step, store, queue, job, target, home, ids[position], now_ms)
            return True

        copied = sum(await store.per_job(keys, change))
        if copied:
            counts[queue] += copied
        limit -= copied
        if not keys:
            await store.agenda.drop(mark for mark in of_queue if store.agenda.is_over(mark, now_ms))
    return counts


def _copy_letter(
    step: Step,
    store: Store,
    queue: str,
    job: StoredJob,
    target: DeadLetterTarget,
    home: str,
    letter_id: int,
    now_ms: int,
) -> None:
    origin = store.of(queue, job)
    line = dead_letter_status(origin, job.created_at_ms, job.attempts_allowed, job.crashes, now_ms)
    letter = StoredJob(
        *(home, job.priority, letter_id, job.body, PENDING, now_ms),
        *(target.attempts_allowed, target.attempts_allowed, (line + job.custom_status)[:MAX_STATUS_CHARS]),
        *(now_ms, now_ms),
        origin=origin,
        attempts_of_origin=job.attempts_allowed,
    )
    show_keys(letter, job)
    step.add_job(letter)
    job.is_dead_letter_pending, job.updated_at_ms = False, now_ms
    job.moved_to = store.of(target.queue, letter)


# -- pruning -----------------------------------------------------------------------------------------------------------


class Pruner:
    """Remembers of each queue until when nothing of it can be due, so that most rounds ask nothing."""

    CHECK_AGAIN_MS = 10_000

    def __init__(self, store: Store) -> None:
        self._store = store
        self._quiet: dict[tuple[str, str, int], tuple[int, int]] = {}

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], tombstones_before: str
    ) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        await self._prune_ended(counts, limit, now_ms, retention)
        leftovers = await self._prune_leftovers(limit, now_ms)
        if leftovers:
            counts[LEFTOVERS] = leftovers
        await self._prune_entries(limit, now_ms)
        if tombstones_before:
            await remove_tombstones(self._store.steps, tombstones_before, limit)
        return counts

    async def _prune_ended(self, counts: Counter[str], limit: int, now_ms: int, retention: PerQueue[Retention]) -> None:
        """The partition that has been overdue for longest goes first."""
        store = self._store
        qids = await self._live_queues()
        overdue: list[tuple[int, AgendaMark, int, str]] = []

        async def check(queue: str, qid: str, kind: str, ttl_ms: int) -> None:
            if self._is_quiet(qid, kind, ttl_ms, now_ms):
                return
            marks = await store.agenda.due(kind, now_ms - ttl_ms, qid, limit=limit) if now_ms >= ttl_ms else []
            overdue.extend((mark.end_ms + ttl_ms, mark, ttl_ms, queue) for mark in marks)
            span_ms = SPAN_MS[kind]
            if not marks and now_ms >= ttl_ms >= span_ms:  # what ends from now on is in a later span
                next_ms = ((now_ms - ttl_ms) // span_ms + 1) * span_ms + ttl_ms
                self._quiet[qid, kind, ttl_ms] = (now_ms, min(next_ms, now_ms + self.CHECK_AGAIN_MS))

        checks = []
        for queue, qid in qids.items():
            kept = retention.get(queue)
            checks.append(partial(check, queue, qid, SUCCEEDED_JOBS, kept.succeeded_ms))
            checks.append(partial(check, queue, qid, FAILED_JOBS, kept.failed_ms))
        await in_turns(checks)
        seen: set[tuple[str, str]] = set()
        for _, mark, ttl_ms, queue in sorted(overdue):
            if limit <= 0:
                break
            if (mark.kind, mark.partition) in seen:
                continue
            seen.add((mark.kind, mark.partition))
            keys = await _due_in(store, mark.kind, mark.partition, now_ms - ttl_ms, limit)
            removed = await self._remove_ended(keys, now_ms, ttl_ms)
            if removed:
                counts[queue] += removed
            limit -= removed
            if not keys:
                of_partition = [each for _, each, _, _ in overdue if each[:2] == mark[:2]]
                await store.agenda.drop(each for each in of_partition if each.end_ms + ttl_ms + LEFT_MS < now_ms)

    def _is_quiet(self, qid: str, kind: str, ttl_ms: int, now_ms: int) -> bool:
        checked_ms, until_ms = self._quiet.get((qid, kind, ttl_ms), (0, 0))
        return checked_ms <= now_ms < until_ms

    async def _live_queues(self) -> dict[str, str]:
        names = []
        async for items in self._store.table.pages("C", attributes=("sk",)):
            names += [item["sk"] for item in items if "@" not in item["sk"]]
        return await self._store.queues.find_all(names)

    async def _remove_ended(self, keys: Sequence[ItemKey], now_ms: int, ttl_ms: int) -> int:
        store = self._store

        async def change(step: Step, job: StoredJob | None, position: int) -> bool:
            if job is None or job.is_live or job.is_dead_letter_pending:
                return False
            if (job.finished_at_ms or 0) + ttl_ms >= now_ms:
                return False
            await leave(step, store, job, now_ms, KeysLeft.WINDOWS)
            step.remove_job(job)
            return True

        return sum(await store.per_job(keys, change))

    async def _prune_entries(self, limit: int, now_ms: int) -> None:
        """Keys and results whose time has passed."""
        store = self._store
        entries = [entry for begin in ("k", "r") for entry in await _first_due(store, begin, now_ms, limit)]

        async def drop(key: ItemKey, due: str) -> None:
            async def work(step: Step) -> None:
                item = await step.item(key)
                if item is not None and item.get(DUE_KEY) == due:
                    step.remove(key)

            await store.steps.run(work)

        await in_turns([partial(drop, ItemKey(entry["pk"], entry["sk"]), entry[DUE_KEY]) for entry in entries])

    # -- what is left of deleted queues ----------------------------------------------------------------------------

    async def _prune_leftovers(self, limit: int, now_ms: int) -> int:
        """A queue that is empty is looked at once more after LATE_MS, and then forgotten."""
        removed = 0
        for entry in await self._store.table.first(GONE, GONE_AT_ONCE, at(0), at(now_ms), index=DUE):
            if removed >= limit:
                break
            removed += await self._prune_queue(entry["sk"], limit - removed, now_ms)
        return removed

    async def _prune_queue(self, qid: str, limit: int, now_ms: int) -> int:
        store = self._store
        heads = 0
        while heads < limit and (blocking := await self._blocking(qid, limit - heads)):
            heads += await self._remove_leftovers(blocking, now_ms)
        if heads >= limit:
            return heads
        limit -= heads
        priorities = await store.queues.priorities(qid)
        partitions = [pk for priority in priorities for pk in store.places.partitions(qid, priority)]
        found = await asyncio.gather(*[self._keys_in(pk, "", limit) for pk in partitions])
        keys = [key for some in found for key in some][:limit]
        removed = await self._remove_leftovers(keys, now_ms)
        if len(keys) < limit and await self._drop_entries(qid, limit):
            await store.steps.run(partial(self._forget, qid, now_ms))
        return heads + removed

    async def _blocking(self, qid: str, limit: int) -> list[ItemKey]:
        """Jobs of the queue for which others wait."""
        store, found = self._store, list[ItemKey]()
        for pk in store.places.all_of("c"):
            async for entries in store.table.pages(pk, at(0), LAST, index=DUE, attributes=("pk", "sk")):
                chains = await store.table.read_all([ItemKey(entry["pk"], entry["sk"]) for entry in entries])
                first = [chain["first"] for chain in chains.values()]
                found += [
                    store.places.job(owner, priority, job_id) for owner, _, priority, job_id in first if owner == qid
                ]
                if len(found) >= limit:
                    return found[:limit]
        return found

    async def _remove_leftovers(self, keys: Sequence[ItemKey], now_ms: int) -> int:
        store = self._store

        async def change(step: Step, job: StoredJob | None, position: int) -> bool:
            if job is not None:
                await remove(step, store, job, now_ms)
            return job is not None

        return sum(await store.per_job(keys, change))

    async def _drop_entries(self, qid: str, limit: int) -> bool:
        """Remove up to `limit` items of the queue's keys, results and agenda; whether that was all."""
        store, keys = self._store, list[ItemKey]()
        where = [(pk, f"{qid}#") for pk in store.places.all_of("k")]
        where += [(agenda_of(kind, qid), "0") for kind in (SUCCEEDED_JOBS, FAILED_JOBS)]
        for found in await asyncio.gather(*[self._keys_in(*place, limit) for place in where]):
            keys += found

        async def drop(key: ItemKey) -> None:
            async def work(step: Step) -> None:
                if await step.item(key) is not None:
                    step.remove(key)

            await store.steps.run(work)

        await in_turns([partial(drop, key) for key in keys[:limit]])
        return len(keys) < limit

    async def _keys_in(self, pk: str, begin: str, limit: int) -> list[ItemKey]:
        items = await self._store.table.first(pk, limit, begin, f"{begin}{LAST}", attributes=("pk", "sk"))
        return [ItemKey(item["pk"], item["sk"]) for item in items]

    async def _forget(self, qid: str, now_ms: int, step: Step) -> None:
        key = ItemKey(GONE, qid)
        await step.read([key, queue_key(qid)])
        gone = await step.item(key)
        if gone is None:
            return
        if gone["since"] + LATE_MS > now_ms:
            gone[DUE_KEY] = at(gone["since"] + LATE_MS)
            return
        step.remove(key)
        if await step.item(queue_key(qid)) is not None:
            step.remove(queue_key(qid))
