"""Enqueue: plain jobs as many in a transaction as it holds, and offers of extended jobs one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.backends.dynamodb.items import Item
from pinlater.backends.dynamodb.key_items import (
    come_alive,
    counts,
    entry_descriptor,
    expiry_item,
    join_chain,
    put_live_entry,
    remember,
    successor_of,
)
from pinlater.backends.dynamodb.steps import Step
from pinlater.backends.dynamodb.store_parts import Store, raise_for
from pinlater.backends.dynamodb.stored_job import IN_PROGRESS, MOST_BYTES, PENDING, WAITING, StoredJob
from pinlater.backends.dynamodb.table import IDENTITY, SUCCESSORS_FORMAT
from pinlater.backends.extended import Offer, Offered, OfferOutcome, replaced_due_ms
from pinlater.errors import BodyTooLarge, GroupsNotSupported, OutcomeUnknown, PinLaterError, TagsNotSupported
from pinlater.model import MAX_STATUS_CHARS, ExtendedJob, Job, OnDuplicate, ReplaceRunning
from pinlater.model.status_text import NOT_REPLACED_END, newer_waits_status, not_replaced_status

JOBS_PER_STEP = 100
BYTES_PER_STEP = 3_000_000
"""A transaction holds 100 items and 4 MB."""

ITEMS_PER_STEP = 80
ITEMS_OF_OFFER, ITEMS_OF_SUCCESSOR = 8, 2
"""Job, two entries, chain, place in it, expiry, mark; of a successor the running job too, and the version of the table.
The guards are shared.
"""


def check_body(body: bytes) -> None:
    """BodyTooLarge, where an item cannot hold it."""
    if len(body) > MOST_BYTES:
        raise BodyTooLarge(
            f"a body of {len(body)} bytes; in DynamoDB it has at most {MOST_BYTES}: a tier takes larger ones"
        )


def new_job(qid: str, job_id: int, job: Job, now_ms: int) -> StoredJob:
    check_body(job.body)
    return StoredJob(
        *(qid, job.priority, job_id, job.body),
        run_after_ms=now_ms if job.run_after_ms is None else job.run_after_ms,
        attempts_allowed=job.attempts_allowed,
        attempts_remaining=job.attempts_allowed,
        custom_status=job.custom_status[:MAX_STATUS_CHARS],
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


async def enqueue(store: Store, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
    """All or none, as far as they fit into one transaction; else OutcomeUnknown where some are stored."""
    qid, ids = await asyncio.gather(store.queues.known(queue), store.ids.take(len(jobs), now_ms))
    new = [new_job(qid, job_id, job, now_ms) for job_id, job in zip(ids, jobs, strict=True)]
    done = False
    for some in in_steps(new):

        async def put(step: Step, some: Sequence[StoredJob] = some) -> None:
            for job in some:
                step.add_job(job)

        try:
            await store.steps.run(put)
        except PinLaterError as error:
            raise_for([error], any_done=done)
        done = True
    return [store.of(queue, job) for job in new]


def in_steps(jobs: Sequence[StoredJob]) -> list[list[StoredJob]]:
    """The jobs in steps of as many as a transaction holds; a reference to a body is an item more."""
    steps: list[list[StoredJob]] = []
    items = size = 0
    for job in jobs:
        more = 2 if type(job.body) is not bytes else 1
        if not steps or items + more > JOBS_PER_STEP or size + len(job.body) > BYTES_PER_STEP:
            steps.append([])
            items = size = 0
        steps[-1].append(job)
        items, size = items + more, size + len(job.body) + 4 * len(job.custom_status)
    return steps


# -- extended jobs -----------------------------------------------------------------------------------------------------


async def enqueue_extended(
    store: Store, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
) -> list[Offered]:
    for offer in offers:
        check_body(offer.job.body)
        if offer.job.tags:
            raise TagsNotSupported.of_shard(store.identity.shard_id)
        if offer.job.group:
            raise GroupsNotSupported.of_shard(store.identity.shard_id)
    ids = await store.ids.take(len(offers), now_ms)
    if not offers:

        async def check(step: Step) -> list[Offered]:
            await store.queues.known(queue)
            await store.queues.guard_homes(step, homes_version)
            return []

        return await store.run(check)
    answers: list[Offered] = []
    for start, end in _slices(offers):

        async def take(step: Step, start: int = start, end: int = end) -> list[Offered]:
            qid = await store.queues.known(queue)
            await store.queues.guard_homes(step, homes_version)
            enqueue = _Enqueue(store, step, queue, qid, now_ms)
            await enqueue.read(offers[start:end])
            return [
                await enqueue.take(offer, job_id)
                for offer, job_id in zip(offers[start:end], ids[start:end], strict=True)
            ]

        try:
            answers += await store.run(take, tries=20)
        except PinLaterError as error:
            if not answers or isinstance(error, OutcomeUnknown):
                raise
            raise_for([error], any_done=True)
    return answers


def _slices(offers: Sequence[Offer]) -> list[tuple[int, int]]:
    found = [[0, 0]]
    items = size = 0
    for end, offer in enumerate(offers, 1):
        more = ITEMS_OF_OFFER + (ITEMS_OF_SUCCESSOR if offer.job.replace_running else 0)
        items, size = items + more, size + len(offer.job.body)
        if items > ITEMS_PER_STEP or (size > BYTES_PER_STEP and found[-1][1] > 0):
            found.append([end - 1, end])
            items, size = more, len(offer.job.body)
        found[-1][1] = end
    return [(start, end) for start, end in found]


class _Enqueue:
    """Some offers of one call, each of which sees what those before it did."""

    def __init__(self, store: Store, step: Step, queue: str, qid: str, now_ms: int) -> None:
        self._store, self._step, self._queue, self._qid, self._now_ms = store, step, queue, qid, now_ms

    async def read(self, offers: Sequence[Offer]) -> None:
        """Read all items that these offers are decided by, at once."""
        places, keys = self._step.places, []
        for offer in offers:
            job = offer.job
            if job.dedupe_key:
                keys.append(places.dedupe(self._qid, job.dedupe_key, job.serialize_key))
            if job.send_id:
                keys.append(places.send(self._qid, job.send_id))
            if job.serialize_key:
                keys.append(places.chain(job.serialize_key))
            if offer.schedule:
                keys.append(places.firing(offer.schedule))
        await self._step.read(keys)

    async def take(self, offer: Offer, job_id: int) -> Offered:
        step, job, places = self._step, offer.job, self._step.places
        fired = await step.item(places.firing(offer.schedule)) if offer.schedule else None
        if fired is not None and fired["mark"] >= offer.mark:
            return Offered(OfferOutcome.KEPT)
        send = places.send(self._qid, job.send_id)
        sent = await step.item(send) if job.send_id else None
        if sent is not None and counts(sent, self._now_ms):
            return Offered(OfferOutcome(sent["out"]), entry_descriptor(self._store, self._queue, sent))
        key = places.dedupe(self._qid, job.dedupe_key, job.serialize_key)
        entry = await step.item(key) if job.dedupe_key else None
        if entry is not None and counts(entry, self._now_ms):
            newer = await successor_of(step, entry) if entry["live"] else None
            offered = await self._decide(offer, job_id, entry, newer)
            if job.send_id and offered.outcome in (OfferOutcome.KEPT, OfferOutcome.REPLACED):
                is_newer = newer is not None and offered.outcome is OfferOutcome.REPLACED
                named = {"pri": newer.priority, "id": newer.id} if newer is not None and is_newer else entry
                remember(step, send, named, offer.slot, offered.outcome, self._now_ms)
        elif offer.only_if_known and not await self._is_live(job.serialize_key):
            return Offered(OfferOutcome.NOT_HERE)
        elif offer.only_if_known and offer.takes_no_jobs:
            return Offered(OfferOutcome.CHAIN_HERE)
        else:
            offered = await self._store_job(offer, job_id)
        if offer.schedule and offered.outcome <= OfferOutcome.REPLACED:
            raise_mark(step, offer.schedule, offer.mark, fired)
        return offered

    async def _is_live(self, serialize_key: str) -> bool:
        return bool(serialize_key) and await self._step.item(self._step.places.chain(serialize_key)) is not None

    async def _decide(self, offer: Offer, job_id: int, entry: Item, newer: StoredJob | None) -> Offered:
        """What becomes of a job whose dedupe key is taken, by the entry of that key and its successor."""
        new, descriptor = offer.job, entry_descriptor(self._store, self._queue, entry)
        if new.on_duplicate == OnDuplicate.REJECT:
            return Offered(OfferOutcome.REJECTED, descriptor)
        kept = Offered(OfferOutcome.KEPT, descriptor)
        if new.on_duplicate != OnDuplicate.REPLACE or not entry["live"]:
            return kept
        job = await self._step.job(self._qid, entry["pri"], entry["id"])
        if job is None:
            return kept
        stands = job if newer is None else newer
        if stands.state in (PENDING, WAITING):
            offered = self._replace(new, stands)
        elif new.replace_running is ReplaceRunning.KEEP:
            if not job.custom_status.endswith(NOT_REPLACED_END):
                job.append_status(not_replaced_status(self._now_ms))
            return kept
        elif offer.takes_no_jobs:
            return Offered(OfferOutcome.RUNS_HERE, descriptor)
        else:
            offered = await self._store_job(offer, job_id, follows=entry)
            job.append_status(newer_waits_status(self._now_ms, offered.descriptor))
            job.stop_by = job.stop_by or ""
        asks = new.replace_running is ReplaceRunning.CANCEL and offered.outcome is not OfferOutcome.DIFFERENT
        if asks and job.state == IN_PROGRESS:
            job.stop_by = job.stop_by or offer.by
        return offered

    def _replace(self, new: ExtendedJob, job: StoredJob) -> Offered:
        """Give a job that is PENDING or WAITING what the newer one is to do."""
        descriptor = self._store.of(self._queue, job)
        if job.priority != new.priority:
            return Offered(OfferOutcome.DIFFERENT, descriptor)
        wanted_ms = self._now_ms if new.run_after_ms is None else new.run_after_ms
        times = (job.created_at_ms, job.run_after_ms)
        self._step.replace_body(job, new.body)
        job.updated_at_ms = self._now_ms
        job.run_after_ms = replaced_due_ms(wanted_ms, new.replace_within_ms, *times)
        job.attempts_allowed = job.attempts_remaining = new.attempts_allowed
        is_first = job.state == PENDING and not job.is_over(self._now_ms)
        return Offered(OfferOutcome.REPLACED, descriptor, job.run_after_ms if is_first else None)

    async def _raise_format(self) -> None:
        """With the first successor: a server that does not know these would let them wait for ever."""
        identity = await self._step.item(IDENTITY)
        if identity is not None and identity["format"] < SUCCESSORS_FORMAT:
            identity["format"] = SUCCESSORS_FORMAT

    async def _store_job(self, offer: Offer, job_id: int, *, follows: Item | None = None) -> Offered:
        """`follows`: the entry of the running job whose successor it is."""
        step, given = self._step, offer.job
        job = new_job(self._qid, job_id, given, self._now_ms)
        job.dedupe_key, job.serialize_key, job.send_id = given.dedupe_key, given.serialize_key, given.send_id
        job.dedupe_for_ms, job.slot = given.dedupe_for_ms, offer.slot
        job.over_at_ms, job.own_timeout_ms = given.expires_at_ms, given.claim_timeout_ms
        step.add_job(job)
        if job.send_id:
            put_live_entry(step, step.places.send(self._qid, job.send_id), job)
        if follows is not None:
            await self._raise_format()
            job.state = WAITING
            follows["next"] = [self._qid, self._queue, job.priority, job.id]
        elif job.dedupe_key:
            put_live_entry(step, step.places.dedupe(self._qid, job.dedupe_key, job.serialize_key), job)
        if job.over_at_ms is not None:
            step.add(step.places.expiry(self._qid, job.priority, job.id), expiry_item(job))
        await join_chain(step, self._store, self._queue, job, self._now_ms, offer.behind)
        ready_at_ms = job.run_after_ms if job.state == PENDING else None
        return Offered(OfferOutcome.STORED, self._store.of(self._queue, job), ready_at_ms)


def raise_mark(step: Step, schedule: str, mark: str, fired: Item | None) -> None:
    """The mark of a schedule; what was read of it is `fired`."""
    if fired is None:
        step.add(step.places.firing(schedule), {"mark": mark})
    elif fired["mark"] < mark:
        fired["mark"] = mark


async def copy_of(step: Step, store: Store, queue: str, copy: StoredJob, job: StoredJob, now_ms: int) -> None:
    """A new job that goes on for another one has its keys, and what it needs of them."""
    show_keys(copy, job)
    step.add_job(copy)
    await come_alive(step, store, queue, copy, now_ms)


def show_keys(copy: StoredJob, job: StoredJob) -> None:
    copy.dedupe_key, copy.serialize_key, copy.slot = job.dedupe_key, job.serialize_key, job.slot
    copy.dedupe_for_ms = job.dedupe_for_ms
