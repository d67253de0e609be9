"""Jobs are enqueued on a real server, and say what they are to the worker that takes them."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
import uvloop

from pinlater.errors import BodyTooLarge, OutcomeUnknown, PriorityNotSupported, QueueNotFound
from pinlater.model import DequeueRequest, Job, JobInfo
from pinlater_workers import App, ArgumentsInvalid, EnqueuedInPart
from pinlater_workers.envelope import Encoding, read_envelope
from pinlater_workers.jobs.enqueue_calls import BYTES_PER_CALL, JOBS_PER_CALL, slices
from pinlater_workers.jobs.job_type import JobType
from tests.server.running import RunningServer, running

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def app(server: RunningServer) -> Iterator[App]:
    app = App(servers=[f"127.0.0.1:{server.port}"], source="enqueuing")
    yield app
    app.close()


@pytest.fixture
def add(app: App) -> JobType:
    queue = f"sums_{next(_numbers)}"
    app.client.create_queue(queue)

    @app.job(queue=queue, attempts=4, priority=2)
    def add(a: int, b: int = 1) -> int:
        return a + b

    return add


def stored(app: App, descriptor: str) -> JobInfo:
    return app.client.lookup([descriptor], include_body=True)[descriptor]


def calls_of(app: App, job_type: JobType) -> list[tuple[object, ...]]:
    """The arguments of all jobs that can be taken, as the function would be given them."""
    found = []
    for job in app.client.dequeue(DequeueRequest(job_type.settings.queue, 10_000)):
        envelope = read_envelope(job.body)
        assert envelope is not None
        args, kwargs = job_type.arguments(envelope)
        found.append((*args, *kwargs.items()))
    return sorted(found, key=repr)


def test_a_job_has_the_body_the_attempts_and_the_priority_of_its_type(app: App, add: JobType) -> None:
    info = stored(app, add.enqueue(1, b=2))
    assert info.body == b'PINLATER/1 application/json\n{"job":"add","args":[1],"kwargs":{"b":2}}'
    assert (info.attempts_allowed, info.priority) == (4, 2)
    assert calls_of(app, add) == [(1, ("b", 2))]


def test_an_enqueue_may_say_another_priority_and_a_time(app: App, add: JobType) -> None:
    before_ms = time.time_ns() // 1_000_000
    later = stored(app, add.enqueue(1, delay=timedelta(hours=1), priority=3))
    assert before_ms + 3_600_000 <= later.run_after_ms <= before_ms + 3_600_000 + 60_000
    assert later.priority == 3
    at = datetime(2100, 1, 1, tzinfo=UTC)
    assert stored(app, add.enqueue(1, run_after=at)).run_after_ms == at.timestamp() * 1000
    for micros in (1, 499, 999):
        moment = at + timedelta(microseconds=micros)
        assert stored(app, add.enqueue(1, run_after=moment)).run_after_ms == at.timestamp() * 1000 + 1  # never before
    assert stored(app, add.enqueue(1, run_after=4_000_000_000_000)).run_after_ms == 4_000_000_000_000
    assert calls_of(app, add) == []


def test_options_say_all_that_an_enqueue_can_beside_the_arguments(app: App, add: JobType) -> None:
    other = f"other_{next(_numbers)}"
    app.client.create_queue(other)
    began_ms = time.time_ns() // 1_000_000
    some = add.options(delay="1h", priority=3, attempts=9, queue=other, headers={"tenant": "t1"})
    first, second = stored(app, some.enqueue(1, b=2)), stored(app, some.enqueue_many([{"a": 3}])[0])
    for info, args in ((first, ([1], {"b": 2})), (second, ([], {"a": 3}))):
        assert (info.descriptor.partition(":")[0], info.priority, info.attempts_allowed) == (other, 3, 9)
        assert began_ms + 3_600_000 <= info.run_after_ms <= began_ms + 3_660_000
        envelope = read_envelope(info.body or b"")
        assert envelope is not None
        assert (envelope.args, envelope.kwargs) == args
        assert (envelope.headers, envelope.attempts) == ({"tenant": "t1"}, 9)
    assert calls_of(app, add) == []
    at = datetime(2100, 1, 1, tzinfo=UTC)
    assert stored(app, add.options(run_after=at).enqueue(1)).run_after_ms == at.timestamp() * 1000
    assert add.options(run_after=at).job(1).run_after_ms == at.timestamp() * 1000


def test_a_delay_counts_from_each_enqueue(app: App, add: JobType) -> None:
    later = add.options(delay=60)
    first = later.job(1).run_after_ms
    now_ms = app.clock.now_ms()
    while app.clock.now_ms() == now_ms:
        pass
    assert first is not None
    assert (later.job(1).run_after_ms or 0) > first


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"delay": "soon"}, "a delay of 'soon'; allowed: 0 seconds or more"),
        ({"delay": 1, "run_after": 1}, "not both"),
        ({"run_after": 1_790_000_000}, "can only be seconds"),
        ({"queue": "no queue"}, "queue is 'no queue'; allowed: 1 to 64 letters"),
        ({"attempts": 0}, "attempts is 0; allowed: 1 to 2147483647"),
        ({"attempts": True}, "attempts is True; allowed: 1 to 2147483647"),
        ({"attempts": 2**31}, "attempts is 2147483648; allowed: 1 to 2147483647"),
        ({"delay": 10**18}, "delay is 1000000000000000000; allowed: up to 315360000 seconds, ten years"),
        ({"priority": "high"}, "priority is 'high'; allowed: a whole number"),
    ],
)
def test_options_that_cannot_be_are_refused_when_they_are_said(add: JobType, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        add.options(**options)


def test_a_header_that_is_no_text_is_refused(add: JobType) -> None:
    with pytest.raises(TypeError, match=r"header 'tenant' of job 'add' is 3; allowed: texts"):
        add.options(headers={"tenant": 3}).job(1)  # type: ignore[dict-item]


def test_a_raw_job_has_no_place_for_headers_and_further_attempts(app: App) -> None:
    raw = app.raw_job(queue="raw", name="raw", attempts=3)(lambda body: None)
    for options in ({"headers": {"a": "b"}}, {"attempts": 4}):
        with pytest.raises(ValueError, match=r"is raw, and its bodies have no place .* up to 3 attempts"):
            raw.options(**options)
    job = raw.options(delay=1, attempts=2).job(b"body")
    assert (job.body, job.attempts_allowed) == (b"body", 2)


def test_a_parameter_counts_before_the_former_option_of_its_name(app: App) -> None:
    queue = f"sums_{next(_numbers)}"
    app.client.create_queue(queue)

    @app.job(queue=queue)
    def send(delay: int, *, priority: str = "", **more: int) -> None: ...

    job = send.options(delay=5).job(7, priority="low", run_after=9)
    assert job.body == send.body(7, priority="low", run_after=9)
    info = stored(app, send.enqueue(delay=7, priority="low", more=1))
    assert info.body == send.body(delay=7, priority="low", more=1)
    at_ms = 4_000_000_000_000
    info = stored(app, send.enqueue(7, run_after=at_ms))  # no parameter of this name: the option, as ever
    assert (info.body, info.run_after_ms) == (send.body(7), at_ms)


def test_many_jobs_are_enqueued_in_order_over_as_many_calls_as_it_takes(app: App, add: JobType) -> None:
    calls: list[tuple[int, ...] | dict[str, int]] = [(number,) for number in range(JOBS_PER_CALL)]
    calls += [{"a": -1, "b": 0}, (-2, 3)]
    descriptors = add.enqueue_many(calls)
    assert len(set(descriptors)) == JOBS_PER_CALL + 2
    first, last = read_envelope(stored(app, descriptors[0]).body or b""), stored(app, descriptors[-1]).body
    assert first is not None
    assert (first.args, last) == ([0], add.body(-2, 3))
    assert len(calls_of(app, add)) == JOBS_PER_CALL + 2
    assert add.enqueue_many([]) == []


@pytest.mark.parametrize("wrong", [("one",), {"a": "one"}, (), "text", {"c": 1}])
def test_one_wrong_call_of_many_and_nothing_is_sent(app: App, add: JobType, wrong: object) -> None:
    with pytest.raises(ArgumentsInvalid, match="call 2, counted from 0: job "):
        add.enqueue_many([(1,), (2,), wrong])  # type: ignore[list-item]
    assert calls_of(app, add) == []


@pytest.mark.parametrize(
    "calls",
    [
        [(1,), (2,)],
        [[1, "x"], (2, None)],
        [{"number": 1, "text": "x"}, {"number": 2, "text": "y"}],
        [{"number": 1, "text": "x"}, {"text": "y", "number": 2}],
        [{"number": 1}, (2,), OrderedDict(number=3)],
        [(True, "x", 0.5)],
        ((1, b"x".decode(), 1.0), (2, "y", 2.0)),
    ],
)
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_call_of_many_is_written_as_one_alone(calls: Sequence[Any], encoding: Encoding) -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="many", encoding=encoding, secret=["text"])
    def mixed(number: int | bool, text: str | None = None, share: float = 0.0) -> None: ...

    options = mixed.options(headers={"tenant": "t1"}, attempts=5)
    alone = [options.job(**call) if isinstance(call, Mapping) else options.job(*call) for call in calls]
    assert options.jobs(calls) == options.jobs(each for each in calls) == alone


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ((2, "\udc80"), "text is '\\udc80'"),
        ((2, "x", float("inf")), "share is inf: JSON has no inf"),
        ((2, 7), "text is 7"),
        ((), "number missing"),
    ],
)
def test_the_wrong_call_of_many_is_named_in_a_list_and_in_a_stream(wrong: tuple[Any, ...], why: str) -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="many")
    def mixed(number: int, text: str = "", share: float = 0.0) -> None: ...

    right: list[tuple[Any, ...]] = [(1, "x", 0.5)[: len(wrong)]] if wrong else []
    for calls in ([*right, wrong], iter([*right, wrong])):
        with pytest.raises(ArgumentsInvalid) as raised:
            mixed.options().jobs(calls)
        assert str(raised.value).startswith(f"call {len(right)}, counted from 0: job 'mixed': {why}")


def test_enqueueing_on_an_event_loop(app: App, add: JobType) -> None:
    async def produce() -> list[str]:
        one, many = await asyncio.gather(add.enqueue_async(1), add.enqueue_many_async([(2,), {"a": 3}]))
        await app.close_async()
        return [one, *many]

    for _ in range(2):
        assert len(asyncio.run(produce())) == 3
    assert calls_of(app, add) == [(("a", 3),), (("a", 3),), (1,), (1,), (2,), (2,)]


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_that_ends_leaves_no_open_connection(
    app: App, add: JobType, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def produce() -> None:
        await add.enqueue_async(1)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            with asyncio.Runner(loop_factory=make_loop) as runner:
                runner.run(produce())
            gc.collect()
    assert [str(each.message) for each in warned] == []
    assert calls_of(app, add) == [(1,), (1,)]


def test_a_child_of_a_fork_enqueues_by_itself(app: App, add: JobType) -> None:
    add.enqueue(1)
    child = os.fork()
    if child == 0:
        try:
            add.enqueue(2)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    add.enqueue(3)
    assert calls_of(app, add) == [(1,), (2,), (3,)]


def test_refusals_of_the_server_come_as_they_are(app: App, add: JobType) -> None:
    with pytest.raises(PriorityNotSupported):
        add.enqueue(1, priority=100)
    nowhere = app.job(queue="nowhere", name="nowhere")(add.function)
    with pytest.raises(QueueNotFound, match="nowhere"):
        nowhere.enqueue(1)

    @app.job(queue=add.settings.queue)
    def large(text: str) -> None: ...

    with pytest.raises(BodyTooLarge):
        large.enqueue("x" * 8_000_000)


class Breaking:
    """A sink whose calls end in an error after so many."""

    def __init__(self, app: App, calls: int) -> None:
        self._sink, self._left = app.sink, calls

    def send(self, queue: str, jobs: Sequence[Job], *, timeout_s: float | None = None) -> list[str]:
        self._fall()
        return self._sink.send(queue, jobs)

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        self._fall()
        return await self._sink.send_async(queue, jobs)

    def _fall(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise OutcomeUnknown("no answer")


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_what_is_enqueued_of_many_is_told_when_a_later_call_fails(app: App, add: JobType, on_a_loop: bool) -> None:
    calls = [(number,) for number in range(2 * JOBS_PER_CALL + 1)]
    app.sink = Breaking(app, 2)

    async def many() -> list[str]:
        try:
            return await add.enqueue_many_async(calls)
        finally:
            await app.close_async()

    with pytest.raises(EnqueuedInPart, match=r"1000 of 1001 jobs are enqueued; then: no answer") as partly:
        asyncio.run(many()) if on_a_loop else add.enqueue_many(calls)
    assert isinstance(partly.value.__cause__, OutcomeUnknown)
    assert (len(partly.value.enqueued), partly.value.wanted) == (1000, 1001)
    assert stored(app, partly.value.enqueued[-1]).body == add.body(999)
    with pytest.raises(OutcomeUnknown):
        add.enqueue_many(calls)


def test_calls_are_bound_in_jobs_and_bytes() -> None:
    small, large = Job(b"x"), Job(b"x" * (BYTES_PER_CALL // 2 + 1))
    assert [len(part) for part in slices([small] * (2 * JOBS_PER_CALL + 1))] == [JOBS_PER_CALL, JOBS_PER_CALL, 1]
    assert [len(part) for part in slices([small, large, large, small])] == [2, 2]
    assert [len(part) for part in slices([Job(b"x" * (BYTES_PER_CALL + 1)), small])] == [1, 1]
    assert list(slices([])) == []
