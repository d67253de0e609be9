"""A batch: what its function gets, and the outcome of each of its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest

from pinlater.model import JobState
from pinlater_workers import (
    App,
    ArgumentsInvalid,
    Batch,
    Fail,
    JobContext,
    JobType,
    Middleware,
    Outcome,
    Reschedule,
    StopReason,
    current,
    testing,
)
from pinlater_workers.tracing import current_trace, new_trace, use_trace


@dataclass
class Document:
    id: int
    text: str = ""


app = App(servers=["127.0.0.1:1"])
batches: list[list[Any]] = []
seen: list[object] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    batches.clear()
    seen.clear()


@app.job(queue="search", batch=3, wait="200ms", attempts=3, retry=[10, 20])
def index(batch: Batch[Document]) -> None:
    batches.append([document.id for document in batch.arguments])
    for job in batch:
        match job.arguments.text:
            case "fail":
                job.fail(ValueError("no such language"))
            case "give up":
                job.fail(Fail("never"))
            case "retry":
                job.retry("later", after=7)
            case "snooze":
                job.snooze(60, "busy")
            case "reschedule":
                job.fail(Reschedule(5))
            case "succeed":
                job.succeed()
            case "raise in a block":
                with job:
                    seen.append(current().descriptor == job.context.descriptor)
                    raise ValueError("in the block")
            case "well in a block":
                with job:
                    pass
    if any(job.arguments.text == "raise" for job in batch):
        raise ConnectionError("the index does not answer")


@app.job(queue="search", batch=3, attempts=3, retry=[10, 20])
async def index_async(batch: Batch[Document]) -> None:
    await asyncio.sleep(0)
    index.function(batch)


KINDS = pytest.mark.parametrize("job", [index, index_async], ids=["plain", "coroutine"])


def states(jobs: testing.Jobs) -> list[JobState]:
    return [run.state for run in jobs.runs]


@KINDS
def test_jobs_come_in_batches_of_so_many_at_most_in_their_order(job: JobType) -> None:
    with testing.in_memory(app) as jobs:
        for number in range(7):
            job.enqueue(Document(number))
        jobs.run_all()
    assert batches == [[0, 1, 2], [3, 4, 5], [6]]
    assert states(jobs) == [JobState.SUCCEEDED] * 7


def test_a_batch_waits_for_its_jobs_no_longer_than_it_may() -> None:
    with testing.in_memory(app) as jobs:
        began_ms = jobs.clock.now_ms()
        index.enqueue(Document(1))
        index.enqueue(Document(2), delay=0.15)
        index.enqueue(Document(3), delay=0.25)
        jobs.run_for(0.2)
        assert batches == [[1, 2]]
        assert jobs.clock.now_ms() - began_ms == 200
        jobs.run_all()
    assert batches == [[1, 2], [3]]


def test_a_batch_that_is_full_waits_no_longer() -> None:
    with testing.in_memory(app) as jobs:
        began_ms = jobs.clock.now_ms()
        for number, delay in enumerate([0, 0.05, 0.1]):
            index.enqueue(Document(number), delay=delay)
        jobs.run_all()
        assert batches == [[0, 1, 2]]
        assert jobs.clock.now_ms() - began_ms == 100


def test_the_higher_priority_comes_first_in_a_batch() -> None:
    with testing.in_memory(app) as jobs:
        index.enqueue(Document(1), priority=2)
        index.enqueue(Document(2), priority=1)
        jobs.run_all()
    assert batches == [[2, 1]]


def test_batches_do_not_mix_types() -> None:
    with testing.in_memory(app) as jobs:
        index.enqueue(Document(1))
        index_async.enqueue(Document(2))
        index.enqueue(Document(3))
        jobs.run_all()
    assert sorted(batches) == [[1, 3], [2]]


@KINDS
def test_each_job_has_its_own_outcome(job: JobType) -> None:
    outcomes = ["fail", "give up", "retry", "snooze", "reschedule", "raise in a block", "well in a block", ""]
    with testing.in_memory(app) as jobs:
        for number, text in enumerate(outcomes):
            job.enqueue(Document(number, text))
        jobs.run_for(1)
    failed, given_up, retried, snoozed, rescheduled, raised, well, plain = jobs.runs
    assert (failed.state, failed.delays_s, failed.attempts) == (JobState.PENDING, [10], 1)
    assert failed.status.startswith("attempt 1 of 3: ValueError: no such language")
    assert given_up.state is JobState.FAILED
    assert given_up.status.startswith("attempt 1 of 3: Fail: never [")
    assert (retried.state, retried.delays_s, retried.attempts) == (JobState.PENDING, [7], 1)
    assert (snoozed.state, snoozed.delays_s, snoozed.attempts) == (JobState.PENDING, [60], 0)
    assert snoozed.status == "snooze 1 of 100: busy\n"
    assert (rescheduled.reschedules, rescheduled.delays_s) == (1, [5])
    assert raised.status.startswith("attempt 1 of 3: ValueError: in the block (test_batch.py:")
    assert (well.state, plain.state) == (JobState.SUCCEEDED, JobState.SUCCEEDED)
    assert seen == [True]


@KINDS
def test_an_exception_fails_those_without_an_outcome_each_by_its_own_attempts(job: JobType) -> None:
    with testing.in_memory(app) as jobs:
        job.enqueue(Document(1, "succeed"))
        job.enqueue(Document(2, "snooze"))
        job.enqueue(Document(3, "raise"))
        jobs.run_for(1)
        done, snoozed, failed = jobs.runs
        assert (done.state, done.attempts) == (JobState.SUCCEEDED, 1)
        assert (snoozed.snoozes, snoozed.attempts) == (1, 0)
        assert (failed.state, failed.delays_s, failed.attempts_remaining) == (JobState.PENDING, [10], 2)
        assert "ConnectionError: the index does not answer" in failed.status
        job.enqueue(Document(4), delay=9)
        jobs.run_for(100)
    assert batches[1:3] == [[3, 4], [4]]
    late = jobs.runs[3]
    assert failed.state is JobState.FAILED
    assert late.state is JobState.SUCCEEDED
    assert late.delays_s == [10]


def test_the_last_outcome_that_is_set_counts() -> None:
    @app.job(queue="search", name="changes", batch=2)
    def changes(batch: Batch[int]) -> None:
        for job in batch:
            job.fail(ValueError("not yet"))
            assert (job.settled, str(job.error)) == (True, "not yet")
            job.succeed()
            assert (job.settled, job.error) == (True, None)

    assert testing.run(changes, 1).state is JobState.SUCCEEDED


def test_what_a_job_can_fail_with_is_an_exception() -> None:
    @app.job(queue="search", name="mistaken", batch=2)
    def mistaken(batch: Batch[int]) -> None:
        batch[0].fail("text")  # type: ignore[arg-type]

    run = testing.run(mistaken, 1)
    assert "TypeError: fail('text'); allowed: an exception; for good: fail(Fail('why'))" in run.status


@KINDS
def test_jobs_that_cannot_be_read_fail_alone(job: JobType) -> None:
    with testing.in_memory(app) as jobs:
        job.enqueue(Document(1))
        job.enqueue(Document(2))
        jobs.runs[0].body = jobs.runs[0].body.replace(b'"id":1', b'"id":"one"')
        jobs.run_for(1)
    assert batches == [[2]]
    assert jobs.runs[0].status.startswith("attempt 1 of 3: ArgumentsInvalid: job 'index")
    assert jobs.runs[1].state is JobState.SUCCEEDED


def test_where_no_job_can_be_read_the_function_is_not_called() -> None:
    with testing.in_memory(app) as jobs:
        index.enqueue(Document(1))
        jobs.runs[0].body = jobs.runs[0].body.replace(b'"id":1', b'"id":"one"')
        jobs.run_for(1)
    assert batches == []


def test_the_argument_of_one_job_is_checked_where_it_is_enqueued() -> None:
    with testing.in_memory(app) as jobs:
        with pytest.raises(ArgumentsInvalid, match="allowed: Document"):
            index.enqueue({"id": "three"})  # type: ignore[arg-type]
        with pytest.raises(ArgumentsInvalid, match="takes 1 arguments by position, 2 are given"):
            index.enqueue(Document(1), Document(2))  # type: ignore[call-arg]
    assert jobs.runs == []


def test_a_body_that_names_its_arguments_is_read_as_a_map_of_them() -> None:
    body = b'PINLATER/1 application/json\n{"job": "index", "kwargs": {"id": 5, "text": "x"}}'
    with testing.in_memory(app) as jobs:
        index.enqueue(Document(1))
        jobs.runs[0].body = body
        jobs.run_all()
    assert batches == [[5]]


def test_the_raw_jobs_of_a_queue_can_come_in_batches() -> None:
    raw_app = App(servers=["127.0.0.1:1"])
    bodies: list[list[bytes]] = []

    @raw_app.raw_job(queue="lines", batch=2)
    def lines(batch: Batch[bytes]) -> None:
        bodies.append(batch.arguments)

    with testing.in_memory(raw_app) as jobs:
        lines.enqueue_many([(b"one",), (b"two",), (b"three",)])
        jobs.run_all()
    assert bodies == [[b"one", b"two"], [b"three"]]


def test_called_it_runs_a_batch_of_one_here_and_now() -> None:
    index(Document(1))
    assert batches == [[1]]
    with pytest.raises(ValueError, match="no such language"):
        index(Document(2, "fail"))
    with pytest.raises(ConnectionError):
        index(Document(3, "raise"))
    with pytest.raises(ArgumentsInvalid):
        index(3)  # type: ignore[arg-type]


async def test_called_it_is_a_coroutine_where_the_function_is_one() -> None:
    await index_async(Document(1))  # type: ignore[misc]
    assert batches == [[1]]
    with pytest.raises(ValueError, match="no such language"):
        await index_async(Document(2, "fail"))  # type: ignore[misc]


async def test_batches_run_on_the_loop_of_a_test_and_in_its_threads() -> None:
    with testing.in_memory(app) as jobs:
        index_async.enqueue(Document(1))
        index.enqueue(Document(2, "fail"))
        await jobs.run_all_async()
    assert sorted(batches) == [[1], [2], [2], [2]]
    assert states(jobs) == [JobState.SUCCEEDED, JobState.FAILED]


def test_a_batch_that_is_to_stop_is_told_with_all_of_its_jobs() -> None:
    @app.job(queue="search", name="stopped", batch=2)
    def stopped(batch: Batch[int]) -> None:
        seen.append((batch.cancelled, batch.cancel_reason, batch.wait(100), batch[0].context.cancelled))
        batch[0].snooze(1)

    with testing.in_memory(app) as jobs:
        jobs.tell = StopReason.STOPPING
        stopped.enqueue(1)
        jobs.run_for(0.2)
    assert seen[0] == (True, "the worker stops", True, True)


def test_a_batch_waits_by_the_clock_of_the_test() -> None:
    @app.job(queue="search", name="waits", batch=2)
    def waits(batch: Batch[int]) -> None:
        seen.append((batch.cancelled, batch.wait(100), batch.deadline.timestamp() * 1000))

    with testing.in_memory(app) as jobs:
        began_ms = jobs.clock.now_ms()
        waits.enqueue(1)
        jobs.run_all()
        assert jobs.clock.now_ms() == began_ms + 200 + 100_000
    assert seen[0][:2] == (False, False)  # type: ignore[index]


def test_contexts_and_traces_are_those_of_each_job() -> None:
    @app.job(queue="search", name="traced", batch=3)
    def traced(batch: Batch[str]) -> None:
        with pytest.raises(LookupError):
            current()
        assert current_trace() is None
        for job in batch:
            with job:
                trace = current_trace()
                seen.append((job.arguments, current().attempt, trace.trace_id if trace else None))
        assert current_trace() is None

    trace = new_trace()
    with testing.in_memory(app) as jobs:
        with use_trace(trace):
            traced.enqueue("with")
        traced.enqueue("without")
        jobs.run_all()
    assert seen == [("with", 1, trace.trace_id), ("without", 1, None)]


def test_checkpoints_are_those_of_each_job() -> None:
    @app.job(queue="search", name="saves", batch=3, retry=[1])
    def saves(batch: Batch[int]) -> None:
        for job in batch:
            if job.arguments < 10:
                job.context.checkpoint(saves.body(job.arguments + 10))
                job.context.set_status(f"saw {job.arguments}")
                job.retry()

    with testing.in_memory(app) as jobs:
        saves.enqueue(1)
        saves.enqueue(2)
        jobs.run_all()
    assert [run.body for run in jobs.runs] == [saves.body(11), saves.body(12)]
    assert [run.statuses[0] for run in jobs.runs] == ["saw 1", "saw 2"]


TENANT: ContextVar[str] = ContextVar("tenant", default="none")


def number(context: JobContext) -> str:
    """Ids begin with the time, in microseconds, and go up by one."""
    return str(int(context.descriptor[-1]) + 1)


class Noted(Middleware):
    def __init__(self, fails: str = "") -> None:
        self.calls: list[tuple[object, ...]] = []
        self.fails = fails

    def before(self, context: JobContext) -> None:
        TENANT.set(context.descriptor)
        self.calls.append(("before", number(context)))
        if self.fails == "before" and number(context) == "1":
            raise ValueError("before")

    def after(self, context: JobContext, result: object) -> None:
        assert TENANT.get() == context.descriptor
        self.calls.append(("after", number(context), result))
        if self.fails == "after":
            raise ValueError("after")

    def error(self, context: JobContext, exception: BaseException, outcome: Outcome) -> None:
        assert TENANT.get() == context.descriptor
        self.calls.append(("error", number(context), type(exception).__name__))

    @contextmanager
    def around_batch(self, batch: Batch[Any]) -> Iterator[None]:
        self.calls.append(("enter", len(batch)))
        TENANT.set("the batch")
        try:
            yield
        except Exception as error:
            self.calls.append(("left by", type(error).__name__))
            raise
        self.calls.append(("leave",))
        if self.fails == "around":
            raise ValueError("commit")


def noted(fails: str = "", argument: object = 1) -> tuple[Noted, list[JobState]]:
    middleware = Noted(fails)
    noting = App(servers=["127.0.0.1:1"], middleware=[middleware])

    @noting.job(queue="search", batch=3, retry="never")
    def each(batch: Batch[Any]) -> None:
        middleware.calls.append(("run", TENANT.get()))
        batch[0].succeed()
        if batch[0].arguments == "raise":
            raise ConnectionError

    with testing.in_memory(noting) as jobs:
        for _ in range(2):
            each.enqueue(argument)
        jobs.run_all()
    return middleware, states(jobs)


WELL, ILL = JobState.SUCCEEDED, JobState.FAILED


def test_middleware_is_called_for_each_job_and_once_around_the_batch() -> None:
    middleware, ended = noted()
    assert middleware.calls == [
        ("before", "1"),
        ("before", "2"),
        ("enter", 2),
        ("run", "the batch"),
        ("leave",),
        ("after", "1", None),
        ("after", "2", None),
    ]
    assert ended == [WELL, WELL]


def test_middleware_hears_of_each_job_that_fails() -> None:
    middleware, ended = noted(argument="raise")
    assert middleware.calls[4:] == [
        ("left by", "ConnectionError"),
        ("after", "1", None),
        ("error", "2", "ConnectionError"),
    ]
    assert ended == [WELL, ILL]


def test_middleware_that_fails_before_fails_that_job_alone() -> None:
    middleware, ended = noted("before")
    assert middleware.calls[2:] == [("enter", 1), ("run", "the batch"), ("leave",), ("after", "2", None)]
    assert ended == [ILL, WELL]


def test_middleware_that_fails_after_fails_that_job() -> None:
    assert noted("after")[1] == [ILL, ILL]


def test_middleware_that_fails_around_fails_the_jobs_without_an_outcome_of_their_own() -> None:
    assert noted("around")[1] == [WELL, ILL]
