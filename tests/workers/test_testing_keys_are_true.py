"""Keys, order, expiry, cancels and results in memory are those of a real server: one test body, played on both."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from pinlater import AsyncClient, ExtendedJob, Heartbeat, Job, KeyRef, RescheduleJob
from pinlater.errors import PinLaterError
from pinlater.model import EnqueuedJobs, JobInfo, JobState, OnDuplicate
from pinlater_workers import App, testing
from pinlater_workers.errors import WorkerError
from pinlater_workers.jobs.batch import Batch
from pinlater_workers.jobs.context import current
from pinlater_workers.jobs.outcome import Fail, Reschedule, Retry, Snooze
from tests.server.running import RunningServer, running
from tests.workers.site import Site, until

LEASE_S = 3.0
"""A third of it is the time between heartbeats, which tell a job that it is to stop."""

DESCRIPTOR = re.compile(r"[A-Za-z0-9_-]+:s[A-Za-z0-9]+:p\d+:\d+")


class Stage:
    """Where a test body plays. `seen`: what both places must agree on. `ran`: what the jobs noted, in order."""

    def __init__(self, site: Site, other: str, work: Callable[[], Awaitable[None]]) -> None:
        self.app: App = site.app
        self.queue, self.other = site.queue, other
        self.work = work
        self.seen: list[object] = []
        self.ran: list[str] = []
        self._names: dict[str, str] = {}

    @property
    def client(self) -> AsyncClient:
        return self.app.async_client()

    def see(self, *what: object) -> None:
        self.seen.extend(self._plain(each) for each in what)

    async def see_job(self, descriptor: str) -> None:
        found = await self.client.lookup([descriptor], include_body=True, include_result=True)
        self.see(found.get(str(descriptor)))

    def _plain(self, what: object) -> object:
        if isinstance(what, JobInfo):
            progress = None if what.progress is None else what.progress[:2]
            has = (what.state, what.attempts_allowed, what.attempts_remaining, what.body, what.result, what.cancelled)
            keys = (what.dedupe_key, what.serialize_key, what.claim_timeout_ms, what.expires_at_ms is None)
            ends = (what.finished_at_ms is None, what.cancel_requested_by is None)
            texts = self._plain(what.custom_status), self._plain(what.waits_for)
            return (*has, *keys, *ends, progress, *texts)
        if isinstance(what, list):
            outcomes = list(what.outcomes) if isinstance(what, EnqueuedJobs) else []
            return [self._plain(each) for each in what], outcomes
        if isinstance(what, BaseException):
            reason = getattr(what, "reason", None)
            return type(what), reason, self._plain(str(what).removeprefix(f"{reason}: "))
        if isinstance(what, str):
            text = DESCRIPTOR.sub(lambda match: self._names.setdefault(match[0], f"job {len(self._names)}"), what)
            text = text.replace(self.queue, "queue")
            text = re.sub(r" \[\S+Z, \S+s, \S+\]", " [when]", text)
            text = re.sub(r"cancelled by [^\s\"']+", "cancelled by somebody", text)
            return re.sub(r"\d{13}", "a time", text)
        return what

    async def see_error(self, call: Awaitable[object]) -> None:
        """What is raised is seen, and must be."""
        with pytest.raises((PinLaterError, WorkerError, TimeoutError)) as raised:
            await call
        self.see(raised.value)


Body = Callable[[Stage], Awaitable[None]]
BODIES: list[Body] = []


def body(function: Body) -> Body:
    BODIES.append(function)
    return function


@body
async def duplicates(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue, unique="{user}", unique_for="1h", on_duplicate="replace", attempts=2)
    def greet(user: int, text: str) -> None:
        stage.ran.append(text)

    later = greet.options(delay="1h")
    first = await later.enqueue_async(1, "a")
    others = [
        greet.options(delay="1h", on_duplicate="keep"),
        later,
        greet.options(delay="1h", attempts=5),
        greet.options(delay="1h", serialize="x"),
    ]
    for other in others:
        again = await other.enqueue_async(1, "b")
        stage.see(again, again.outcome)
        await stage.see_job(again)
    stage.see(await again.cancel())
    await stage.see_error(greet.options(on_duplicate="reject").enqueue_async(1, "c"))
    await stage.see_error(greet.options(priority=2).enqueue_async(1, "c"))
    with pytest.raises(PinLaterError) as in_part:
        await greet.options(priority=2).enqueue_many_async([(8, "c"), (1, "c"), (9, "c")])
    stage.see(in_part.value, [*(in_part.value.job_descriptors or [])])
    stage.see(await first.cancel())
    anew = await greet.enqueue_async(1, "d")
    stage.see(anew, anew.outcome)
    await stage.work()
    kept = await greet.enqueue_async(1, "e")
    stage.see(kept, kept.outcome)
    rejected = greet.options(on_duplicate="reject", unique_for="1s").enqueue_async(1, "f")
    await stage.see_error(rejected)
    await stage.see_job(kept)


@body
async def windows_that_are_not_there(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue, unique="{user}")
    def greet(user: int) -> None:
        stage.ran.append(str(user))

    one = await greet.enqueue_async(1)
    await stage.work()
    two = await greet.enqueue_async(1)
    stage.see(one, two, two.outcome)
    await stage.work()
    key = KeyRef("greet:1")
    stage.see(*(await stage.client.lookup(stage.queue, keys=[key])).values())
    stage.see((await stage.client.cancel(stage.queue, keys=[key])).by_key)
    kept = greet.options(unique_for="kept")
    stage.see((await kept.enqueue_async(2)).outcome, (await greet.enqueue_async(2)).outcome)
    await stage.work()
    stage.see((await kept.enqueue_async(2)).outcome)


@body
async def many_at_once(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue, unique="{user}")
    def greet(user: int) -> None:
        stage.ran.append(str(user))

    handles = await greet.enqueue_many_async([(1,), (2,), (1,)])
    stage.see(*handles, *(each.outcome for each in handles))
    await stage.work()
    stage.see(sorted(stage.ran))


@body
async def order_over_queues(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue, serialize="{account}", retry=[0.01], attempts=3, unique="{what}")
    def book(account: str, what: str) -> None:
        stage.ran.append(what)
        if what == "retries" and current().attempt < 3:
            raise Retry(after=0.01)
        if what == "fails":
            raise Fail("no")

    @stage.app.job(queue=stage.other, serialize="{account}")
    def write(account: str, what: str) -> None:
        stage.ran.append(what)
        if what == "snoozes" and stage.ran.count(what) < 2:
            raise Snooze(0.01)
        if what == "comes again" and stage.ran.count(what) < 2:
            raise Reschedule(0.01)

    handles = [
        await book.enqueue_async("ada", "retries"),
        await write.options(priority=1).enqueue_async("ada", "snoozes"),
        await book.enqueue_async("ada", "fails"),
        await book.enqueue_async("ada", "gone"),
        await write.enqueue_async("ada", "comes again"),
        await book.enqueue_async("ada", "last"),
    ]
    for each in handles:
        await stage.see_job(each)
    found = await stage.client.lookup(stage.other, keys=[KeyRef("", "ada"), KeyRef("book:last", "ada")])
    stage.see(*found.values())
    stage.see(await handles[3].cancel())
    await stage.work()
    stage.see(stage.ran)
    stage.see(await stage.client.lookup(stage.queue, keys=[KeyRef("", "ada")]))
    for each in handles:
        await stage.see_job(each)


@body
async def what_expires(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue, serialize="{key}", attempts=4)
    def book(key: str, what: str) -> None:
        stage.ran.append(what)

    first = await book.options(delay="1h").enqueue_async("ada", "first")
    late = await book.options(expires="1ms", claim_timeout="1m").enqueue_async("ada", "late")
    last = await book.enqueue_async("ada", "last")
    other = await book.options(expires="1h").enqueue_async("bob", "in time")

    async def is_over() -> bool:
        with contextlib.suppress(TimeoutError):
            await late.result(timeout="10ms")
        return False

    with pytest.raises(WorkerError) as raised:
        await until(is_over)
    stage.see(raised.value)
    stage.see(await first.cancel())
    await stage.work()
    stage.see(sorted(stage.ran))
    for each in (first, late, last, other):
        await stage.see_job(each)


@body
async def send_ids(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue)
    def note(what: str) -> None:
        stage.ran.append(what)

    def job(what: str, **more: Any) -> ExtendedJob:
        return ExtendedJob(note.body(what), **more)

    async def send(*jobs: Job) -> None:
        stage.see(await stage.client.enqueue(stage.queue, list(jobs)))

    await send(job("a", send_id="s1"))
    await send(job("a again", send_id="s1"))
    await send(job("b", dedupe_key="k"))
    await send(job("kept", dedupe_key="k", send_id="s2"))
    await send(job("c", send_id="s3"), job("d", send_id="s3"))
    await send(job("c again", send_id="s3"), job("d again", send_id="s3"))
    await stage.work()
    await send(job("a late", send_id="s1"))
    await send(job("kept late", dedupe_key="k", send_id="s2"))
    stage.see(sorted(stage.ran))


@body
async def what_is_refused(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue)
    def note(what: str) -> None: ...

    def job(**more: Any) -> ExtendedJob:
        return ExtendedJob(note.body("a"), **more)

    refused: list[list[Job]] = [
        [job(dedupe_key="@schedule/a")],
        [job(serialize_key="x" * 256)],
        [job(on_duplicate=OnDuplicate.REPLACE)],
        [job(dedupe_key="a", dedupe_for_ms=-2)],
        [job(dedupe_key="a", on_duplicate=OnDuplicate.REJECT), job(dedupe_key="b")],
        [job(serialize_key="a"), job(serialize_key="b")],
        [job(send_id="x" * 65)],
        [job(expires_at_ms=17)],
    ]
    for jobs in refused:
        with contextlib.suppress(PinLaterError):
            stage.see(await stage.client.enqueue(stage.queue, jobs))
            continue
        stage.see("refused")
    await stage.see_error(stage.client.lookup(keys=[KeyRef("a")]))


@body
async def other_times(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue, unique="{what}", attempts=2)
    def note(what: str) -> None:
        stage.ran.append(what)

    handle = await note.options(delay="1h").enqueue_async("a")
    stage.see(await handle.reschedule(delay="2h", body=note.body("b"), attempts=7))
    await stage.see_job(handle)
    key = KeyRef("note:a")
    changes = [
        RescheduleJob(key=key, only_if_updated_at_ms=17),
        RescheduleJob(key=key, run_after_ms=1_000_000_000_000),
        RescheduleJob(key=KeyRef("note:b")),
        RescheduleJob(f"{handle}"[:-4] + "9999"),
    ]
    stage.see(await stage.client.reschedule(stage.queue, changes))
    await stage.see_error(handle.reschedule(body=b"x" * 2_000_000))
    await stage.work()
    stage.see(stage.ran, await handle.reschedule(delay="1h"), await handle.cancel())
    await stage.see_job(handle)


@body
async def results(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue, keep_result=True, attempts=2, retry=[0.01])
    def give(what: str) -> object:
        if what == "large":
            return "x" * 70_000
        if what == "odd":
            return {1, object()}
        if what == "bad":
            raise Fail("never")
        return [what]

    @stage.app.job(queue=stage.queue, batch=3, keep_result=True)
    def doubled(batch: Batch[int]) -> None:
        for job in batch:
            job.succeed(result=job.arguments * 2)

    well = await give.enqueue_async("well")
    wrong = [await give.enqueue_async(what) for what in ("large", "odd", "bad")]
    batch = await doubled.enqueue_many_async([(1,), (2,), (3,)])
    gone = await give.options(delay="1h").enqueue_async("gone")
    stage.see(await gone.cancel())
    await stage.work()
    stage.see(await well.result(), [await each.result() for each in batch])
    for each in (*wrong, gone):
        await stage.see_error(each.result())
    for each in (well, *wrong, *batch, gone):
        await stage.see_job(each)


@body
async def running_jobs_that_are_cancelled(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue, attempts=5, keep_result=True, serialize="all")
    def stops(how: str) -> str:
        me, context = current().descriptor, current()
        client = stage.app.client
        stage.ran.append(how)
        stage.see(client.cancel([me])[me], client.cancel([me], running=True)[me])
        stage.see(client.cancel([me], running=True)[me], context.wait(60), context.cancel_text)
        beat = Heartbeat(me, context.claimed.claim_descriptor, 0.25, "still here")
        lost = Heartbeat(me, "another claim")
        stage.see([each.outcome for each in client.heartbeat(stage.queue, [beat, lost])])
        if how == "obeys":
            context.raise_if_cancelled()
        if how == "raises":
            raise ValueError("oh")
        if how == "snoozes":
            raise Snooze(1)
        return how

    handles = [await stops.enqueue_async(how) for how in ("obeys", "raises", "snoozes", "succeeds")]
    await stage.work()
    stage.see(stage.ran)
    for each in handles[:3]:
        await stage.see_error(each.result())
    stage.see(await handles[3].result())
    for each in handles:
        await stage.see_job(each)
        stage.see(await each.cancel(running=True))


@body
async def coroutines_that_are_cancelled(stage: Stage) -> None:
    @stage.app.job(queue=stage.queue, attempts=5)
    async def stops(how: str) -> None:
        me = current().descriptor
        stage.see((await stage.client.cancel([me], running=True))[me])
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stage.ran.append(f"{how} was cancelled: {current().cancelled}")
            if how == "succeeds":
                return
            raise

    handles = [await stops.options(serialize="all").enqueue_async(how) for how in ("obeys", "succeeds")]
    await stage.work()
    stage.see(stage.ran)
    for each in handles:
        await stage.see_job(each)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("server")) as started:
        yield started


@contextlib.asynccontextmanager
async def site_of(server: RunningServer) -> AsyncIterator[tuple[Site, str]]:
    async with Site(server.port) as site:
        other = f"{site.queue}_b"
        await site.client.create_queue(other)
        yield site, other


async def in_memory(site: Site, other: str, play: Body) -> list[object]:
    with testing.in_memory(site.app, queues=[site.queue, other]) as jobs:
        stage = Stage(site, other, jobs.run_all_async)
        await play(stage)
    return stage.seen


async def on_server(site: Site, other: str, play: Body) -> list[object]:
    async def work() -> None:
        async def has_none() -> bool:
            states = (JobState.PENDING, JobState.IN_PROGRESS)
            return not any([await site.count(state, each) for state in states for each in (site.queue, other)])

        async with site.working(queues={site.queue: 1, other: 1}, lease_s=LEASE_S):
            await until(has_none)

    stage = Stage(site, other, work)
    await play(stage)
    return stage.seen


@pytest.mark.parametrize("play", BODIES, ids=lambda play: play.__name__)
async def test_memory_and_a_server_agree(server: RunningServer, play: Body) -> None:
    async with site_of(server) as (site, other):
        expected = await on_server(site, other, play)
    async with site_of(server) as (site, other):
        found = await in_memory(site, other, play)
    assert expected
    assert len(found) == len(expected)
    for number, (here, there) in enumerate(zip(found, expected, strict=True)):
        assert here == there, f"at {number}"
