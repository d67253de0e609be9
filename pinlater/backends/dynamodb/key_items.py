"""Dedupe keys, send ids and serialize keys: what stands of them, and what the life of a job does to them.

An entry is an item of its own. It is `live` while its job is; then `until` is when it counts no more, absent where it
counts as long as the job is kept. `elsewhere` is the descriptor of a job of another shard. `next` is the successor:
number and name of the queue, priority, id.

The chain of a serialize key is an item with its first job (number and name of the queue, priority, id); each job that
waits behind it is an item of its own, in the order of their places. Every change of a chain changes its item, so steps
that change one chain at once are done one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pinlater.backends.base import JobKey
from pinlater.backends.dynamodb.items import DUE, DUE_KEY, ORDER, ORDER_KEY, Item, ItemKey, at
from pinlater.backends.dynamodb.steps import Step
from pinlater.backends.dynamodb.store_parts import Store
from pinlater.backends.dynamodb.stored_job import PENDING, WAITING, StoredJob
from pinlater.backends.extended import (
    SEND_ID_KEPT_MS,
    Barrier,
    BlockedChain,
    KeyHolder,
    KeyWindow,
    OfferOutcome,
)
from pinlater.backends.key_windows import WindowText
from pinlater.model import MAX_TIME_MS, WHILE_KEPT, KeyRef, parse_descriptor

WINDOW, REMOVED_AT = "w", "k"
"""The first letters of places in the indexes: of windows, and of entries that are to be removed."""


class KeysLeft(Enum):
    """What is left of a job's keys at its end, or when it goes."""

    JOB = 0
    WINDOWS = 1
    NOTHING = 2


# -- entries -----------------------------------------------------------------------------------------------------------


def counts(entry: Item, now_ms: int) -> bool:
    return bool(entry.get("until", MAX_TIME_MS + 1) > now_ms)


def is_window(entry: Item, now_ms: int) -> bool:
    return not entry["live"] and now_ms < entry.get("until", 0)


def names(entry: Item, job: StoredJob) -> bool:
    return entry.get("id") == job.id and "elsewhere" not in entry


def entry_descriptor(store: Store, queue: str, entry: Item) -> str:
    return str(entry.get("elsewhere") or store.descriptor(queue, entry["pri"], entry["id"]))


def is_next(entry: Item, job: StoredJob) -> bool:
    """Whether the job is the successor."""
    return "next" in entry and entry["next"][3] == job.id


async def successor_of(step: Step, entry: Item | None) -> StoredJob | None:
    """The newer job that waits for the one that the entry of a dedupe key names."""
    if entry is None or "next" not in entry:
        return None
    qid, _, priority, job_id = entry["next"]
    return await step.job(qid, priority, job_id)


def successor_descriptor(store: Store, entry: Item) -> str | None:
    """The descriptor of the successor that an entry has."""
    return store.descriptor(*entry["next"][1:]) if "next" in entry else None


def _close(entry: Item, until_ms: int | None, *, remove: bool) -> None:
    """Its job lives no more."""
    entry["live"] = False
    if until_ms is not None:
        entry["until"] = min(until_ms, MAX_TIME_MS)
        entry[ORDER_KEY] = f"{WINDOW}{entry['sk']}"
        if remove:
            _remove_later(entry)


def _remove_later(entry: Item) -> None:
    entry[DUE_KEY] = f"{REMOVED_AT}{at(entry['until'])}"


def dedupe_key_of(step: Step, job: StoredJob) -> ItemKey:
    return step.places.dedupe(job.qid, job.dedupe_key, job.serialize_key)


def put_live_entry(step: Step, key: ItemKey, job: StoredJob) -> None:
    step.add(key, {"id": job.id, "pri": job.priority, "slot": job.slot, "live": True, "out": 0})


async def taken_by(step: Step, store: Store, queue: str, job: StoredJob) -> str | None:
    """The descriptor of another job that is live and has the job's dedupe key; of a dead letter, its origin's."""
    if not job.dedupe_key:
        return None
    qid, own_id = job.qid, job.id
    if job.is_letter:
        origin = parse_descriptor(job.origin or "")
        found = None if origin is None else await store.queues.find(origin.queue)
        if origin is None or found is None:
            return None
        queue, qid, own_id = origin.queue, found, origin.id
    entry = await step.item(step.places.dedupe(qid, job.dedupe_key, job.serialize_key))
    if entry is None or not entry["live"] or entry.get("id") == own_id:
        return None
    return entry_descriptor(store, queue, entry)


