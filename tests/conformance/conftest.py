"""Every test that asks for `subject` or `shard` runs on every store, bare and through the chain."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from pinlater.backends.base import Shard
from tests.conformance.bindings import BINDINGS, DEPTHS, Binding
from tests.conformance.chain import chained
from tests.conformance.crowd import Crowd
from tests.conformance.outage import OUT, Outage, through
from tests.conformance.report import Cells, suite_is_whole
from tests.conformance.served import Served
from tests.conformance.subject import START_MS, Subject
from tests.faults.proxy import Proxy
from tests.stores.places import Places

CROWD = 4
CELLS = pytest.StashKey[Cells]()


@pytest.fixture(params=[binding.param() for binding in BINDINGS])
def binding(request: pytest.FixtureRequest) -> Binding:
    """The store."""
    chosen: Binding = request.param
    return chosen


@pytest.fixture(params=[binding.param() for binding in BINDINGS if binding.lasting])
def lasting(request: pytest.FixtureRequest) -> Binding:
    """A store that keeps what it holds when it is closed."""
    chosen: Binding = request.param
    return chosen


@pytest.fixture(params=[binding.param() for binding in BINDINGS if binding.networked])
def networked(request: pytest.FixtureRequest) -> Binding:
    """A store at the other end of a connection."""
    chosen: Binding = request.param
    return chosen


@pytest.fixture(params=DEPTHS)
def depth(request: pytest.FixtureRequest) -> str:
    """The shard itself, or what the service sees of it."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def places(binding: Binding, request: pytest.FixtureRequest) -> Places:
    found: Places = request.getfixturevalue(binding.places)
    return found


def built(binding: Binding, depth: str, url: str) -> Shard:
    """A shard as the parameters ask for it, not open yet."""
    bare = binding.make(url, "1")
    return chained(bare) if depth == "chain" else bare


@pytest.fixture
def shard(binding: Binding, depth: str, places: Places, runner: asyncio.Runner) -> Iterator[Shard]:
    """An open shard on an empty store. When it is closed, no thread may be left."""
    before = set(threading.enumerate())
    under_test = built(binding, depth, places.fresh())
    runner.run(under_test.open())
    try:
        yield under_test
    finally:
        runner.run(under_test.close())
    left = [thread for thread in threading.enumerate() if thread not in before and thread.is_alive()]
    assert not left, f"threads left by close: {left}"


@pytest.fixture
def subject(shard: Shard, runner: asyncio.Runner) -> Subject:
    """An open shard with one empty queue."""
    under_test = Subject(shard)
    assert runner.run(shard.create_queue(under_test.queue, START_MS))
    return under_test


@pytest.fixture
def crowd(binding: Binding, depth: str, places: Places, runner: asyncio.Runner) -> Iterator[Crowd]:
    """Several shards open on one store; where the store is in memory, one shard that all of them use."""
    url = places.fresh()
    shards = [built(binding, depth, url) for _ in range(CROWD if binding.lasting else 1)]
    for shard in shards:
        runner.run(shard.open())
    try:
        runner.run(shards[0].create_queue(Subject(shards[0]).queue, START_MS))
        yield [Subject(shard) for shard in shards] * (CROWD // len(shards))
    finally:
        for shard in shards:
            runner.run(shard.close())


def _serve(binding: Binding, places: Places, runner: asyncio.Runner, **settings: object) -> Iterator[Served]:
    service = Served([binding.make(places.fresh(), shard_id) for shard_id in ("1", "b2")], **settings)
    try:
        runner.run(service.open())
        yield service
    finally:
        runner.run(service.close())


@pytest.fixture
def served(binding: Binding, places: Places, runner: asyncio.Runner) -> Iterator[Served]:
    """A service over two shards."""
    yield from _serve(binding, places, runner)


@pytest.fixture
def tight(binding: Binding, places: Places, runner: asyncio.Runner) -> Iterator[Served]:
    """The same with small bodies, answers and pages."""
    bounds = {"max_body_bytes": 2_000, "max_answer_bytes": 4_000, "page_jobs": 4, "page_bytes": 3_000}
    yield from _serve(binding, places, runner, **bounds)


@pytest.fixture
def fleeting(binding: Binding, places: Places, runner: asyncio.Runner) -> Iterator[Served]:
    """The same, and what has ended is not kept."""
    yield from _serve(binding, places, runner, succeeded_ttl_ms=0, failed_ttl_ms=0)


@pytest.fixture
def outage(networked: Binding, request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Outage]:
    """A service over two shards; the network of the second can be cut."""
    yield from _with_proxy(networked, request, runner, shards=2)


@pytest.fixture
def alone(networked: Binding, request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Outage]:
    """A service over one shard, whose network can be cut."""
    yield from _with_proxy(networked, request, runner, shards=1)


def _with_proxy(
    binding: Binding, request: pytest.FixtureRequest, runner: asyncio.Runner, shards: int
) -> Iterator[Outage]:
    places: Places = request.getfixturevalue(binding.places)
    url = places.fresh()
    with Proxy(urlsplit(url).port or 0) as proxy:
        direct = [binding.make(places.fresh(), "1") for _ in range(shards - 1)]
        service = Outage([*direct, binding.make(through(url, proxy), OUT)], proxy)
        try:
            runner.run(service.open())
            yield service
        finally:
            proxy.heal()
            runner.run(service.close())


# -- the report ------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CELLS] = Cells()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    if call.when == "call":
        item.config.stash[CELLS].add(item)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    cells = session.config.stash[CELLS]
    if suite_is_whole(session) and cells.empty(session.config.getoption("--without")):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    cells = config.stash[CELLS]
    if cells.counts:
        terminalreporter.section("conformance: cases by store, bare or through the chain")
        terminalreporter.write(cells.table())
