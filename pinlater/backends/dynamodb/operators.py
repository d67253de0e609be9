"""Changes by operators: cancel, reschedule, retry, delete, and the replay of dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import JobKey
from pinlater.backends.dynamodb.attempt_steps import original_of
from pinlater.backends.dynamodb.enqueue import check_body, copy_of
from pinlater.backends.dynamodb.items import LAST, ORDER, ItemKey
from pinlater.backends.dynamodb.key_items import KeysLeft, come_alive, leave, taken_by
from pinlater.backends.dynamodb.steps import Step
from pinlater.backends.dynamodb.store_parts import Store
from pinlater.backends.dynamodb.stored_job import (
    CANCELLED,
    FAILED,
    PENDING,
    REPLAYED,
    SHOWN,
    STATES_OF,
    WAITING,
    StoredJob,
)
from pinlater.backends.extended import RescheduleRequest
from pinlater.model import CancelOutcome, JobState, RescheduleOutcome, parse_descriptor


async def remove(step: Step, store: Store, job: StoredJob, now_ms: int) -> None:
    """Remove the job, its keys and its result. `prune` has a way of its own, which leaves windows of keys."""
    await leave(step, store, job, now_ms, KeysLeft.NOTHING)
    if not job.is_live:
        result = step.places.result(job.qid, job.id)
        if await step.item(result) is not None:
            step.remove(result)
    step.remove_job(job)


async def cancel(store: Store, queue: str, jobs: Sequence[JobKey], now_ms: int, by: str = "") -> list[CancelOutcome]:
    qid = await store.queues.find(queue)
    if qid is None:
        return [CancelOutcome.NOT_FOUND] * len(jobs)

    async def change(step: Step, job: StoredJob | None, position: int) -> CancelOutcome:
        if job is None:
            return CancelOutcome.NOT_FOUND
        shown = SHOWN[job.state]
        if shown is JobState.PENDING:
            await remove(step, store, job, now_ms)
            return CancelOutcome.CANCELLED
        if shown is not JobState.IN_PROGRESS:
            return CancelOutcome.ENDED
        if not by:
            return CancelOutcome.IN_PROGRESS
        job.stop_by = job.stop_by or by
        return CancelOutcome.REQUESTED

    return await store.per_job([store.places.job(qid, *job) for job in jobs], change)


async def reschedule(
    store: Store, queue: str, requests: Sequence[RescheduleRequest], now_ms: int
) -> list[RescheduleOutcome]:
    qid = await store.queues.find(queue)
    if qid is None:
        return [RescheduleOutcome.NOT_FOUND] * len(requests)
    for each in requests:
        check_body(each.body or b"")

    async def change(step: Step, job: StoredJob | None, position: int) -> RescheduleOutcome:
        request = requests[position]
        if job is None:
            return RescheduleOutcome.NOT_FOUND
        shown = SHOWN[job.state]
        if shown is JobState.IN_PROGRESS:
            return RescheduleOutcome.IN_PROGRESS
        if shown is not JobState.PENDING:
            return RescheduleOutcome.ENDED
        if request.only_if_updated_at_ms not in (None, job.updated_at_ms):
            return RescheduleOutcome.CHANGED
        job.updated_at_ms = now_ms
        if request.run_after_ms is not None:
            job.run_after_ms = request.run_after_ms
        if request.body is not None:
            step.replace_body(job, request.body)
        if request.attempts_allowed is not None:
            job.attempts_allowed = job.attempts_remaining = request.attempts_allowed
        return RescheduleOutcome.RESCHEDULED

    return await store.per_job([store.places.job(qid, each.priority, each.id) for each in requests], change)


# -- retry -------------------------------------------------------------------------------------------------------------


async def _retry(
    step: Step, store: Store, queue: str, job: StoredJob, attempts: int, run_after_ms: int | None, now_ms: int
) -> bool:
    if not job.is_letter and await taken_by(step, store, queue, job) is not None:
        return False
    if job.moved_to is not None and not await _letter_goes(step, store, job.moved_to, now_ms):
        return False
    job.keep_last_attempt()
    job.unclaim()
    job.attempts_remaining, job.crashes, job.finished_at_ms = attempts, 0, None
    job.run_after_ms, job.updated_at_ms = now_ms if run_after_ms is None else run_after_ms, now_ms
    job.moved_to, job.is_dead_letter_pending, job.stop_by = None, False, None
    await come_alive(step, store, queue, job, now_ms)
    return True


GOES = (PENDING, WAITING, FAILED, CANCELLED)
"""The states of a dead letter that can be sent back, and goes with a retry of its job."""


async def _letter_goes(step: Step, store: Store, descriptor: str, now_ms: int) -> bool:
    """Whether nothing holds up a retry of the job whose letter this is. A letter that is there is removed, then."""
    ref = parse_descriptor(descriptor)
    if ref is None or ref.shard != store.identity.shard_id:
        return False
    qid = await store.queues.find(ref.queue)
    letter = None if qid is None else await step.job(qid, ref.priority, ref.id)
    if letter is None:
        return True  # somebody deleted it
    if letter.state not in GOES or letter.moved_to is not None:
        return False
    await remove(step, store, letter, now_ms)
    return True


PAGE = 100


async def retry_failed(
    store: Store, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
) -> int:
    """The oldest of all partitions first. What cannot be retried is looked behind, a page at a time."""
    qid = await store.queues.known(queue)
    retried, low = 0, str(FAILED)
    while retried < limit:
        keys, low = await _oldest(store, qid, priority, FAILED, min(PAGE, limit - retried), low)
        if not keys:
            break

        async def change(step: Step, job: StoredJob | None, position: int) -> bool:
            if job is None or job.state != FAILED:
                return False
            return await _retry(step, store, queue, job, attempts, run_after_ms, now_ms)

        retried += sum(await store.per_job(keys, change))
    return retried


async def _oldest(
    store: Store, qid: str, priority: int, state: int, limit: int, low: str, high: str = ""
) -> tuple[list[ItemKey], str]:
    """The first jobs of a state by run_after, and from where on the next ones are."""
    found = []
    for pk in store.places.partitions(qid, priority):
        found += await store.table.first(pk, limit, low, high or f"{state}{LAST}", index=ORDER)
    found.sort(key=lambda entry: entry["o"])
    some = found[:limit]
    behind = f"{some[-1]['o']}\0" if some else low
    return [ItemKey(entry["pk"], entry["sk"]) for entry in some], behind


async def retry_listed(
    store: Store,
    queue: str,
    jobs: Sequence[JobKey],
    attempts: int | None,
    run_after_ms: int | None,
    now_ms: int,
    homes_version: str = "",
) -> int:
    qid = await store.queues.known(queue)
    await store.queues.guard_homes(store.steps.new(), homes_version)

    async def change(step: Step, job: StoredJob | None, position: int) -> bool:
        if job is None or job.state not in (FAILED, CANCELLED):
            return False
        if job.is_keyed:
            await store.queues.guard_homes(step, homes_version)
        return await _retry(step, store, queue, job, attempts or job.attempts_allowed, run_after_ms, now_ms)

    return sum(await store.per_job([store.places.job(qid, *job) for job in jobs], change))


# -- delete ------------------------------------------------------------------------------------------------------------


async def delete_jobs(store: Store, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
    qid = await store.queues.known(queue)
    removed = 0
    for each in STATES_OF[state]:
        low = str(each)
        while removed < limit:
            keys, low = await _oldest(store, qid, priority, each, min(PAGE, limit - removed), low)
            if not keys:
                break
            removed += await _delete(store, keys, state, now_ms)
    return removed


async def _delete(store: Store, keys: Sequence[ItemKey], state: JobState, now_ms: int) -> int:
    async def change(step: Step, job: StoredJob | None, position: int) -> bool:
        if job is None or job.state not in STATES_OF[state]:
            return False
        await remove(step, store, job, now_ms)
        return True

    return sum(await store.per_job(keys, change))


async def delete_listed(store: Store, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
    qid = await store.queues.known(queue)
    return await _delete(store, [store.places.job(qid, *job) for job in jobs], state, now_ms)


# -- replay ------------------------------------------------------------------------------------------------------------


async def replay(
    store: Store,
    queue: str,
    jobs: Sequence[JobKey],
    now_ms: int,
    attempts: int | None,
    homes_version: str = "",
    marks_originals: bool = True,
) -> list[str | None]:
    qid = await store.queues.known(queue)
    await store.queues.guard_homes(store.steps.new(), homes_version)
    ids = await store.ids.take(len(jobs), now_ms)

    async def change(step: Step, letter: StoredJob | None, position: int) -> str | None:
        if letter is None or letter.state not in GOES:
            return None
        origin = parse_descriptor(letter.origin or "")
        if letter.attempts_of_origin is None or origin is None:
            return None
        home = await store.queues.find(origin.queue)
        if home is None or await taken_by(step, store, queue, letter) is not None:
            return None
        await store.queues.guard(step, home, origin.queue)
        await store.queues.guard_homes(step, homes_version)
        allowed = letter.attempts_of_origin if attempts is None else attempts
        job = StoredJob(
            *(home, letter.priority, ids[position], letter.body, PENDING, now_ms, allowed, allowed),
            *(letter.custom_status, now_ms, now_ms),
            origin=store.of(queue, letter),
        )
        await remove(step, store, letter, now_ms)
        await copy_of(step, store, origin.queue, job, letter, now_ms)
        original = await original_of(step, store, letter, store.of(queue, letter)) if marks_originals else None
        if original is not None:
            original.state, original.updated_at_ms = REPLAYED, now_ms
            original.moved_to = store.of(origin.queue, job)
        return store.of(origin.queue, job)

    return await store.per_job([store.places.job(qid, *job) for job in jobs], change)
