"""Jobs that are asked to stop while they run, in a thread, on the event loop and in a process; and how far jobs are."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from pinlater import AsyncClient, Client
from pinlater.model import CancelOutcome, JobInfo, JobState
from pinlater_workers import App, Batch, JobCancelled
from pinlater_workers.jobs.context import current
from tests.server.running import running
from tests.workers.command import working
from tests.workers.site import Site, until

CLAIM_MS = 1_500
"""A third of it is the time between heartbeats."""

PROGRAM = """
import asyncio
import time
from pinlater_workers import App

app = App(servers=["127.0.0.1:PORT"])

@app.job(queue="stopped")
def deaf() -> None:
    print("begun", flush=True)
    time.sleep(60)

@app.job(queue="stopped")
async def awaiting() -> None:
    print("awaits", flush=True)
    try:
        await asyncio.Event().wait()
    except BaseException as error:
        print(type(error).__name__, "in the coroutine", flush=True)
        raise
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server"), "--claim-timeout", f"{CLAIM_MS}ms") as server:
        yield server.port


async def in_progress(site: Site, descriptor: str) -> None:
    async def runs() -> bool:
        return (await site.info(descriptor)).state is JobState.IN_PROGRESS

    await until(runs)


async def stop(client: AsyncClient, queue: str, descriptor: str) -> None:
    asked = await client.cancel(queue, [descriptor], running=True)
    assert asked[descriptor] is CancelOutcome.REQUESTED


def assert_cancelled(info: JobInfo, source: str) -> None:
    assert (info.state, info.cancelled, info.cancel_requested_by) == (JobState.FAILED, True, source)
    assert f"cancelled by {source}" in info.custom_status


async def test_a_thread_is_told_and_ends_as_cancelled(port: int) -> None:
    async with Site(port) as site:
        seen: list[str] = []

        @site.app.job(queue=site.queue, attempts=5)
        def listening() -> None:
            context = current()
            assert context.wait(60)
            seen.append(context.cancel_text)
            context.raise_if_cancelled()

        async with site.working(pool="thread") as worker:
            descriptor = str(await listening.enqueue_async())
            await in_progress(site, descriptor)
            await stop(site.client, site.queue, descriptor)
            assert_cancelled(await site.ended(descriptor), site.client.source)
            assert seen == [f"cancelled by {site.client.source}"]
            await until(lambda: site.counted(worker, "cancelled") == {"listening": 1})
            assert not site.counted(worker, "failed") + site.counted(worker, "retried")


async def test_a_coroutine_is_cancelled(port: int) -> None:
    async with Site(port) as site:
        ended = asyncio.Event()

        @site.app.job(queue=site.queue, attempts=5)
        async def sleeping() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with site.working(pool="async"):
            descriptor = str(await sleeping.enqueue_async())
            await in_progress(site, descriptor)
            await stop(site.client, site.queue, descriptor)
            assert_cancelled(await site.ended(descriptor), site.client.source)
            assert ended.is_set()


async def test_a_success_after_the_request_counts(port: int) -> None:
    async with Site(port) as site:

        @site.app.job(queue=site.queue, attempts=5)
        def finishing() -> None:
            assert current().wait(60)

        async with site.working(pool="thread"):
            descriptor = str(await finishing.enqueue_async())
            await in_progress(site, descriptor)
            await stop(site.client, site.queue, descriptor)
            info = await site.ended(descriptor)
            assert (info.state, info.cancelled or False) == (JobState.SUCCEEDED, False)


