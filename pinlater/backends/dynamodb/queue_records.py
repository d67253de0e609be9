"""Queues and configuration entries.

A queue that is made gets a number, under which everything of it lies; deleting it takes the number off its name, so
that all of it is gone at once. What comes under the number of a queue that is gone, because its call had read the name
before, is as if it had come before the deletion; `prune` looks for it once more after LATE_MS.

GUARDS guards of a queue go with it. What has to be refused once it is gone, although it lies elsewhere (a job in the
chain of a serialize key), requires one of them in its step: one of several, as steps that require the same item at
once hinder each other. The version of the homes of keys is kept several times for the same reason.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from functools import partial

from pinlater.backends.base import ConfigEntry, ConfigPage
from pinlater.backends.dynamodb.client import ConditionFailed, TableMissing
from pinlater.backends.dynamodb.items import (
    DUE,
    DUE_KEY,
    MARK,
    ORDER,
    ORDER_KEY,
    Item,
    ItemKey,
    at,
    write_key,
    write_value,
)
from pinlater.backends.dynamodb.steps import Step, Steps
from pinlater.backends.dynamodb.table import IDENTITY, JobTable, TableIdentity
from pinlater.errors import HomesChanged, QueueNotFound, StoreReplaced

GUARDS = 4
LATE_MS = 600_000
REVISION = ItemKey("m", "revision")
HOMES = "@homes"
CONFIG = "C"
GONE = "g"
ENTRIES_PER_STEP = 4
"""An entry that deletes a queue and makes it anew changes about 15 items."""


def queue_key(qid: str) -> ItemKey:
    return ItemKey(f"q{qid}")


def name_key(queue: str) -> ItemKey:
    return ItemKey(f"n{queue}")


def quota_key(qid: str) -> ItemKey:
    return ItemKey(f"q{qid}", "quota")


def _guard(qid: str, number: int) -> ItemKey:
    return ItemKey(f"q{qid}", f"g{number}")


class Queues:
    """The names of queues, which may change at any time, and what never changes of their numbers."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._names: dict[str, str] = {}
        self._noted: set[tuple[str, int]] = set()

    async def find(self, queue: str) -> str | None:
        """The number of a queue, None where there is none of that name."""
        item = await self._table.read(name_key(queue))
        return None if item is None else str(item["qid"])

    async def known(self, queue: str) -> str:
        qid = await self.find(queue)
        if qid is None:
            raise QueueNotFound.of(queue)
        return qid

    async def find_all(self, queues: Iterable[str]) -> dict[str, str]:
        """The numbers of those that are there."""
        names = list(dict.fromkeys(queues))
        found = await self._table.read_all([name_key(queue) for queue in names])
        return {queue: str(item["qid"]) for queue in names if (item := found.get(name_key(queue))) is not None}

    async def names_of(self, qids: Iterable[str]) -> dict[str, str]:
        """The names of the queues with these numbers that are there."""
        wanted = set(qids)
        new = [qid for qid in wanted if qid not in self._names]
        for key, item in (await self._table.read_all([queue_key(qid) for qid in new])).items():
            self._names[key.pk[1:]] = item["name"]
        names = {qid: self._names[qid] for qid in wanted if qid in self._names}
        standing = await self.find_all(names.values())
        return {qid: name for qid, name in names.items() if standing.get(name) == qid}

    async def priorities(self, qid: str) -> list[int]:
        """The priorities that the queue's jobs have, or had, in order."""
        item = await self._table.read(queue_key(qid))
        return sorted(item.get("pri", ())) if item is not None else []

    async def note_priorities(self, levels: set[tuple[str, int]]) -> None:
        """A queue has jobs of a priority from now on: written before the first of them, once per process."""
        for qid, priority in sorted(levels - self._noted):
            request = {
                "TableName": self._table.name,
                "Key": write_key(queue_key(qid)),
                "UpdateExpression": "ADD #p :p SET #v = :v",
                "ConditionExpression": "attribute_exists(pk)",
                "ExpressionAttributeNames": {"#p": "pri", "#v": MARK},
                "ExpressionAttributeValues": {":p": write_value({priority}), ":v": write_value(self._table.new_mark())},
            }
            try:
                await self._table.client.call("UpdateItem", request, writes=True)
            except ConditionFailed:
                continue  # the queue is gone, and all of it
            self._noted.add((qid, priority))

    # -- what a step requires ----------------------------------------------------------------------------------------

    async def guard(self, step: Step, qid: str, queue: str) -> None:
        """The queue is there when the step is written. QueueNotFound."""
        key = _guard(qid, random.randrange(GUARDS))
        if await step.item(key) is None:
            raise QueueNotFound.of(queue)
        step.require(key)

    async def guard_homes(self, step: Step, homes_version: str) -> None:
        """The homes of keys are not newer than these when the step is written. HomesChanged."""
        if homes_version:
            key = ItemKey("h", str(random.randrange(GUARDS)))
            item = await step.item(key)
            if item is not None and item["version"] > homes_version:
                raise HomesChanged.of_store()
            step.require(key)


