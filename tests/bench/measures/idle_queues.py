"""Processor time of a server that has a thousand queues and nothing to do."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

from pinlater import AsyncClient
from pinlater.backends.base import ConfigEntry
from pinlater.model import new_version
from pinlater.queues.changes import entry_text
from tests.bench.figures import AtMost, Figure, Goal
from tests.bench.fill import now_ms
from tests.bench.processes import CpuWatch, Server, served
from tests.bench.run import PERSISTENCE, Run, Stand, stand
from tests.stores.process import free_port

QUEUES = 1_000
SETTINGS = ({"claim_timeout": "1m"}, {"succeeded_ttl": "1h", "failed_ttl": "2d"}, {"crash_budget": "3"})
"""What is set for half of the queues, in turn."""

SECONDS = 20.0
SETTLE_S = 6.0
"""Until all queues were counted once, and every process knows all of them."""

SCRAPE_EVERY_S = 5.0


class _Case(NamedTuple):
    store: str
    processes: int
    is_scraped: bool = False
    goals: tuple[Goal, ...] = ()

    @property
    def name(self) -> str:
        processes = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{self.store}{processes}{', scraped' if self.is_scraped else ''}"


CASES = (
    _Case("redis", 1, goals=(AtMost(2),)),
    _Case("redis", 2, goals=(AtMost(2),)),
    _Case("redis", 1, is_scraped=True),
    _Case("sqlite", 1),
    _Case("mysql", 1),
)


def measure(run: Run) -> Iterator[Figure]:
    for case in CASES:
        spent = _spent(run, case)
        server = {name: share for name, share in spent.items() if "server" in name or name == "supervisor"}
        shown = ", ".join(f"{name} {share:.2f}" for name, share in spent.items())
        run.say(f"  {case.name}: {shown} % of a core")
        yield Figure(
            f"idle_queues/{case.name}",
            "%",
            [sum(server.values())],
            case.goals,
            persistence=PERSISTENCE[case.store],
            notes=f"of a core, all processes of the server; {QUEUES:,} queues, {_seconds(run):.0f} s; each: {shown}",
        )


def _spent(run: Run, case: _Case) -> dict[str, float]:
    """The share of a core in % that each process takes."""
    http = f"127.0.0.1:{free_port()}" if case.is_scraped else "none"
    with stand(run, case.store) as store:
        url = store.fresh()
        asyncio.run(_make_queues_with_settings(store, url))
        with served([url], case.processes, http=http) as server:
            asyncio.run(_make_queues(server))
            time.sleep(SETTLE_S)
            watch = CpuWatch({**store.pids, **server.pids(), "supervisor": server.supervisor})
            watch.start()
            _wait(_seconds(run), http if case.is_scraped else "")
            return {name: seconds / _seconds(run) * 100 for name, seconds in watch.stop().items()}


def _seconds(run: Run) -> float:
    return max(5.0, SECONDS * run.sizes.scale)


def _wait(seconds: float, http: str) -> None:
    ends_at = time.monotonic() + seconds
    while (left := ends_at - time.monotonic()) > 0:
        if http:
            with urllib.request.urlopen(f"http://{http}/metrics", timeout=SCRAPE_EVERY_S) as answer:
                answer.read()
        time.sleep(min(left, SCRAPE_EVERY_S))


async def _make_queues_with_settings(store: Stand, url: str) -> None:
    """As their entries, before there is a server."""
    shard = store.shard(url)
    await shard.open()
    try:
        numbers = range(QUEUES // 2, QUEUES)
        texts = {f"queue_{number}": entry_text(SETTINGS[number % len(SETTINGS)]) for number in numbers}
        entries = [ConfigEntry(name, new_version(now_ms(), ""), text) for name, text in texts.items()]
        await shard.put_config(entries, now_ms())
    finally:
        await shard.close()


async def _make_queues(server: Server) -> None:
    async with AsyncClient(server.address) as client:
        for number in range(QUEUES // 2):
            await client.create_queue(f"queue_{number}")
