"""What a job ends with is what the server has, also for jobs that the worker cannot run."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Ack, Job, JobState
from pinlater_workers.envelope import read_envelope
from pinlater_workers.jobs.context import current
from pinlater_workers.jobs.outcome import Fail, Reschedule, Retry, Snooze
from tests.server.running import RunningServer, running
from tests.workers.site import Site, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("results")
    with running(folder) as started:
        yield started


async def test_a_job_is_tried_again_until_its_attempts_are_used_up(server: RunningServer) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, attempts=3, retry=[0.05, 0.05])
        def breaks() -> None:
            raise ValueError("no good")

        async with site.working() as worker:
            info = await site.ended(await breaks.enqueue_async())
        assert info.state is JobState.FAILED
        assert info.attempts_remaining == 0
        assert info.custom_status.count("ValueError: no good") == 3
        assert site.counted(worker, "retried") == {"breaks": 2}
        assert site.counted(worker, "failed") == {"breaks": 1}


async def test_a_job_fails_for_good_when_it_says_so(server: RunningServer) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, attempts=5)
        def gives_up() -> None:
            raise Fail("hopeless")

        async with site.working():
            info = await site.ended(await gives_up.enqueue_async())
        assert info.state is JobState.FAILED
        assert "hopeless" in info.custom_status


async def test_a_job_says_when_it_is_tried_again(server: RunningServer) -> None:
    async with Site(server.port) as site:
        tries: list[float] = []

        @site.app.job(queue=site.queue, attempts=2)
        def later() -> None:
            tries.append(time.time())
            if len(tries) == 1:
                raise Retry("not yet", after=0.3)

        async with site.working():
            info = await site.ended(await later.enqueue_async())
        assert info.state is JobState.SUCCEEDED
        assert tries[1] - tries[0] >= 0.3


async def test_a_snooze_spends_no_attempt_and_is_counted_in_the_body(server: RunningServer) -> None:
    async with Site(server.port) as site:
        tries: list[int] = []

        @site.app.job(queue=site.queue, attempts=1)
        def not_now() -> None:
            tries.append(1)
            if len(tries) < 4:
                raise Snooze(0.02)

        async with site.working() as worker:
            info = await site.ended(await not_now.enqueue_async())
        assert info.state is JobState.SUCCEEDED
        envelope = read_envelope(info.body or b"")
        assert envelope is not None
        assert envelope.snoozes == 3
        assert site.counted(worker, "snoozed") == {"not_now": 3}


async def test_a_job_that_repeats_has_all_attempts_again_and_its_new_body(server: RunningServer) -> None:
    async with Site(server.port) as site:
        seen: list[tuple[int, int]] = []

        @site.app.job(queue=site.queue, attempts=2, retry=[0.01])
        def repeats(turn: int) -> None:
            seen.append((turn, len([each for each in seen if each[0] == turn])))
            if seen[-1][1] == 0:
                raise ValueError("once each turn")
            if turn < 3:
                raise Reschedule(0.01, body=repeats.body(turn + 1))

        async with site.working():
            info = await site.ended(await repeats.enqueue_async(1))
        assert info.state is JobState.SUCCEEDED
        assert seen == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]


async def test_jobs_of_unknown_types_are_requeued_and_said_once(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with Site(server.port) as site:
        bodies = [b'PINLATER/1 application/json\n{"job": "elsewhere"}'] * 3
        bodies += [b"PINLATER/2 application/json\n{}", b"\x00\x01"]
        descriptors = await site.client.enqueue(site.queue, [Job(body, attempts_allowed=1) for body in bodies])
        with caplog.at_level(logging.WARNING, "pinlater_workers"):
            async with site.working(unknown_delay_s=60.0) as worker:

                async def all_back() -> bool:
                    return await site.count(JobState.PENDING, future=True) == 5

                await until(all_back)
                assert site.counted(worker, "unknown_types") == {site.queue: 5}
        infos = await site.client.lookup(descriptors)
        assert {(info.state, info.attempts_remaining) for info in infos.values()} == {(JobState.PENDING, 1)}
        whys = ["type elsewhere"] * 3 + ["a body of a later version, PINLATER/2", "a body that is not the framework's"]
        for descriptor, why in zip(descriptors, whys, strict=True):
            assert infos[descriptor].custom_status.startswith(
                f"not run: {why}, unknown to the workers of queue {site.queue}"
            )
        assert [text for text in caplog.messages if "elsewhere" in text] == caplog.messages[:1]
        assert len([text for text in caplog.messages if "unknown here" in text]) == 3


async def test_a_body_that_cannot_be_read_fails_for_good_and_that_is_said(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with Site(server.port) as site:
        body = b"PINLATER/1 application/json\n{"
        (descriptor,) = await site.client.enqueue(site.queue, [Job(body, attempts_allowed=5)])
        async with site.working() as worker:
            info = await site.ended(descriptor)
            assert site.counted(worker, "unreadable") == {site.queue: 1}
        assert info.state is JobState.FAILED
        assert "BodyInvalid" in info.custom_status
        assert [text for text in caplog.messages if descriptor in text and "BodyInvalid" in text]


async def test_a_raw_job_gets_bodies_that_have_no_envelope(server: RunningServer) -> None:
    async with Site(server.port) as site:
        got: list[bytes] = []

        @site.app.raw_job(queue=site.queue)
        def foreign(body: bytes) -> None:
            got.append(body)

        await site.client.enqueue(site.queue, [Job(b"\x00anything")])
        async with site.working():
            await site.all_succeeded(1)
        assert got == [b"\x00anything"]


async def test_a_result_that_is_refused_is_found_among_the_others(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A body beyond the server's bound."""
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue)
        def grown(text: str) -> None:
            raise Reschedule(60, body=grown.body(text * 2))

        texts = ["a"] * 4 + ["b" * 900_000] + ["c"] * 4
        await grown.enqueue_many_async([(text,) for text in texts])
        async with site.working(concurrency=9) as worker:

            async def others_are_back() -> bool:
                return await site.count(JobState.PENDING, future=True) == 8

            await until(others_are_back)
            await until(lambda: site.counted(worker, "dropped_results") == {"grown": 1})
            await until(lambda: worker.view().unacked == 0)
        assert "is refused" in caplog.text


