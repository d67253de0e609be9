"""What people do not expect of values and errors: enormous, nested, of their own classes; jobs that wait for others."""

from __future__ import annotations

import asyncio
import io
import logging
import numbers
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import greenlet
import pytest

from pinlater_workers import App, ArgumentsInvalid, Batch, Fail, JobFailed, testing
from pinlater_workers.errors import ResultInvalid
from pinlater_workers.execution.failure_text import MAX_LOGGED_CHARS
from pinlater_workers.jobs.context import refuse_on_loop
from pinlater_workers.jobs.handle import HINT_AFTER_MS
from tests.server.running import RunningServer, running
from tests.workers.attempts import attempt
from tests.workers.site import Site

ENORMOUS = "x" * 50_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("odd")
    with running(folder) as started:
        yield started


@pytest.fixture
def app() -> App:
    return App(servers=["127.0.0.1:1"])


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What an app's own handler makes of the framework's log."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("pinlater_workers").addHandler(handler)
    yield stream
    logging.getLogger("pinlater_workers").removeHandler(handler)


# -- enormous texts ----------------------------------------------------------------------------------------------------


def raised(text: str) -> None:
    raise ValueError(text)


def caused(text: str) -> None:
    try:
        raise KeyError(text)
    except KeyError as error:
        raise RuntimeError("no such picture") from error


def handled(text: str) -> None:
    try:
        raise KeyError(text)
    except KeyError:
        raised("small")


def grouped(text: str) -> None:
    raise ExceptionGroup("both", [ValueError("small"), TypeError(text)])


def noted(text: str) -> None:
    error = ValueError("small")
    error.add_note(text)
    raise error


@pytest.mark.parametrize("function", [raised, caused, handled, grouped, noted])
def test_an_enormous_text_of_an_exception_is_cut_in_the_log(
    app: App, logged: io.StringIO, function: Callable[[str], None]
) -> None:
    def fails() -> None:
        function(ENORMOUS)

    outcome = attempt(app.job(queue="q", attempts=1)(fails))
    assert len(outcome.status) < 5_000
    text = logged.getvalue()
    assert "no attempt follows" in text
    assert "50,000,0" in text
    assert len(text) < 5 * MAX_LOGGED_CHARS
    assert f"in {function.__name__}" in text


def test_another_text_is_logged_as_it_is(app: App, logged: io.StringIO) -> None:
    @app.job(queue="q", attempts=1)
    def fails() -> None:
        try:
            grouped("a" * 1_000)
        except ExceptionGroup as error:
            raise Fail("no") from error

    attempt(fails)
    assert "a" * 1_000 in logged.getvalue()
    assert "+-+---------------- 1 ----------------" in logged.getvalue()


def test_a_failing_policy_with_an_enormous_text_is_cut_too(app: App, logged: io.StringIO) -> None:
    def policy(number: int, error: BaseException) -> float:
        raise ValueError(ENORMOUS)

    @app.job(queue="q", retry=policy)
    def fails() -> None:
        raise ValueError

    attempt(fails)
    assert "The retry policy of a job failed" in logged.getvalue()
    assert len(logged.getvalue()) < 5 * MAX_LOGGED_CHARS


# -- arguments and results ---------------------------------------------------------------------------------------------


class Whole(int): ...


class Fraction64(float): ...


