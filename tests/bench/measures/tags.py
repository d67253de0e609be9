"""Counting and cancelling the 1,000 jobs of a tag among 100,000 others, beside a look at all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from pinlater import AsyncClient
from pinlater.model import CONTINUATION_END, ExtendedJob, Job, JobAction
from pinlater.model.job_selection import FoundJobsChange, JobPhase, JobSelection, TextCondition
from tests.bench.cycle_client import QUEUE
from tests.bench.figures import AtMost, Figure
from tests.bench.fill import now_ms
from tests.bench.processes import served
from tests.bench.run import STORES, Run, Stand, stand
from tests.queues import make_queue

OTHERS = 100_000
TAGGED = 1_000
BATCH = 1_000
TAG, STATUS = "tenant:7", "of tenant 7"
PART = 0.2
"""The goal: by tag at most this part of the time."""


def measure(run: Run) -> Iterator[Figure]:
    others = run.sizes.jobs(OTHERS)
    for name in (*STORES, "postgres"):
        with stand(run, name) as store:
            times = _times(store, others)
        run.say(f"  {name}: " + ", ".join(f"{what} {seconds:.3f} s" for what, seconds in times.items()))
        for what in ("count", "cancel"):
            by_tag, by_status = times[f"{what} by tag"], times[f"{what} by status"]
            notes = f"{TAGGED:,} of {others + 2 * TAGGED:,} jobs; {by_status:.3f} s by a pattern over the statuses"
            yield Figure(f"tags/{what} {name}", "s", [by_tag], persistence=store.persistence, notes=notes)
            yield Figure(f"tags/{what} over scan {name}", "x", [by_tag / by_status], [AtMost(PART)])


def _times(store: Stand, others: int) -> dict[str, float]:
    url = store.fresh()
    asyncio.run(_made(store, url))
    with served([url], 1) as server:
        return asyncio.run(_asked(server.address, others))


async def _made(store: Stand, url: str) -> None:
    shard = store.shard(url)
    await shard.open()
    try:
        await make_queue(shard, QUEUE, now_ms())
    finally:
        await shard.close()


async def _asked(server: str, others: int) -> dict[str, float]:
    """Seconds of each change; the number of jobs is checked."""
    by_tag = JobSelection(QUEUE, [JobPhase.READY], tags=[TAG])
    by_status = JobSelection(QUEUE, [JobPhase.READY], status_conditions=[TextCondition(STATUS)])
    times = {}
    async with AsyncClient(server) as client:
        tagged = [ExtendedJob(b"tagged", tags=[TAG, f"letter:{number}"]) for number in range(TAGGED)]
        half = [Job(b"x" * 200)] * BATCH
        for _ in range(others // BATCH // 2):
            await client.enqueue(QUEUE, half)
        await client.enqueue(QUEUE, tagged)
        await client.enqueue(QUEUE, [Job(b"x" * 200, custom_status=STATUS)] * TAGGED)
        for _ in range(others // BATCH // 2):
            await client.enqueue(QUEUE, half)
        for is_dry, what in ((True, "count"), (False, "cancel")):
            for selection, by in ((by_tag, "tag"), (by_status, "status")):
                began = time.perf_counter()
                change = FoundJobsChange(selection, JobAction.CANCEL, limit=2 * TAGGED, dry_run=is_dry)
                changed = 0
                while change.continuation != CONTINUATION_END:
                    answer = await client.change_found_jobs(change)
                    changed += answer.changed
                    change.continuation = answer.continuation
                times[f"{what} by {by}"] = time.perf_counter() - began
                assert changed == TAGGED
    return times
