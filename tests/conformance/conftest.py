"""Every test that asks for `subject` or `shard` runs on every store, bare and through the chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pinlater.backends.base import Shard
from tests.conformance.bindings import BINDINGS, DEPTHS, MOST_BODY_BYTES, NOT_TIERED, TIERED, Binding
from tests.conformance.chain import chained, tiered
from tests.conformance.crowd import CROWD, Crowd
from tests.conformance.outage import OUT, Outage, through
from tests.conformance.served import Served
from tests.conformance.shelf import Shelf
from tests.conformance.subject import START_MS, Subject
from tests.faults.proxy import Proxy
from tests.queues import make_queue
from tests.stores.places import Places


@pytest.fixture
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "depth" in metafunc.fixturenames:
        is_tiered = (
            metafunc.module.__name__.rpartition(".")[2] in TIERED
            and metafunc.function.__name__ not in NOT_TIERED
            and "crowd" not in metafunc.fixturenames
        )
        metafunc.parametrize("depth", (*DEPTHS, "tiered") if is_tiered else DEPTHS, indirect=True)
    if "binding" in metafunc.fixturenames and not _names_stores(metafunc):
        fast = metafunc.config.getoption("--fast")  # to collect the others takes longer than to run those in memory
        chosen = [binding.param() for binding in BINDINGS if not (fast and binding.lasting)]
        metafunc.parametrize("binding", chosen, indirect=True)


def _names_stores(metafunc: pytest.Metafunc) -> bool:
    """Whether a test has stores of its own in place of the fixture."""
    marks = metafunc.definition.iter_markers("parametrize")
    return any("binding" in mark.args[0] for mark in marks)


@pytest.fixture
def depth(request: pytest.FixtureRequest) -> str:
    """The shard itself, what the service sees of it, or that with all bodies in a tier."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def most_body_bytes(binding: Binding, depth: str) -> int:
    """Of the largest body; a tier takes any."""
    return MOST_BODY_BYTES if depth == "tiered" else binding.most_body_bytes