def test_a_process_that_does_not_listen_is_killed_after_the_grace(port: int, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(PROGRAM.replace("PORT", str(port)), encoding="utf-8")
    app = App(servers=[f"127.0.0.1:{port}"])
    with Client(f"127.0.0.1:{port}") as client:
        client.create_queue("stopped")
        descriptor = str(app.job(queue="stopped", name="deaf", attempts=5)(lambda: None).enqueue())
        app.close()
        arguments = ("--app", "jobs:app", "--pool", "process", "--concurrency", "1", "--cancel-grace", "200ms")
        with working(tmp_path, *arguments) as worker:
            worker.wait_for("begun")
            assert client.cancel("stopped", [descriptor], running=True)[descriptor] is CancelOutcome.REQUESTED
            deadline_s = time.monotonic() + 60
            while (info := client.lookup([descriptor])[descriptor]).state is JobState.IN_PROGRESS:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            assert_cancelled(info, client.source)


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_coroutine_in_a_pool_of_threads_or_processes_is_cancelled(port: int, pool: str, tmp_path: Path) -> None:
    program = PROGRAM.replace("PORT", str(port)).replace("stopped", f"{pool}_coroutines")
    (tmp_path / "jobs.py").write_text(program, encoding="utf-8")
    app = App(servers=[f"127.0.0.1:{port}"])
    with Client(f"127.0.0.1:{port}") as client:
        queue = f"{pool}_coroutines"
        client.create_queue(queue)
        handle = app.job(queue=queue, name="awaiting", attempts=5)(lambda: None).enqueue()
        with working(tmp_path, "--app", "jobs:app", "--pool", pool, "--concurrency", "1") as worker:
            worker.wait_for("awaits")
            assert client.cancel(queue, [str(handle)], running=True)[str(handle)] is CancelOutcome.REQUESTED
            worker.wait_for("CancelledError in the coroutine")
            with pytest.raises(JobCancelled):
                handle.result(timeout=30)
            info = handle.info()
            assert info is not None
            assert_cancelled(info, client.source)
        app.close()


@pytest.mark.parametrize("pool", ["thread", "async"])
async def test_one_job_of_a_batch_is_told_and_the_others_go_on(port: int, pool: Literal["thread", "async"]) -> None:
    async with Site(port) as site:
        seen: list[tuple[int, str]] = []

        def look(batch: Batch[int]) -> bool:
            for job in batch:
                if job.context.cancelled and not job.settled:
                    seen.append((job.arguments, job.context.cancel_text))
                    job.fail(RuntimeError("stopped"))
            return bool(seen) or batch.cancelled

        @site.app.job(queue=site.queue, batch=3, wait="5s", attempts=5)
        def blocking(batch: Batch[int]) -> None:
            while not look(batch):
                time.sleep(0.01)

        @site.app.job(queue=site.queue, batch=3, wait="5s", attempts=5)
        async def awaiting(batch: Batch[int]) -> None:
            while not look(batch):
                await asyncio.sleep(0.01)

        async with site.working(pool=pool) as worker:
            job_type = blocking if pool == "thread" else awaiting
            first, second, third = await job_type.enqueue_many_async([(1,), (2,), (3,)])
            await in_progress(site, second)
            await until(lambda: worker.view().running)
            await stop(site.client, site.queue, second)
            assert_cancelled(await site.ended(second), site.client.source)
            for each in (first, third):
                assert (await site.ended(each)).state is JobState.SUCCEEDED
            assert seen == [(2, f"cancelled by {site.client.source}")]


async def test_a_batch_whose_jobs_are_all_cancelled_is_cancelled(port: int) -> None:
    async with Site(port) as site:
        ended = asyncio.Event()

        @site.app.job(queue=site.queue, batch=2, wait="5s", attempts=5)
        async def sleeping(batch: Batch[int]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with site.working(pool="async") as worker:
            handles = await sleeping.enqueue_many_async([(1,), (2,)])
            await until(lambda: worker.view().running)
            for each in handles:
                await in_progress(site, each)
                await stop(site.client, site.queue, each)
            for each in handles:
                assert_cancelled(await site.ended(each), site.client.source)
            assert ended.is_set()
            await until(lambda: site.counted(worker, "cancelled") == {"sleeping": 2})


async def test_a_job_that_waits_for_its_batch_ends_without_having_begun(port: int) -> None:
    async with Site(port) as site:
        ran: list[int] = []

        @site.app.job(queue=site.queue, batch=3, wait="60s", attempts=5)
        def index(batch: Batch[int]) -> None:
            ran.extend(batch.arguments)

        async with site.working(pool="thread"):
            first, second = await index.enqueue_many_async([(1,), (2,)])
            await in_progress(site, first)
            await stop(site.client, site.queue, first)
            assert_cancelled(await site.ended(first), site.client.source)
            more = await index.enqueue_many_async([(3,), (4,)])
            for each in (second, *more):
                assert (await site.ended(each)).state is JobState.SUCCEEDED
            assert sorted(ran) == [2, 3, 4]


async def test_progress_is_seen_while_the_job_runs_and_stays(port: int) -> None:
    async with Site(port) as site:
        go = threading.Event()

        @site.app.job(queue=site.queue)
        def counting() -> None:
            current().progress(0.4, "rows 400 of 1000")
            go.wait(60)

        async with site.working(pool="thread"):
            descriptor = str(await counting.enqueue_async())

            async def told() -> bool:
                return (await site.info(descriptor)).progress is not None

            await until(told)
            progress = (await site.info(descriptor)).progress
            assert progress is not None
            assert (progress.fraction, progress.text) == (0.4, "rows 400 of 1000")
            go.set()
            ended = await site.ended(descriptor)
            assert ended.progress is not None
            assert ended.progress.text == "rows 400 of 1000"