# -- configuration entries -------------------------------------------------------------------------------------------


async def put_config(steps: Steps, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
    """A few entries in each step. The revision is an item of its own, so steps come one after the other."""
    taken: list[bool] = []
    for start in range(0, len(entries), ENTRIES_PER_STEP):
        some = entries[start : start + ENTRIES_PER_STEP]

        async def put(step: Step, some: Sequence[ConfigEntry] = some) -> list[bool]:
            await step.read([REVISION, *[ItemKey(CONFIG, entry.name) for entry in some]])
            return [await _put(step, entry, now_ms) for entry in some]

        taken += await steps.run(put, tries=40)
    return taken


async def _put(step: Step, entry: ConfigEntry, now_ms: int) -> bool:
    key = ItemKey(CONFIG, entry.name)
    before = await step.item(key)
    if before is not None and entry.version <= before["version"]:
        return False
    counter = await step.item(REVISION)
    revision = (0 if counter is None else int(counter["n"])) + 1
    if counter is None:
        counter = step.add(REVISION, {})
    counter["n"] = revision
    new: Item = {
        **{"version": entry.version, "deleted": entry.deleted_version, "text": entry.text},
        ORDER_KEY: at(revision),
    }
    if entry.is_deleted:
        new[DUE_KEY] = entry.version
    step.add(key, new)
    if entry.name == HOMES:
        await _put_homes(step, entry.version)
    if "@" not in entry.name:
        if before is not None and entry.deleted_version > before["version"]:
            await _delete_queue(step, entry.name, now_ms)
        if not entry.is_deleted:
            await _make_queue(step, entry.name, revision)
    return True


async def _put_homes(step: Step, version: str) -> None:
    keys = [ItemKey("h", str(number)) for number in range(GUARDS)]
    await step.read(keys)
    for key in keys:
        item = await step.item(key)
        if item is None:
            item = step.add(key, {})
        item["version"] = version


async def _make_queue(step: Step, queue: str, revision: int) -> None:
    if await step.item(name_key(queue)) is not None:
        return
    qid = str(revision)
    step.add(name_key(queue), {"qid": qid})
    step.add(queue_key(qid), {"name": queue})
    for number in range(GUARDS):
        step.add(_guard(qid, number), {})


async def _delete_queue(step: Step, queue: str, now_ms: int) -> None:
    name = await step.item(name_key(queue))
    if name is None:
        return
    qid = str(name["qid"])
    keys = [quota_key(qid), ItemKey(f"t{queue}"), *[_guard(qid, number) for number in range(GUARDS)]]
    await step.read(keys)
    for key in [name_key(queue), *keys]:
        if await step.item(key) is not None:
            step.remove(key)
    step.add(ItemKey(GONE, qid), {DUE_KEY: at(0), "since": now_ms})


async def list_config(table: JobTable, identity: TableIdentity, since: int, limit: int) -> ConfigPage:
    try:
        items = await table.first(
            CONFIG, limit, at(since + 1), at(10**15), index=ORDER, attributes=("pk", "sk", ORDER_KEY)
        )
        found = await table.read_all([IDENTITY, *[ItemKey(CONFIG, item["sk"]) for item in items]])
    except TableMissing as error:
        raise StoreReplaced.since(identity.store_id, place=error.message) from error
    record = found.get(IDENTITY)
    if record is None or record["store"] != identity.store_id:
        raise StoreReplaced.since(identity.store_id, "" if record is None else record["store"])
    revision, entries = since, []
    for item in items:
        entry = found.get(ItemKey(CONFIG, item["sk"]))
        if entry is not None and entry[ORDER_KEY] == item[ORDER_KEY]:
            entries.append(ConfigEntry(item["sk"], entry["version"], entry["text"], entry["deleted"]))
        revision = int(item[ORDER_KEY])
    return ConfigPage(revision, entries)


async def remove_tombstones(steps: Steps, before: str, limit: int) -> None:
    """Remove up to `limit` tombstones of config entries, with the marks of the schedules of these names."""
    items = await steps.table.first(CONFIG, limit, "0", before, index=DUE, attributes=("pk", "sk"))

    async def remove(key: ItemKey, step: Step) -> None:
        firing = step.places.firing(key.sk)
        await step.read([key, firing] if "@" in key.sk else [key])
        entry = await step.item(key)
        if entry is not None and entry["version"] == entry["deleted"] and entry["version"] < before:
            step.remove(key)
            if "@" in key.sk and await step.item(firing) is not None:
                step.remove(firing)

    await asyncio.gather(*[steps.run(partial(remove, ItemKey(CONFIG, item["sk"]))) for item in items])