async def come_alive(step: Step, store: Store, queue: str, job: StoredJob, now_ms: int) -> None:
    """A job that has ended has its keys again; so has a new one that goes on for it."""
    if job.over_at_ms is not None:
        step.add(step.places.expiry(job.qid, job.priority, job.id), expiry_item(job))
    if job.is_letter:
        return
    if job.dedupe_key:
        key = dedupe_key_of(step, job)
        await step.item(key)
        put_live_entry(step, key, job)
    if job.send_id:
        key = step.places.send(job.qid, job.send_id)
        entry = await step.item(key)
        if entry is not None and names(entry, job):
            if counts(entry, now_ms):
                put_live_entry(step, key, job)
            else:
                step.remove(key)
    await join_chain(step, store, queue, job, now_ms)


def expiry_item(job: StoredJob) -> Item:
    return {"job": [job.qid, job.priority, job.id], DUE_KEY: f"x{at(job.over_at_ms or 0)}"}


async def leave(step: Step, store: Store, job: StoredJob, now_ms: int, stays: KeysLeft) -> None:
    """The job ends, or goes; it still has the state that it had before."""
    is_end = job.is_live
    if is_end and job.over_at_ms is not None:
        key = step.places.expiry(job.qid, job.priority, job.id)
        if await step.item(key) is not None:
            step.remove(key)
    if is_end and job.place is not None:
        await _leave_chain(step, job, now_ms)
        job.place = None
    if job.is_letter:
        return
    if job.dedupe_key:
        key = dedupe_key_of(step, job)
        entry = await step.item(key)
        if entry is not None and is_next(entry, job):
            del entry["next"]
        elif entry is not None and names(entry, job) and (heir := await successor_of(step, entry)) is not None:
            if not heir.serialize_key:
                await _free(step, entry["next"])
            put_live_entry(step, key, heir)
        elif entry is not None and names(entry, job):
            if is_end:
                _close(entry, None if job.dedupe_for_ms == WHILE_KEPT else now_ms + job.dedupe_for_ms, remove=False)
            if stays is KeysLeft.NOTHING or (stays is KeysLeft.WINDOWS and not is_window(entry, now_ms)):
                step.remove(key)
            elif stays is KeysLeft.WINDOWS:
                _remove_later(entry)
    if job.send_id and is_end:
        entry = await step.item(step.places.send(job.qid, job.send_id))
        if entry is not None and names(entry, job):
            _close(entry, now_ms + SEND_ID_KEPT_MS, remove=True)


def remember(step: Step, key: ItemKey, entry: Item, slot: int, outcome: OfferOutcome, now_ms: int) -> None:
    """A resend gets this answer, for as long as one may come."""
    answer: Item = {"slot": slot, "out": int(outcome), **{name: entry[name] for name in ("pri", "id") if name in entry}}
    if "elsewhere" in entry:
        answer["elsewhere"] = entry["elsewhere"]
    answer["told"] = True
    _close(step.add(key, answer), now_ms + SEND_ID_KEPT_MS, remove=True)


# -- chains ------------------------------------------------------------------------------------------------------------


async def join_chain(step: Step, store: Store, queue: str, job: StoredJob, now_ms: int, behind: str = "") -> None:
    """The job comes to the end of its chain, and waits where it is not the first. QueueNotFound."""
    if not job.serialize_key:
        return
    await store.queues.guard(step, job.qid, queue)
    key = step.places.chain(job.serialize_key)
    chain = await step.item(key)
    who = [job.qid, queue, job.priority, job.id]
    if chain is None:
        chain = step.add(key, {"first": who, "next": 1, "waiting": 0, "since": now_ms, "slot": job.slot})
        job.place = 0
        if behind:
            chain["behind"], job.state = behind, WAITING
            step.add(step.places.barrier(job.serialize_key), {"shard": behind})
        return
    job.place, job.state = int(chain["next"]), WAITING
    chain["next"] = job.place + 1
    chain["waiting"] += 1
    step.add(step.places.waiting(job.serialize_key, job.place), {"job": who})
    _index(chain)


def _index(chain: Item) -> None:
    """Put the chain into the indexes where jobs wait for its first, and take it out where none does."""
    if chain["waiting"] and "behind" not in chain:
        chain[ORDER_KEY], chain[DUE_KEY] = at(chain["waiting"]), at(chain["since"])
    else:
        chain.pop(ORDER_KEY, None)
        chain.pop(DUE_KEY, None)


