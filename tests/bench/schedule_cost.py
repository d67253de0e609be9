"""The cost of many schedules for one server: its processor time per second while none is due, and per firing.

    python -m tests.bench.schedule_cost [SCHEDULES]

Schedules are spread over an hour, in a file of SQLite; the clock is set from one second to the next by hand.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
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
from tests.unit.several import Server, several

SECONDS = 300


class _Alone:
    """The only process, since ever."""

    def owns(self, shard_id: str) -> bool:
        return True

    def up_since_ms(self) -> int:
        return 0


async def measure(schedules: int) -> dict[str, float]:
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
        "read the records, s": read_s,
        "begin, s": start_s,
        "a second without firings, us": idle_s / max(idle, 1) * 1e6,
        "a firing, us": busy_s / max(fired, 1) * 1e6,
        "firings": fired,
    }


async def _stored(server: Server) -> int:
    return sum(await server.members.all[0].shard.count_ready("mail", (1,), 1_000_000, server.clock.now_ms()))


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for what, value in asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)).items():
        print(f"{what:32} {value:12,.3f}")
