"""Calls over TLS beside the same in plain: by 100, 32 single calls at a time, one call at a time (Redis)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from tests.bench.figures import Figure, OfFloor
from tests.bench.processes import Outcome, Program, loaded, served
from tests.bench.run import PERSISTENCE, Run
from tests.server.certificates import Authority
from tests.stores.process import StoreServer

BATCHES = 600
SINGLES = 30_000
ONE_BY_ONE = 6_000


def measure(run: Run) -> Iterator[Figure]:
    store = run.store("redis")
    loads: dict[str, tuple[str, dict[str, int], float]] = {
        "batches": ("batches", {"in_flight": 4, "batches": run.sizes.jobs(BATCHES, 10)}, 0.8),
        "drain": ("drain", {"in_flight": 4, "batches": run.sizes.jobs(BATCHES, 10)}, 0.8),
        "singles": ("singles", {"in_flight": 32, "calls": run.sizes.jobs(SINGLES)}, 0.6),
        "one": ("singles", {"in_flight": 1, "calls": run.sizes.jobs(ONE_BY_ONE)}, 0.6),
    }
    with tempfile.TemporaryDirectory(prefix="pinlater-bench-") as folder:
        authority = Authority(Path(folder))
        cert, key = authority.issue("server", "127.0.0.1", "localhost")
        with_tls = ["--tls-cert", cert, "--tls-key", key]
        for name, (load, sizes, goal) in loads.items():
            rates, floors = [], []
            for number in range(run.sizes.rounds):
                before = _over(store, load, sizes)
                with patch.dict("os.environ", PINLATER_TLS_CA=authority.ca):
                    outcome = _over(store, load, sizes, with_tls)
                after = _over(store, load, sizes)
                rates.append(outcome.rate)
                floors.append((before.rate + after.rate) / 2)
                run.say(f"  {name}, round {number + 1}: {rates[-1] / floors[-1]:.2f} of plain")
            notes = f"TLS 1.3; {', '.join(f'{what} {size}' for what, size in sizes.items())}"
            floor_is, persistence = "the same in plain", PERSISTENCE["redis"]
            cpu_us = outcome.cpu_us
            yield Figure(
                f"tls/{name}", "jobs/s", rates, [OfFloor(goal)], floors, floor_is, cpu_us, persistence, notes=notes
            )


def _over(store: StoreServer, load: str, sizes: dict[str, int], options: list[str] | None = None) -> Outcome:
    store.empty(1)
    with served([store.url(1)], 1, options=options or []) as server:
        return loaded(Program(f"callers {load}", server=server.address, **sizes), server, store)