async def _leave_chain(step: Step, job: StoredJob, now_ms: int) -> None:
    key = step.places.chain(job.serialize_key)
    chain = await step.item(key)
    if chain is None:
        return
    if chain["first"][3] != job.id:
        place = step.places.waiting(job.serialize_key, job.place or 0)
        if await step.item(place) is not None:
            step.remove(place)
            chain["waiting"] -= 1
        _index(chain)
        return
    following = await _following(step, job.serialize_key, chain)
    if following is None:
        step.remove(key)
        barrier = step.places.barrier(job.serialize_key)
        if "behind" in chain and await step.item(barrier) is not None:
            step.remove(barrier)
        return
    place, waiting = following
    step.remove(place)
    chain["first"], chain["waiting"] = waiting["job"], chain["waiting"] - 1
    if "behind" not in chain:
        chain["since"] = now_ms
        await _free(step, waiting["job"])
    _index(chain)


async def _following(step: Step, serialize_key: str, chain: Item) -> tuple[ItemKey, Item] | None:
    """The first of those that wait, and were not taken away by this step."""
    if not chain["waiting"]:
        return None
    async for items in step.table.pages(f"w{serialize_key}", limit=20):
        keys = [ItemKey(item["pk"], item["sk"]) for item in items]
        await step.read(keys)
        for key in keys:
            item = await step.item(key)
            if item is not None:
                return key, item
    return None


async def _free(step: Step, who: Sequence[object]) -> None:
    qid, queue, priority, job_id = who
    job = await step.job(str(qid), int(str(priority)), int(str(job_id)))
    if job is not None and job.state == WAITING:
        job.state = PENDING
        step.freed.setdefault(str(queue), []).append(job.run_after_ms)


def first_of(store: Store, chain: Item | None) -> str | None:
    """The descriptor of the first job; None where all wait behind a barrier."""
    if chain is None or "behind" in chain:
        return None
    _, queue, priority, job_id = chain["first"]
    return store.descriptor(queue, priority, job_id)


async def chains(store: Store, serialize_keys: Sequence[str]) -> dict[str, Item]:
    found = await store.table.read_all([store.places.chain(key) for key in serialize_keys])
    return {key.sk: item for key, item in found.items()}


async def has_chains(store: Store, serialize_keys: Sequence[str]) -> list[bool]:
    found = await chains(store, serialize_keys)
    return [key in found for key in serialize_keys]


async def blocked_chains(store: Store, limit: int, now_ms: int) -> list[BlockedChain]:
    """The chains with most jobs waiting, then those that have waited longest, `limit` of each; by two indexes, in each
    bucket.
    """
    table, most, oldest = store.table, [], []
    for pk in store.places.all_of("c"):
        most += await table.first(pk, limit, at(0), at(10**15), index=ORDER, backwards=True)
        oldest += await table.first(pk, limit, at(0), at(MAX_TIME_MS), index=DUE)
    most.sort(key=lambda item: item[ORDER_KEY], reverse=True)
    oldest.sort(key=lambda item: item[DUE_KEY])
    keys = dict.fromkeys(item["sk"] for item in most[:limit] + oldest[:limit])
    found = await chains(store, list(keys))
    answer = []
    for key in keys:
        chain = found.get(key)
        first = first_of(store, chain)
        if chain is not None and first is not None and chain["waiting"]:
            answer.append(BlockedChain(key, first, chain["waiting"], chain["since"]))
    return answer


async def list_barriers(store: Store, limit: int) -> list[Barrier]:
    return [Barrier(item["sk"], item["shard"]) for item in await store.table.first("b", limit)]


async def lift_barriers(store: Store, barriers: Sequence[Barrier], now_ms: int) -> dict[str, list[int]]:
    freed: dict[str, list[int]] = {}
    for barrier in barriers:

        async def lift(step: Step, barrier: Barrier = barrier) -> dict[str, list[int]]:
            key = step.places.chain(barrier.serialize_key)
            standing = step.places.barrier(barrier.serialize_key)
            await step.read([key, standing])
            chain = await step.item(key)
            if chain is None or chain.get("behind") != barrier.shard_id:
                return {}
            del chain["behind"]
            chain["since"] = now_ms
            if await step.item(standing) is not None:
                step.remove(standing)
            await _free(step, chain["first"])
            _index(chain)
            return step.freed

        for queue, run_afters in (await store.steps.run(lift)).items():
            freed.setdefault(queue, []).extend(run_afters)
    return freed


# -- queries -----------------------------------------------------------------------------------------------------------


