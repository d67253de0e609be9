"""The course and the end of attempts: acks, checkpoints, heartbeats, requeues, and claims that expire.

Each job is changed by a step of its own, so each is whole by itself; the steps of a call go at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    ExpiryRequest,
    JobKey,
    SilentClaim,
    UnrenewedClaim,
)
from pinlater.backends.dynamodb.claims import claim, claim_in_step, room_within_quota, spend_quota
from pinlater.backends.dynamodb.enqueue import check_body
from pinlater.backends.dynamodb.items import DUE_KEY, Item, ItemKey, at
from pinlater.backends.dynamodb.key_items import KeysLeft, dedupe_key_of, leave, successor_of
from pinlater.backends.dynamodb.steps import Step, TooLarge
from pinlater.backends.dynamodb.store_parts import Store
from pinlater.backends.dynamodb.stored_job import (
    CANCELLED,
    FAILED,
    IN_PROGRESS,
    MOST_BYTES_WITH_LOG,
    SUCCEEDED,
    StoredJob,
)
from pinlater.backends.extended import HeartbeatRequest
from pinlater.backends.packed_trails import ENDS_JOB, attempt_of, packed_attempts, packed_lines, with_lines
from pinlater.backends.status_lines import crash_budget_status, expired_status, released_status
from pinlater.errors import OutcomeUnknown, PinLaterError, StoreConflict
from pinlater.model import (
    MAX_TIME_MS,
    AttemptOutcome,
    DequeuedJob,
    HeartbeatAnswer,
    HeartbeatOutcome,
    JobTrail,
    claim_source,
    parse_descriptor,
)
from pinlater.model.body_reference import BodyReference, body_length
from pinlater.model.status_text import prepend_status

StatusLine = Callable[[int, int], str]
JOBS_PER_STEP = 80
"""Acks and claims of one step; one with more is carried out in two, and not as a whole."""


# -- how an attempt ends -----------------------------------------------------------------------------------------------


async def end(step: Step, store: Store, job: StoredJob, state: int, now_ms: int, keep: bool = True) -> None:
    await leave(step, store, job, now_ms, KeysLeft.JOB if keep else KeysLeft.WINDOWS)
    job.finish(state, now_ms)
    if not keep:
        step.remove_job(job)


async def stopped(step: Step, store: Store, job: StoredJob, now_ms: int, keep: bool = True, *, goes_on: bool) -> bool:
    """Whether the job was asked to stop, or would go back to PENDING (`goes_on`) while its successor waits: then it
    ends as cancelled, instead of what else would become of it.
    """
    if job.stop_by is None:
        return False
    if not job.stop_by and not (goes_on and await _has_successor(step, job)):
        return False
    job.attempts_remaining = 0
    await end(step, store, job, CANCELLED, now_ms, keep)
    return True


async def _has_successor(step: Step, job: StoredJob) -> bool:
    return bool(job.dedupe_key) and await successor_of(step, await step.item(dedupe_key_of(step, job))) is not None


async def expire(
    step: Step, store: Store, job: StoredJob, now_ms: int, rules: EndRules, line: StatusLine, retry_delay_ms: int = 0
) -> AckOutcome:
    """What becomes of a claim that expired or was released."""
    job.crashes += 1
    used_up = 0 < rules.crash_budget <= job.crashes
    remaining = 0 if used_up else job.attempts_remaining - 1
    job.append_status(line(now_ms, remaining) + (crash_budget_status(job.crashes) if used_up else ""))
    job.updated_at_ms = now_ms
    if await stopped(step, store, job, now_ms, goes_on=remaining > 0):
        return AckOutcome.CANCELLED
    job.attempts_remaining = remaining
    job.keep_attempt(now_ms, AttemptOutcome.EXPIRED + (0 if remaining > 0 else ENDS_JOB))
    if remaining > 0:
        job.unclaim()
        job.run_after_ms = min(MAX_TIME_MS, now_ms + retry_delay_ms)
        return AckOutcome.RETRIED
    job.is_dead_letter_pending = rules.dead_letters
    await end(step, store, job, FAILED, now_ms)
    return AckOutcome.FAILED


def counted(outcomes: Sequence[AckOutcome]) -> ExpiryCounts:
    return ExpiryCounts(
        outcomes.count(AckOutcome.RETRIED), outcomes.count(AckOutcome.FAILED), outcomes.count(AckOutcome.CANCELLED)
    )


async def back_to_pending(step: Step, store: Store, job: StoredJob, now_ms: int) -> None:
    """No attempt is taken; what is to stop ends instead."""
    job.updated_at_ms = now_ms
    if not await stopped(step, store, job, now_ms, goes_on=True):
        job.unclaim()


# -- acks --------------------------------------------------------------------------------------------------------------


async def ack(
    store: Store, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
) -> list[AckOutcome]:
    qid = await store.queues.find(queue)
    if qid is None:
        return [AckOutcome.IGNORED] * len(acks)
    _check_results(acks)

    async def change(step: Step, job: StoredJob | None, position: int) -> AckOutcome:
        return await ack_job(step, store, job, acks[position], now_ms, rules)

    return await store.per_job([store.places.job(qid, each.priority, each.id) for each in acks], change)


def _check_results(acks: Sequence[AckRequest]) -> None:
    """BodyTooLarge before anything is done."""
    for each in acks:
        check_body(each.result or b"")


async def ack_job(
    step: Step, store: Store, job: StoredJob | None, request: AckRequest, now_ms: int, rules: EndRules
) -> AckOutcome:
    if job is None or job.state != IN_PROGRESS or request.claim_descriptor not in ("", job.claim):
        return AckOutcome.IGNORED
    job.append_status(request.append_status)
    job.updated_at_ms = now_ms
    if request.succeeded:
        if request.result is not None:
            await _keep_result(step, job, request.result, now_ms, rules)
        await end(step, store, job, SUCCEEDED, now_ms, rules.keep_succeeded)
        return AckOutcome.SUCCEEDED
    remaining = 0 if request.permanent else job.attempts_remaining - 1
    if await stopped(step, store, job, now_ms, rules.keep_failed, goes_on=remaining > 0):
        return AckOutcome.CANCELLED
    job.attempts_remaining = remaining
    if job.attempts_remaining > 0:
        job.keep_attempt(now_ms, AttemptOutcome.FAILED)
        job.unclaim()
        job.run_after_ms = min(MAX_TIME_MS, now_ms + request.retry_delay_ms)
        return AckOutcome.RETRIED
    job.is_dead_letter_pending = rules.dead_letters
    await end(step, store, job, FAILED, now_ms, rules.keep_failed or rules.dead_letters)
    return AckOutcome.FAILED


async def _keep_result(step: Step, job: StoredJob, result: bytes, now_ms: int, rules: EndRules) -> None:
    expires_at_ms = min(now_ms + rules.result_ttl_ms, MAX_TIME_MS)
    key = step.places.result(job.qid, job.id)
    await step.item(key)
    item: Item = {
        **{"pri": job.priority, "ar": job.attempts_remaining, "fa": now_ms, "ca": job.created_at_ms},
        **{"b": bytes(result), "n": body_length(result), DUE_KEY: f"r{at(expires_at_ms)}"},
    }
    if isinstance(result, BodyReference):
        item["t"] = True
    step.add(key, item)


async def ack_and_claim(
    store: Store,
    queue: str,
    acks: Sequence[AckRequest],
    requests: Sequence[ClaimRequest],
    now_ms: int,
    rules: EndRules = NO_RULES,
    *,
    enforce_quota: bool = False,
) -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
    """One step, as far as it holds them; where others are quicker again and again, and beyond that, two calls: then a
    claim that is not carried out leaves the outcome unknown.
    """
    _check_results(acks)
    await store.queues.known(queue)
    if len(acks) + sum(request.limit for request in requests) <= JOBS_PER_STEP:

        async def both(step: Step) -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
            qid = await store.queues.known(queue)
            keys = [store.places.job(qid, each.priority, each.id) for each in acks]
            await step.read(keys)
            outcomes = [
                await ack_job(step, store, step.known_job(key), each, now_ms, rules)
                for key, each in zip(keys, acks, strict=True)
            ]
            room = await room_within_quota(step, store, qid) if enforce_quota else JOBS_PER_STEP
            taken = await claim_in_step(step, store, queue, qid, requests, now_ms, room)
            if enforce_quota and any(taken):
                spend_quota(step, qid)
            return outcomes, taken

        try:
            return await store.run(both, tries=30 if enforce_quota else 6)
        except (StoreConflict, TooLarge):
            if enforce_quota and len(acks) + 1 < JOBS_PER_STEP:
                raise
    outcomes = await ack(store, queue, acks, now_ms, rules)
    try:
        return outcomes, await claim(store, queue, requests, now_ms, enforce_quota=enforce_quota)
    except PinLaterError as error:
        if all(outcome is AckOutcome.IGNORED for outcome in outcomes):
            raise
        raise OutcomeUnknown(f"the acks are carried out, the claim is not: {error.message}") from error


# -- claims that go on ---------------------------------------------------------------------------------------------


async def checkpoint(store: Store, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
    qid = await store.queues.find(queue)
    if qid is None:
        return [False] * len(checkpoints)
    for each in checkpoints:
        check_body(each.new_body or b"")

    async def change(step: Step, job: StoredJob | None, position: int) -> bool:
        return await _checkpoint(step, store, job, checkpoints[position], now_ms)

    return await store.per_job([store.places.job(qid, each.priority, each.id) for each in checkpoints], change)


async def _checkpoint(step: Step, store: Store, job: StoredJob | None, request: CheckpointRequest, now_ms: int) -> bool:
    if job is None or job.claim is None or job.state != IN_PROGRESS:
        return False
    if request.claim_descriptor:
        if job.claim != request.claim_descriptor:
            return False
    elif claim_source(job.claim) != request.source:
        return False
    job.run_after_ms = now_ms if request.run_after_ms is None else request.run_after_ms
    job.renew(now_ms, request.expiry_ms(job.timeout_ms or 0, now_ms))
    job.custom_status = prepend_status(job.custom_status, request.prepend_status)
    if request.new_body is not None:
        step.replace_body(job, request.new_body)
    if request.attempts_allowed is not None:
        job.attempts_allowed = job.attempts_remaining = request.attempts_allowed
    if request.move_to_pending:
        await back_to_pending(step, store, job, now_ms)
    return True


async def heartbeat(
    store: Store, queue: str, heartbeats: Sequence[HeartbeatRequest], now_ms: int
) -> list[HeartbeatAnswer]:
    qid = await store.queues.find(queue)
    if qid is None:
        return [HeartbeatAnswer(HeartbeatOutcome.LOST)] * len(heartbeats)

    async def change(step: Step, job: StoredJob | None, position: int) -> HeartbeatAnswer:
        request = heartbeats[position]
        if job is None or not job.is_held_by(request.claim_descriptor):
            return HeartbeatAnswer(HeartbeatOutcome.LOST)
        job.renew(now_ms, min(now_ms + (job.timeout_ms or 0), MAX_TIME_MS))
        if request.fraction is not None or request.text is not None:
            fraction, text, _ = job.progress or [None, "", now_ms]
            job.progress = [
                fraction if request.fraction is None else float(request.fraction),
                text if request.text is None else request.text,
                now_ms,
            ]
        if request.log_lines and body_length(job.body) <= MOST_BYTES_WITH_LOG:
            job.log = with_lines(job.log, attempt_of(job.attempts), request.log_lines)
        if job.stop_by:
            return HeartbeatAnswer(HeartbeatOutcome.CANCEL, job.stop_by)
        return HeartbeatAnswer(HeartbeatOutcome.OK)

    return await store.per_job([store.places.job(qid, each.priority, each.id) for each in heartbeats], change)


# -- claims that end otherwise -------------------------------------------------------------------------------------


async def requeue(store: Store, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
    async def change(step: Step, job: StoredJob | None, position: int) -> bool:
        if job is None or not job.is_held_by(claims[position].claim_descriptor):
            return False
        await back_to_pending(step, store, job, now_ms)
        return True

    return sum(await _per_claim(store, queue, claims, change, False))


async def requeue_undelivered(store: Store, queue: str, claims: Sequence[UnrenewedClaim], now_ms: int) -> int:
    async def change(step: Step, job: StoredJob | None, position: int) -> bool:
        claim = claims[position]
        if job is None or not job.is_held_by(claim.claim_descriptor) or job.expires_at_ms != claim.expires_at_ms:
            return False
        times, *meanwhile = job.undelivered or [0]
        times = times + 1 if meanwhile == [job.attempts_remaining, job.run_after_ms] else 1
        if times > UNDELIVERED_IN_A_ROW:
            return False
        job.undelivered = [times, job.attempts_remaining, job.run_after_ms]
        await back_to_pending(step, store, job, now_ms)
        return True

    return sum(await _per_claim(store, queue, claims, change, False))


async def expire_disconnected(
    store: Store, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
) -> ExpiryCounts:
    async def change(step: Step, job: StoredJob | None, position: int) -> AckOutcome:
        claim = claims[position]
        if job is None or not job.is_held_by(claim.claim_descriptor) or job.last_seen_ms != claim.last_seen_ms:
            return AckOutcome.IGNORED
        return await expire(step, store, job, now_ms, rules, released_status)

    return counted(await _per_claim(store, queue, claims, change, AckOutcome.IGNORED))


async def expire_listed(
    store: Store, queue: str, claims: Sequence[ExpiryRequest], now_ms: int, rules: EndRules = NO_RULES
) -> list[AckOutcome]:
    async def change(step: Step, job: StoredJob | None, position: int) -> AckOutcome:
        claim = claims[position]
        if job is None or not job.is_held_by(claim.claim_descriptor) or job.expires_at_ms != claim.expires_at_ms:
            return AckOutcome.IGNORED
        return await expire(step, store, job, now_ms, rules, expired_status, claim.retry_delay_ms)

    return await _per_claim(store, queue, claims, change, AckOutcome.IGNORED)


async def original_of(step: Step, store: Store, letter: StoredJob, descriptor: str) -> StoredJob | None:
    """The failed job whose dead letter this is, where it is here."""
    ref = parse_descriptor(letter.origin or "") if letter.is_letter else None
    if ref is None or ref.shard != store.identity.shard_id:
        return None
    qid = await store.queues.find(ref.queue)
    original = None if qid is None else await step.job(qid, ref.priority, ref.id)
    return original if original is not None and (original.state, original.moved_to) == (FAILED, descriptor) else None


async def mark_moved(store: Store, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
    async def change(step: Step, job: StoredJob | None, position: int) -> bool:
        claim, descriptor = moved[position]
        if job is None or not job.is_held_by(claim.claim_descriptor):
            return False
        original = await original_of(step, store, job, store.of(queue, job))
        if original is not None:
            original.moved_to = descriptor
        job.updated_at_ms, job.moved_to = now_ms, descriptor
        await end(step, store, job, SUCCEEDED, now_ms)
        return True

    return await _per_claim(store, queue, [claim for claim, _ in moved], change, False)


async def put_trails(store: Store, queue: str, given: Sequence[tuple[JobKey, JobTrail]]) -> list[bool]:
    async def change(step: Step, job: StoredJob | None, position: int) -> bool:
        if job is None or job.attempts is not None or job.log is not None:
            return False
        trail = given[position][1]
        job.attempts, job.log = packed_attempts(trail.attempts), packed_lines(trail.log)
        return True

    return await _per_claim(store, queue, [key for key, _ in given], change, False)


async def _per_claim(store: Store, queue: str, claims: Sequence[object], change: object, nothing: object) -> list:  # type: ignore[type-arg]
    qid = await store.queues.find(queue)
    if qid is None:
        return [nothing] * len(claims)
    keys: list[ItemKey] = [store.places.job(qid, claim.priority, claim.id) for claim in claims]  # type: ignore[attr-defined]
    return await store.per_job(keys, change)  # type: ignore[arg-type]
