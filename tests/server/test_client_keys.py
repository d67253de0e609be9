"""Keys, results and requests to stop, as the clients offer them: at a server, behind a proxy, at an older server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

import pinlater
from pinlater import (
    Ack,
    AckOutcome,
    AsyncClient,
    CancelOutcome,
    Client,
    DequeueRequest,
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatOutcome,
    Job,
    JobFilter,
    JobState,
    KeyRef,
    OnDuplicate,
    ReplaceRunning,
    RescheduleJob,
    RescheduleOutcome,
    errors,
)
from tests.faults.proxy import Proxy
from tests.server.older import older_server
from tests.server.running import RunningServer, running
from tests.server.serving import serving

pytestmark = pytest.mark.usefixtures("way")

NOT_THERE = "mail:s1:p1:1790000000000000"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("keys")) as started:
        yield started


@asynccontextmanager
async def client_at(port: int, queue: str, **options: Any) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"127.0.0.1:{port}", **options) as client:
        await client.create_queue(queue)
        yield client


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W", "_", str(request.node.name)).strip("_")[-60:].lstrip("_-")


# -- dedupe keys -------------------------------------------------------------------------------------------------------


async def test_a_key_that_is_taken_keeps_the_job_that_stands(server: RunningServer, queue: str) -> None:
    async with client_at(server.port, queue) as client:
        first = await client.enqueue(queue, ExtendedJob(b"1", dedupe_key="a"))
        assert await client.enqueue(queue, ExtendedJob(b"2", dedupe_key="a")) == first
        jobs = [ExtendedJob(b"2", dedupe_key="b"), ExtendedJob(b"2", dedupe_key="a")]
        answer = await client.enqueue(queue, jobs)
        assert isinstance(answer, EnqueuedJobs)
        assert (answer[1], answer.outcomes) == (first, [EnqueueOutcome.STORED, EnqueueOutcome.KEPT])


async def test_replacing_and_rejecting(server: RunningServer, queue: str) -> None:
    async with client_at(server.port, queue) as client:
        first = await client.enqueue(queue, ExtendedJob(b"1", dedupe_key="a"))
        replaced = ExtendedJob(b"2", dedupe_key="a", on_duplicate=OnDuplicate.REPLACE)
        assert await client.enqueue(queue, replaced) == first
        assert (await client.lookup([first], include_body=True))[first].body == b"2"
        rejected = replace(replaced, on_duplicate=OnDuplicate.REJECT)
        for jobs in (rejected, [rejected]):
            with pytest.raises(errors.EnqueueRejected) as refusal:
                await client.enqueue(queue, jobs)
            assert (refusal.value.reason, refusal.value.retryable) == ("DUPLICATE", False)
            assert refusal.value.job_descriptors == [first]
        with pytest.raises(errors.RequestInvalid, match="several"):
            await client.enqueue(queue, [rejected, rejected])
        assert await client.enqueue(queue, replace(rejected, dedupe_key="other")) != first


async def test_the_newest_job_follows_the_one_that_runs(server: RunningServer, queue: str) -> None:
    async with client_at(server.port, queue) as client:
        newer = ExtendedJob(
            b"1", dedupe_key="a", on_duplicate=OnDuplicate.REPLACE, replace_running=ReplaceRunning.CANCEL
        )
        first = await client.enqueue(queue, newer)
        (job,) = await client.dequeue(DequeueRequest(queue, 1, wait_ms=9_000))
        second = await client.enqueue(queue, replace(newer, body=b"2"))
        assert await client.enqueue(queue, replace(newer, body=b"3")) == second != first
        found = await client.lookup(queue=queue, keys=[KeyRef("a")])
        assert {name: info.successor for name, info in found.items()} == {first: second}
        (answer,) = await client.heartbeat(queue, [Heartbeat(first, job.claim_descriptor)])
        assert answer.outcome is HeartbeatOutcome.CANCEL
        failed = [Ack(first, claim_descriptor=job.claim_descriptor)]
        assert await client.ack(queue, failed=failed) == [AckOutcome.CANCELLED]
        (job,) = await client.dequeue(DequeueRequest(queue, 1, wait_ms=9_000))
        assert (job.descriptor, job.body) == (second, b"3")


async def test_a_job_is_postponed_up_to_a_bound(server: RunningServer, queue: str) -> None:
    async with client_at(server.port, queue) as client:
        job = ExtendedJob(
            b"1", run_after_ms=1, dedupe_key="a", on_duplicate=OnDuplicate.REPLACE, replace_within_ms=60_000
        )
        first = await client.enqueue(queue, job)
        assert await client.enqueue(queue, replace(job, run_after_ms=2**50)) == first
        info = (await client.lookup([first]))[first]
        assert info.run_after_ms == info.created_at_ms + 60_000
        with pytest.raises(errors.RequestInvalid, match="REPLACE"):
            await client.enqueue(queue, replace(job, on_duplicate=OnDuplicate.KEEP))


async def test_jobs_with_keys_that_are_enqueued_at_once_have_fates_of_their_own(
    server: RunningServer, queue: str
) -> None:
    async with client_at(server.port, queue) as client:
        jobs = [ExtendedJob(b"", dedupe_key=f"key {number % 10}") for number in range(50)]
        others = [Job(b""), ExtendedJob(b"", expires_at_ms=4 * 10**12), ExtendedJob(b"", serialize_key="one")]
        found = await asyncio.gather(*(client.enqueue(queue, job) for job in (*jobs, *others)))
        assert len(set(found)) == 10 + len(others)
        assert [found[number] for number in range(10)] * 5 == found[:50]
        with pytest.raises(errors.RequestInvalid, match="dedupeKey"):
            await client.enqueue(queue, ExtendedJob(b"", dedupe_key="@mine"))


async def test_seconds_where_milliseconds_are_wanted_are_refused_unsent(server: RunningServer, queue: str) -> None:
    async with client_at(server.port, queue) as client:
        with pytest.raises(errors.RequestInvalid, match="expires_at_ms"):
            await client.enqueue(queue, ExtendedJob(b"", expires_at_ms=1_790_000_000))


# -- sending again -----------------------------------------------------------------------------------------------------


async def test_enqueues_whose_answers_are_lost_are_sent_again_where_that_is_asked_for(
    server: RunningServer, queue: str
) -> None:
    """Threads that open connections meanwhile would first ask the server what it knows, and hear nothing."""
    with Proxy(server.port) as proxy:
        async with pinlater.AsyncClient(f"127.0.0.1:{proxy.port}", resend=True) as client:
            await client.create_queue(queue)
            await client.enqueue(queue, Job(b"before"))
            proxy.black_hole(answers_only=True)
            calls = [
                asyncio.create_task(client.enqueue(queue, Job(b"joined"))),
                asyncio.create_task(client.enqueue(queue, ExtendedJob(b"keyed", dedupe_key="a"))),
                asyncio.create_task(client.enqueue(queue, [Job(b"listed"), Job(b"listed")])),
            ]
            lost = asyncio.create_task(client.enqueue(queue, Job(b"lost"), resend=False))
            async with client_at(server.port, queue) as beside:
                while await beside.count(JobFilter(queue, JobState.PENDING)) < 6:
                    await asyncio.sleep(0.01)
                proxy.drop_connections()
                proxy.heal()
                with pytest.raises(errors.OutcomeUnknown):
                    await lost
                joined, keyed, listed = await asyncio.gather(*calls)
                assert await beside.count(JobFilter(queue, JobState.PENDING)) == 6
                assert set(await beside.lookup([joined, keyed, *listed])) == {joined, keyed, *listed}


# -- waiting -----------------------------------------------------------------------------------------------------------


async def run(client: AsyncClient, queue: str, result: bytes | None) -> None:
    (job,) = await client.dequeue(DequeueRequest(queue, 1, wait_ms=5_000))
    await client.ack(queue, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=result)])


async def test_a_result_is_waited_for(server: RunningServer, queue: str) -> None:
    async with client_at(server.port, queue) as client:
        descriptor = await client.enqueue(queue, Job(b""))
        waiting = asyncio.create_task(client.wait(descriptor, timeout=20))
        await run(client, queue, b"\xff17")
        info = await waiting
        assert info is not None
        assert (info.state, info.result) == (JobState.SUCCEEDED, b"\xff17")
        assert await client.wait(descriptor, timeout=20) == info
        both = await client.wait([descriptor, NOT_THERE], timeout=20, include_result=False)
        assert both == {descriptor: replace(info, result=None), NOT_THERE: None}
        assert await client.wait([]) == {}


async def test_who_waits_in_vain_is_told(server: RunningServer, queue: str) -> None:
    async with client_at(server.port, queue) as client:
        descriptor = await client.enqueue(queue, Job(b""))
        with pytest.raises(TimeoutError, match=descriptor):
            await client.wait(descriptor, timeout=0.05)
        assert await client.wait([descriptor, NOT_THERE], timeout=0.3) == {NOT_THERE: None}
        with pytest.raises(errors.RequestInvalid):
            await client.wait("mail")
        waiting = asyncio.create_task(client.wait(descriptor))
        await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="closed"):
        await waiting


async def test_a_server_that_is_away_meanwhile_is_waited_for(server: RunningServer, queue: str) -> None:
    with Proxy(server.port) as proxy:
        async with client_at(proxy.port, queue, timeout=0.5) as client, client_at(server.port, queue) as beside:
            descriptor = await client.enqueue(queue, Job(b""))
            waiting = asyncio.create_task(client.wait(descriptor, timeout=30))
            await asyncio.sleep(0)
            proxy.reset()
            await run(beside, queue, b"done")
            with pytest.raises(errors.ServerUnreachable):
                await client.queue_names()
            proxy.heal()
            info = await waiting
            assert info is not None
            assert info.result == b"done"


async def test_an_older_server_is_asked_again_and_again() -> None:
    async with serving() as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        assert await client.wait([NOT_THERE, "mail:s1:p1:1790000000000001"]) == {
            NOT_THERE: None,
            "mail:s1:p1:1790000000000001": None,
        }
        assert [name for name, _ in served.service.calls] == ["lookup"]  # those of one moment travel together


# -- by key ------------------------------------------------------------------------------------------------------------


async def test_jobs_are_found_changed_and_cancelled_by_their_keys(server: RunningServer, queue: str) -> None:
    key, chain = KeyRef("a"), f"chain of {queue}"
    async with client_at(server.port, queue) as client:
        first = await client.enqueue(queue, ExtendedJob(b"1", dedupe_key="a"))
        second = await client.enqueue(queue, ExtendedJob(b"1", dedupe_key="b", serialize_key=chain))
        found = await client.lookup(queue, keys=[key, KeyRef("b", chain), KeyRef("none")])
        assert set(found) == {first, second}
        assert (found[second].dedupe_key, found[second].serialize_key) == ("b", chain)
        assert list(await client.lookup([first], queue=queue, keys=[KeyRef("", chain)])) == [first, second]
        changes = [RescheduleJob(key=key, body=b"new", attempts_allowed=7), RescheduleJob(key=KeyRef("none"))]
        outcomes = await client.reschedule(queue, changes)
        assert outcomes == [RescheduleOutcome.RESCHEDULED, RescheduleOutcome.NOT_FOUND]
        info = (await client.lookup([first], include_body=True))[first]
        assert (info.body, info.attempts_allowed, info.attempts_remaining) == (b"new", 7, 7)
        stale = RescheduleJob(first, run_after_ms=4 * 10**12, only_if_updated_at_ms=info.updated_at_ms - 1)
        assert await client.reschedule(queue, [stale]) == [RescheduleOutcome.CHANGED]
        cancelled = await client.cancel(queue, keys=[key, KeyRef("none")])
        assert (dict(cancelled), cancelled.by_key) == ({}, [CancelOutcome.CANCELLED, CancelOutcome.NOT_FOUND])
        with pytest.raises(errors.RequestInvalid, match="queue"):
            await client.lookup(keys=[key])


async def test_a_worker_hears_by_its_heartbeat_who_asked_it_to_stop(server: RunningServer, queue: str) -> None:
    async with client_at(server.port, queue) as client, AsyncClient(f"127.0.0.1:{server.port}", source="ada") as ada:
        await client.enqueue(queue, Job(b""))
        (job,) = await client.dequeue(DequeueRequest(queue, 1))
        beat = Heartbeat(job.descriptor, job.claim_descriptor, 0.5, "half")
        assert await client.heartbeat(queue, [beat]) == [HeartbeatAnswer(HeartbeatOutcome.OK)]
        progress = (await client.lookup([job.descriptor]))[job.descriptor].progress
        assert progress is not None
        assert (progress.fraction, progress.text) == (0.5, "half")
        assert await ada.cancel([job.descriptor], running=True) == {job.descriptor: CancelOutcome.REQUESTED}
        lost = Heartbeat(job.descriptor, "another:claim:1:2:3")
        answers = await client.heartbeat(queue, [beat, lost])
        assert answers == [HeartbeatAnswer(HeartbeatOutcome.CANCEL, "ada"), HeartbeatAnswer(HeartbeatOutcome.LOST)]
        await client.ack(queue, failed=[Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
        info = (await client.lookup([job.descriptor]))[job.descriptor]
        assert (info.state, info.cancelled) == (JobState.FAILED, True)


# -- older servers -----------------------------------------------------------------------------------------------------


async def test_what_an_older_server_would_misread_is_not_sent_to_it(server: RunningServer, queue: str) -> None:
    async with (
        older_server(server.port, "heartbeatJobs", "rescheduleJobs") as older,
        AsyncClient(older.address) as client,
    ):
        await client.create_queue(queue)
        plain = await client.enqueue(queue, Job(b""))
        refused = [
            client.enqueue(queue, ExtendedJob(b"", dedupe_key="a")),
            client.enqueue(queue, [ExtendedJob(b"", serialize_key="a")]),
            client.enqueue(queue, Job(b""), resend=True),
            client.lookup(queue, keys=[KeyRef("a")]),
            client.cancel(queue, keys=[KeyRef("a")]),
            client.cancel([plain], running=True),
            client.reschedule(queue, [RescheduleJob(plain)]),
            client.heartbeat(queue, [Heartbeat(plain, "a claim")]),
        ]
        for call in refused:
            with pytest.raises(errors.MethodUnknown):
                await call
        assert (older.calls["enqueueJobs"], older.calls["lookupJobs"], older.calls["cancelJobs"]) == (1, 0, 0)


def test_programs_without_asyncio_have_the_same_calls(server: RunningServer, queue: str) -> None:
    with Client(f"127.0.0.1:{server.port}", resend=True) as client:
        client.create_queue(queue)
        descriptor = client.enqueue(queue, ExtendedJob(b"", dedupe_key="a"))
        assert list(client.lookup(queue, keys=[KeyRef("a")])) == [descriptor]
        assert client.reschedule(queue, [RescheduleJob(descriptor, body=b"x")]) == [RescheduleOutcome.RESCHEDULED]
        assert client.heartbeat(queue, [Heartbeat(descriptor, "none")]) == [HeartbeatAnswer(HeartbeatOutcome.LOST)]
        with pytest.raises(TimeoutError):
            client.wait(descriptor, timeout=0.01)
        assert client.cancel(queue, keys=[KeyRef("a")]).by_key == [CancelOutcome.CANCELLED]
        assert client.wait([descriptor]) == {descriptor: None}