async def find_keys(store: Store, queue: str, keys: Sequence[KeyRef]) -> list[KeyHolder | None]:
    qid = await store.queues.find(queue)
    entry_keys = {
        key: store.places.dedupe(qid or "", key.dedupe_key, key.serialize_key) for key in keys if key.dedupe_key
    }
    found = await store.table.read_all(entry_keys.values())
    heads = await chains(store, [key.serialize_key for key in keys if key.serialize_key and not key.dedupe_key])
    answers: list[KeyHolder | None] = []
    for key in keys:
        if not key.dedupe_key:
            first = first_of(store, heads.get(key.serialize_key))
            answers.append(None if first is None else KeyHolder(first))
            continue
        entry = found.get(entry_keys[key])
        if entry is None:
            answers.append(None)
        else:
            answers.append(KeyHolder(entry_descriptor(store, queue, entry), successor_descriptor(store, entry) or ""))
    return answers


async def taken_keys(store: Store, queue: str, jobs: Sequence[JobKey]) -> list[str | None]:
    qid = await store.queues.find(queue)
    if qid is None:
        return [None] * len(jobs)
    found = await store.table.read_all([store.places.job(qid, *job) for job in jobs])
    step, answers = store.steps.new(), []
    for job in jobs:
        item = found.get(store.places.job(qid, *job))
        answers.append(None if item is None else await taken_by(step, store, queue, StoredJob.of_item(item)))
    return answers


async def key_slots(store: Store) -> list[int]:
    """Pages of all entries and chains: it is asked while the homes of keys change, and at no other time."""
    slots: set[int] = set()
    for pk in (*store.places.all_of("k"), *store.places.all_of("c")):
        async for items in store.table.pages(pk, attributes=("slot",)):
            slots.update(item["slot"] for item in items if "slot" in item)
    return sorted(slots)


# -- windows -----------------------------------------------------------------------------------------------------------


async def list_windows(store: Store, limit: int, after: str, now_ms: int) -> list[KeyWindow]:
    first, behind = int(after[:2] or 0), after[2:]
    windows: list[KeyWindow] = []
    for bucket in range(first, store.places.buckets):
        low = f"{WINDOW}{behind}" if bucket == first else WINDOW
        async for items in store.table.pages(f"k{bucket}", low, f"{WINDOW}\U0010ffff", index=ORDER, limit=limit + 1):
            found = await store.table.read_all([ItemKey(item["pk"], item["sk"]) for item in items])
            entries = [entry for key in sorted(found) if is_window(entry := found[key], now_ms) and key.sk != behind]
            names_of = await store.queues.names_of({entry["sk"].partition("#")[0] for entry in entries})
            for entry in entries:
                text = _window_text(store, entry, names_of)
                if text is not None:
                    windows.append(KeyWindow(f"{bucket:02d}{entry['sk']}", entry["slot"], entry["until"], text.dump()))
            if len(windows) >= limit:
                return windows[:limit]
    return windows


def _window_text(store: Store, entry: Item, names_of: dict[str, str]) -> WindowText | None:
    qid, _, name = entry["sk"].partition("#")
    kind, name = name[0], name[1:]
    queue = names_of.get(qid)
    if queue is None:
        return None
    descriptor = entry_descriptor(store, queue, entry)
    if kind == "s":
        return WindowText(queue, descriptor, send_id=name, outcome=entry["out"])
    length, _, keys = name.partition(":")
    return WindowText(queue, descriptor, dedupe_key=keys[int(length) :], serialize_key=keys[: int(length)])


async def put_windows(store: Store, windows: Sequence[KeyWindow], now_ms: int) -> None:
    texts = [WindowText.load(window.text) for window in windows]
    qids = await store.queues.find_all(text.queue for text in texts)
    for window, text in zip(windows, texts, strict=True):
        qid = qids.get(text.queue)
        if qid is None or window.until_ms <= now_ms:
            continue
        key = (
            store.places.send(qid, text.send_id)
            if text.send_id
            else store.places.dedupe(qid, text.dedupe_key, text.serialize_key)
        )

        async def put(step: Step, key: ItemKey = key, window: KeyWindow = window, text: WindowText = text) -> None:
            entry = await step.item(key)
            if entry is None or not counts(entry, now_ms):
                outcome = text.outcome if text.send_id else int(OfferOutcome.STORED)
                new = step.add(key, {"elsewhere": text.descriptor, "slot": window.slot, "out": outcome})
                _close(new, window.until_ms, remove=True)

        await store.run(put)


async def drop_windows(store: Store, windows: Sequence[KeyWindow]) -> None:
    for window in windows:
        key = ItemKey(f"k{int(window.name[:2])}", window.name[2:])

        async def drop(step: Step, key: ItemKey = key, until_ms: int = window.until_ms) -> None:
            entry = await step.item(key)
            if entry is not None and not entry["live"] and entry.get("until") == until_ms:
                step.remove(key)

        await store.run(drop)