@pytest.mark.parametrize("ack_delay_s", [0.01, 5.0], ids=["alone", "riding"])
async def test_a_result_that_has_no_effect_is_counted_and_said(
    server: RunningServer, caplog: pytest.LogCaptureFixture, ack_delay_s: float
) -> None:
    """An ack that names no claim, as classic clients send it, ends the attempt under its worker."""
    async with Site(server.port) as site:
        gate = threading.Event()

        @site.app.job(queue=site.queue)
        def waits(number: int) -> None:
            gate.wait(20)

        robbed = await waits.enqueue_async(0)
        await waits.enqueue_async(1)
        async with site.working(concurrency=3, ack_delay_s=ack_delay_s) as worker:
            await until(lambda: worker.view().running == 2)
            await site.client.ack(site.queue, failed=[Ack(robbed, permanent=True)])
            gate.set()
            await until(lambda: worker.view().unacked == 0 and worker.view().running == 0)
            assert site.counted(worker, "ignored_results") == {"waits": 1}
            assert site.counted(worker, "dropped_results") == {"waits": 0}
        assert f"the first is {robbed}" in caplog.text
        assert (await site.info(robbed)).state is JobState.FAILED


@pytest.mark.parametrize("pool", ["thread", "async"])
async def test_a_job_over_its_time_limit_has_failed(server: RunningServer, pool: str) -> None:
    """A thread that does not return keeps its slot; a coroutine is cancelled."""
    async with Site(server.port) as site:
        returns = asyncio.Event()
        loop = asyncio.get_running_loop()

        @site.app.job(queue=site.queue, attempts=1, time_limit=0.3)
        def plain() -> None:
            asyncio.run_coroutine_threadsafe(returns.wait(), loop).result()

        @site.app.job(queue=site.queue, attempts=1, time_limit=0.3)
        async def coroutine() -> None:
            await asyncio.Event().wait()

        job = plain if pool == "thread" else coroutine
        async with site.working(pool=pool, concurrency=4) as worker:
            info = await site.ended(await job.enqueue_async())
            assert info.state is JobState.FAILED
            line, *trace = info.custom_status.splitlines()
            place = (
                rf"\(test_worker_results\.py:\d+ in {job.name}\) \[\S+Z, \S+s, {socket.gethostname()}:{os.getpid()}\]"
            )
            assert re.fullmatch(rf"attempt 1 of 1: TimeLimitExceeded: it ran longer than 0.3 s {place}", line)
            assert trace[0].endswith(f", in {job.name}"), "where it stood when it was ended"
            assert worker.view().stuck == (1 if pool == "thread" else 0)
            returns.set()
            await until(lambda: worker.view().stuck == 0)


async def test_a_job_keeps_the_time_it_was_planned_for(server: RunningServer) -> None:
    """Through heartbeats, checkpoints and statuses, which would set it to now if they named none."""
    async with Site(server.port) as site:
        gate = threading.Event()

        @site.app.job(queue=site.queue)
        def long() -> None:
            current().set_status("half done")
            current().checkpoint(long.body())
            gate.wait(20)

        planned_ms = site.app.clock.now_ms() - 60_000
        (descriptor,) = await site.client.enqueue(site.queue, [Job(long.body(), run_after_ms=planned_ms)])
        async with site.working(lease_s=6.0) as worker:
            await until(lambda: worker.view().running == 1)
            await site.beaten(descriptor)
            assert (await site.info(descriptor)).run_after_ms == planned_ms
            gate.set()
            info = await site.ended(descriptor)
        assert (info.state, info.run_after_ms) == (JobState.SUCCEEDED, planned_ms)
        assert info.custom_status == "half done\n"


async def test_the_claim_of_a_long_job_is_kept_alive(server: RunningServer) -> None:
    async with Site(server.port) as site:
        gate, starts = threading.Event(), []

        @site.app.job(queue=site.queue, attempts=3)
        def long() -> None:
            starts.append(1)
            gate.wait(20)

        async with site.working(lease_s=6.0) as worker:
            descriptor = await long.enqueue_async()
            await until(lambda: worker.view().running == 1)
            await site.beaten(descriptor)
            gate.set()
            info = await site.ended(descriptor)
        assert info.state is JobState.SUCCEEDED
        assert starts == [1]
