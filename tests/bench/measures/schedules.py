"""What ten thousand schedules cost a server: processor time per second while none is due, and per firing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.metrics import Metrics
from pinlater.model import ScheduleChange, new_version
from pinlater.schedules.firer import ScheduleFirer
from pinlater.schedules.record import changed
from pinlater.service import ServiceSettings
from tests.bench.figures import AtMost, Figure
from tests.bench.run import Run
from tests.unit.several import Server, several

SECONDS = 300
MANY = 10_000
IDLE, FIRING = "a second without firings", "a firing"
FIGURES = (
    ("read the records", "s", []),
    ("begin", "s", []),
    (IDLE, "us", [AtMost(100)]),
    (FIRING, "us", [AtMost(1_000)]),
)


class _Alone:
    """The only process, since ever."""

    def owns(self, shard_id: str) -> bool:
        return True

    def up_since_ms(self) -> int:
        return 0


def measure(run: Run) -> Iterator[Figure]:
    """They are spread over an hour, in a file of SQLite; the clock is set from one second to the next by hand."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    schedules = run.sizes.jobs(MANY)
    rounds = [asyncio.run(_measure_alone(schedules)) for _ in range(run.sizes.rounds)]
    notes = f"{schedules:,} schedules, {rounds[0]['firings']:,.0f} firings in {SECONDS} s; sqlite in this process"
    for what, unit, goals in FIGURES:
        yield Figure(f"schedules/{what}", unit, [each[what] for each in rounds], goals, notes=notes)


async def _measure_alone(schedules: int) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'jobs.db')}"
        async with several(1, settings=ServiceSettings(), stores=lambda: [SqliteShard(url, "1")]) as (server,):
            return await _measure(server, schedules)


async def _measure(server: Server, schedules: int) -> dict[str, float]:
    await server.service.create_queue("mail")
    now_ms = server.clock.now_ms()
    entries = []
    for number in range(schedules):
        minute, name = number % 60, f"s{number}"
        cron = f"{minute} * * * *" if number % 2 else f"{minute} */2 * * *"
        change = ScheduleChange(name=name, queue="mail", body=b"x" * 100, cron=cron, timezone="Europe/Berlin")
        record = changed(None, change, "bench", now_ms)
        entries.append(ConfigEntry(record.entry_name, new_version(now_ms), record.text()))
    await server.members.all[0].shard.put_config(entries, now_ms)
    firer = ScheduleFirer(
        server.service.schedules, server.service.router, _Alone(), server.clock, Metrics(), lambda *_: None
    )
    began = time.process_time()
    await server.queues.poll()
    read_s = time.process_time() - began
    began = time.process_time()
    firer.start()
    await firer.turn()
    start_s = time.process_time() - began
    idle_s = busy_s = 0.0
    fired = idle = 0
    for _ in range(SECONDS):
        server.clock.tick(1_000)
        before = await _stored(server)
        began = time.process_time()
        await firer.turn()
        spent = time.process_time() - began
        stored = await _stored(server) - before
        if stored:
            busy_s += spent
            fired += stored
        else:
            idle_s += spent
            idle += 1
    await firer.close()
    return {
        "read the records": read_s,
        "begin": start_s,
        IDLE: idle_s / max(idle, 1) * 1e6,
        FIRING: busy_s / max(fired, 1) * 1e6,
        "firings": fired,
    }


async def _stored(server: Server) -> int:
    return sum(await server.members.all[0].shard.count_ready("mail", (1,), 1_000_000, server.clock.now_ms()))
