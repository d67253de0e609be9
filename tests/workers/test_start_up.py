"""Hooks of an app, and dependencies by annotation, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from pinlater_workers import App, ArgumentsInvalid, Batch, ConfigurationError, provided, testing
from pinlater_workers.envelope import read_envelope


class Pool:
    """What JSON cannot carry."""

    def __init__(self, name: str = "pool") -> None:
        self.name = name
        self.closed = False


class Loose:
    """Another one."""


@dataclass
class Settings:
    """What JSON can carry."""

    size: int


def app_with_pool() -> tuple[App, list[Pool], list[Any]]:
    app = App()
    made: list[Pool] = []

    @app.provide
    def pool() -> Iterator[Pool]:
        made.append(Pool())
        yield made[-1]
        made[-1].closed = True

    return app, made, []


def test_a_job_gets_what_is_provided_once_in_a_process_and_it_ends_with_it() -> None:
    app, made, seen = app_with_pool()

    @app.job(queue="mail")
    def send(to: str, pool: Pool, size: int = 1) -> None:
        assert not pool.closed
        seen.append((to, pool, size))

    with testing.in_memory(app) as jobs:
        send.enqueue("ada", 5)
        send.enqueue(to="bob")
        jobs.run_all()
    assert seen == [("ada", made[0], 5), ("bob", made[0], 1)]
    assert len(made) == 1
    assert made[0].closed


def test_the_envelope_and_the_arguments_are_without_it() -> None:
    app, _, _ = app_with_pool()

    @app.job(queue="mail", unique="{to}")
    def send(pool: Pool, to: str) -> None: ...

    envelope = read_envelope(send.body("ada"))
    assert envelope is not None
    assert (envelope.args, envelope.kwargs) == (["ada"], {})
    with testing.in_memory(app) as jobs:
        send.enqueue("ada")
        assert jobs.runs[0].dedupe_key == "send:ada"
    with pytest.raises(ArgumentsInvalid, match="has no parameter 'pool'"):
        send.body("ada", pool=Pool())


@pytest.mark.parametrize("given", [("a", "b"), ("a",), ()], ids=len)
def test_it_finds_its_place_among_arguments_by_position(given: tuple[str, ...]) -> None:
    app, made, seen = app_with_pool()

    @app.job(queue="mail")
    def work(one: str, pool: Pool, two: str) -> None:
        seen.append((one, pool, two))

    named = dict(zip(("two", "one"), ("b", "a"), strict=True))
    for name, _ in zip(("one", "two"), given, strict=False):
        del named[name]
    assert testing.run(work, *given, **named).state.name == "SUCCEEDED"
    assert seen == [("a", made[0], "b")]


def test_two_of_a_type_are_told_apart_by_annotated() -> None:
    app, seen = App(), []
    replica = Annotated[Pool, "replica"]

    @app.provide
    def main() -> Pool:
        return Pool("main")

    @app.provide
    def other() -> Annotated[Pool, "replica"]:
        return Pool("replica")

    @app.job(queue="mail")
    def work(one: Pool, two: Annotated[Pool, "replica"]) -> None:
        seen.append((one.name, two.name))

    testing.run(work)
    with testing.providing(app, {replica: Pool("fake")}):
        testing.run(work)
    assert seen == [("main", "replica"), ("main", "fake")]


async def test_a_provider_may_be_a_coroutine_for_coroutine_jobs() -> None:
    app, seen = App(), []

    @app.provide
    async def pool() -> AsyncIterator[Pool]:
        await asyncio.sleep(0)
        yield Pool()

    @app.job(queue="mail")
    async def send(to: str, *, pool: Pool = provided) -> None:
        seen.append((to, pool))

    @app.job(queue="mail")
    def plain(pool: Pool) -> None: ...

    with testing.in_memory(app) as jobs:
        await send.enqueue_async("ada")
        await send.enqueue_async("bob")
        await jobs.run_all_async()
        assert seen[0][1] is seen[1][1]
        await app.hooks.end_process()
    run = await testing.run_async(plain)
    assert "only coroutine jobs can have it made" in run.status


def test_batches_and_raw_jobs_get_it_too() -> None:
    app, made, seen = app_with_pool()

    @app.job(queue="mail", batch=10)
    def send(batch: Batch[str], pool: Pool) -> None:
        seen.append(([job.arguments for job in batch], pool))

    @app.raw_job(queue="raw")
    def take(body: bytes, pool: Pool) -> None:
        seen.append((body, pool))

    with testing.in_memory(app) as jobs:
        send.enqueue("ada")
        take.enqueue(b"x")
        jobs.run_all()
    assert sorted(seen, key=str) == sorted([(["ada"], made[0]), (b"x", made[0])], key=str)
    own = Pool()
    send("bob", pool=own)
    assert seen[-1] == (["bob"], own)


def test_a_test_gives_its_own() -> None:
    app, made, seen = app_with_pool()

    @app.job(queue="mail")
    def work(pool: Pool) -> None:
        seen.append(pool)

    fake = Pool("fake")
    with testing.providing(app, {Pool: fake}):
        testing.run(work)
    assert seen == [fake]
    assert (made, fake.closed) == ([], False)
    work(pool=fake)
    assert seen == [fake, fake]


def test_what_fails_while_it_is_made_fails_the_job() -> None:
    app = App()

    @app.provide
    def pool() -> Pool:
        raise OSError("no database")

    @app.job(queue="mail", attempts=1)
    def work(pool: Pool) -> None: ...

    assert "no database" in testing.run(work).status


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_two_providers_of_a_type_are_refused() -> None:
    app, _, _ = app_with_pool()
    with pytest.raises(ConfigurationError, match=r"two providers make Pool, .*; keep one"):

        @app.provide
        def second() -> Pool:
            return Pool()


def test_a_type_without_a_provider_is_refused() -> None:
    app = App()
    with pytest.raises(ConfigurationError, match=r"Loose is not a type that JSON.*@app\.provide"):

        @app.job(queue="mail")
        def work(loose: Loose) -> None: ...

    @app.job(queue="mail")
    def later(loose: Loose = provided) -> None: ...

    with pytest.raises(ConfigurationError, match="nothing provides its parameter 'loose'"):
        app.check()
    app.provide(lambda_of_loose)
    app.check()


def lambda_of_loose() -> Loose:
    return Loose()


def test_a_provider_behind_a_job_that_takes_its_type_as_an_argument_is_refused() -> None:
    app = App()

    @app.job(queue="mail")
    def work(settings: Settings) -> None: ...

    with pytest.raises(ConfigurationError, match="takes Settings as an argument"):

        @app.provide
        def settings() -> Settings:
            return Settings(1)


def nothing_said():  # type: ignore[no-untyped-def]
    return Pool()


def yields_what():  # type: ignore[no-untyped-def]
    yield Pool()


def takes_something(name: str) -> Pool:
    return Pool(name)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (nothing_said, "does not say what it makes; annotate it, as in -> Pool"),
        (yields_what, r"annotate it, as in -> Iterator\[Pool\]"),
        (takes_something, "takes parameters"),
    ],
)
def test_a_function_that_can_be_no_provider_is_refused(function: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        App().provide(function)


def test_a_parameter_that_cannot_be_given_by_name_is_refused() -> None:
    app, _, _ = app_with_pool()
    with pytest.raises(ConfigurationError, match="can be given by name"):

        @app.job(queue="mail")
        def work(pool: Pool, /) -> None: ...


# -- hooks -------------------------------------------------------------------------------------------------------------


async def test_hooks_run_in_order_and_those_of_the_stop_backwards_whatever_one_raises() -> None:
    app, ran = App(), []

    @app.on_start
    def first() -> None:
        ran.append("first")

    @app.on_start
    async def second() -> None:
        await asyncio.sleep(0)
        ran.append("second")

    @app.on_stop
    def last() -> None:
        ran.append("last")

    @app.on_stop
    async def broken() -> None:
        raise OSError("gone")

    await app.hooks.begin_worker()
    await app.hooks.end_worker()
    assert ran == ["first", "second", "last"]


async def test_the_error_of_a_hook_says_which_and_why() -> None:
    app = App()

    @app.on_process_start
    def connect() -> None:
        raise OSError("no database")

    with pytest.raises(ConfigurationError, match=r"on_process_start .*connect failed, so that no job can run: OSError"):
        await app.hooks.begin_process([])
