"""The end of a worker: what runs may end in time, the rest is requeued, and every result is reported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import Job, JobState
from pinlater_workers.jobs.context import current
from pinlater_workers.worker import ExitReason, Worker
from tests.bench.processes import started_by_main_thread
from tests.server.running import RunningServer, running
from tests.speed import slower
from tests.workers.site import WITHIN_S, Site, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("stops")
    with running(folder) as started:
        yield started


@contextlib.asynccontextmanager
async def started(site: Site, **settings: Any) -> AsyncIterator[tuple[Worker, asyncio.Task[ExitReason]]]:
    """A worker that the block ends."""
    worker = site.worker(**settings)
    run = asyncio.create_task(worker.run())
    yield worker, run
    await asyncio.wait_for(run, WITHIN_S)


async def test_running_jobs_end_and_no_others_begin(server: RunningServer) -> None:
    async with Site(server.port) as site:
        told: list[object] = []

        @site.app.job(queue=site.queue)
        def waits(number: int) -> None:
            current().wait(20)
            told.append(current().cancel_reason)

        await waits.enqueue_many_async([(number,) for number in range(10)])
        async with started(site, concurrency=4) as (worker, run):
            await until(lambda: worker.view().running == 4)
            worker.stop()
            assert worker.view().is_stopping
        assert run.result() is ExitReason.DONE
        assert [str(why) for why in told] == ["the worker stops"] * 4
        assert await site.count(JobState.SUCCEEDED) == 4
        assert await site.count(JobState.PENDING) == 6


@pytest.mark.parametrize("pool", ["thread", "async"])
async def test_what_does_not_end_in_time_is_requeued_without_an_attempt(server: RunningServer, pool: str) -> None:
    async with Site(server.port) as site:
        gate = threading.Event()

        @site.app.job(queue=site.queue, attempts=1)
        def plain() -> None:
            gate.wait(20)

        @site.app.job(queue=site.queue, attempts=1)
        async def coroutine() -> None:
            await asyncio.Event().wait()

        descriptor = await (plain if pool == "thread" else coroutine).enqueue_async()
        async with started(site, pool=pool, grace_s=0.1) as (worker, _):
            await until(lambda: worker.view().running == 1)
            worker.stop()
        gate.set()
        info = await site.info(descriptor)
        assert info.state is JobState.PENDING
        assert info.attempts_remaining == 1
        assert site.counted(worker, "given_back").total() == 1


async def test_a_second_stop_does_not_wait(server: RunningServer) -> None:
    async with Site(server.port) as site:
        gate = threading.Event()

        @site.app.job(queue=site.queue, attempts=1)
        def waits() -> None:
            gate.wait(20)

        await waits.enqueue_async()
        began_s = time.monotonic()
        async with started(site, grace_s=600.0) as (worker, _):
            await until(lambda: worker.view().running == 1)
            worker.stop()
            await asyncio.sleep(0)
            worker.stop()
        gate.set()
        assert time.monotonic() - began_s < slower(time.monotonic) * 10
        assert await site.count(JobState.PENDING) == 1


async def test_a_worker_that_stops_while_it_waits_leaves_nothing_claimed(server: RunningServer) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, attempts=1)
        def quick() -> None:
            pass

        for _ in range(5):
            async with started(site) as (worker, _):
                await until(lambda: worker.view().since_good_poll_s < 1)
                await site.client.enqueue(site.queue, [Job(quick.body(), attempts_allowed=1)])
                worker.stop()
        async with site.working():
            await site.all_succeeded(5)


async def test_stopped_before_it_has_begun_it_just_ends(server: RunningServer) -> None:
    async with Site(server.port) as site:
        worker = site.worker()
        worker.stop()
        assert await asyncio.wait_for(worker.run(), WITHIN_S) is ExitReason.DONE


async def test_half_of_the_slots_stuck_it_asks_to_be_replaced(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with Site(server.port) as site:
        gate = threading.Event()

        @site.app.job(queue=site.queue, attempts=1, time_limit=0.2)
        def hangs() -> None:
            gate.wait(20)

        descriptors = await hangs.enqueue_many_async([(), ()])
        async with started(site, concurrency=4) as (_, run):
            pass
        gate.set()
        assert run.result() is ExitReason.REPLACE
        assert await site.count(JobState.FAILED) == 2
        (said,) = [text for text in caplog.messages if "2 of 4 slots are stuck" in text]
        assert all(f"hangs {descriptor}" in said for descriptor in descriptors)


async def test_threads_that_return_when_they_are_told_are_no_reason_to_be_replaced(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, attempts=1, time_limit=0.2)
        def returns() -> None:
            current().wait(20)

        descriptors = await returns.enqueue_many_async([()] * 4)
        async with site.working(concurrency=4) as worker:
            for descriptor in descriptors:
                assert (await site.ended(descriptor)).state is JobState.FAILED
            await until(lambda: worker.view().stuck == 0)
            (last,) = await returns.enqueue_many_async([()])
            await site.ended(last)
        assert "stuck" not in caplog.text


async def test_a_worker_whose_own_part_breaks_says_so_and_ends(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that lives and takes nothing would be worse."""
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue)
        def quick() -> None:
            pass

        def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError("counting")

        monkeypatch.setattr(site.metrics, "started", broken)
        await quick.enqueue_async()
        with pytest.raises(ZeroDivisionError, match="counting"):
            await asyncio.wait_for(site.worker().run(), WITHIN_S)


def is_heartbeat_process(pid: int) -> bool:
    return b"pinlater_workers.heartbeat.process" in Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_no_attempt_is_lost_where_the_heartbeat_process_is_slow_when_the_worker_stops(tmp_path: Path) -> None:
    with running(tmp_path, "--release-grace", "200ms") as server:
        async with Site(server.port) as site:
            gate = threading.Event()

            @site.app.job(queue=site.queue, attempts=5)
            def waits() -> None:
                gate.wait(20)

            async with started(site) as (worker, _):
                descriptor = await waits.enqueue_async()
                await until(lambda: worker.view().running == 1)
                (pid,) = (each for each in started_by_main_thread() if is_heartbeat_process(each))
                os.kill(pid, signal.SIGSTOP)
                try:
                    worker.stop()
                    await asyncio.sleep(1.0)  # the server's grace, and longer
                    info = await site.info(descriptor)
                finally:
                    os.kill(pid, signal.SIGCONT)
                    gate.set()
            assert (info.state, info.attempts_remaining) == (JobState.IN_PROGRESS, 5)
            assert (await site.info(descriptor)).state is JobState.SUCCEEDED
