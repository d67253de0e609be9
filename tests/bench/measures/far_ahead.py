"""Finding, moving and cancelling a job two years ahead by its key among ten million others, beside a handful."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from pinlater import AsyncClient
from pinlater.model import CancelOutcome, ExtendedJob, KeyRef, RescheduleJob, RescheduleOutcome
from tests.bench.cycle_client import QUEUE
from tests.bench.figures import AtMost, Figure
from tests.bench.fill import DAY_MS, fill_future, now_ms
from tests.bench.processes import served
from tests.bench.run import STORES, Run, Stand, stand
from tests.queues import make_queue

MANY = 10_000_000
FEW = 1_000
ASKED = 100
TWO_YEARS_MS = 730 * DAY_MS
TIMES = 2
"""The goal: among many at most so many times as long as among few."""

Times = dict[str, list[float]]


def measure(run: Run) -> Iterator[Figure]:
    many = run.sizes.jobs(MANY)
    for name in STORES:
        with stand(run, name) as store:
            few_ms, many_ms = _times(run, store, FEW), _times(run, store, many)
        for what, times in many_ms.items():
            notes = f"{many:,} others; {statistics.median(few_ms[what]):.2f} ms among {FEW:,}; {ASKED} calls"
            ratio = statistics.median(times) / statistics.median(few_ms[what])
            yield Figure(
                f"far_ahead/{what} {name}", "ms", [statistics.median(times)], persistence=store.persistence, notes=notes
            )
            yield Figure(f"far_ahead/{what} over few {name}", "x", [ratio], [AtMost(TIMES)])


def _times(run: Run, store: Stand, others: int) -> Times:
    url = store.fresh()
    asyncio.run(_fill(run, store, url, others))
    with served([url], 1) as server:
        times = asyncio.run(_asked(server.address))
    run.say(
        f"  {store.name}, {others:,}: " + ", ".join(f"{what} {statistics.median(ms):.2f}" for what, ms in times.items())
    )
    return times


async def _fill(run: Run, store: Stand, url: str, jobs: int) -> None:
    shard = store.shard(url)
    await shard.open()
    try:
        await make_queue(shard, QUEUE, now_ms())
        await fill_future(shard, QUEUE, jobs, run.say)
    finally:
        await shard.close()


async def _asked(server: str) -> Times:
    """Milliseconds of each call, by what it does; each answer is checked."""
    times: Times = {"lookup": [], "reschedule": [], "cancel": []}

    async def timed(what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        began = time.perf_counter()
        answer = await call()
        times[what].append((time.perf_counter() - began) * 1e3)
        return answer

    async with AsyncClient(server) as client:
        for number in range(ASKED):
            key, at_ms = KeyRef(f"contract:{number}"), now_ms() + TWO_YEARS_MS
            job = ExtendedJob(b"a reminder", run_after_ms=at_ms, dedupe_key=key.dedupe_key)
            descriptor = await client.enqueue(QUEUE, job)
            found = await timed("lookup", lambda key=key: client.lookup([], queue=QUEUE, keys=[key]))
            assert found[descriptor].run_after_ms == at_ms
            change = RescheduleJob(key=key, run_after_ms=at_ms + DAY_MS)
            outcomes = await timed("reschedule", lambda change=change: client.reschedule(QUEUE, [change]))
            assert outcomes == [RescheduleOutcome.RESCHEDULED]
            cancelled = await timed("cancel", lambda key=key: client.cancel(QUEUE, [], keys=[key]))
            assert cancelled.by_key == [CancelOutcome.CANCELLED]
            assert await client.lookup([descriptor]) == {}
    return times
