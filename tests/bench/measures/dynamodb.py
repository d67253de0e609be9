"""The capacity units of DynamoDB that each call of a shard consumes per job.

DynamoDB Local counts them, but for what it counts otherwise than AWS says: a read that finds nothing is a unit, and a
write in a transaction counts twice (its item, and each place in an index that it leaves or takes).

A job has a body of 200 bytes; the table has its usual partitions, and claims ask for one priority. Reads that a call
makes once are divided by its jobs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from pinlater.backends.base import AckRequest, ClaimRequest, ConfigEntry, EndRules, PerQueue, Retention
from pinlater.backends.dynamodb import DynamodbShard
from pinlater.backends.dynamodb.items import DUE_KEY, INDEXES, ORDER_KEY
from pinlater.backends.extended import Offer
from pinlater.model import DequeuedJob, ExtendedJob, Job, new_version, parse_descriptor
from tests.bench.figures import Figure
from tests.bench.run import Run

QUEUE = "mail"
NOW_MS = 1_790_000_000_000
BODY = bytes(200)
BATCHES = (1, 10, 100)
READS = frozenset({"GetItem", "BatchGetItem", "Query"})
Call = Callable[[], Awaitable[Any]]


def measure(run: Run) -> Iterator[Figure]:
    server = run.store("dynamodb")
    server.empty(0)
    counted = asyncio.run(_count(server.url(0)))
    for (call, batch), (written, read) in counted.items():
        for kind, units in (("WCU", written), ("RCU", read)):
            yield Figure(f"dynamodb/{call}, {batch} at a time", f"{kind}/job", [units / batch])


class _Counter:
    """Calls of one shard, and what each consumed."""

    def __init__(self, shard: DynamodbShard) -> None:
        self._shard = shard
        self.counted: dict[tuple[str, int], tuple[float, float]] = {}
        self._claims = 0

    async def of(self, name: str, batch: int, call: Call) -> Any:
        units: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self._shard.client.units = units
        answer = await call()
        self._shard.client.units = None
        self.counted[name, batch] = (
            sum(_written(*each) for each in units if each[0] not in READS),
            sum(_consumed(each[2]) or 1.0 for each in units if each[0] in READS),
        )
        return answer

    def request(self, limit: int) -> ClaimRequest:
        self._claims += 1
        return ClaimRequest(f"host:1:1:{self._claims}:bench", limit, (1,), 60_000, 2**30)


def _consumed(answer: dict[str, Any]) -> float:
    consumed = answer["ConsumedCapacity"]
    return float(sum(each["CapacityUnits"] for each in (consumed if isinstance(consumed, list) else [consumed])))


def _written(operation: str, request: dict[str, Any], answer: dict[str, Any]) -> float:
    if operation != "TransactWriteItems":
        return _consumed(answer)
    return 2.0 * sum(_changes(*each) for item in request["TransactItems"] for each in item.items())


def _changes(kind: str, write: dict[str, Any]) -> int:
    """The item of a job up to 1 KB, and its places in the indexes. A job is always in one of them."""
    if kind == "Put":
        return 1 + sum(key in write["Item"] for key in INDEXES.values())
    if kind == "Update":
        changed = set(write["ExpressionAttributeNames"].values())
        return 1 + 2 * (ORDER_KEY in changed) + (DUE_KEY in changed)
    return 1 + (kind == "Delete" and write["Key"]["pk"]["S"].startswith("j"))


async def _count(url: str) -> dict[tuple[str, int], tuple[float, float]]:
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    shard = DynamodbShard(url, "1")
    await shard.open()
    try:
        await shard.put_config([ConfigEntry(QUEUE, new_version(NOW_MS))], NOW_MS)
        await shard.enqueue(QUEUE, [Job(BODY)], NOW_MS)  # the priority is noted
        counter = _Counter(shard)
        for batch in BATCHES:
            await _life(shard, counter, batch)
        return counter.counted
    finally:
        await shard.close()


async def _life(shard: DynamodbShard, counter: _Counter, batch: int) -> None:
    jobs = [Job(BODY)] * batch
    removed = EndRules(keep_succeeded=False)
    await _emptied(shard, counter)
    await counter.of("enqueue", batch, lambda: shard.enqueue(QUEUE, jobs, NOW_MS))
    (taken,) = await counter.of("claim", batch, lambda: shard.claim(QUEUE, [counter.request(batch)], NOW_MS))
    await counter.of("ack, not kept", batch, lambda: shard.ack(QUEUE, _acks(taken), NOW_MS, removed))
    await shard.enqueue(QUEUE, jobs, NOW_MS)
    (taken,) = await shard.claim(QUEUE, [counter.request(batch)], NOW_MS)
    await counter.of("ack, kept", batch, lambda: shard.ack(QUEUE, _acks(taken), NOW_MS))
    later_ms = NOW_MS + 100_000
    gone = PerQueue(Retention(1, 1))
    await counter.of("prune", batch, lambda: shard.prune(batch, later_ms, gone))
    if batch < max(BATCHES):
        await shard.enqueue(QUEUE, jobs, NOW_MS)
        (taken,) = await shard.claim(QUEUE, [counter.request(batch)], NOW_MS)
        await shard.enqueue(QUEUE, jobs, NOW_MS)
        await counter.of(
            "ack, not kept, and claim in one step",
            batch,
            lambda: shard.ack_and_claim(QUEUE, _acks(taken), [counter.request(batch)], NOW_MS, removed),
        )
    await _emptied(shard, counter)
    await counter.of("claim that finds nothing", 1, lambda: shard.claim(QUEUE, [counter.request(batch)], NOW_MS))
    offers = [Offer(ExtendedJob(BODY, dedupe_key=f"{batch} {number}")) for number in range(batch)]
    await counter.of("enqueue with a dedupeKey", batch, lambda: shard.enqueue_extended(QUEUE, offers, NOW_MS))
    offers = [Offer(ExtendedJob(BODY, serialize_key=f"{batch} {number}")) for number in range(batch)]
    await counter.of("enqueue with a serializeKey", batch, lambda: shard.enqueue_extended(QUEUE, offers, NOW_MS))


async def _emptied(shard: DynamodbShard, counter: _Counter) -> None:
    (taken,) = await shard.claim(QUEUE, [counter.request(1_000)], NOW_MS)
    await shard.ack(QUEUE, _acks(taken), NOW_MS, EndRules(keep_succeeded=False))


def _acks(jobs: list[DequeuedJob]) -> list[AckRequest]:
    acks = []
    for job in jobs:
        ref = parse_descriptor(job.descriptor)
        assert ref is not None
        acks.append(AckRequest(ref.priority, ref.id, True, claim_descriptor=job.claim_descriptor))
    return acks
