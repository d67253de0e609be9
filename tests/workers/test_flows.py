"""Flows in Python: each case at a real server with a worker, and in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pinlater.errors import ServerUnreachable, StageSealed
from pinlater.model import JobState
from pinlater.model.flow_words import FlowState
from pinlater_workers import (
    App,
    ArgumentsInvalid,
    ConfigurationError,
    Fail,
    Flow,
    FlowEnd,
    FlowRun,
    ItemFailed,
    Never,
    Retry,
    testing,
)
from pinlater_workers.errors import NotPlayed
from tests.server.running import RunningServer, running
from tests.workers.site import Site

Case = Callable[[App, str], Iterator[None]]
"""Declares jobs on that queue; then, when it is asked to go on, plays with flows of them."""


@dataclass
class Amount:
    cents: int


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server


def streamed(app: App, queue: str) -> Iterator[None]:
    """Three stages; items come while others run; one is broken."""
    told: list[FlowEnd] = []
    sent: list[tuple[int, int]] = []

    @app.job(queue=queue, attempts=2)
    def calculate(user: int) -> Amount:
        if user == 13:
            raise RuntimeError("no contract")
        return Amount(user * 100)

    @app.job(queue=queue)
    async def send_check(user: int, cents: int) -> str:
        sent.append((user, cents))
        return f"check {user}"

    @app.job(queue=queue)
    def report(flow: FlowEnd) -> None:
        told.append(flow)

    yield
    payroll = Flow("payroll")
    first = payroll.stage(calculate, backoff=0.01)
    pay = first.then(send_check, payload="{user: payload.user, cents: result.cents}", final=True)
    run = payroll.start([{"user": 1}, {"user": 13}], dedupe_key=queue, on_complete=report, metadata={"month": "11"})
    again = payroll.start([{"user": 99}], dedupe_key=queue)
    assert (run.is_new, again.is_new, again.id == run.id) == (True, False, True)
    assert len(run.add([{"user": 3}])) == 1
    run.seal()
    with pytest.raises(StageSealed):
        run.add([{"user": 4}])
    results = {item.payload["user"]: item.result for item in run.results(pay, timeout=60)}
    assert results == {1: "check 1", 3: "check 3"}
    assert sorted(sent) == [(1, 100), (3, 300)]
    ended = {item.payload["user"]: item for item in run.results(first, timeout=60)}
    assert ended[1].result == Amount(100)
    assert not ended[13].succeeded
    assert ["no contract" in each.reason for each in ended[13].failures] == [True, True]
    with pytest.raises(ItemFailed, match=r"^item \d+ has failed: .*no contract"):
        _ = ended[13].result
    assert run.wait(60).state is FlowState.COMPLETE
    _see_told(app, told)
    assert (told[0].id, told[0].metadata, told[0].is_cancelled) == (run.id, {"month": "11"}, False)
    assert [(each.name, each.succeeded, each.failed) for each in told[0].stages] == [
        ("calculate", 2, 1),
        ("send_check", 2, 0),
    ]


def _see_told(app: App, told: list[Any]) -> None:
    """The callback has come; in memory, that is when its job runs."""
    if isinstance(app.sink, testing.Jobs):
        app.sink.run_all()
    deadline_s = time.monotonic() + 60
    while not told:
        assert time.monotonic() < deadline_s, "the callback does not come"
        time.sleep(0.01)


def chained(app: App, queue: str) -> Iterator[None]:
    """A chain: each job gets what the one before returned."""

    @app.job(queue=queue)
    def fetch(url: str) -> list[int]:
        return [len(url), 1]

    @app.job(queue=queue)
    def resize(picture: list[int]) -> int:
        return sum(picture)

    @app.job(queue=queue)
    def store(size: int) -> dict[str, int]:
        return {"size": size}

    yield
    chain = Flow("picture")
    chain.stage(fetch).then(resize, payload="[result]").then(store, payload="[result]", final=True)
    (stored,) = chain.start([{"url": "http://a"}], seal=True).results(timeout=60)
    assert stored.result == {"size": 9}


def grouped_with_a_callback(app: App, queue: str) -> Iterator[None]:
    """A chord: many jobs, then one that has all of their results."""
    sums: list[int] = []

    @app.job(queue=queue)
    def square(number: int) -> int:
        return number * number

    @app.job(queue=queue)
    def total(flow: FlowEnd) -> None:
        sums.append(sum(item.result for item in FlowRun(app, flow.id).results()))

    yield
    squares = Flow("squares")
    squares.stage(square, final=True)
    squares.start(range(20), on_complete=total, seal=True).wait(60)
    _see_told(app, sums)
    assert sums == [sum(number * number for number in range(20))]


def split_by_a_job(app: App, queue: str) -> Iterator[None]:
    """A job makes the items of the stage below, out of what came before."""

    @app.job(queue=queue)
    def read(pages: int) -> str:
        return "book"

    @app.job(queue=queue)
    def split(payload: dict[str, int], result: str) -> list[dict[str, Any]]:
        return [{"book": result, "page": page} for page in range(payload["pages"])]

    @app.job(queue=queue)
    def scan(book: str, page: int) -> str:
        return f"{book} {page}"

    yield
    books = Flow("books")
    books.stage(read).then(scan, items=split, final=True)
    found = [item.result for item in books.start([{"pages": 3}], seal=True).results(timeout=60)]
    assert sorted(found) == ["book 0", "book 1", "book 2"]


def decided_by_the_stage(app: App, queue: str) -> Iterator[None]:
    """The retry policies of jobs do not count for items: their stage says how often and when; Fail is for good."""
    tries: dict[str, int] = {"never": 0, "fail": 0, "retry": 0}

    @app.job(queue=queue, retry=Never())
    def work(kind: str) -> str:
        tries[kind] += 1
        if kind == "fail":
            raise Fail("not this one")
        if tries[kind] < 3:
            raise Retry(after="1h") if kind == "retry" else RuntimeError(kind)
        return kind

    yield
    flow = Flow("tries")
    flow.stage(work, max_failures=2, backoff=0.01, max_backoff=0.02, final=True)
    ended = {item.payload["kind"]: item for item in flow.start([{"kind": kind} for kind in tries], seal=True).results()}
    assert tries == {"never": 3, "fail": 1, "retry": 3}
    assert {kind: item.succeeded for kind, item in ended.items()} == {"never": True, "fail": False, "retry": True}
    assert [len(item.failures) for _, item in sorted(ended.items())] == [1, 2, 2]


def kept_results(app: App, queue: str) -> Iterator[None]:
    """What is no JSON is a failure that says so; what a type keeps as MessagePack is JSON here."""

    @app.job(queue=queue, encoding="msgpack", keep_result=True)
    def made(kind: str) -> Any:
        return {"nothing": None, "odd": object(), "list": [1, 2]}[kind]

    yield
    flow = Flow("results")
    flow.stage(made, final=True)
    run = flow.start([{"kind": kind} for kind in ("nothing", "odd", "list")], seal=True)
    ended = {item.payload["kind"]: item for item in run.results(timeout=60)}
    assert (ended["nothing"].result, ended["list"].result) == (None, [1, 2])
    assert "cannot be kept" in ended["odd"].failures[-1].reason


def keyed(app: App, queue: str) -> Iterator[None]:
    """Items with the keys of their jobs: a start may be run again, and one key runs in order."""
    order: list[int] = []

    @app.job(queue=queue, unique="{number}", serialize="all")
    def note(number: int) -> None:
        order.append(number)

    yield
    flow = Flow("keyed")
    flow.stage(note, final=True)
    numbers = [{"number": number} for number in range(8)]
    run = flow.start(numbers[:5], dedupe_key=queue)
    again = flow.start(numbers, dedupe_key=queue, seal=True)
    assert (again.id, again.is_new) == (run.id, False)
    assert [item.key for item in run.results(timeout=60)] == [str(number) for number in range(8)]
    assert order == list(range(8))


def cancelled(app: App, queue: str) -> Iterator[None]:
    @app.job(queue=queue)
    def wait() -> None: ...

    yield
    flow = Flow("cancelled")
    flow.stage(wait, final=True)
    run = flow.start()
    run.cancel()
    status = run.wait(60)
    assert (status.state, list(run.results())) == (FlowState.CANCELLED, [])


CASES = (
    streamed,
    chained,
    grouped_with_a_callback,
    split_by_a_job,
    decided_by_the_stage,
    kept_results,
    keyed,
    cancelled,
)


@pytest.mark.parametrize("case", CASES)
async def test_a_flow_at_a_server(server: RunningServer, case: Case) -> None:
    async with Site(server.port) as site:
        play = case(site.app, site.queue)
        next(play)
        async with site.working():  # a worker knows the types that there are when it starts
            await asyncio.to_thread(list, play)


@pytest.mark.parametrize("case", CASES)
def test_a_flow_in_memory(case: Case) -> None:
    app = App(servers=["127.0.0.1:1"])
    with testing.in_memory(app):
        list(case(app, f"q_{uuid.uuid4().hex[:8]}"))


async def test_a_flow_on_an_event_loop(server: RunningServer) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, serialize="{number}")
        async def double(number: int) -> int:
            return number * 2

        flow = Flow("doubles")
        stage = flow.stage(double, final=True)
        async with site.working():
            run = await flow.start_async([{"number": 1}], keep_for="1h")
            await run.add([{"number": 2}])
            await run.seal()
            assert sorted([item.result async for item in run.results(stage, timeout=60)]) == [2, 4]
            assert (await run.wait(60)).state is (await run.status()).state is FlowState.COMPLETE
            assert (await run.cancel()).state is FlowState.COMPLETE


async def test_a_start_of_many_items_sends_several_calls(server: RunningServer) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue, unique="{number}")
        def one(number: int) -> None: ...

        flow = Flow("many")
        flow.stage(one, final=True)
        run = await flow.start_async([{"number": number} for number in range(2_500)], dedupe_key=site.queue, seal=True)
        again = await flow.start_async(
            [{"number": number} for number in range(2_500)], dedupe_key=site.queue, seal=True
        )
        (stage,) = (await again.status()).stages
        assert (stage.items, stage.is_sealed, again.id) == (2_500, True, run.id)
        await run.cancel()


def test_a_stage_has_the_tags_of_its_job_unless_others_are_said() -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="q", tags=("tenant:7",))
    def work(number: int) -> None: ...

    flow = Flow("tagged")
    made = [flow.stage(work), flow.stage(work, name="b", tags=["urgent"]), flow.stage(work, name="c", tags=())]
    assert [stage.declared.tags for stage in made] == [("tenant:7",), ("urgent",), ()]


def test_a_stage_has_the_group_of_its_job_unless_another_is_said() -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="q", group="{tenant}")
    def work(tenant: str) -> None: ...

    @app.job(queue="q", group=lambda tenant: tenant.upper())
    def by_function(tenant: str) -> None: ...

    flow = Flow("grouped")
    own = [flow.stage(work), flow.stage(work, name="b", group="eu-{tenant}"), flow.stage(work, name="c", group=False)]
    assert [stage.declared.group for stage in [*own, flow.stage(by_function)]] == ["{tenant}", "eu-{tenant}", "", ""]
    for group in (lambda tenant: tenant, "{tenant!r}", ""):
        with pytest.raises(
            ConfigurationError, match=r"stage wrong: group is .*; allowed: up to 255 bytes of text with"
        ):
            flow.stage(work, name="wrong", group=group)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match=r"the function has no argument 'tenent'.*did you mean tenant"):
        flow.stage(work, name="wrong", group="{tenent}")


def test_jobs_of_a_flow_in_memory_have_their_groups() -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="q", group="{tenant}")
    def work(tenant: str) -> None: ...

    flow = Flow("grouped")
    flow.stage(work)
    with testing.in_memory(app) as jobs:
        flow.start([{"tenant": "acme"}, {"tenant": "betty"}], seal=True)
        jobs.run_all()
    assert sorted(run.group for run in jobs.runs) == ["acme", "betty"]


def test_what_cannot_be_a_flow_is_said_when_it_is_declared() -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="q")
    def work(number: int) -> None: ...

    @app.raw_job(queue="raw")
    def raw(body: bytes) -> None: ...

    flow = Flow("wrong")
    with pytest.raises(ConfigurationError, match="has no stage"):
        flow.start()
    stage = flow.stage(work)
    with pytest.raises(ConfigurationError, match="already"):
        flow.stage(work)
    with pytest.raises(ConfigurationError, match="no option 'max_failure'; allowed: name"):
        flow.stage(work, name="b", max_failure=1)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="is raw"):
        flow.stage(raw)
    with pytest.raises(ConfigurationError, match="is no job"):
        flow.stage(print)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="not both"):
        stage.then(work, payload="result", items=work, name="c")
    with pytest.raises(ConfigurationError, match=r"no parameter 'payload'; without payload= and items= it gets those"):
        stage.then(work, name="c")
    with pytest.raises(ConfigurationError, match="as items= it gets payload and result"):
        stage.then(work, items=work, name="c")
    with pytest.raises(ConfigurationError, match="is no job"):
        stage.then(work, items="result", name="c")  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="allowed: a JMESPath expression"):
        stage.then(work, payload=work, name="c")  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="max_failures is 100; allowed: 0 to 99"):
        flow.stage(work, name="c", max_failures=100)
    with pytest.raises(ConfigurationError, match="allowed: go_on, stop_stage, stop_flow"):
        flow.start(on_failure="stop")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="allowed: a job of the app, or a URL"):
        flow.start(on_complete="work")
    with pytest.raises(ConfigurationError, match="as on_complete= it gets flow, a FlowEnd"):
        flow.start(on_complete=work)
    with pytest.raises(ConfigurationError, match="has 11; allowed: texts"):
        flow.start(metadata={"month": 11})  # type: ignore[dict-item]
    with pytest.raises(ArgumentsInvalid, match="no parameter 'nubmer'"):
        flow.start([{"nubmer": 1}])
    for no_list in ({"number": 1}, "1", 1):
        with pytest.raises(ArgumentsInvalid, match=r"the items of stage work are .*; allowed: a list of them"):
            flow.start(no_list)  # type: ignore[arg-type]
    assert flow.stages.keys() == {"work"}
    for call in (lambda run: run.add([1], "work"), lambda run: run.seal("work"), lambda run: next(run.results("work"))):
        with testing.in_memory(app), pytest.raises(ConfigurationError, match="'work' is no stage; allowed: what"):
            call(flow.start([1]))


async def test_a_wait_that_is_over_says_what_is_in_the_way(server: RunningServer) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue)
        def work(number: int) -> None: ...

        flow = Flow("slow")
        flow.stage(work, final=True)
        run = await flow.start_async([1, 2])
        with pytest.raises(TimeoutError) as caught:
            await run.wait(0.01)
        assert "stage work is open until it is sealed, as by run.seal()" in str(caught.value)
        assert f"2 items of stage work are pending, on queue {site.queue}" in str(caught.value)
        with pytest.raises(TimeoutError, match="is open until it is sealed"):
            _ = [item async for item in run.results(timeout=0.01)]
        await run.cancel()


def test_a_flow_that_nobody_seals_is_no_endless_wait_in_memory() -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="q")
    def work(number: int) -> int:
        return number

    flow = Flow("open")
    flow.stage(work, final=True)
    with testing.in_memory(app) as jobs:
        run = flow.start([1])
        with pytest.raises(NotPlayed, match="not sealed"):
            list(run.results())
        assert [each.state for each in jobs.runs] == [JobState.SUCCEEDED]
        flow.start([2], on_complete="https://example.org/done", seal=True).wait()
        ((url, told),) = jobs.flows.posts
        assert (url, told["name"], told["state"]) == ("https://example.org/done", "open", "COMPLETE")


def test_servers_that_are_away_are_waited_for_and_each_item_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="q")
    def double(number: int) -> int:
        return number * 2

    flow = Flow("away")
    flow.stage(double, final=True)
    with testing.in_memory(app):
        run = flow.start([1, 2, 3], seal=True)
        tried = dict.fromkeys(("get_flow", "get_flow_items"), 0)

        def answers_now_and_then(name: str) -> None:
            client = type(app.client)
            call = getattr(client, name)

            def tries(*args: Any, **kwargs: Any) -> Any:
                tried[name] += 1
                if tried[name] in (2, 3):
                    raise ServerUnreachable("no answer from any server")
                return call(*args, **kwargs)

            monkeypatch.setattr(client, name, tries)

        for name in tried:
            answers_now_and_then(name)
        assert sorted(item.result for item in run.results(timeout=60)) == [2, 4, 6]
        assert tried["get_flow_items"] > 3
        tried["get_flow"] = 0
        assert run.wait(60).state is FlowState.COMPLETE
        tried["get_flow"] = 1
        with pytest.raises(ServerUnreachable):  # of the first look there is nobody to wait for
            run.wait()


def test_a_program_that_starts_no_flow_loads_nothing_for_them() -> None:
    code = (
        "import sys; from pinlater_workers import App, testing; a = App(servers=['127.0.0.1:1'])\n"
        "@a.job(queue='q')\ndef f() -> None: ...\n"
        "assert testing.run(f).state == 2\n"
        "assert not [n for n in sys.modules if n.startswith(('sqlalchemy', 'pinlater_workers.flows'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
