"""Jobs that no worker knows, on a real server: said once, looked for ever less often, ended after a time, never early.

The workers' clock is some days behind the server's, so that each round is due at once.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater import Ack, AsyncClient, Checkpoint, DequeuedJob, DequeueRequest, Job, JobInfo, JobState
from pinlater.model import WorkerReport
from pinlater_workers.app.settings import worker_settings
from pinlater_workers.envelope import Envelope, read_envelope, write_envelope
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.observability.metrics import WorkerMetrics, WorkerView
from pinlater_workers.testing.memory import VirtualClock
from pinlater_workers.worker.ack_batches import acks, requeues
from pinlater_workers.worker.other_versions import OtherVersions
from pinlater_workers.worker.unknown_jobs import (
    LONGEST_ROUND_MS,
    MAX_MET,
    QUICK_PER_S,
    UNKNOWN,
    FirstSeen,
    UnknownJobs,
    first_seen,
    is_planned,
    next_round_ms,
)
from tests.server.running import RunningServer, running

HOUR_S = 3600.0
DAYS_BEHIND_S = 30 * 24 * HOUR_S
BODY = write_envelope(Envelope("resize"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("unknown")) as started:
        yield started


class Rounds:
    """A job in a queue of its own, and workers that get it one after the other and do not know it."""

    def __init__(self, client: AsyncClient, queue: str) -> None:
        self.client = client
        self.queue = queue
        self.descriptor = ""
        self.clock = VirtualClock()
        self.clock.advance(-DAYS_BEHIND_S)
        self.metrics = WorkerMetrics()

    async def enqueue(self, body: bytes = BODY, **fields: int) -> None:
        self.descriptor = await self.client.enqueue(self.queue, Job(body, attempts_allowed=3, **fields))

    def workers(
        self, *, delay_s: float = 10.0, limit_s: float = 24 * HOUR_S, version: str | None = None
    ) -> UnknownJobs:
        """Without a version they do not look for others."""
        others = None if version is None else OtherVersions(self.client, "mine", version, time.monotonic() - 60)
        return UnknownJobs(self.client, delay_s, limit_s, self.clock, self.metrics, others)

    async def report(self, version: str, up_s: float = 30.0) -> None:
        """Another worker says that it takes from the queue; those of `workers` run for a minute."""
        versions = {"app": version} if version else {}
        report = WorkerReport(uuid.uuid4().hex, "shop", round(up_s * 1000), queues={self.queue: 1}, versions=versions)
        await self.client.checkpoint(self.queue, [], worker=report)

    async def claim(self) -> DequeuedJob:
        (job,) = await self.client.dequeue(DequeueRequest(self.queue, 1))
        return job

    async def round(self, workers: UnknownJobs) -> Outcome:
        """One worker gets it, as soon as it is due, and what it decides is carried out."""
        due_ms = (await self.info()).run_after_ms
        if due_ms < self.clock.now_ms() + DAYS_BEHIND_S * 500:
            self.clock.advance_to(due_ms)
        job = await self.claim()
        unknown = RunningJob(job, self.queue, None, 0.0, 0.0, read_envelope(job.body))
        ((_, outcome),) = await workers.decide([(unknown, UNKNOWN)], 10.0)
        if outcome.action is Action.FAIL:
            await self.client.ack(self.queue, *acks([(unknown, outcome)]))
        else:
            await self.client.checkpoint(self.queue, requeues([(unknown, outcome)], 0))
        return outcome

    async def rounds_until(self, workers: UnknownJobs, after_s: float) -> int:
        """So many, until that much time has passed, or the job has ended."""
        end_ms, rounds = self.clock.now_ms() + after_s * 1000, 0
        while self.clock.now_ms() < end_ms and (await self.info()).state is JobState.PENDING:
            await self.round(workers)
            rounds += 1
        return rounds

    async def info(self) -> JobInfo:
        return (await self.client.lookup([self.descriptor]))[self.descriptor]

    async def said(self) -> int:
        return (await self.info()).custom_status.count("not run: ")

    def counted(self) -> dict[tuple[str, ...], float]:
        view = WorkerView(0.0, 1)
        return {
            labels: values[0] for labels, values in self.metrics.read(view).items() if labels[0] == "unknown_failed"
        }


@contextlib.asynccontextmanager
async def in_queue(server: RunningServer) -> AsyncIterator[Rounds]:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        queue = f"q_{uuid.uuid4().hex[:12]}"
        await client.create_queue(queue)
        yield Rounds(client, queue)


async def test_a_worker_tells_what_it_met_of_late(server: RunningServer) -> None:
    async with in_queue(server) as rounds, in_queue(server) as foreign:
        await rounds.enqueue()
        workers, others = rounds.workers(), rounds.workers()
        for _ in range(2):
            await rounds.round(workers)
        await rounds.round(others)
        assert [(each.queue, each.type, each.jobs) for each in workers.met()] == [(rounds.queue, "resize", 1)]
        assert [(each.queue, each.type, each.jobs) for each in others.met()] == [(rounds.queue, "resize", 0)]
        await foreign.enqueue(b"not ours")
        await foreign.round(workers)
        met = [(each.queue, each.type, each.jobs) for each in workers.met()]
        assert met == [(foreign.queue, "", 1), (rounds.queue, "resize", 1)]


async def test_no_more_types_are_told_of_than_a_report_has_place_for(server: RunningServer) -> None:
    async with in_queue(server) as rounds:
        workers = rounds.workers()
        names = [f"type{number}" for number in range(MAX_MET + 1)]
        await rounds.client.enqueue(rounds.queue, [Job(write_envelope(Envelope(name))) for name in names])
        jobs = await rounds.client.dequeue(DequeueRequest(rounds.queue, len(names)))
        await workers.decide(
            [(RunningJob(job, rounds.queue, None, 0.0, 0.0, read_envelope(job.body)), UNKNOWN) for job in jobs], 10.0
        )
        assert [each.type for each in workers.met()] == names[:0:-1]


async def test_it_is_said_once_and_ends_as_failed_after_the_limit(server: RunningServer) -> None:
    async with in_queue(server) as rounds:
        await rounds.enqueue()
        workers = rounds.workers()
        began_ms = rounds.clock.now_ms()
        assert await rounds.rounds_until(workers, 23 * HOUR_S) < 200
        info = await rounds.info()
        assert (info.state, info.attempts_remaining) == (JobState.PENDING, 3)
        assert await rounds.said() == 1
        assert re.fullmatch(
            rf"not run: type resize, unknown to the workers of queue {rounds.queue} since \S+Z \(\S+:\d+\); looked for "
            r"again after 10s, later less often; FAILED after 1d\n",
            info.custom_status,
        )
        await rounds.rounds_until(workers, 2 * HOUR_S)
        info = await rounds.info()
        assert info.state is JobState.FAILED
        assert 24 * HOUR_S <= (rounds.clock.now_ms() - began_ms) / 1000 <= 24 * HOUR_S + LONGEST_ROUND_MS / 1000
        assert "\nattempt 1 of 3: UnknownType: type resize, unknown to the workers of queue " in info.custom_status
        assert rounds.counted() == {("unknown_failed", rounds.queue, "type"): 1}


async def test_a_body_that_is_not_the_frameworks_ends_likewise(server: RunningServer) -> None:
    async with in_queue(server) as rounds:
        await rounds.enqueue(b"\x00\xff")
        await rounds.rounds_until(rounds.workers(), 25 * HOUR_S)
        info = await rounds.info()
        assert info.state is JobState.FAILED
        assert "UnknownType: a body that is not the framework's, unknown" in info.custom_status
        assert rounds.counted() == {("unknown_failed", rounds.queue, "body"): 1}


async def test_without_a_limit_it_goes_on_for_ever_and_is_said_once(server: RunningServer) -> None:
    async with in_queue(server) as rounds:
        await rounds.enqueue()
        workers = rounds.workers(limit_s=math.inf)
        await rounds.rounds_until(workers, 60 * HOUR_S)
        info = await rounds.info()
        assert (info.state, await rounds.said()) == (JobState.PENDING, 1)
        assert "FAILED after" not in info.custom_status


async def test_a_job_that_waited_long_before_its_first_sight_does_not_end_there(server: RunningServer) -> None:
    async with in_queue(server) as rounds:
        await rounds.enqueue(run_after_ms=rounds.clock.now_ms() - round(100 * HOUR_S * 1000))
        assert (await rounds.round(rounds.workers(limit_s=HOUR_S))).action is Action.GIVE_BACK


async def test_a_job_that_somebody_ran_meanwhile_has_its_time_anew(server: RunningServer) -> None:
    """It is put off, retried or done for a round by workers that know it, again and again, among others that do not."""
    async with in_queue(server) as rounds:
        await rounds.enqueue()
        workers = rounds.workers(limit_s=HOUR_S)
        for turn in range(4):
            await rounds.rounds_until(workers, 0.8 * HOUR_S)
            job = await rounds.claim()
            if turn % 2:
                put_off = Checkpoint(job.descriptor, move_to_pending=True, run_after_ms=job.run_after_ms + 7_777)
                await rounds.client.checkpoint(rounds.queue, [put_off])
            else:
                retried = Checkpoint(job.descriptor, move_to_pending=True, run_after_ms=job.run_after_ms + 1)
                await rounds.client.checkpoint(rounds.queue, [retried])
        info = await rounds.info()
        assert info.state is JobState.PENDING
        assert await rounds.said() == 4
        await rounds.rounds_until(workers, 2 * HOUR_S)
        assert (await rounds.info()).state is JobState.FAILED


async def test_workers_of_an_earlier_version_in_between_fill_no_status(server: RunningServer) -> None:
    """They requeue it for ten seconds from when they have it."""
    async with in_queue(server) as rounds:
        await rounds.enqueue()
        workers = rounds.workers()
        for _ in range(30):
            await rounds.round(workers)
            job = await rounds.claim()
            back = Checkpoint(job.descriptor, move_to_pending=True, run_after_ms=job.run_after_ms + 10_123)
            await rounds.client.checkpoint(rounds.queue, [back])
        assert await rounds.said() == 1


async def test_workers_with_other_delays_keep_to_the_plan_in_the_status(server: RunningServer) -> None:
    async with in_queue(server) as rounds:
        await rounds.enqueue()
        some, others = rounds.workers(), rounds.workers(delay_s=60.0)
        for _ in range(20):
            await rounds.round(some)
            await rounds.round(others)
        assert await rounds.said() == 1
        seen = first_seen((await rounds.info()).custom_status)
        assert seen is not None
        assert seen.first_ms == 10_000
        assert is_planned(seen, (await rounds.info()).run_after_ms)


@pytest.mark.parametrize(
    ("mine", "reported", "up_s", "is_other"),
    [
        ("1", "2", 30, True),
        ("2", "1", 900, True),  # it may know types that this one knows no more
        ("1", "1", 30, False),
        ("", "", 30, True),
        ("", "", 900, False),
        ("1", "", 30, True),
        ("", "2", 900, False),
    ],
)
async def test_workers_of_another_version_shorten_the_first_rounds(
    server: RunningServer, mine: str, reported: str, up_s: float, *, is_other: bool
) -> None:
    async with in_queue(server) as rounds:
        await rounds.report(reported, up_s)
        await rounds.enqueue()
        assert await rounds.rounds_until(rounds.workers(version=mine), 8.0) == (9 if is_other else 2)
        first = "1s" if is_other else "10s"
        assert f"; looked for again after {first}, later less often" in (await rounds.info()).custom_status


async def test_a_job_that_has_waited_for_long_comes_back_soon_when_a_deploy_begins(server: RunningServer) -> None:
    async with in_queue(server) as rounds:
        await rounds.enqueue()
        began_ms = rounds.clock.now_ms()
        await rounds.rounds_until(rounds.workers(version="1"), HOUR_S)
        await rounds.report("2", up_s=0.0)
        workers = rounds.workers(version="1")
        await rounds.round(workers)
        before_ms = rounds.clock.now_ms()
        assert (await rounds.info()).run_after_ms - before_ms < 10_000
        await rounds.rounds_until(workers, 26 * HOUR_S)  # it ends by its limit all the same
        assert (await rounds.info()).state is JobState.FAILED
        assert 24 * HOUR_S <= (rounds.clock.now_ms() - began_ms) / 1000 <= 24 * HOUR_S + LONGEST_ROUND_MS / 1000
        assert await rounds.said() == 1


async def test_few_jobs_at_a_time_come_back_so_soon(server: RunningServer) -> None:
    async with in_queue(server) as rounds:
        await rounds.report("2")
        await rounds.client.enqueue(rounds.queue, [Job(BODY)] * 300)
        jobs = await rounds.client.dequeue(DequeueRequest(rounds.queue, 300))
        unknown = [RunningJob(job, rounds.queue, None, 0.0, 0.0, read_envelope(job.body)) for job in jobs]
        results = await rounds.workers(version="1").decide([(each, UNKNOWN) for each in unknown], 10.0)
        soon = [outcome for _, outcome in results if "; looked for again after 1s, " in outcome.status]
        assert (len(jobs), 0 < len(soon) <= 2 * QUICK_PER_S) == (300, True)


async def test_a_job_that_is_gone_meanwhile_is_no_error(server: RunningServer) -> None:
    async with in_queue(server) as rounds:
        await rounds.enqueue()
        job = await rounds.claim()
        await rounds.client.ack(rounds.queue, succeeded=[Ack(job.descriptor)])
        unknown = RunningJob(job, rounds.queue, None, 0.0, 0.0, None)
        known = Outcome(Action.GIVE_BACK)
        found = await rounds.workers().decide([(unknown, UNKNOWN), (unknown, known)], 10.0)
        assert [outcome.action for _, outcome in found] == [Action.GIVE_BACK] * 2
        assert found[1][1] is known


@given(st.integers(1, 10**7), st.integers(0, 10**10))
def test_rounds_follow_one_plan(first_ms: int, after_ms: int) -> None:
    """Each is later than the one before; none waits for longer than the first, a quarter of the time, or the most."""
    seen = FirstSeen(1_000, first_ms)
    at_ms = next_round_ms(seen, 1_000 + after_ms)
    assert at_ms > 1_000 + after_ms
    assert is_planned(seen, at_ms)
    assert not is_planned(seen, at_ms - 1) or first_ms == 1
    step_ms = next_round_ms(seen, at_ms) - at_ms
    assert first_ms <= step_ms <= max(first_ms, LONGEST_ROUND_MS)
    assert step_ms <= max(first_ms, (at_ms - 1_000) // 4)


@pytest.mark.parametrize(
    "status",
    [
        "",
        "not run: x since yesterday (a:1); looked for again after 10s, later less often",
        "not run: x since 2026-13-41T99:00:00.000Z (a:1); looked for again after 10s, later less often",
        "not run: x since 2026-11-23T00:00:00.000Z (a:1); looked for again after soon, later less often",
        "said: not run: x since 2026-11-23T00:00:00.000Z (a:1); looked for again after 10s, later less often",
    ],
)
def test_a_status_that_says_no_such_thing_is_none(status: str) -> None:
    assert first_seen(status) is None


def test_the_newest_line_counts_and_no_name_forges_one() -> None:
    line = "not run: {}, since 2026-11-2{}T00:00:00.500Z (a:1); looked for again after 250ms, later less often\n"
    forged = "type a since 2020-01-01T00:00:00.000Z (b:2); looked for again after 1ms, later less often"
    assert first_seen("0.5 done\n" + line.format(forged, 3) + line.format("x", 1)) == FirstSeen(1795392000500, 250)


@pytest.mark.parametrize(("text", "seconds"), [("24h", 86_400.0), ("never", math.inf), (5, 5.0)])
def test_the_limit_is_a_time_or_never(text: object, seconds: float) -> None:
    assert worker_settings({"unknown_limit": text}, "here").unknown_limit_s == seconds


@pytest.mark.parametrize("text", ["soon", 0, "0", "always", math.inf])
def test_any_other_limit_is_refused(text: object) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown_limit is .*; allowed: 1s to 365d, .*; or never"):
        worker_settings({"unknown_limit": text}, "here")
