"""What a load program came to, with the processor time of everything that took part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.bench.cpu import CpuWatch, per_job
from tests.bench.processes import Program, Server
from tests.stores.process import StoreServer


@dataclass(frozen=True)
class Outcome:
    """`rate` is jobs or calls per second; `cpu_us` the microseconds of each process for one of them."""

    rate: float
    cpu_us: Mapping[str, float]

    def all_of(self, kind: str) -> float:
        """The processor time per job of every `server`, or every `redis`, together."""
        return sum(spent for name, spent in self.cpu_us.items() if name.split()[0] == kind)


def loaded(program: Program, server: Server, *stores: StoreServer) -> Outcome:
    """Have a program that is ready begin, and wait for its end."""
    watched = {f"{store.name} {number}": store.pid for number, store in enumerate(stores, 1)}
    watch = CpuWatch(watched | server.pids())
    watch.start()
    program.go()
    result = program.result()
    spent = watch.stop() | {"client": result["cpu"]}
    return Outcome(result["jobs"] / result["seconds"], per_job(spent, result["jobs"]))