@pytest.fixture
def places(binding: Binding, request: pytest.FixtureRequest) -> Places:
    found: Places = request.getfixturevalue(binding.places)
    return found


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for the shards that stay open from test to test."""
    with asyncio.Runner() as loop_runner:
        yield loop_runner


@pytest.fixture(scope="module")
def shelf(runner: asyncio.Runner) -> Iterator[Shelf]:
    kept = Shelf(runner)
    try:
        yield kept
    finally:
        kept.close()


@pytest.fixture(autouse=True)
def no_task_left(runner: asyncio.Runner) -> Iterator[None]:
    """What a test starts on the event loop ends with it."""
    before = asyncio.all_tasks(runner.get_loop())
    yield
    left = asyncio.all_tasks(runner.get_loop()) - before
    assert not left, f"tasks left at the end: {left}"


@pytest.fixture
def shard(
    binding: Binding, depth: str, places: Places, shelf: Shelf, runner: asyncio.Runner, tmp_path: Path
) -> Iterator[Shard]:
    """An open shard on an empty store."""
    shards = shelf.take(f"{binding.name} alone", lambda: [binding.make(places.fresh(), "1")])
    if depth == "tiered":
        yield from _tiered(shelf.kept(shards[0]), runner, tmp_path)
    elif depth == "chain":
        under_test = chained(shelf.kept(shards[0]))
        yield under_test
        runner.run(under_test.close())
    else:
        yield shards[0]
    shelf.put_back(shards)


def _tiered(shard: Shard, runner: asyncio.Runner, folder: Path) -> Iterator[Shard]:
    under_test = tiered(shard, folder / "tier")
    runner.run(under_test.tiers.open())
    runner.run(under_test.open())
    yield under_test
    runner.run(under_test.close())
    runner.run(under_test.tiers.close())


@pytest.fixture
def subject(shard: Shard, runner: asyncio.Runner) -> Subject:
    """An open shard with one empty queue."""
    under_test = Subject(shard)
    assert runner.run(make_queue(shard, under_test.queue, START_MS))
    return under_test


@pytest.fixture
def crowd(binding: Binding, depth: str, places: Places, shelf: Shelf, runner: asyncio.Runner) -> Iterator[Crowd]:
    """Several shards open on one store; where the store is in memory, one shard that all of them use."""

    def make() -> list[Shard]:
        url = places.fresh()
        return [binding.make(url, "1") for _ in range(CROWD if binding.lasting else 1)]

    shards = shelf.take(f"{binding.name} crowd", make)
    under_test = [chained(shelf.kept(shard)) if depth == "chain" else shard for shard in shards]
    runner.run(make_queue(under_test[0], Subject(under_test[0]).queue, START_MS))
    subjects = [Subject(shard) for shard in under_test]
    for each in subjects:
        each.counts_at_once = binding.counts_at_once
    yield subjects * (CROWD // len(shards))
    if depth == "chain":
        for shard in under_test:
            runner.run(shard.close())
    shelf.put_back(shards[:1])


Serve = Callable[..., Served]


@pytest.fixture
def serve(binding: Binding, places: Places, shelf: Shelf, runner: asyncio.Runner) -> Iterator[Serve]:
    """Makes a service over two shards."""
    shards = shelf.take(f"{binding.name} pair", lambda: [binding.make(places.fresh(), each) for each in ("1", "b2")])
    services: list[Served] = []

    def make(**settings: Any) -> Served:
        service = Served([shelf.kept(shard) for shard in shards], process=4711 + len(services), **settings)
        services.append(service)
        runner.run(service.open())
        return service

    yield make
    for service in services:
        runner.run(service.close())
    shelf.put_back(shards)


@pytest.fixture
def served(serve: Serve) -> Served:
    """A service over two shards."""
    return serve()


@pytest.fixture
def servers(serve: Serve) -> tuple[Served, Served]:
    """Two services over the same two shards."""
    return serve(), serve()


@pytest.fixture
def tight(serve: Serve) -> Served:
    """The same with small bodies, answers and pages."""
    return serve(max_body_bytes=2_000, max_answer_bytes=4_000, page_jobs=4, page_bytes=3_000)


@pytest.fixture
def sliced(serve: Serve) -> Served:
    """The same, and four jobs fill a request."""
    return serve(max_jobs=4, page_jobs=4)


@pytest.fixture
def served_many(serve: Serve, binding: Binding) -> Served:
    """The same, and as many jobs fill a request as the store is quick with."""
    return serve(max_jobs=binding.many_jobs)


@pytest.fixture
def fleeting(serve: Serve) -> Served:
    """The same, and what has ended is not kept."""
    return serve(succeeded_ttl_ms=0, failed_ttl_ms=0)


@pytest.fixture
def outage(networked: Binding, request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Outage]:
    """A service over two shards; the network of the second can be cut."""
    yield from _with_proxy(networked, request, runner, shards=2)


@pytest.fixture
def schema_lock(networked: Binding, request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Outage]:
    """A service over one shard, whose network can be cut."""
    yield from _with_proxy(networked, request, runner, shards=1)


async def _prepared(shard: Shard) -> None:
    """What opening a store for the first time takes, without a deadline."""
    try:
        await shard.open()
    finally:
        await shard.close()


def _with_proxy(
    binding: Binding, request: pytest.FixtureRequest, runner: asyncio.Runner, shards: int
) -> Iterator[Outage]:
    places: Places = request.getfixturevalue(binding.places)
    url = places.fresh()
    runner.run(_prepared(binding.make(url, OUT)))
    with Proxy(urlsplit(url).port or 0) as proxy:
        direct = [binding.make(places.fresh(), "1") for _ in range(shards - 1)]
        service = Outage([*direct, binding.make(through(url, proxy), OUT)], proxy)
        try:
            runner.run(service.open())
            yield service
        finally:
            proxy.heal()
            runner.run(service.close())
