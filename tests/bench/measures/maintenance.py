"""How long dequeues take while a million ended jobs are collected, and while a million claims expire at once."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import NamedTuple

from pinlater.backends.base import STORED_STATES, ScanPosition, ScanRequest, Shard
from pinlater.model import JobState
from tests.bench.figures import AtMost, Figure
from tests.bench.fill import DAY_MS, HOUR_MS, fill_claimed, fill_ended, fill_pending, now_ms
from tests.bench.paced_client import QUEUE
from tests.bench.processes import CpuWatch, Program, served
from tests.bench.run import Run, Stand, stand
from tests.queues import make_queue

JOBS = {"redis": 1_000_000, "sqlite": 200_000, "mysql": 100_000}
PENDING = 10_000
AGO_MS = 40 * DAY_MS
"""Longer ago than any time to live."""

TASKS = {"collect": (JobState.SUCCEEDED, JobState.FAILED), "expire": (JobState.IN_PROGRESS,)}
"""What maintenance does, and the states that jobs then leave."""

DONE_WITHIN_S = 180.0
LOOK_EVERY_S = 0.25
QUIET_S = 10.0


class _Round(NamedTuple):
    busy_ms: list[float]
    quiet_ms: list[float]
    """How long dequeues took while there was something to maintain, and when there was nothing more."""

    done_in_s: float
    cpu: dict[str, float]
    """Seconds of each process until it was done."""


def measure(run: Run) -> Iterator[Figure]:
    for name in JOBS:
        with stand(run, name) as store:
            for task in TASKS:
                yield _figure(run, store, task)


def _figure(run: Run, store: Stand, task: str) -> Figure:
    jobs = run.sizes.jobs(JOBS[store.name])
    rounds = []
    for number in range(run.sizes.rounds if store.name == "redis" else 1):
        rounds.append(asyncio.run(_round(run, store, task, jobs)))
        each = rounds[-1]
        run.say(
            f"  {store.name}, {task}, round {number + 1}: p99 {_p99(each.busy_ms):.1f} ms while {jobs:,} jobs took "
            f"{each.done_in_s:.1f} s, {_p99(each.quiet_ms):.1f} ms afterwards"
        )
    last = rounds[-1]
    p50, most = statistics.median(last.busy_ms), max(last.busy_ms)
    return Figure(
        f"maintenance/{task} {store.name}",
        "ms",
        [_p99(each.busy_ms) for each in rounds],
        [AtMost(20)] if store.name == "redis" else [],
        [_p99(each.quiet_ms) for each in rounds],
        "the same client when there is nothing to maintain",
        {name: seconds / jobs * 1e6 for name, seconds in last.cpu.items()},
        store.persistence,
        notes=f"p99 of dequeues, 100 a second, a tenth for 100 jobs, the others for one; p50 {p50:.1f} ms, the longest "
        f"{most:.1f} ms; {jobs:,} jobs took {statistics.median(each.done_in_s for each in rounds):.1f} s",
    )


async def _round(run: Run, store: Stand, task: str, jobs: int) -> _Round:
    url = store.fresh()
    shard = store.shard(url)
    await shard.open()
    try:
        await make_queue(shard, QUEUE, now_ms())
        await fill_pending(shard, QUEUE, PENDING, run.say)
        if task == "collect":
            await fill_ended(shard, QUEUE, jobs, now_ms() - AGO_MS, run.say)
        else:
            await fill_claimed(shard, QUEUE, jobs, now_ms() - AGO_MS, HOUR_MS, run.say)
        with served([url], 1) as server:
            busy = Program("paced_client", server=server.address)
            watch = CpuWatch({**store.pids, **server.pids()})
            watch.start()
            began = time.monotonic()
            busy.go()
            while any([await _is_left(shard, state) for state in TASKS[task]]):
                if time.monotonic() - began > DONE_WITHIN_S:
                    raise RuntimeError(f"{task} was not done within {DONE_WITHIN_S:.0f} s")
                await asyncio.sleep(LOOK_EVERY_S)
            done_in_s, cpu = time.monotonic() - began, watch.stop()
            busy.go()
            busy_ms = busy.result()["took_ms"]
            quiet = Program("paced_client", server=server.address)
            quiet.go()
            await asyncio.sleep(max(2.0, QUIET_S * run.sizes.scale))
            quiet.go()
            return _Round(busy_ms, quiet.result()["took_ms"], done_in_s, cpu)
    finally:
        await shard.close()


async def _is_left(shard: Shard, state: JobState) -> bool:
    """Whether a job of long ago is in that state: all others are newer."""
    behind = ScanPosition(now_ms() - AGO_MS // 2, 0)
    return bool(
        await shard.scan(QUEUE, ScanRequest(STORED_STATES[state], (1,), future=False, limit=1, after=behind), now_ms())
    )


def _p99(took_ms: list[float]) -> float:
    return statistics.quantiles(took_ms, n=100)[98]
