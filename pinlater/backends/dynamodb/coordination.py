"""The state that servers share in a table: key-value entries, buckets, quotas, marks, and references to bodies."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pinlater.backends.base import KvEntry, Quota, ReferencesPage, Tokens
from pinlater.backends.dynamodb.claims import in_progress
from pinlater.backends.dynamodb.enqueue import raise_mark
from pinlater.backends.dynamodb.items import DUE, DUE_KEY, LAST, ORDER, ItemKey, at
from pinlater.backends.dynamodb.queue_records import quota_key
from pinlater.backends.dynamodb.steps import SPOTS, Step
from pinlater.backends.dynamodb.store_parts import Store
from pinlater.backends.token_bucket import BucketLevel, take
from pinlater.model import MAX_TIME_MS
from pinlater.model.body_reference import BodyReference

TIDIED_AT_ONCE = 25
MANY_TRIES = 40


# -- key-value entries -------------------------------------------------------------------------------------------------


def _entries(namespace: str) -> str:
    return f"v{namespace}"


async def kv_put(
    store: Store,
    namespace: str,
    name: str,
    body: bytes,
    expires_at_ms: int,
    now_ms: int,
    *,
    expected_version: int | None = None,
    keep: int = 100_000,
) -> int:
    key, total_key = ItemKey(_entries(namespace), name), ItemKey("vv", namespace)

    async def put(step: Step) -> tuple[int, int]:
        """The version, and how many entries there are where this one is new."""
        entry = await step.item(key)
        version = 0 if entry is None or entry["expires"] <= now_ms else int(entry["version"])
        if expected_version not in (None, version):
            return 0, 0
        if expires_at_ms <= now_ms:
            if entry is not None:
                step.remove(key)
                await _count(step, total_key, -1)
            return version + 1, 0
        new = {"body": body, "version": version + 1, "expires": expires_at_ms, DUE_KEY: at(expires_at_ms)}
        step.add(key, new)
        return version + 1, 0 if entry is not None else await _count(step, total_key, 1)

    version, total = await store.steps.run(put, tries=MANY_TRIES)
    if total:
        await _tidy(store, namespace, now_ms, total - keep)
    return version


async def _count(step: Step, key: ItemKey, more: int) -> int:
    total = await step.item(key)
    if total is None:
        total = step.add(key, {"total": 0})
    total["total"] = max(0, total["total"] + more)
    return int(total["total"])


async def _tidy(store: Store, namespace: str, now_ms: int, excess: int) -> None:
    """Remove some that have expired, and, as far as these do not come to the excess, the first to expire."""
    pk, limit = _entries(namespace), TIDIED_AT_ONCE + max(0, excess)
    for entry in await store.table.first(pk, limit, at(0), at(MAX_TIME_MS), index=DUE):
        if int(entry[DUE_KEY]) > now_ms and excess <= 0:
            break
        key = ItemKey(entry["pk"], entry["sk"])

        async def remove(step: Step, key: ItemKey = key, due: str = entry[DUE_KEY]) -> bool:
            item = await step.item(key)
            if item is None or item[DUE_KEY] != due:
                return False
            step.remove(key)
            await _count(step, ItemKey("vv", namespace), -1)
            return True

        excess -= await store.steps.run(remove, tries=MANY_TRIES)


async def kv_list(store: Store, namespace: str, now_ms: int) -> dict[str, KvEntry]:
    found: dict[str, KvEntry] = {}
    async for items in store.table.pages(_entries(namespace)):
        for item in items:
            if item["expires"] > now_ms:
                found[item["sk"]] = KvEntry(item["body"], item["version"], item["expires"])
    return found


# -- tokens and quotas -------------------------------------------------------------------------------------------------


async def take_tokens(store: Store, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
    key = ItemKey(f"t{queue}")

    async def work(step: Step) -> Tokens:
        bucket = await step.item(key)
        level = None if bucket is None else BucketLevel(float(bucket["tokens"]), bucket["at"])
        taken = take(level, wanted, per_second, capacity, now_ms)
        step.add(key, {"tokens": float(taken.level.tokens), "at": taken.level.at_ms})
        return Tokens(taken.granted, taken.retry_after_ms)

    return await store.steps.run(work, tries=MANY_TRIES)


async def set_quota(store: Store, queue: str, quota: int, version: int, now_ms: int) -> Quota:
    """What is in progress is counted behind the change: from then on claims go by it."""
    qid = await store.queues.known(queue)

    async def work(step: Step) -> tuple[int, int]:
        await store.queues.guard(step, qid, queue)
        item = await step.item(quota_key(qid))
        here = (0, 0) if item is None else (int(item["quota"]), int(item["version"]))
        if version <= here[1]:
            return here
        step.add(quota_key(qid), {"quota": quota, "version": version})
        return quota, version

    here = await store.steps.run(work, tries=MANY_TRIES)
    return Quota(*here, await in_progress(store, qid))


# -- marks of schedules ------------------------------------------------------------------------------------------------


async def last_firings(store: Store, schedules: Sequence[str]) -> list[str | None]:
    keys = [store.places.firing(schedule) for schedule in schedules]
    found = await store.table.read_all(keys)
    return [str(found[key]["mark"]) if key in found else None for key in keys]


async def raise_marks(store: Store, marks: Mapping[str, str]) -> None:
    for schedule, mark in marks.items():

        async def work(step: Step, schedule: str = schedule, mark: str = mark) -> None:
            raise_mark(step, schedule, mark, await step.item(step.places.firing(schedule)))

        await store.steps.run(work)


# -- references to bodies ----------------------------------------------------------------------------------------------


async def list_references(store: Store, after: str, limit: int) -> ReferencesPage:
    """Bucket by bucket, in the order of their texts."""
    bucket, _, behind = after.partition(":")
    for number in range(int(bucket or 0), store.places.buckets):
        low = f"{behind}\0" if behind else ""
        items = await store.table.first(f"z{number}", max(1, limit), low, LAST)
        references = [BodyReference(item["b"]) for item in items]
        if len(items) >= limit:
            return ReferencesPage(references, f"{number}:{items[-1]['sk']}")
        if references or number + 1 == store.places.buckets:
            is_last = number + 1 == store.places.buckets
            return ReferencesPage(references, "" if is_last else f"{number + 1}:")
        behind = ""
    return ReferencesPage([], "")


async def dropped_references(store: Store, limit: int) -> list[BodyReference]:
    """Up to `limit` references that no job has any more, from a spot on that is drawn anew each time."""
    found: list[BodyReference] = []
    partitions = store.places.all_of("z")
    random.shuffle(partitions)
    spot = f"{random.randrange(SPOTS):010d}"
    for pk in partitions:
        for low, high in ((spot, LAST), ("0", spot)):
            if len(found) < limit:
                entries = await store.table.first(pk, limit - len(found), low, high, index=ORDER)
                found += [BodyReference(bytes.fromhex(entry["sk"])) for entry in entries]
    return list(dict.fromkeys(found))


async def forget_references(store: Store, references: Sequence[BodyReference]) -> None:
    for reference in references:
        key = store.places.reference(reference)

        async def forget(step: Step, key: ItemKey = key) -> None:
            item = await step.item(key)
            if item is not None and item["held"] <= 0:
                step.remove(key)

        await store.steps.run(forget)
