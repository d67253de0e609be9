"""Single enqueue calls from 64 plain connections that join nothing, and what an empty call costs (Redis)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.bench.figures import AtMost, Figure, OfFloor
from tests.bench.floor import enqueue_rate, on_redis
from tests.bench.processes import Outcome, Program, loaded, served
from tests.bench.run import PERSISTENCE, Run
from tests.stores.process import StoreServer

CALLS = 40_000
CONNECTIONS = 64
NOTES = f"200-byte bodies, each its own; one process with {CONNECTIONS} connections, one call in flight on each"


def measure(run: Run) -> Iterator[Figure]:
    store, calls = run.store("redis"), run.sizes.jobs(CALLS)
    direct = partial(enqueue_rate, calls=calls // 4, batch=1)
    rates, floors, over_empty, outcome = [], [], [], None
    for number in range(run.sizes.rounds):
        before = on_redis(store, direct)
        outcome = over_thrift(store, "enqueue", calls)
        after = on_redis(store, direct)
        empty = over_thrift(store, "empty", calls)
        rates.append(outcome.rate)
        floors.append((before + after) / 2)
        over_empty.append(outcome.all_of("server") / empty.all_of("server"))
        run.say(
            f"  round {number + 1}: {rates[-1] / floors[-1]:.2f} of the floor; {over_empty[-1]:.2f} times an empty call"
        )
    assert outcome is not None
    floor_is = "one client that calls the enqueue script once per job, a call at a time"
    persistence = PERSISTENCE["redis"]
    yield Figure("plain", "calls/s", rates, [OfFloor(1.4)], floors, floor_is, outcome.cpu_us, persistence, notes=NOTES)
    yield Figure(
        "plain/over empty",
        "x",
        over_empty,
        [AtMost(2)],
        persistence=persistence,
        notes="the server's processor time per call, over that of a call without jobs, which needs no store",
    )


def over_thrift(
    store: StoreServer, what: str, calls: int, processes: int = 1, connections: int = CONNECTIONS
) -> Outcome:
    """From plain connections to an empty store."""
    store.empty(1)
    with served([store.url(1)], processes) as server:
        program = Program("plain", server=server.address, what=what, calls=calls, connections=connections)
        return loaded(program, server, store)
