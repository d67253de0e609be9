"""The table of a shard: it is made where it is not there, knows whose it is, and gives jobs their numbers.

A server reserves numbers for a second at a time: of each millisecond those of one of SLOTS slots. So numbers follow
the time, no two servers share one, and no item is written for each job. A server that needs more of a millisecond than
a slot has goes on in the next one, ahead of the time. Numbers of one server ascend; those of two come close.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

from pinlater.backends.dynamodb.client import Answer, ConditionFailed, DynamodbClient, TableMissing
from pinlater.backends.dynamodb.items import (
    INDEXES,
    MARK,
    PROJECTED,
    Item,
    ItemKey,
    ItemPlaces,
    read_item,
    write_item,
    write_key,
    write_value,
)
from pinlater.backends.dynamodb.table_address import TableAddress
from pinlater.errors import NothingStored, OutcomeUnknown, StoreConflict, StoreRefused

FORMAT, SUCCESSORS_FORMAT = 1, 2
"""The version of a table, which a server that does not know it does not open: the second once a job had a successor."""

KEYS_PER_READ = 100
READY_TRIES, READY_EVERY_S = 300, 0.1
IDENTITY, IDS = ItemKey("m", "identity"), ItemKey("m", "ids")

SLOTS, RESERVED_MS = 50, 1_000
IDS_PER_MS = 1_000 // SLOTS
LEAST_ID = 10**15


class TableIdentity(NamedTuple):
    shard_id: str
    store_id: str


class ItemsPage(NamedTuple):
    """Items of a query; `after`: where the next page begins, None where there is none."""

    items: list[Item]
    after: Any


class JobTable:
    """The reads of a table, and its identity. Writes are those of `Step`."""

    def __init__(self, address: TableAddress) -> None:
        self.client = DynamodbClient(address)
        self.places = ItemPlaces(address.buckets)
        self.name = address.table
        self.ids = JobIds(self)
        self._marks = count()
        self._own = secrets.token_hex(4)

    def new_mark(self) -> str:
        """A value for MARK that no other write has."""
        return f"{self._own}{next(self._marks):x}"

    # -- the table itself --------------------------------------------------------------------------------------------

    async def open(self, shard_id: str) -> TableIdentity:
        """Make what is not there. Servers that do it at once come to the same end."""
        await self.client.open()
        try:
            found = await self.read(IDENTITY)
        except TableMissing:
            if not shard_id:
                raise StoreRefused(_NO_RECORD) from None
            await self._make()
            found = await self.read(IDENTITY)
        if found is None:
            if not shard_id:
                raise StoreRefused(_NO_RECORD)
            found = await self._identify(shard_id)
        identity = TableIdentity(found["shard"], found["store"])
        if shard_id not in ("", identity.shard_id):
            raise StoreRefused(
                f"this store belongs to shard {identity.shard_id!r}, not to {shard_id!r}; correct the address or the id"
            )
        if found["format"] > SUCCESSORS_FORMAT:
            raise StoreRefused(
                f"this store has the items of a newer PinLater (version {found['format']}, this one knows "
                f"{SUCCESSORS_FORMAT}); upgrade this server"
            )
        self.places.buckets = found["buckets"]
        return identity

    async def _make(self) -> None:
        keys = [{"AttributeName": "pk", "KeyType": "HASH"}]
        request = {
            "TableName": self.name,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", *INDEXES.values())
            ],
            "KeySchema": [*keys, {"AttributeName": "sk", "KeyType": "RANGE"}],
            "LocalSecondaryIndexes": [
                {
                    "IndexName": index,
                    "KeySchema": [*keys, {"AttributeName": attribute, "KeyType": "RANGE"}],
                    "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(PROJECTED)},
                }
                for index, attribute in INDEXES.items()
            ],
        }
        try:
            await self.client.call("CreateTable", request, writes=True)
        except NothingStored as error:
            if "ResourceInUseException" not in error.message:
                raise
        for _ in range(READY_TRIES):
            if await self._is_ready():
                return
            await asyncio.sleep(READY_EVERY_S)
        raise NothingStored(f"the table {self.name} is not ready yet: try again")

    async def _is_ready(self) -> bool:
        try:
            answer = await self.client.call("DescribeTable", {"TableName": self.name})
        except TableMissing:
            return False
        return bool(answer["Table"]["TableStatus"] == "ACTIVE")

    async def _identify(self, shard_id: str) -> Item:
        item: Item = {
            **{"pk": IDENTITY.pk, "sk": IDENTITY.sk, "shard": shard_id, "store": secrets.token_hex(16)},
            **{"format": FORMAT, "buckets": self.places.buckets, MARK: self.new_mark()},
        }
        request = {
            "TableName": self.name,
            "Item": write_item(item),
            "ConditionExpression": "attribute_not_exists(pk)",
        }
        try:
            await self.client.call("PutItem", request, writes=True)
        except ConditionFailed:
            found = await self.read(IDENTITY)
            if found is None:
                raise StoreRefused(
                    "the record of the shard id cannot be read back; is the table being emptied?"
                ) from None
            return found
        return item

    # -- reads, all of them strongly consistent ----------------------------------------------------------------------

    async def read(self, key: ItemKey) -> Item | None:
        request = {"TableName": self.name, "Key": write_key(key), "ConsistentRead": True}
        answer = await self.client.call("GetItem", request)
        return read_item(answer["Item"]) if "Item" in answer else None

    async def read_all(self, keys: Iterable[ItemKey], attributes: Sequence[str] = ()) -> dict[ItemKey, Item]:
        """The items that are there, by key; with `attributes`, these alone of each."""
        wanted = list(dict.fromkeys(keys))
        if len(wanted) == 1 and not attributes:
            found = await self.read(wanted[0])
            return {} if found is None else {wanted[0]: found}
        parts = [wanted[start : start + KEYS_PER_READ] for start in range(0, len(wanted), KEYS_PER_READ)]
        read = await asyncio.gather(*[self._read_some(part, attributes) for part in parts])
        return {ItemKey(item["pk"], item["sk"]): item for items in read for item in items}

    async def _read_some(self, keys: Sequence[ItemKey], attributes: Sequence[str]) -> list[Item]:
        """The items of these keys that are there; what an answer has no room for is requested again, after a pause."""
        request: Answer = {"Keys": [write_key(key) for key in keys], "ConsistentRead": True}
        if attributes:
            names = {f"#{place}": name for place, name in enumerate(attributes)}
            request |= {"ExpressionAttributeNames": names, "ProjectionExpression": ",".join(names)}
        items: list[Item] = []
        pause_s = 0.0
        while request:
            answer = await self.client.call("BatchGetItem", {"RequestItems": {self.name: request}})
            items += [read_item(each) for each in answer["Responses"].get(self.name, ())]
            left = answer.get("UnprocessedKeys", {}).get(self.name)
            if left is not None and len(left["Keys"]) == len(request["Keys"]):  # it gave nothing: it is throttled
                pause_s = min(1.0, 2 * pause_s + 0.05)
                await asyncio.sleep(pause_s)
            request = left or {}
        return items

    async def query(
        self,
        pk: str,
        low: str = "",
        high: str = "",
        *,
        index: str = "",
        limit: int = 0,
        backwards: bool = False,
        after: Any = None,
        attributes: Sequence[str] = (),
    ) -> ItemsPage:
        """Items of a partition whose sort key (of the table, or of an index) is from `low` to `high`, both included.
        A page has at most 1 MB, and `limit` items.
        """
        names = {"#p": "pk"}
        request: Answer = {"TableName": self.name, "ConsistentRead": True, "ScanIndexForward": not backwards}
        values = {":p": write_value(pk)}
        condition = "#p = :p"
        if index:
            request["IndexName"] = index
        if low or high:
            names["#s"] = INDEXES[index] if index else "sk"
            values |= {":l": write_value(low), ":h": write_value(high)} if low else {":h": write_value(high)}
            condition += " AND #s BETWEEN :l AND :h" if low else " AND #s <= :h"
        if limit:
            request["Limit"] = limit
        if after is not None:
            request["ExclusiveStartKey"] = after
        if attributes:
            shown = {f"#a{place}": name for place, name in enumerate(attributes)}
            names |= shown
            request["ProjectionExpression"] = ",".join(shown)
        request |= {
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        answer = await self.client.call("Query", request)
        return ItemsPage([read_item(each) for each in answer["Items"]], answer.get("LastEvaluatedKey"))

    async def pages(self, pk: str, low: str = "", high: str = "", **how: Any) -> AsyncIterator[list[Item]]:
        """All pages of a query."""
        page = await self.query(pk, low, high, **how)
        yield page.items
        while page.after is not None:
            page = await self.query(pk, low, high, after=page.after, **how)
            yield page.items

    async def first(self, pk: str, limit: int, low: str = "", high: str = "", **how: Any) -> list[Item]:
        """The first of a query, at most so many."""
        found: list[Item] = []
        async for items in self.pages(pk, low, high, limit=max(1, limit), **how):
            found += items
            if len(found) >= limit:
                break
        return found[:limit]


_NO_RECORD = "this store has no record of its shard id yet; open it with an id once (ID=URL)"


class JobIds:
    """The numbers of new jobs: 16 digits, the time in microseconds or later, and never one twice."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._slot = random.randrange(SLOTS)
        self._next = 0
        self._until_ms = 0
        self._lock = asyncio.Lock()

    async def take(self, amount: int, now_ms: int) -> list[int]:
        """Ascending, and above all that were taken here before."""
        async with self._lock:
            taken: list[int] = []
            while len(taken) < amount:
                candidate = self._in_slot(max(self._next, now_ms * 1_000, LEAST_ID))
                if candidate // 1_000 >= self._until_ms:
                    await self._reserve(candidate // 1_000)
                    continue
                taken.append(candidate)
                self._next = candidate + 1
            return taken

    def _in_slot(self, least: int) -> int:
        """The first number of the slot from there on."""
        begin = least - least % 1_000 + self._slot * IDS_PER_MS
        if least < begin:
            return begin
        return least if least < begin + IDS_PER_MS else begin + 1_000

    async def _reserve(self, from_ms: int) -> None:
        """Another slot where somebody else has reserved this one, and the one that is free first where all are."""
        for _ in range(SLOTS):
            until_ms = from_ms + RESERVED_MS
            request = {
                "TableName": self._table.name,
                "Key": write_key(IDS),
                "UpdateExpression": "SET #s = :u, #m = :m",
                "ConditionExpression": "attribute_not_exists(#s) OR #s <= :f",
                "ExpressionAttributeNames": {"#s": f"s{self._slot}", "#m": MARK},
                "ExpressionAttributeValues": {
                    ":u": write_value(until_ms),
                    ":f": write_value(from_ms),
                    ":m": write_value(self._table.new_mark()),
                },
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
            try:
                await self._table.client.call("UpdateItem", request, writes=True)
            except OutcomeUnknown as error:
                raise NothingStored(f"no number for a job could be reserved: {error.message}") from error
            except ConditionFailed as failed:
                reserved = read_item(failed.item or {})
                until = {slot: int(reserved.get(f"s{slot}", 0)) for slot in range(SLOTS)}
                free = [slot for slot, end_ms in until.items() if end_ms <= from_ms]
                self._slot = random.choice(free) if free else min(until, key=lambda slot: until[slot])
                from_ms = max(from_ms, until[self._slot])
                continue
            self._until_ms = until_ms
            self._next = max(self._next, from_ms * 1_000)
            return
        raise StoreConflict("too many servers reserve numbers for jobs at once")


def newest_ms(ids: Item | None) -> int:
    """The largest time at which jobs were stored, to a second."""
    if ids is None:
        return 0
    return max((until_ms - RESERVED_MS for name, until_ms in ids.items() if name[0] == "s" and name != "sk"), default=0)
