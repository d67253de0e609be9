"""Handles of jobs on a real server: results, states, cancels, other times, and what became of duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import pinlater
from pinlater import AsyncClient
from pinlater.errors import EnqueueRejected, MethodUnknown
from pinlater.model import CancelOutcome, EnqueueOutcome, JobState, RescheduleOutcome, any_extended
from pinlater_workers import Batch, JobCancelled, JobFailed, ResultGone, current
from pinlater_workers.jobs.outcome import Fail
from tests.server.running import running
from tests.workers.site import Site


@dataclass
class Total:
    account: str
    cents: int


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server.port


async def test_a_result_arrives_as_the_function_is_annotated(port: int) -> None:
    async with Site(port) as site:

        @site.app.job(queue=site.queue, keep_result=True)
        def total(account: str) -> Total:
            return Total(account, 1_250)

        @site.app.job(queue=site.queue, keep_result=True, encoding="msgpack")
        async def nothing() -> None: ...

        @site.app.job(queue=site.queue)
        def dropped() -> int:
            return 7

        async with site.working():
            assert await (await total.enqueue_async("ada")).result(timeout=60) == Total("ada", 1_250)
            assert await (await nothing.enqueue_async()).result(timeout=60) is None
            assert await (await dropped.enqueue_async()).result(timeout=60) is None
            assert await (await dropped.options(keep_result=True).enqueue_async()).result(timeout=60) == 7


async def test_a_result_that_is_not_kept_is_said_once_to_who_asks_for_it(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with Site(port) as site:

        @site.app.job(queue=site.queue)
        def dropped() -> int:
            return 7

        @site.app.job(queue=site.queue)
        def nothing() -> None: ...

        async with site.working():
            for job_type in (dropped, dropped, nothing):
                assert await (await job_type.enqueue_async()).result(timeout=60) is None
    (said,) = [text for text in caplog.messages if "result()" in text]
    assert said.startswith("job dropped: result() of ")
    assert "say keep_result=True" in said


async def test_each_job_of_a_batch_has_a_result_of_its_own(port: int) -> None:
    async with Site(port) as site:

        @site.app.job(queue=site.queue, batch=3, keep_result=True)
        def doubled(batch: Batch[int]) -> None:
            for job in batch:
                job.succeed(result=job.arguments * 2)

        async with site.working():
            handles = await doubled.enqueue_many_async([(1,), (2,), (3,)])
            assert [await each.result(timeout=60) for each in handles] == [2, 4, 6]


async def test_what_fails_is_raised_with_its_status(port: int) -> None:
    async with Site(port) as site:

        @site.app.job(queue=site.queue, keep_result=True)
        def fails(kind: str) -> object:
            if kind == "large":
                return "x" * 70_000
            if kind == "odd":
                return {1, object()}
            raise Fail("no such account")

        async with site.working():
            with pytest.raises(JobFailed, match="no such account") as failed:
                await (await fails.options(attempts=1).enqueue_async("fail")).result(timeout=60)
            assert failed.value.status.startswith("attempt 1 of 1: Fail: no such account")
            with pytest.raises(JobFailed, match=r"RESULT_TOO_LARGE: [0-9]+ bytes(?s:.*)raise max_result of the queue"):
                await (await fails.options(attempts=1).enqueue_async("large")).result(timeout=60)
            with pytest.raises(JobFailed, match="ResultInvalid: job 'fails' returned set, which cannot be kept"):
                await (await fails.enqueue_async("odd")).result(timeout=60)


@pytest.mark.parametrize("many", [False, True])
async def test_newer_arguments_that_are_not_taken_are_said_once_and_by_the_job(
    port: int, caplog: pytest.LogCaptureFixture, many: bool
) -> None:
    async with Site(port) as site:
        began, go_on = asyncio.Event(), asyncio.Event()

        @site.app.job(queue=site.queue, unique="{user_id}", on_duplicate="replace", pool="async")
        async def later(user_id: int, text: str = "") -> None:
            began.set()
            await go_on.wait()

        async with site.working():
            first = await later.enqueue_async(7, "a")
            await asyncio.wait_for(began.wait(), 60)
            with caplog.at_level("WARNING", "pinlater_workers"):
                for text in ("b", "c"):
                    if many:
                        (kept,) = await later.enqueue_many_async([(7, text)])
                    else:
                        kept = await later.enqueue_async(7, text)
                    assert (str(kept), kept.outcome) == (first, EnqueueOutcome.KEPT)
                await later.options(on_duplicate="keep").enqueue_async(7, "d")
            info = await site.info(first)
            go_on.set()
            await first.result(timeout=60)
        (said,) = [text for text in caplog.messages if "newer arguments" in text]
        assert said.startswith(f"job later: newer arguments are not taken, since {first} runs already")
        assert info.custom_status.count("[newer arguments were not taken from ") == 1


async def test_a_job_that_waits_is_moved_replaced_and_cancelled(port: int) -> None:
    async with Site(port) as site:

        @site.app.job(queue=site.queue, unique="{user_id}", on_duplicate="replace")
        def later(user_id: int, text: str = "") -> None: ...

        first = await later.options(delay="1h").enqueue_async(7, "a")
        second = await later.options(delay="2h").enqueue_async(7, "b")
        assert (str(second), first.outcome, second.outcome) == (first, EnqueueOutcome.STORED, EnqueueOutcome.REPLACED)
        kept = await later.options(on_duplicate="keep").enqueue_async(7)
        assert (str(kept), kept.outcome) == (first, EnqueueOutcome.KEPT)
        with pytest.raises(EnqueueRejected, match=f"already: {first}") as rejected:
            await later.options(on_duplicate="reject").enqueue_async(7)
        assert (rejected.value.reason, rejected.value.retryable) == ("DUPLICATE", False)
        assert await first.state() is JobState.PENDING
        with pytest.raises(TimeoutError, match=f"job {first} has not ended within 50ms"):
            await first.result(timeout="50ms")
        assert await first.reschedule(delay="3h", body=later.body(7, "c")) is RescheduleOutcome.RESCHEDULED
        info = await first.info()
        assert info is not None
        assert info.run_after_ms > info.created_at_ms + 10_000_000
        assert await first.cancel() is CancelOutcome.CANCELLED
        assert await first.state() is None
        with pytest.raises(ResultGone, match="it was cancelled before it began, or deleted"):
            await first.result()


async def test_one_that_runs_and_is_cancelled_is_raised_as_such(port: int) -> None:
    async with Site(
        port,
    ) as site:

        @site.app.job(queue=site.queue)
        async def waits() -> None:
            current().progress(0.5)
            await current().wait_async(60)

        async with site.working(pool="async"):
            handle = await waits.enqueue_async()
            while await handle.state() is not JobState.IN_PROGRESS:
                continue
            assert await handle.cancel(running=True) is CancelOutcome.REQUESTED
            with pytest.raises(JobCancelled, match=r"was cancelled: .*cancelled by"):
                await handle.result(timeout=60)


class OlderServers(AsyncClient):
    """A client whose servers are of the version before keys: they leave unread what they do not know, and answer at
    once.
    """

    looks = 0

    async def enqueue(self, queue: str, jobs: Any, **options: Any) -> Any:
        if any_extended(jobs):
            raise MethodUnknown("heartbeatJobs")
        return await super().enqueue(queue, jobs, **options)

    async def lookup(self, *args: Any, **options: Any) -> Any:
        OlderServers.looks += 1
        return await super().lookup(*args, **{**options, "wait_ms": 0, "include_result": False})

    async def cancel(self, *args: Any, **options: Any) -> Any:
        return await super().cancel(*args, **{**options, "running": False})

    async def reschedule(self, *args: Any, **options: Any) -> Any:
        raise MethodUnknown("rescheduleJobs")


async def test_handles_of_an_older_server_look_again_and_again_and_say_what_it_cannot(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinlater, "AsyncClient", OlderServers)
    async with Site(port) as site:
        goes_on = asyncio.Event()

        @site.app.job(queue=site.queue)
        async def waits() -> None:
            await goes_on.wait()

        @site.app.job(queue=site.queue, keep_result=True)
        async def kept() -> int:
            return 7

        with pytest.raises(MethodUnknown):
            await waits.options(unique="one").enqueue_async()
        handle, pending = await waits.enqueue_async(), await waits.options(delay="1h").enqueue_async()
        with pytest.raises(MethodUnknown):
            await pending.reschedule(delay="2h")
        assert await pending.cancel() is CancelOutcome.CANCELLED
        with pytest.raises(TimeoutError):
            await handle.result(timeout="300ms")
        assert 2 <= OlderServers.looks <= 10
        async with site.working(pool="async"):
            while await handle.state() is not JobState.IN_PROGRESS:
                continue
            assert await handle.cancel(running=True) is CancelOutcome.IN_PROGRESS
            result = asyncio.ensure_future(handle.result(timeout=60))
            goes_on.set()
            assert await result is None
            with pytest.raises(ResultGone, match="its result is not kept"):
                await (await kept.enqueue_async()).result(timeout=60)
