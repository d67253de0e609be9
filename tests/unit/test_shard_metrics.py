"""What is counted of the calls to a store."""

from __future__ import annotations

import inspect

import pytest

from pinlater.backends.base import OPERATIONS, ClaimRequest, Shard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import NothingStored, QueueNotFound
from pinlater.metrics import Metrics, merge
from pinlater.model import Job
from pinlater.shards.resilience import ResilientShard
from tests.queues import make_queue
from tests.unit.breaking import Breaking

NOW_MS = 1_790_000_000_000
REQUEST = ClaimRequest("h:1:1:1:me", 1, (1,), 60_000, 2**20)


async def test_every_call_of_the_protocol_is_counted_under_its_documented_label() -> None:
    methods = inspect.getmembers(Shard, inspect.iscoroutinefunction)
    names = {name for name, _ in methods}
    assert names - {"close", "subscribe"} == set(OPERATIONS)
    metrics, store = Metrics(), Breaking(SqliteShard("sqlite://", "7"))
    shard = ResilientShard(store, metrics=metrics)
    store.broken = QueueNotFound("gone")
    for name in OPERATIONS:
        arguments = {"peek": ((1,), 1, 1, NOW_MS), "claim": ([], NOW_MS), "ack_and_claim": ([], [], NOW_MS)}
        arguments["claim_listed"] = ([], REQUEST, NOW_MS)
        given = () if name in ("open", "ping") else ("mail", *arguments.get(name, ([],)))
        with pytest.raises(QueueNotFound):
            await getattr(shard, name)(*given, **({"with_body": False, "max_bytes": 1} if name == "lookup" else {}))
    labels = {key[2] for key, _ in metrics.snapshot() if key[0] == "shard_call_errors"}
    assert labels == {operation.label for operation in OPERATIONS.values()} - {""}
    assert {"put_records", "records", "ready", "give_back", "release", "bury", "collect", "put_note", "notes"} < labels
    assert {"set_share", "census"} < labels


async def test_calls_batches_and_errors() -> None:
    metrics, store = Metrics(), Breaking(SqliteShard("sqlite://", "7"))
    shard = ResilientShard(store, metrics=metrics)
    await shard.open()
    await make_queue(shard, "mail", NOW_MS)
    await shard.enqueue("mail", [Job(b"1"), Job(b"2"), Job(b"3")], NOW_MS)
    await shard.ping()
    store.broken = NothingStored("gone")
    with pytest.raises(NothingStored):
        await shard.enqueue("mail", [Job(b"4")], NOW_MS)
    store.broken = None
    await shard.close()
    counts = dict(metrics.snapshot())
    calls = counts["shard_call_seconds", "7", "enqueue"]
    assert sum(calls[:-1]) == 2
    assert calls[-1] > 0
    assert counts["shard_call_errors", "7", "enqueue", "NOTHING_STORED"] == [1]
    assert counts["shard_batch_jobs", "7", "enqueue"][-1] == 4
    assert ("shard_call_seconds", "7", "ping") in counts
    assert ("shard_call_seconds", "7", "open") not in counts, "tried each second where a store is not there"


def test_counts_of_processes_are_added_and_gauges_by_their_rule() -> None:
    first, second, ended = Metrics(), Metrics(), Metrics()
    for number, metrics in enumerate((first, second, ended), 1):
        metrics.add(number, "jobs_enqueued", "mail", 1)
        metrics.set_gauges((), {("shard_in", "1"): number - 1, ("connections",): number})
        metrics.observe(0.003, "call_seconds", "enqueueJobs")
    merged: dict[tuple[str, ...], list[float]] = {}
    merge(merged, first.snapshot())
    merge(merged, second.snapshot())
    merge(merged, ended.snapshot(), ended=True)
    assert merged["jobs_enqueued", "mail", "1"] == [6]
    assert merged["shard_in", "1"] == [0]
    assert merged["connections",] == [3]
    assert sum(merged["call_seconds", "enqueueJobs"][:-1]) == 3


def test_gauges_that_are_gone_do_not_stay() -> None:
    metrics = Metrics()
    metrics.set_gauges(
        ("queue_jobs", "1"), {("queue_jobs", "1", "a", 1, "ready"): 3, ("queue_jobs", "1", "b", 1, "ready"): 4}
    )
    metrics.set_gauges(("queue_jobs", "1"), {("queue_jobs", "1", "a", 1, "ready"): 5})
    assert metrics.snapshot() == [(("queue_jobs", "1", "a", "1", "ready"), [5])]
