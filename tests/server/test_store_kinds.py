"""Shards of every kind side by side in one server: jobs in all of them, and keys with their homes over all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from pinlater.client.async_client import AsyncClient
from pinlater.model import Ack, DequeueRequest, ExtendedJob, Job, parse_descriptor
from tests.server.running import running
from tests.stores.places import Places

pytestmark = [pytest.mark.slow]
KEYS = 60
CHAINS, LENGTH = 12, 5
PLAIN = 400


def shard_of(descriptor: str) -> str:
    ref = parse_descriptor(descriptor)
    assert ref is not None
    return ref.shard


async def test_keys_have_their_homes_over_shards_of_all_kinds(
    tmp_path: Path,
    sqlite_places: Places,
    redis_places: Places,
    mysql_places: Places,
    postgres_places: Places,
    dynamodb_places: Places,
) -> None:
    kinds = {
        "sqlite": sqlite_places,
        "redis": redis_places,
        "mysql": mysql_places,
        "postgres": postgres_places,
        "dynamodb": dynamodb_places,
    }
    stores = [f"{kind}={places.fresh()}" for kind, places in kinds.items()]
    options = [part for store in stores for part in ("--store", store)]
    with running(tmp_path, *options, "--processes", "1") as server:
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            await client.create_queue("mail")
            plain = [await client.enqueue("mail", Job(b"plain")) for _ in range(PLAIN)]
            assert Counter(map(shard_of, plain)).keys() == kinds.keys()

            first = [await client.enqueue("mail", ExtendedJob(b"key", dedupe_key=f"k{n}")) for n in range(KEYS)]
            again = [await client.enqueue("mail", ExtendedJob(b"key", dedupe_key=f"k{n}")) for n in range(KEYS)]
            assert again == first
            assert Counter(map(shard_of, first)).keys() == kinds.keys()

            homes: dict[str, set[str]] = defaultdict(set)
            for place in range(LENGTH):
                for chain in range(CHAINS):
                    body = f"{chain} {place}".encode()
                    descriptor = await client.enqueue("mail", ExtendedJob(body, serialize_key=f"c{chain}"))
                    homes[f"c{chain}"].add(shard_of(descriptor))
            assert {len(shards) for shards in homes.values()} == {1}
            assert len(set().union(*homes.values())) > 1

            bodies: Counter[bytes] = Counter()
            order: dict[str, list[int]] = defaultdict(list)
            while jobs := await client.dequeue(DequeueRequest("mail", 50, wait_ms=2_000)):
                for job in jobs:
                    chain, _, place = job.body.decode().partition(" ")
                    if place:
                        order[chain].append(int(place))
                    bodies[job.body] += 1
                await client.ack("mail", [Ack(job.descriptor) for job in jobs], [])
    assert (bodies[b"plain"], bodies[b"key"]) == (PLAIN, KEYS)
    assert list(order.values()) == [list(range(LENGTH))] * CHAINS
