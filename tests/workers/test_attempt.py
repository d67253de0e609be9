"""One attempt, from its body to the verdict."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from pinlater_workers.app import App
from pinlater_workers.execution.attempt import close_loop, run_attempt, run_attempt_async
from pinlater_workers.execution.decision import decide_stopped
from pinlater_workers.jobs.context import StopReason, current
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import SUCCEEDED, Action, Outcome, Reschedule, Snooze
from tests.workers.attempts import attempt, claimed, context_of

app = App(servers=["127.0.0.1:1"])
LEFT: ContextVar[str] = ContextVar("left", default="nothing")
seen: list[object] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    seen.clear()
    yield
    close_loop()


@app.job(queue="tested")
def plain(number: int, name: str = "x") -> str:
    seen.append((number, name, current().attempt, LEFT.get()))
    LEFT.set("something")
    return "dropped"


@app.job(queue="tested")
async def coroutine(number: int, name: str = "x") -> str:
    await asyncio.sleep(0)
    seen.append((number, name, current().attempt, LEFT.get()))
    LEFT.set("something")
    return "dropped"


@app.raw_job(queue="raw")
def raw(body: bytes) -> None:
    seen.append(body)


@app.job(queue="tested")
def raises(what: str) -> None:
    raise {"exit": SystemExit(0), "memory": MemoryError(), "generator": GeneratorExit(), "key": KeyboardInterrupt()}[
        what
    ]


@app.job(queue="tested")
async def raises_coroutine(what: str) -> None:
    await asyncio.sleep(0)
    raises.function(what)


@app.job(queue="tested")
async def cancels_itself() -> None:
    raise asyncio.CancelledError


@app.job(queue="tested")
async def leaves_a_task() -> None:
    async def left() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    task = asyncio.create_task(left())
    await asyncio.sleep(0)
    seen.append(task)


@app.job(queue="tested")
async def exits_in_a_task() -> None:
    async def exits() -> None:
        raise SystemExit(3)

    await asyncio.create_task(exits())


@app.job(queue="tested")
async def long() -> None:
    seen.append("began")
    await asyncio.Event().wait()


@app.job(queue="tested")
def stores_then(what: str, number: int) -> None:
    current().checkpoint(stores_then.body(what, number + 1))
    raise {"snooze": Snooze(1), "reschedule": Reschedule(1)}[what]


KINDS = pytest.mark.parametrize("job", [plain, coroutine], ids=["plain", "coroutine"])
RAISING = pytest.mark.parametrize("job", [raises, raises_coroutine], ids=["plain", "coroutine"])


@KINDS
def test_a_job_gets_its_arguments_and_its_context_and_succeeds(job: JobType) -> None:
    assert attempt(job, 3, name="y", remaining=4).action is Action.SUCCEED
    assert attempt(job, 3, name="y", remaining=4) is SUCCEEDED, "what it returns is told once"
    assert seen == [(3, "y", 2, "nothing")] * 2


@KINDS
def test_context_variables_of_one_job_do_not_reach_the_next(job: JobType) -> None:
    for _ in range(2):
        attempt(job, 1)
    assert seen == [(1, "x", 1, "nothing")] * 2
    assert LEFT.get() == "nothing"
    with pytest.raises(LookupError):
        current()


def test_a_raw_job_gets_the_whole_body() -> None:
    body = b"PINLATER/1 application/json\n{}"
    assert attempt(raw, body=body) is SUCCEEDED
    assert attempt(raw, body=b"") is SUCCEEDED
    assert seen == [body, b""]


@KINDS
@pytest.mark.parametrize(
    ("body", "action", "error"),
    [
        (b'PINLATER/1 application/json\n{"job": "plain", "args": ["three"]}', Action.RETRY, "ArgumentsInvalid"),
        (b'PINLATER/1 application/json\n{"job": "plain"}', Action.RETRY, "ArgumentsInvalid"),
        (b'PINLATER/1 application/json\n{"job": "pl', Action.FAIL, "BodyInvalid"),
        (b"no envelope", Action.FAIL, "BodyInvalid"),
    ],
)
def test_a_body_that_does_not_fit(job: JobType, body: bytes, action: Action, error: str) -> None:
    outcome = attempt(job, body=body)
    assert (outcome.action, outcome.error) == (action, error)
    assert outcome.status.startswith(f"attempt 1 of 5: {error}: ")
    assert seen == []


@RAISING
@pytest.mark.parametrize(
    ("what", "error"), [("exit", "SystemExit"), ("memory", "MemoryError"), ("generator", "GeneratorExit")]
)
def test_exceptions_that_would_end_a_process_end_the_attempt(job: JobType, what: str, error: str) -> None:
    outcome = attempt(job, what)
    assert (outcome.action, outcome.error) == (Action.RETRY, error)
    assert " in raises)" in outcome.status


@RAISING
def test_ctrl_c_passes(job: JobType) -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(job, "key")


@pytest.mark.parametrize(("what", "action"), [("snooze", Action.SNOOZE), ("reschedule", Action.RESCHEDULE)])
def test_what_a_checkpoint_stored_stays_when_the_job_comes_again(what: str, action: Action) -> None:
    body = b'PINLATER/1 application/json\n{"job":"stores_then","args":["%s",1],"headers":{"h":"v"},"snoozes":4}'
    outcome = attempt(stores_then, body=body % what.encode())
    new = b'PINLATER/1 application/json\n{"job":"stores_then","args":["%s",2],"headers":{"h":"v"}' % what.encode()
    assert (outcome.action, outcome.body) == (action, new + (b',"snoozes":5}' if what == "snooze" else b"}"))


# -- coroutines --------------------------------------------------------------------------------------------------------


def test_a_coroutine_that_raises_cancelled_error_by_itself_has_failed() -> None:
    outcome = attempt(cancels_itself)
    assert (outcome.action, outcome.error) == (Action.RETRY, "CancelledError")


def test_a_task_of_a_coroutine_that_exits_ends_the_attempt() -> None:
    for _ in range(2):
        outcome = attempt(exits_in_a_task)
        assert (outcome.action, outcome.error) == (Action.RETRY, "SystemExit")
    assert attempt(coroutine, 1) is SUCCEEDED


def test_tasks_that_a_coroutine_leaves_behind_in_a_thread_end_with_it() -> None:
    assert attempt(leaves_a_task) is SUCCEEDED
    task, ended = seen
    assert isinstance(task, asyncio.Task)
    assert task.cancelled()
    assert ended == "ended"


def test_coroutines_of_a_thread_share_a_loop_until_it_is_closed() -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    work = App(servers=["127.0.0.1:1"])

    @work.job(queue="tested")
    async def job() -> None:
        loops.append(asyncio.get_running_loop())

    def thread() -> None:
        for _ in range(2):
            claim = claimed(job.body())
            run_attempt(work, job, claim, context_of(claim))
        close_loop()
        close_loop()

    threads = [threading.Thread(target=thread) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(loops) == 4
    assert len(set(loops)) == 2
    assert all(loop.is_closed() for loop in loops)


def test_the_pool_that_cancels_a_coroutine_decides_what_becomes_of_it() -> None:
    async def main() -> Outcome:
        job = claimed(long.body())
        context = context_of(job)
        task = asyncio.create_task(run_attempt_async(app, long, job, context))
        while not seen:
            await asyncio.sleep(0)
        context.request_stop(StopReason.TIME_LIMIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        return decide_stopped(long.settings, job, StopReason.TIME_LIMIT)

    outcome = asyncio.run(main())
    assert (outcome.action, outcome.error) == (Action.RETRY, "TimeLimitExceeded")


def test_many_coroutines_on_one_loop_have_each_their_context() -> None:
    async def main() -> list[Outcome]:
        async def one(number: int) -> Outcome:
            job = claimed(coroutine.body(number), remaining=6 - number)
            return await run_attempt_async(app, coroutine, job, context_of(job))

        return await asyncio.gather(*(one(number) for number in range(1, 6)))

    assert asyncio.run(main()) == [SUCCEEDED] * 5
    assert seen == [(number, "x", number, "nothing") for number in range(1, 6)]
