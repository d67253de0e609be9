"""The cycle with two Redis shards, each a process of its own, beside that with one."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.figures import AtMost, Figure, OfFloor
from tests.bench.measures.cycle import BATCH, IN_FLIGHT, over_thrift
from tests.bench.run import PERSISTENCE, Run

JOBS = 60_000


def measure(run: Run) -> Iterator[Figure]:
    one, two = run.store("redis"), run.store("redis", 1)
    batches = run.sizes.jobs(JOBS) // BATCH
    rates, floors, store_cpu, cpu = [], [], [], {}
    for number in range(run.sizes.rounds):
        before = over_thrift([one], batches)
        both = over_thrift([one, two], batches)
        after = over_thrift([one], batches)
        rates.append(both.rate)
        floors.append((before.rate + after.rate) / 2)
        store_cpu.append(both.all_of("redis") * 2 / (before.all_of("redis") + after.all_of("redis")))
        cpu = both.cpu_us
        run.say(f"  round {number + 1}: {rates[-1] / floors[-1]:.2f} of one shard; the stores {store_cpu[-1]:.2f}")
    notes = f"batches of {BATCH}, 200-byte bodies, one client process with {IN_FLIGHT} calls in flight"
    floor_is = "the same with one shard"
    persistence = PERSISTENCE["redis"]
    yield Figure("shards", "jobs/s", rates, [OfFloor(0.75)], floors, floor_is, cpu, persistence, notes=notes)
    yield Figure(
        "shards/stores",
        "x",
        store_cpu,
        [AtMost(1.2)],
        persistence=persistence,
        notes="processor time per job of two stores together, over that of one with one shard",
    )
