"""Single enqueue calls over Thrift, many in flight from one client, which joins them; and one at a time (Redis)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.bench.figures import AtLeast, Figure, Goal
from tests.bench.floor import enqueue_rate, on_redis
from tests.bench.processes import Outcome, Program, loaded, served
from tests.bench.run import PERSISTENCE, Run
from tests.stores.process import StoreServer

CALLS = 200_000
IN_FLIGHT = 50
CALLS_ALONE = 20_000


def measure(run: Run) -> Iterator[Figure]:
    yield _figure(run, "single", CALLS, IN_FLIGHT, [AtLeast(60_000)])
    yield _figure(run, "single/alone", CALLS_ALONE, 1, [])


def _figure(run: Run, name: str, usual_calls: int, in_flight: int, goals: list[Goal]) -> Figure:
    store, calls = run.store("redis"), run.sizes.jobs(usual_calls)
    rates, floors = list[float](), list[float]()
    cpu: Mapping[str, float] = {}

    def direct() -> float:
        return on_redis(store, lambda shard: enqueue_rate(shard, calls // in_flight // 2, in_flight))

    for number in range(run.sizes.rounds):
        before = direct()
        outcome = _over_thrift(store, calls, in_flight)
        after = direct()
        rates.append(outcome.rate)
        cpu = outcome.cpu_us
        floors.append((before + after) / 2)
        run.say(f"  {name}, round {number + 1}: {rates[-1]:,.0f} calls/s")
    return Figure(
        name,
        "calls/s",
        rates,
        goals,
        floors,
        f"one client that calls the enqueue script, a call at a time, {in_flight} jobs in each",
        cpu,
        PERSISTENCE["redis"],
        notes=f"200-byte bodies, one AsyncClient on uvloop with {in_flight} calls in flight, joined by default",
    )


def _over_thrift(store: StoreServer, calls: int, in_flight: int) -> Outcome:
    """Calls through the server."""
    store.empty(1)
    with served([store.url(1)], 1) as server:
        program = Program("callers singles", server=server.address, calls=calls, in_flight=in_flight)
        return loaded(program, server, store)
