"""Callers of a simulated cluster: each part by itself, with faults between callers and servers, and that a seed decides
all of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
import structlog

from pinlater.config import Config
from pinlater.history.recorder import Recorder
from tests.simulation import virtual_time
from tests.simulation.caller_network import CallerFault, CallerNetwork, FaultKind
from tests.simulation.callers import Callers
from tests.simulation.parts import PARTS
from tests.simulation.parts.part import PartSettings
from tests.simulation.served_cluster import ServedCluster

BUSY = PartSettings(producers=2, workers=3, pause_s=0.5, lull=0.0, wait_ms=5_000, deaths_per_hour=60.0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@dataclass
class Ran:
    """A run of one part."""

    lines: list[bytes] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    trace: str = ""

    def methods(self) -> set[str]:
        return {each["method"] for each in map(json.loads, self.lines) if "method" in each}


def run(name: str, seed: int, faults: Sequence[CallerFault] = (), *, seconds: float = 60.0, kill: bool = False) -> Ran:
    return virtual_time.run(_run(name, seed, faults, seconds, kill), seed)


async def _run(name: str, seed: int, faults: Sequence[CallerFault], seconds: float, kill: bool) -> Ran:
    ran, loop = Ran(), asyncio.get_running_loop()
    with CallerNetwork(random.Random(f"{seed} callers")) as network:
        cluster = ServedCluster(network, 3, config=Config(bodies=("tier=file:///tier",)))
        await cluster.start_all(2)
        recorder = Recorder(ran.lines.append, lambda: virtual_time.EPOCH_MS + loop.time() * 1000)
        callers = Callers(network, str(seed), recorder)
        part = PARTS[name](callers, random.Random(f"{seed} {name}"), BUSY)
        await part.set_up()
        network.add(*(replace(each, from_s=loop.time(), until_s=loop.time() + seconds) for each in faults))
        part.start()
        await asyncio.sleep(seconds / 2)
        if kill:
            cluster.kill(cluster.servers[0])
            await asyncio.sleep(3)
            await cluster.start("q3")
        await asyncio.sleep(seconds / 2)
        network.heal()
        await part.stop_producing()
        ran.left = await part.finish(120.0)
        await part.stop()
        recorder.note("end")
        await callers.close_all()
        await cluster.close()
        ran.errors, ran.faults, ran.trace = dict(callers.errors), network.counts, cluster.network.tally.hash()
    return ran


@pytest.mark.parametrize("name", PARTS)
def test_a_part_by_itself_comes_to_its_end(name: str) -> None:
    ran = run(name, 1)
    assert ran.left == []


@pytest.mark.parametrize("name", PARTS)
def test_a_part_comes_to_its_end_whatever_befalls_its_calls(name: str) -> None:
    chances = {FaultKind.LATE: 0.05, FaultKind.TWICE: 0.2, FaultKind.REFUSED: 0.2}
    faults = [CallerFault(kind, 0.0, 0.0, chances.get(kind, 0.02)) for kind in FaultKind if kind is not FaultKind.CUT]
    ran = run(name, 2, faults, kill=True)
    assert ran.left == []
    assert set(ran.faults) == {each.kind for each in faults}


def test_one_seed_is_one_history_and_another_seed_another() -> None:
    faults = [CallerFault(kind, 0.0, 0.0, 0.02) for kind in FaultKind]
    first, again, other = (run("plain", seed, faults, kill=True) for seed in (1, 1, 2))
    assert (first.lines, first.trace) == (again.lines, again.trace)
    assert other.lines != first.lines
