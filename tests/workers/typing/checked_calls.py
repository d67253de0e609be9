"""Calls of jobs as a program writes them. `# error: CODE` stands where a type checker has to complain, and only there.

Read by mypy (tests/workers/test_typing.py), run by nobody.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_type

from pinlater import AsyncClient, Client, Job
from pinlater_workers import (
    App,
    AsyncJobHandle,
    EnqueueOptions,
    JobFunction,
    JobHandle,
    JobType,
    Reschedule,
    Retry,
    Snooze,
    provided,
)
from pinlater_workers.outbox import Outbox

app = App()
outbox = Outbox(app)


@app.job(queue="q")
def resize(path: str, /, size: int = 100, *tags: str, crop: bool, mode: str | None = None) -> float:
    return 1.0


@app.job(queue="q")
async def fetch(url: str, **headers: str) -> bytes:
    return b""


@app.job(queue="q")
def remind(delay: int, priority: str, queue: list[str]) -> None: ...


class Pool: ...


@app.provide
def pool() -> Pool:
    return Pool()


@app.job(queue="q")
def stored(number: int, *, pool: Pool = provided) -> str:
    return ""


@app.raw_job(queue="q")
def raw(body: bytes) -> None: ...


def a_plain_call_is_that_of_the_function() -> None:
    assert_type(resize("a", crop=True), float)
    resize("a", "b", crop=True)  # error: arg-type


def enqueue_takes_what_the_function_takes() -> None:
    assert_type(resize.enqueue("a", 1, "x", "y", crop=True, mode="m"), JobHandle[float])
    assert_type(resize.enqueue("a", crop=False, mode=None), JobHandle[float])
    assert_type(resize.enqueue("a", crop=False).result(timeout="10s"), float)
    assert_type(fetch.enqueue("a").result(), bytes)
    assert_type(stored.enqueue(1), JobHandle[str])
    stored.enqueue("1")  # error: arg-type
    stored(1, pool=Pool())
    resize.enqueue("a")  # error: call-arg
    resize.enqueue("a", crop=1)  # error: arg-type
    resize.enqueue(path="a", crop=True)  # error: call-arg
    resize.enqueue("a", "100", crop=True)  # error: arg-type
    resize.enqueue("a", 1, 2, crop=True)  # error: arg-type
    resize.enqueue("a", crop=True, colour="red")  # error: call-arg
    resize.enqueue("a", crop=True, delay=60)  # error: call-arg
    fetch.enqueue("u", delay="a header")
    fetch.enqueue("u", delay=60)  # error: call-overload
    raw.enqueue(b"")
    raw.enqueue("")  # error: arg-type


def no_name_is_reserved() -> None:
    remind.enqueue(delay=1, priority="p", queue=["q"])
    remind.options(delay="5m", priority=2, queue="r").enqueue(1, priority="p", queue=[])
    remind.options(delay=1).enqueue(delay="1", priority="p", queue=[])  # error: arg-type


async def on_an_event_loop() -> None:
    assert_type(await resize.enqueue_async("a", crop=True), AsyncJobHandle[float])
    assert_type(await (await fetch.enqueue_async("a")).result(), bytes)
    assert_type(await fetch.options(priority=1).enqueue_async("u"), AsyncJobHandle[bytes])
    assert_type(await resize.options(priority=1).enqueue_many_async([("u",)]), list[AsyncJobHandle[float]])
    assert_type(await fetch.enqueue_many_async([("u",)]), list[AsyncJobHandle[bytes]])
    await resize.enqueue_async(1, crop=True)  # error: arg-type
    await fetch.options(priority=1).enqueue_async()  # error: call-arg


def options_are_checked() -> None:
    some = resize.options(
        delay=timedelta(1), priority=1, queue="q", attempts=3, headers={"a": "b"}, run_after=datetime.now(UTC)
    )
    assert_type(some.enqueue("a", crop=True), JobHandle[float])
    assert_type(some.enqueue("a", crop=True).result(), float)
    assert_type(fetch.options(delay=1).enqueue("a").result(), bytes)
    assert_type(some.job("a", crop=True), Job)
    assert_type(some.enqueue_many([("a",), {"crop": True}]), list[JobHandle[float]])
    assert_type(resize.enqueue_many([("a",)], priority=2), list[JobHandle[float]])
    assert_type(fetch.enqueue_many([("a",)])[0].result(), bytes)
    some.enqueue_many([("a",)], delay=5)  # error: call-arg
    resize.options(unique="{path}", unique_for="kept", on_duplicate="replace", serialize=lambda path: path)
    resize.options(expires=datetime.now(UTC), claim_timeout=30, keep_result=True, unique=False)
    resize.options(on_duplicate="replace", replace_running="cancel", replace_within="10s")
    resize.options(on_duplicate="drop")  # error: arg-type
    resize.options(replace_running="stop")  # error: arg-type
    some.enqueue(1, crop=True)  # error: arg-type
    some.job("a")  # error: call-arg
    resize.options(delai=5)  # error: call-arg
    resize.options(priority="high")  # error: arg-type
    resize.options(headers={"a": 1})  # error: dict-item
    resize.options(5)  # error: call-arg


def a_body_is_that_of_a_call() -> None:
    assert_type(resize.body("a", crop=True), bytes)
    resize.body(1, crop=True)  # error: arg-type


def what_is_kept_keeps_the_signature(job: JobFunction[[int], None], options: EnqueueOptions[[int]]) -> None:
    job.enqueue(1)
    job.enqueue("1")  # error: arg-type
    options.enqueue(1)
    options.enqueue("1")  # error: arg-type


def what_a_name_finds_takes_anything() -> None:
    found = app.find("resize")
    assert_type(found, JobType | None)
    if found is not None:
        found.enqueue("a", 1, delay=5)
        found.options(delay=5).enqueue("a", anything=1)


def delays_are_texts_too(client: Client) -> None:
    client.enqueue("q", Job(b""), delay="5m")
    client.enqueue("q", [Job(b"")], delay=timedelta(1))
    client.enqueue("q", Job(b""), delay=b"5m")  # error: call-overload
    raise Retry(after="5m") from Snooze("1h")


async def on_the_client_for_event_loops(client: AsyncClient) -> None:
    assert_type(await client.enqueue("q", Job(b""), delay=1), str)
    raise Reschedule("1d", body=resize.body("a", crop=True))


def names_of_other_frameworks_are_none_here() -> None:
    resize.delay("a")  # error: attr-defined
    resize.apply_async(("a",))  # error: attr-defined


async def an_outbox_takes_what_the_function_takes(connection: object) -> None:
    assert_type(outbox.enqueue(connection, resize, "a", 1, "x", crop=True, mode="m"), str)
    outbox.enqueue(connection, resize.options(delay="5m", priority=2), "a", crop=True)
    outbox.enqueue(connection, raw, b"body")
    outbox.enqueue(connection, remind, delay=1, priority="high", queue=["a"])
    outbox.enqueue(connection, resize, "a")  # error: call-arg
    outbox.enqueue(connection, resize, 1, crop=True)  # error: arg-type
    outbox.enqueue(connection, resize.options(delay="5m"), "a", crop=1)  # error: arg-type
    outbox.enqueue(connection, resize, "a", crop=True, colour="red")  # error: call-arg
    outbox.enqueue(connection, print, "a")  # error: arg-type
    assert_type(await outbox.enqueue_async(connection, fetch, "u", accept="text"), str)
    await outbox.enqueue_async(connection, fetch, "u", accept=1)  # error: arg-type
    assert_type(outbox.enqueue_many(connection, resize, [("a",), {"path": "b"}]), list[str])
    assert_type(outbox.enqueue_jobs(connection, "q", Job(b"x")), list[str])
