"""What jobs log, and say last of how far they are: seen while they run, and with their acks, in every pool."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from pinlater import Client, JobInfo, JobState
from pinlater.model import MAX_LOG_BYTES, MAX_LOG_LINES, LogLine
from pinlater_workers import App, Batch, testing
from pinlater_workers.jobs.context import current
from pinlater_workers.jobs.progress_report import ProgressReport, log_lines_of
from tests.server.running import running
from tests.workers.command import working
from tests.workers.site import Site, until

PROGRAM = """
from pinlater_workers import App, Retry, current

app = App(servers=["127.0.0.1:PORT"])

@app.job(queue="logged", attempts=2)
def says(fails: bool) -> None:
    for step in range(3):
        current().progress(step / 2, f"step {step}")
        current().log(f"did {step} of attempt {current().attempt}")
    if fails and current().attempt == 1:
        raise Retry("no", after=0)
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server.port


def logged(info: JobInfo) -> list[tuple[int, str]]:
    return [(line.attempt, line.text) for line in info.log_lines or ()]


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_what_a_job_says_at_its_end_is_kept_also_where_it_ends_at_once(
    port: int, tmp_path: Path, pool: Literal["thread", "process"]
) -> None:
    (tmp_path / "jobs.py").write_text(PROGRAM.replace("PORT", str(port)))
    app = App(servers=[f"127.0.0.1:{port}"])
    says = app.job(queue="logged", name="says", attempts=2)(lambda fails: None)
    with Client(f"127.0.0.1:{port}") as client:
        client.create_queue("logged")
        with working(tmp_path, "--app", "jobs:app", "--pool", pool, "--concurrency", "1"):
            for fails in (False, True):
                descriptor = str(says.enqueue(fails))
                assert client.wait(descriptor, timeout=60) is not None
                info = client.lookup([descriptor], include_trail=True)[descriptor]
                assert info.progress is not None
                assert (info.state, *info.progress[:2]) == (JobState.SUCCEEDED, 1.0, "step 2")
                attempts = (1, 2) if fails else (1,)
                assert logged(info) == [
                    (attempt, f"did {step} of attempt {attempt}") for attempt in attempts for step in range(3)
                ]
                assert [each.number for each in info.attempts or ()] == [*attempts]
    app.close()


async def test_lines_are_seen_while_the_job_runs(port: int) -> None:
    async with Site(port) as site:
        go = threading.Event()

        @site.app.job(queue=site.queue)
        def goes_on() -> None:
            current().log("begun\nand on")
            go.wait(60)
            current().log("over")

        async def look() -> JobInfo:
            return (await site.client.lookup([descriptor], include_trail=True))[descriptor]

        async with site.working(pool="thread"):
            descriptor = str(await goes_on.enqueue_async())

            async def is_logged() -> bool:
                return logged(await look()) == [(1, "begun"), (1, "and on")]

            await until(is_logged)
            assert (await look()).state is JobState.IN_PROGRESS
            assert (await look()).progress is None
            go.set()
            await site.ended(descriptor)
            assert logged(await look()) == [(1, "begun"), (1, "and on"), (1, "over")]


async def test_each_job_of_a_batch_has_its_own_log(port: int) -> None:
    async with Site(port) as site:

        @site.app.job(queue=site.queue, batch=2, wait="5s")
        def both(batch: Batch[str]) -> None:
            for job in batch:
                job.context.log(f"mine: {job.arguments}")

        descriptors = {name: str(await both.enqueue_async(name)) for name in ("a", "b")}
        async with site.working(pool="thread"):
            for name, descriptor in descriptors.items():
                await site.ended(descriptor)
                info = (await site.client.lookup([descriptor], include_trail=True))[descriptor]
                assert logged(info) == [(1, f"mine: {name}")]


def test_a_test_of_a_job_sees_what_it_logs() -> None:
    app = App()

    @app.job(queue="tried")
    def says() -> None:
        current().log("one")
        current().log("two")

    with testing.in_memory(app) as jobs:
        descriptor = str(says.enqueue())
        jobs.run_all()
        info = app.client.lookup([descriptor], include_trail=True)[descriptor]
    assert logged(info) == [(1, "one"), (1, "two")]


def test_what_was_not_sent_yet_is_joined_and_bounded() -> None:
    first = ProgressReport(0.5, "half", [LogLine("one", 1), LogLine("two", 2)])
    assert first.followed_by(ProgressReport(None, None, [LogLine("two", 2), LogLine("three", 3)])) == ProgressReport(
        0.5, "half", [LogLine("one", 1), LogLine("two", 2), LogLine("three", 3)]
    )
    assert first.followed_by(ProgressReport(None, "words")) == ProgressReport(None, "words", first.log_lines)
    many = ProgressReport(None, None, [LogLine(f"line {at}", at) for at in range(1, MAX_LOG_LINES + 1)])
    joined = first.followed_by(many)
    assert (len(joined.log_lines), joined.log_lines[0].at_ms) == (MAX_LOG_LINES, 1)
    large = first.followed_by(ProgressReport(None, None, [LogLine("é" * 500, at) for at in range(50)]))
    assert sum(len(line.text.encode()) for line in large.log_lines) == MAX_LOG_BYTES // 1000 * 1000
    assert log_lines_of("é" * 513, 7) == [LogLine("é" * 512, 7)]
    assert log_lines_of("", 7) == [LogLine("", 7)]
