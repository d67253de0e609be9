"""Jobs in memory: the real rules with the waits dropped."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from pinlater.errors import BodyTooLarge, PriorityNotSupported, QueueNotFound
from pinlater.job_limits import JobLimits
from pinlater.model import JobState
from pinlater_workers import testing
from pinlater_workers.app import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError
from pinlater_workers.jobs.context import StopReason, current
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Fail, Reschedule, Retry, Snooze
from pinlater_workers.jobs.retry import Constant, Delays

app = App(servers=["127.0.0.1:1"])
ran: list[object] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@app.job(queue="tested", retry=Delays([10, 20, 30]))
def flaky(failures: int) -> str:
    if current().attempt <= failures:
        raise ConnectionError(f"attempt {current().attempt}")
    return "made it"


@app.job(queue="tested", retry=Delays([10, 20, 30]))
async def flaky_coroutine(failures: int) -> str:
    await asyncio.sleep(0)
    return flaky.function(failures)


FLAKY = pytest.mark.parametrize("job", [flaky, flaky_coroutine], ids=["plain", "coroutine"])


def test_a_plain_function_is_no_job() -> None:
    with pytest.raises(TypeError, match=r"is no job; allowed: a function with @app.job\(queue=...\) above it"):
        testing.run(flaky.function, 2)  # type: ignore[arg-type]


# -- one job -----------------------------------------------------------------------------------------------------------


@FLAKY
def test_a_job_that_succeeds_in_the_end(job: JobType) -> None:
    run = testing.run(job, 2)
    assert (run.state, run.attempts, run.times, run.result) == (JobState.SUCCEEDED, 3, 3, "made it")
    assert run.delays_s == [10, 20]
    assert [type(error) for error in run.errors] == [ConnectionError, ConnectionError]
    assert run.statuses[0].startswith("attempt 1 of 4: ConnectionError: attempt 1 (test_testing.py:")
    assert run.status == "".join(f"{line}\n" for line in run.statuses)


@FLAKY
def test_a_job_whose_attempts_are_used_up(job: JobType) -> None:
    run = testing.run(job, failures=9)
    assert (run.state, run.attempts, run.attempts_remaining) == (JobState.FAILED, 4, 0)
    assert run.delays_s == [10, 20, 30]
    assert len(run.statuses) == 4


@FLAKY
def test_no_time_passes(job: JobType) -> None:
    began_s = time.monotonic()
    with testing.in_memory(app) as jobs:
        before_ms = jobs.clock.now_ms()
        job.enqueue(9, delay=timedelta(days=7))
        jobs.run_all()
        assert jobs.clock.now_ms() - before_ms == 7 * 86_400_000 + 60_000
    assert time.monotonic() - began_s < 60


@FLAKY
def test_in_tests_that_are_coroutines(job: JobType) -> None:
    async def main() -> None:
        run = await testing.run_async(job, 1)
        assert (run.state, run.delays_s) == (JobState.SUCCEEDED, [10])
        with testing.in_memory(app) as jobs:
            await job.enqueue_async(9)
            await jobs.run_all_async()
            assert jobs.runs[0].state is JobState.FAILED

    asyncio.run(main())


def test_arguments_are_checked_as_ever() -> None:
    with pytest.raises(ArgumentsInvalid):
        testing.run(flaky, "three")


def test_fail_and_retry_after() -> None:
    work = App(servers=["127.0.0.1:1"])

    @work.job(queue="tested")
    def job(number: int) -> None:
        raise Fail("no") if current().attempt == number else Retry(after=current().attempt)

    run = testing.run(job, 3)
    assert (run.state, run.attempts, run.delays_s) == (JobState.FAILED, 3, [1, 2])
    assert run.statuses[2].startswith("attempt 3 of 11: Fail: no")


def test_snoozes_spend_no_attempts_until_there_are_too_many() -> None:
    work = App(servers=["127.0.0.1:1"])

    @work.job(queue="tested", max_snoozes=3)
    def job(often: int) -> int:
        ran.append(current().attempt)
        if len(ran) <= often:
            raise Snooze(60, "not yet")
        return len(ran)

    run = testing.run(job, 3)
    assert (run.state, run.attempts, run.snoozes, run.delays_s) == (JobState.SUCCEEDED, 1, 3, [60, 60, 60])
    assert run.status == "snooze 3 of 3: not yet\nsnooze 2 of 3: not yet\nsnooze 1 of 3: not yet\n"
    ran.clear()
    run = testing.run(job, 9)
    assert (run.state, run.snoozes, ran) == (JobState.FAILED, 3, [1, 1, 1, 1])
    assert "TooManySnoozes: put off 3 times: not yet" in run.status


def test_checkpoints_and_statuses() -> None:
    work = App(servers=["127.0.0.1:1"])

    @work.job(queue="tested", retry=Constant(1))
    def job(done: int) -> int:
        current().set_status(f"{done} done")
        current().checkpoint(job.body(done + 1))
        if done < 2:
            raise ValueError
        return done

    run = testing.run(job, 0)
    assert (run.state, run.result) == (JobState.SUCCEEDED, 2)
    assert [read_envelope(body).args for body in run.checkpoints] == [[1], [2], [3]]
    assert run.status.startswith("2 done\n1 done\n0 done\nattempt 1 of 11: ValueError")
    assert [line.split(" (")[0] for line in run.statuses[:3]] == ["0 done", "attempt 1 of 11: ValueError", "1 done"]


def test_what_it_enqueues_is_seen_and_not_run() -> None:
    work = App(servers=["127.0.0.1:1"])

    @work.job(queue="tested")
    def job(depth: int) -> None:
        job.enqueue_many([(depth + 1,), {"depth": depth + 2}], delay=5)

    run = testing.run(job, 0)
    assert [each.state for each in run.enqueued] == [JobState.PENDING, JobState.PENDING]
    assert [each.run_after_ms - each.enqueued_at_ms for each in run.enqueued] == [5_000, 5_000]
    assert read_envelope(run.enqueued[0].body).args == [1]


def test_time_goes_on_while_a_job_waits() -> None:
    work = App(servers=["127.0.0.1:1"])

    @work.job(queue="tested", time_limit="10m")
    def plain() -> float:
        context = current()
        began = context.deadline
        assert context.wait(90) is False
        return (context.deadline - began).total_seconds()

    @work.job(queue="tested")
    async def coroutine() -> None:
        assert await current().wait_async(90) is False

    with testing.in_memory(work) as jobs:
        began_ms = jobs.clock.now_ms()
        plain.enqueue()
        coroutine.enqueue()
        jobs.run_all()
        assert jobs.clock.now_ms() - began_ms == 180_000


def test_jobs_can_be_told_to_stop() -> None:
    work = App(servers=["127.0.0.1:1"])

    @work.job(queue="tested")
    def job() -> StopReason | None:
        assert current().wait(90) is True
        return current().cancel_reason

    with testing.in_memory(work) as jobs:
        jobs.tell = StopReason.STOPPING
        job.enqueue()
        jobs.run_all()
    assert jobs.runs[0].result is StopReason.STOPPING


# -- many --------------------------------------------------------------------------------------------------------------


@app.job(queue="tested")
def note(name: str, then: str | None = None) -> None:
    ran.append(name)
    if then is not None:
        note.enqueue(then, priority=1)


def test_jobs_run_by_priority_then_by_when_they_are_due_then_by_age() -> None:
    with testing.in_memory(app) as jobs:
        now = datetime.fromtimestamp(jobs.clock.now_ms() / 1000, UTC)
        note.enqueue("later", run_after=now + timedelta(seconds=9))
        note.enqueue("low", priority=3)
        note.enqueue("third")
        note.enqueue("second", run_after=now - timedelta(seconds=1))
        note.enqueue("first", run_after=now - timedelta(seconds=2))
        note.enqueue("fourth")
        jobs.run_all()
    assert ran == ["first", "second", "third", "fourth", "low", "later"]
    assert jobs.pending == []


def test_what_jobs_enqueue_runs_too() -> None:
    with testing.in_memory(app) as jobs:
        note.enqueue("a", then="b")
        note.enqueue("c", priority=2)
        assert ran == []
        jobs.run_all()
    assert ran == ["a", "b", "c"]
    assert jobs.of(note) == jobs.runs
    assert jobs.runs[0].enqueued == [jobs.runs[2]]


def test_afterwards_the_app_is_as_before() -> None:
    sink, clock = app.sink, app.clock
    with testing.in_memory(app) as jobs:
        assert app.sink is jobs
    assert (app.sink, app.clock) == (sink, clock)


def test_a_retry_waits_its_turn() -> None:
    with testing.in_memory(app) as jobs:
        flaky.enqueue(1)
        note.enqueue("meanwhile")
        note.enqueue("after", delay=11)
        jobs.run_all()
    assert ran == ["meanwhile", "after"]
    assert jobs.runs[0].state is JobState.SUCCEEDED


def test_raw_jobs() -> None:
    work = App(servers=["127.0.0.1:1"])

    @work.raw_job(queue="old")
    def raw(body: bytes) -> None:
        ran.append(body)
        if len(ran) == 1:
            current().checkpoint(b"\xfe")
            raise Retry(after=1)

    run = testing.run(raw, b"\xff")
    assert (run.job, run.state, ran) == ("raw", JobState.SUCCEEDED, [b"\xff", b"\xfe"])


# -- what a server would refuse ----------------------------------------------------------------------------------------


def test_a_queue_of_no_job_of_the_app_is_refused_unless_it_is_named() -> None:
    with testing.in_memory(app) as jobs, pytest.raises(QueueNotFound, match=r"'vip' is of no job .* allowed: tested"):
        note.options(queue="vip").enqueue("a")
    assert jobs.runs == []
    with testing.in_memory(app, queues=["vip"]) as jobs:
        note.options(queue="vip", attempts=2).enqueue("a")
        jobs.run_all()
    assert [(run.queue, run.attempts_allowed, run.state) for run in jobs.runs] == [("vip", 2, JobState.SUCCEEDED)]


def test_a_server_with_other_limits() -> None:
    limits = JobLimits(priority_levels=5, max_body_bytes=100)
    with testing.in_memory(app, limits=limits) as jobs:
        note.options(priority=5).enqueue("a")
        with pytest.raises(PriorityNotSupported, match=r"allowed: 1 \(highest\) to 5"):
            note.options(priority=6).enqueue("a")
        with pytest.raises(BodyTooLarge, match="at most 100"):
            note.enqueue("a" * 100)
        assert len(jobs.runs) == 1


def test_a_body_that_no_server_would_keep_is_refused_when_a_job_reschedules_itself() -> None:
    work = App(servers=["127.0.0.1:1"])

    @work.job(queue="tested")
    def grows(text: str) -> None:
        raise Reschedule(60, body=grows.body(text * 2_000_000))

    with testing.in_memory(work) as jobs:
        grows.enqueue("x")
        with pytest.raises(BodyTooLarge):
            jobs.run_all()


def test_a_time_of_0_is_now_and_attempts_of_the_job_count() -> None:
    with testing.in_memory(app) as jobs:
        note.options(run_after=0).enqueue("a")
        flaky.options(attempts=6).enqueue(5)
        flaky.options(attempts=2).enqueue(5)
        jobs.run_all()
    first, more, fewer = jobs.runs
    assert first.run_after_ms == first.enqueued_at_ms
    assert (more.state, more.attempts, more.delays_s) == (JobState.SUCCEEDED, 6, [10, 20, 30, 30, 30])
    assert (fewer.state, fewer.attempts) == (JobState.FAILED, 2)


# -- for ever ----------------------------------------------------------------------------------------------------------


@app.job(queue="tested")
def hourly(number: int) -> None:
    ran.append(number)
    raise Reschedule(3600, body=hourly.body(number + 1))


def test_a_job_that_never_ends_is_a_clear_error() -> None:
    with pytest.raises(testing.NeverEnds, match=r"'hourly' was run 1000 times.*1000 reschedulings.*run_for"):
        testing.run(hourly, 1)
    with testing.in_memory(app) as jobs:
        hourly.enqueue(1)
        with pytest.raises(testing.NeverEnds, match="was run 7 times"):
            jobs.run_all(max_runs=7)


def test_a_job_that_repeats_for_ever_runs_for_a_while() -> None:
    with testing.in_memory(app) as jobs:
        hourly.enqueue(1)
        jobs.run_for(86_400)
        assert ran == list(range(1, 26))
        (run,) = jobs.runs
        assert (run.state, run.reschedules, run.attempts) == (JobState.PENDING, 25, 0)
        assert run.attempts_remaining == run.attempts_allowed == 11
        jobs.run_for(3600)
        assert ran[-1] == 26


def test_a_rescheduled_job_has_all_its_attempts_again() -> None:
    work = App(servers=["127.0.0.1:1"])

    @work.job(queue="tested", attempts=3, retry=Constant(1))
    def job(round: int) -> None:
        ran.append((round, current().attempt))
        if current().attempt < 3:
            raise ValueError
        if round == 1:
            raise Reschedule(60, body=job.body(2))

    run = testing.run(job, 1)
    assert ran == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    assert (run.state, run.delays_s) == (JobState.SUCCEEDED, [1, 1, 60, 1, 1])


def test_a_job_that_this_app_does_not_know_is_a_clear_error() -> None:
    with testing.in_memory(app) as jobs:
        app.client.enqueue("tested", b'PINLATER/1 application/json\n{"job": "unheard_of"}')
        with pytest.raises(ConfigurationError, match="'unheard_of' in queue 'tested'"):
            jobs.run_all()
