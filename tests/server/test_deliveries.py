"""Answers with jobs that nobody receives: a server and its service in this process, and callers that go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pinlater.backends.base import UNDELIVERED_IN_A_ROW, EndRules, PerQueue
from pinlater.client.async_client import AsyncClient
from pinlater.metrics import Metrics
from pinlater.model import DequeuedJob, DequeueFromQueuesRequest, DequeueRequest, Job, JobInfo, JobState, QueueShare
from pinlater.server.deliveries import ACKNOWLEDGED_WITHIN_S, MARGIN_MS
from pinlater.service import ServiceSettings
from pinlater.wire.convert import checkpoints_to_wire, dequeue_to_wire, dequeued_from_wire
from pinlater.wire.methods import DEQUEUE_FROM_QUEUES
from tests.server.binding import beat, enqueue, fall_silent, info, is_held, succeeded
from tests.server.running import Plain
from tests.server.serving import Served, serving, until
from tests.server.test_disconnects import end, reset
from tests.server.test_unread import served_by
from tests.unit.stand import Stand, stand

LEASE_MS = 60_000
AT_ONCE = ServiceSettings(release_grace_ms=0)
LONG_MS = 50_000


class Bench:
    """A server, somebody who looks on, and callers."""

    def __init__(self, at: Stand, served: Served, onlooker: Plain, metrics: Metrics) -> None:
        self.at = at
        self.metrics = metrics
        self.served = served
        self.onlooker = onlooker
        self.callers: list[Plain] = []

    async def caller(self) -> Plain:
        self.callers.append(await Plain.to(self.served.port))
        return self.callers[-1]

    async def ask(self, caller: Plain, **fields: Any) -> None:
        """A long poll that waits."""
        request = DequeueRequest("mail", 1, wait_ms=LONG_MS, claim_timeout_ms=LEASE_MS, **fields)
        waiting = self.at.service.waiting
        await caller.send("dequeueJobs", request=dequeue_to_wire(request))
        await until(lambda: self.at.service.waiting > waiting)

    async def job(self) -> DequeuedJob:
        """A new job, as an onlooker knows it."""
        (descriptor,) = await self.onlooker.enqueue("mail", b"x")
        return DequeuedJob(descriptor, b"", 1, 2, 2, 0, 0)

    async def nears_expiry(self) -> None:
        """Almost all of a lease is over."""
        self.at.clock.tick(LEASE_MS - MARGIN_MS)

    async def until_in(self, state: JobState, job: DequeuedJob) -> JobInfo:
        async with asyncio.timeout(60):
            while (found := await info(self.onlooker, job)).state is not state:
                await asyncio.sleep(0.02)
        return found

    async def stays_held(self, job: DequeuedJob, seconds: float = 0.8) -> None:
        """Longer than the server takes to look at what it handed out."""
        await asyncio.sleep(seconds)
        assert (await info(self.onlooker, job)).state is JobState.IN_PROGRESS

    async def expire(self) -> None:
        rules = PerQueue(EndRules(crash_budget=3))
        await self.at.members.all[0].shard.expire_claims(10, self.at.clock.now_ms(), rules)

    @property
    def undelivered(self) -> float:
        return self.at.service.metrics.counters["jobs_undelivered", "mail"]


@asynccontextmanager
async def bench(settings: ServiceSettings | None = None, **limits: Any) -> AsyncIterator[Bench]:
    metrics = Metrics()
    async with stand(settings=settings) as at, serving(at.service, at.clock, metrics, **limits) as served:
        it = Bench(at, served, await Plain.to(served.port), metrics)
        try:
            yield it
        finally:
            for caller in (it.onlooker, *it.callers):
                await caller.close()


async def test_a_claim_whose_answer_nobody_acknowledged_costs_no_attempt() -> None:
    async with bench() as at:
        caller = await at.caller()
        await at.ask(caller)
        fall_silent(caller)
        job = await at.job()
        await at.until_in(JobState.IN_PROGRESS, job)
        await at.stays_held(job)
        await at.nears_expiry()
        found = await at.until_in(JobState.PENDING, job)
        assert (found.attempts_remaining, found.crashes) == (2, 0)
        assert at.undelivered == 1


async def test_a_claim_whose_answer_arrived_expires_as_ever() -> None:
    async with bench() as at:
        caller = await at.caller()
        await at.ask(caller)
        job = await at.job()
        await at.until_in(JobState.IN_PROGRESS, job)
        fall_silent(caller)
        await at.nears_expiry()
        await at.stays_held(job)
        at.at.clock.tick(LEASE_MS)
        await at.expire()
        found = await info(at.onlooker, job)
        assert (found.state, found.attempts_remaining, found.crashes) == (JobState.PENDING, 1, 1)
        assert at.undelivered == 0


async def test_what_arrived_late_was_received() -> None:
    """More than the kernels hold between them: the rest leaves when the caller reads on."""
    async with bench() as at:
        caller = await at.caller()
        caller.writer.transport.pause_reading()
        await enqueue(at.onlooker, *[Job(b"x" * 1_000_000)] * 8)
        request = DequeueRequest("mail", 8, claim_timeout_ms=LEASE_MS)
        await caller.send("dequeueJobs", request=dequeue_to_wire(request))
        await until(lambda: at.at.service.metrics.counters["jobs_dequeued", "mail", 1] == 8)
        await asyncio.sleep(0.7)
        caller.writer.transport.resume_reading()
        jobs = dequeued_from_wire((await caller.answer()).success)
        await at.nears_expiry()
        await asyncio.sleep(0.8)
        assert [await is_held(at.onlooker, job) for job in jobs] == [True] * 8


@pytest.mark.parametrize("bound", [False, True], ids=["not bound", "bound"])
async def test_a_connection_that_breaks_before_its_answer_arrived_costs_no_attempt(bound: bool) -> None:
    async with bench(AT_ONCE) as at:
        caller = await at.caller()
        await at.ask(caller, release_on_disconnect=bound)
        fall_silent(caller)
        job = await at.job()
        await at.until_in(JobState.IN_PROGRESS, job)
        await asyncio.sleep(ACKNOWLEDGED_WITHIN_S)
        reset(caller)
        found = await at.until_in(JobState.PENDING, job)
        assert (found.attempts_remaining, found.crashes) == (2, 0)


@pytest.mark.parametrize("how", [end, reset])
async def test_a_connection_that_breaks_when_its_answer_had_arrived_is_released_as_ever(how: Any) -> None:
    async with bench(AT_ONCE) as at:
        caller = await at.caller()
        await at.ask(caller, release_on_disconnect=True)
        job = await at.job()
        await caller.answer()
        how(caller)
        found = await at.until_in(JobState.PENDING, job)
        assert (found.attempts_remaining, found.crashes) == (1, 1)


async def test_a_bound_claim_that_a_worker_renews_within_the_grace_stays() -> None:
    """Its answer was received after all, or its receipt was lost."""
    async with bench(ServiceSettings(release_grace_ms=400)) as at:
        caller, other = await at.caller(), await at.caller()
        await at.ask(caller, release_on_disconnect=True, confirms_receipt=True)
        job = await at.job()
        (held,) = dequeued_from_wire((await caller.answer()).success)
        end(caller)
        at.at.clock.tick(5)
        await beat(other, held)
        await at.stays_held(job)
        assert await is_held(at.onlooker, held)


# -- receipts ----------------------------------------------------------------------------------------------------------


async def test_a_receipt_that_was_promised_and_did_not_come_leaves_the_attempt() -> None:
    async with bench() as at:
        caller = await at.caller()
        await at.ask(caller, confirms_receipt=True)
        job = await at.job()
        answer = (await caller.answer()).success
        assert answer.awaits_receipt
        await at.stays_held(job)
        await at.nears_expiry()
        found = await at.until_in(JobState.PENDING, job)
        assert (found.attempts_remaining, found.crashes) == (2, 0)


async def test_large_jobs_that_were_claimed_in_slices_go_back_together() -> None:
    async with bench() as at:
        bodies = [b"x" * 1_000_000] * 4
        jobs = [(await at.onlooker.enqueue("mail", body))[0] for body in bodies]
        caller = await at.caller()
        request = DequeueRequest("mail", 4, claim_timeout_ms=LEASE_MS, confirms_receipt=True)
        await caller.send("dequeueJobs", request=dequeue_to_wire(request))
        found = dequeued_from_wire((await caller.answer()).success)
        assert {job.descriptor for job in found} == set(jobs)
        assert len({job.claim_descriptor for job in found}) > 1
        await at.nears_expiry()
        for job in found:
            assert (await at.until_in(JobState.PENDING, job)).attempts_remaining == 2


async def test_the_next_call_on_the_connection_is_the_receipt() -> None:
    async with bench() as at:
        caller = await at.caller()
        await at.ask(caller, confirms_receipt=True)
        job = await at.job()
        (held,) = dequeued_from_wire((await caller.answer()).success)
        await caller.call("checkpointJobs", request=checkpoints_to_wire("mail", ()))
        await at.nears_expiry()
        await at.stays_held(job)
        assert await is_held(at.onlooker, held)


async def test_a_confirmed_claim_whose_connection_breaks_takes_an_attempt() -> None:
    """So does a job that kills each of its workers."""
    async with bench(AT_ONCE) as at:
        caller = await at.caller()
        await at.ask(caller, release_on_disconnect=True, confirms_receipt=True)
        job = await at.job()
        await caller.answer()
        await caller.call("checkpointJobs", request=checkpoints_to_wire("mail", ()))
        end(caller)
        found = await at.until_in(JobState.PENDING, job)
        assert (found.attempts_remaining, found.crashes) == (1, 1)


HOW = pytest.mark.parametrize("how", [end, reset, Plain.half_close], ids=["end", "reset", "half an end"])
MANY = pytest.mark.parametrize("many", [False, True], ids=["from one queue", "from many"])


def dequeue_by(many: bool, **fields: Any) -> tuple[str, Any]:
    """A call that confirms what it receives, with a claim that lasts."""
    fields = {"wait_ms": LONG_MS, "claim_timeout_ms": 300_000, "confirms_receipt": True, **fields}
    if many:
        request = DequeueFromQueuesRequest([QueueShare("mail")], 1, **fields)
        return "dequeueFromQueues", DEQUEUE_FROM_QUEUES.request(request)
    return "dequeueJobs", dequeue_to_wire(DequeueRequest("mail", 1, **fields))


@HOW
@MANY
@pytest.mark.parametrize("bound", [False, True], ids=["not bound", "bound"])
async def test_a_connection_that_ends_without_the_receipt_costs_no_attempt_and_no_time(
    bound: bool, many: bool, how: Any
) -> None:
    async with bench(AT_ONCE) as at:
        caller = await at.caller()
        method, request = dequeue_by(many, release_on_disconnect=bound)
        await caller.send(method, request=request)
        job = await at.job()
        await caller.answer()
        how(caller)
        found = await at.until_in(JobState.PENDING, job)
        assert (found.attempts_remaining, found.crashes) == (2, 0)


@HOW
@MANY
async def test_a_receipt_that_came_before_the_connection_broke_counts(many: bool, how: Any) -> None:
    async with bench(AT_ONCE) as at:
        caller = await at.caller()
        method, request = dequeue_by(many)
        await caller.send(method, request=request)
        job = await at.job()
        await caller.answer()
        await caller.call("checkpointJobs", request=checkpoints_to_wire("mail", ()))
        how(caller)
        await until(lambda: at.served.server.connections == 1)
        await at.stays_held(job)


async def test_a_connection_that_the_server_closes_itself_proves_nothing_at_once() -> None:
    async with bench(half_sent_timeout_s=0.2) as at:
        caller = await at.caller()
        await at.ask(caller, confirms_receipt=True)
        job = await at.job()
        await caller.answer()
        caller.writer.write(b"\0\0\0\x50half")
        assert await caller.reader.read() == b""
        await at.stays_held(job)
        await at.nears_expiry()
        assert (await at.until_in(JobState.PENDING, job)).attempts_remaining == 2


@pytest.fixture(params=["sqlite", "redis", "mysql", "postgres", "dynamodb"])
def url(request: pytest.FixtureRequest) -> str:
    fresh: str = request.getfixturevalue(f"{request.param}_places").fresh()
    return fresh


@MANY
async def test_every_store_takes_back_what_a_broken_connection_owes_a_receipt_of(url: str, many: bool) -> None:
    async with served_by(url) as served:
        onlooker, other = await Plain.to(served.port), await Plain.to(served.port)
        await onlooker.create_queue("mail")
        method, request = dequeue_by(many)
        for how in (end, reset):
            caller = await Plain.to(served.port)
            await onlooker.enqueue("mail", b"x")
            await caller.send(method, request=request)
            await caller.answer()
            how(caller)
            _, again = dequeue_by(many, confirms_receipt=False)
            (job,) = dequeued_from_wire(await other.call(method, request=again))
            assert (job.attempts_remaining, job.attempts_allowed) == (2, 2)
            await other.call("ackJobs", request=succeeded(job))
        for each in (onlooker, other):
            await each.close()


async def test_nobody_receives_a_job_for_ever() -> None:
    async with bench() as at:
        job = await at.job()
        for _ in range(UNDELIVERED_IN_A_ROW):
            caller = await at.caller()
            request = DequeueRequest("mail", 1, claim_timeout_ms=LEASE_MS, confirms_receipt=True)
            await caller.call("dequeueJobs", request=dequeue_to_wire(request))
            await at.nears_expiry()
            await at.until_in(JobState.PENDING, job)
        caller = await at.caller()
        await caller.call("dequeueJobs", request=dequeue_to_wire(request))
        await at.nears_expiry()
        await at.stays_held(job)
        at.at.clock.tick(LEASE_MS)
        await at.expire()
        assert (await info(at.onlooker, job)).attempts_remaining == 1


async def test_an_empty_answer_and_one_to_a_caller_that_promised_nothing_await_no_receipt() -> None:
    async with bench() as at:
        caller = await at.caller()
        for fields in ({"confirms_receipt": True}, {}):
            request = DequeueRequest("mail", 1, **fields)  # type: ignore[arg-type]
            assert not (await caller.call("dequeueJobs", request=dequeue_to_wire(request))).awaits_receipt
            await at.job()


# -- our clients -------------------------------------------------------------------------------------------------------


async def test_a_client_confirms_what_it_receives_at_once() -> None:
    async with bench() as at, AsyncClient(f"127.0.0.1:{at.served.port}") as client:
        await at.job()
        request = DequeueRequest("mail", 1, claim_timeout_ms=LEASE_MS, confirms_receipt=True)
        (job,) = await client.dequeue(request)
        await until(lambda: receipts(at) == 1)
        await at.nears_expiry()
        await at.stays_held(job)


async def test_the_call_that_follows_at_once_is_the_receipt_and_no_other_is_sent() -> None:
    async with bench() as at, AsyncClient(f"127.0.0.1:{at.served.port}") as client:
        job = await at.job()
        await at.job()
        request = DequeueRequest("mail", 1, claim_timeout_ms=LEASE_MS, confirms_receipt=True)
        await client.dequeue(request)
        await client.dequeue(DequeueRequest("mail", 1, claim_timeout_ms=LEASE_MS))
        assert receipts(at) == 0
        await at.nears_expiry()
        await at.stays_held(job)


def receipts(at: Bench) -> float:
    """Checkpoints of nothing, as the server counts its calls."""
    calls = [values for key, values in at.metrics.snapshot() if key == ("call_seconds", "checkpointJobs")]
    return sum(sum(values[:-1]) for values in calls)