class Counted:
    """A number of no built-in class, as numpy's whole numbers are."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        return other == self.value

    __hash__ = None  # type: ignore[assignment]


numbers.Integral.register(Counted)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("given", "arrives"),
    [(Whole(3), 3), (Fraction64(1.5), 1.5), (Counted(7), 7), ([Whole(3), {"a": Counted(1)}], [3, {"a": 1}])],
)
def test_numbers_of_other_classes_arrive_as_numbers(app: App, encoding: str, given: Any, arrives: Any) -> None:
    seen: list[Any] = []

    @app.job(queue="q", encoding=encoding, keep_result=True)
    def takes(bare, annotated: Any = None):  # type: ignore[no-untyped-def]
        seen.append(bare)
        return given

    run = testing.run(takes, given)
    assert seen == [arrives]
    assert type(seen[0]) in (int, float, list)
    assert run.state.name == "SUCCEEDED", run.status


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_arguments_that_are_nested_too_deeply_are_refused_by_name(app: App, encoding: str) -> None:
    @app.job(queue="q", encoding=encoding)
    def takes(tree, rest: list[Any]) -> None: ...  # type: ignore[no-untyped-def]

    for name, call in [("tree", lambda deep: takes.body(deep, [])), ("rest", lambda deep: takes.body([], rest=deep))]:
        with pytest.raises(ArgumentsInvalid, match=f"job 'takes': {name} is a list: it is nested too deeply"):
            call(nested(100_000))


@pytest.mark.parametrize(
    ("value", "helps"),
    [
        (datetime(2026, 11, 26, tzinfo=UTC), "annotate it, so that it arrives as datetime"),
        ({1: "a"}, "annotate it, as in dict[int, str]"),
        ({1: "a", "b": "c"}, "make texts of its keys"),
        (float("inf"), 'MessagePack has (encoding="msgpack")'),
        ([float("nan")], 'MessagePack has (encoding="msgpack")'),
    ],
)
def test_an_advice_is_one_that_helps(app: App, value: Any, helps: str) -> None:
    @app.job(queue="q")
    def takes(value) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(ArgumentsInvalid) as refused:
        takes.body(value)
    assert helps in str(refused.value)
    assert ("annotate it" in str(refused.value)) is ("annotate it" in helps)


def test_an_infinite_number_is_refused_where_it_would_arrive_as_none(app: App) -> None:
    @app.job(queue="q")
    def takes(value: float | None) -> None: ...

    with pytest.raises(ArgumentsInvalid, match="JSON has no inf and no nan"):
        takes.body(float("inf"))


def test_no_annotation_is_advised_where_there_is_no_place_for_it(app: App) -> None:
    """The results of a batch: its function returns nothing."""

    @app.job(queue="q", batch=2, keep_result=True)
    def takes(batch: Batch[int]) -> None:
        for job in batch:
            job.succeed(result=datetime(2026, 11, 26, tzinfo=UTC))

    (error,) = testing.run(takes, 1).errors
    assert isinstance(error, ResultInvalid)
    assert "annotate" not in str(error)
    assert "would arrive as str; make a plain value of it" in str(error)
    assert traceback.format_exception_only(error)


# -- jobs that wait for each other -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["thread", "async"])
async def test_a_job_that_waits_for_one_which_needs_its_slot_says_so(
    server: RunningServer, caplog: pytest.LogCaptureFixture, pool: str
) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, keep_result=True)
        def inner() -> int:
            return 7

        @site.app.job(queue=site.queue, attempts=1, pool="thread")
        def outer() -> int:
            return inner.enqueue().result(timeout="4s")

        @site.app.job(queue=site.queue, attempts=1, pool="async")
        async def outer_async() -> int:
            return await (await inner.enqueue_async()).result(timeout="4s")

        waits = outer if pool == "thread" else outer_async
        with caplog.at_level(logging.WARNING, "pinlater_workers"):
            async with site.working(concurrency=1):
                handle = await waits.enqueue_async()
                with pytest.raises(JobFailed, match=r"TimeoutError: job .* has not ended within 4s: it has not begun"):
                    await handle.result(timeout=60)
        (said,) = [text for text in caplog.messages if "waits for the result of job" in text]
        assert said.startswith(f"job {handle} waits for the result of job {site.queue}:")
        assert "A job that waits keeps its slot" in said
        assert HINT_AFTER_MS < 4_000


def test_a_greenlet_beside_the_loop_of_a_client_is_no_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    """With gevent all threads are greenlets of one thread, which sees the client's loop running in another of them."""
    loop, here = asyncio.new_event_loop(), greenlet.getcurrent()
    loop.call_soon(lambda: here.switch())
    client = greenlet.greenlet(loop.run_forever)
    client.switch()
    try:
        with pytest.raises(RuntimeError, match="in a coroutine"):
            refuse_on_loop("result")
        monkeypatch.setitem(sys.modules, "gevent.monkey", SimpleNamespace(is_module_patched=lambda name: True))
        refuse_on_loop("result")
    finally:
        loop.call_soon(loop.stop)
        client.switch()
        loop.close()

    async def in_a_coroutine() -> None:
        with pytest.raises(RuntimeError, match="in a coroutine: await result"):
            refuse_on_loop("result")

    asyncio.run(in_a_coroutine())
