"""What cannot be delivered is refused once: the job has failed, and its function ran a single time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import JobState
from pinlater.data_folder.password import hash_password
from pinlater_workers import App, Batch, JobContext, Middleware, Reschedule, Snooze, current, testing
from pinlater_workers.errors import ResultInvalid
from pinlater_workers.jobs.outcome import Outcome
from tests.server.running import RunningServer, running
from tests.workers.site import Site

PASSWORD = "a password for tests"
LARGE = "x" * 70_000
RAN: Counter[str] = Counter()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("bounds")
    with running(folder, "--admin-password-hash", hash_password(PASSWORD)) as started:
        yield started


class Errors(Middleware):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        self.heard.append(type(exception).__name__)


def plain(text: str) -> str:
    RAN["plain"] += 1
    return text


async def awaited(text: str) -> str:
    RAN["awaited"] += 1
    return text


def batch(jobs: Batch[str]) -> None:
    for job in jobs:
        RAN["batch"] += 1
        job.succeed(result=job.arguments)


async def awaited_batch(jobs: Batch[str]) -> None:
    for job in jobs:
        RAN["awaited_batch"] += 1
        job.succeed(result=job.arguments)


@pytest.mark.parametrize(
    ("function", "pool"),
    [
        *((each, "thread") for each in (plain, awaited, batch, awaited_batch)),
        (awaited, "async"),
        (awaited_batch, "async"),
    ],
)
async def test_a_result_beyond_the_bound_of_its_queue_fails_for_good_before_the_ack(
    server: RunningServer, caplog: pytest.LogCaptureFixture, function: Callable[..., Any], pool: str
) -> None:
    is_batch = "batch" in function.__name__
    RAN.clear()
    async with Site(server.port) as site:
        errors = Errors()
        site.app.middleware = [errors]
        options: dict[str, Any] = {"batch": 2, "wait": "10ms"} if is_batch else {}
        returns = site.app.job(queue=site.queue, keep_result=True, retry=[0] * 5, pool=pool, **options)(function)
        with caplog.at_level(logging.WARNING, "pinlater_workers"):
            async with site.working() as worker:
                info = await site.ended(await returns.enqueue_async(LARGE))
                assert (await site.ended(await returns.enqueue_async("y" * 60_000))).state is JobState.SUCCEEDED
                raised = "64KiB" if function is awaited_batch else "128KiB"  # which asks once a second
                await site.client.update_queue(site.queue, PASSWORD, set={"max_result": raised})
                later = await site.ended(await returns.enqueue_async(LARGE if raised == "128KiB" else "z"))
                assert site.counted(worker, "failed") == {returns.name: 1}
    said = "attempt 1 of 6: ResultInvalid: RESULT_TOO_LARGE: 70030 bytes; allowed: at most 65536, the max_result of"
    assert (info.state, info.custom_status.startswith(said)) == (JobState.FAILED, True), info.custom_status
    assert later.state is JobState.SUCCEEDED
    assert {function.__name__: 3} == RAN
    assert errors.heard == ["ResultInvalid"]
    assert [each for each in caplog.messages if "no attempt follows" in each]


async def test_a_result_that_only_the_server_finds_too_large_fails_for_good(server: RunningServer) -> None:
    """One so small that no server is asked before."""
    async with Site(server.port) as site:
        await site.client.update_queue(site.queue, PASSWORD, set={"max_result": "100B"})

        @site.app.job(queue=site.queue, keep_result=True, retry=[0] * 5)
        def returns() -> str:
            RAN["small"] += 1
            return "x" * 101

        RAN.clear()
        async with site.working():
            info = await site.ended(await returns.enqueue_async())
    assert (info.state, info.attempts_allowed) == (JobState.FAILED, 6)
    assert "RESULT_TOO_LARGE" in info.custom_status
    assert RAN == {"small": 1}


@pytest.mark.parametrize("kind", ["reschedule", "snooze"])
async def test_a_new_body_that_no_server_takes_fails_the_job_for_good(server: RunningServer, kind: str) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, attempts=5)
        def grows(text: str = "") -> None:
            RAN["grows"] += 1
            if kind == "reschedule":
                raise Reschedule(1, body=grows.body("x" * 5_000))
            raise Snooze(1)

        RAN.clear()
        descriptor = await grows.enqueue_async("" if kind == "reschedule" else "x" * 4_500)
        await site.client.update_queue(site.queue, PASSWORD, set={"max_body": "4KiB"})
        async with site.working(lease_s=2.0):
            info = await site.ended(descriptor)
    assert info.state is JobState.FAILED
    assert info.custom_status.startswith("attempt 1 of 5: BodyTooLarge: "), info.custom_status
    assert (RAN, info.crashes or 0) == ({"grows": 1}, 0)


async def test_a_body_for_the_next_round_that_no_worker_can_read_fails_for_good(server: RunningServer) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, retry=[0] * 5)
        def odd() -> None:
            RAN["odd"] += 1
            raise Reschedule(1, body=b"none of ours")

        RAN.clear()
        async with site.working():
            info = await site.ended(await odd.enqueue_async())
    assert (info.state, RAN) == (JobState.FAILED, {"odd": 1})


def test_in_memory_it_is_the_same() -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="q", keep_result=True, retry=[0] * 5)
    def returns() -> str:
        assert current().attempt == 1
        return LARGE

    run = testing.run(returns)
    assert (run.state, run.attempts, [type(each) for each in run.errors]) == (JobState.FAILED, 1, [ResultInvalid])
    assert "RESULT_TOO_LARGE: 70030 bytes" in run.status
