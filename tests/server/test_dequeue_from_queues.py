"""Dequeues from many queues, by a client at a server; and by a client at a server that does not know them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pinlater import (
    Ack,
    AckOutcome,
    AsyncClient,
    Client,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    Job,
    JobState,
    QueueAcks,
    QueueShare,
)
from pinlater.client.queue_rounds import SHORTEST_PAUSE_S
from pinlater.data_folder.password import hash_password
from pinlater.errors import Overloaded, QueueNotFound, RequestInvalid
from pinlater.wire.codec import WireCall, encode_application_exception, encode_reply
from pinlater.wire.convert import dequeued_from_queues_to_wire, dequeued_to_wire
from pinlater.wire.faults import exception_from_error
from pinlater.wire.message import ApplicationErrorKind
from tests.server.older import older_server
from tests.server.running import RunningServer, running
from tests.server.test_client_failures import framed, scripted

CALL = "dequeueFromQueues"
PASSWORD = "let me in"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    password_hash = hash_password(PASSWORD)
    with running(tmp_path_factory.mktemp("queues"), PINLATER_ADMIN_PASSWORD_HASH=password_hash) as started:
        yield started


@pytest.fixture(params=["a server of today", "an older server"])
def age(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.asynccontextmanager
async def client_of(server: RunningServer, age: str) -> AsyncIterator[AsyncClient]:
    if age == "a server of today":
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            yield client
        return
    async with older_server(server.port, CALL) as older, AsyncClient(older.address) as client:
        yield client
        assert older.calls[CALL]


async def queues(client: AsyncClient, *names: str) -> list[QueueShare]:
    for name in names:
        await client.create_queue(name)
    return [QueueShare(name) for name in names]


async def ended(client: AsyncClient, jobs: list[DequeuedJob]) -> None:
    for job in jobs:
        await client.ack(queue_of(job), [Ack(job.descriptor)])


def queue_of(job: DequeuedJob) -> str:
    return job.descriptor.partition(":")[0]


async def test_it_brings_jobs_of_all_queues_that_have_some(server: RunningServer, age: str) -> None:
    async with client_of(server, age) as client:
        shares = await queues(client, "one", "two", "three")
        for name in ("one", "three"):
            await client.enqueue(name, Job(name.encode()))
        jobs = await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 10))
        assert {queue_of(job): job.body for job in jobs} == {"one": b"one", "three": b"three"}
        assert all(job.claim_descriptor for job in jobs)
        assert not jobs.queue_errors
        assert not jobs.ack_outcomes
        await ended(client, jobs)


async def test_one_that_waits_is_answered_by_whichever_queue_gets_a_job(server: RunningServer, age: str) -> None:
    async with client_of(server, age) as client:
        shares = await queues(client, "one", "two", "three")
        for name in ("two", "one", "three"):
            poll = asyncio.create_task(client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 1, wait_ms=30_000)))
            await asyncio.sleep(0.05)
            await client.enqueue(name, Job(b"x"))
            jobs = await asyncio.wait_for(poll, 60)
            assert [queue_of(job) for job in jobs] == [name]
            await ended(client, jobs)


async def test_a_wait_ends_with_nothing_when_its_time_is_over(server: RunningServer, age: str) -> None:
    async with client_of(server, age) as client:
        shares = await queues(client, "one", "two")
        assert await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 1, wait_ms=150)) == []


async def test_queues_share_by_weight_over_many_calls_of_one_job(server: RunningServer, age: str) -> None:
    async with client_of(server, age) as client:
        light, heavy = await queues(client, "light", "heavy")
        heavy.weight = 9
        amount = 60
        for share in (light, heavy):
            await client.enqueue(share.queue, [Job(b"x")] * amount)
        got: Counter[str] = Counter()
        taken: list[DequeuedJob] = []
        for _ in range(amount):
            jobs = await client.dequeue_from_queues(DequeueFromQueuesRequest([light, heavy], 1))
            taken += jobs
            got.update(map(queue_of, jobs))
        assert got.total() == amount
        assert 1 <= got["light"] <= 20  # 6 are to be expected; more than 20 in one of ten million
        while jobs := await client.dequeue_from_queues(DequeueFromQueuesRequest([light, heavy], 100)):
            taken += jobs
        assert len(taken) == 2 * amount
        await ended(client, taken)


async def test_a_queue_that_is_not_there_is_named_and_keeps_nothing_from_the_others(
    server: RunningServer, age: str
) -> None:
    async with client_of(server, age) as client:
        (there,) = await queues(client, "one")
        missing = QueueShare("nowhere")
        await client.enqueue("one", Job(b"x"))
        jobs = await client.dequeue_from_queues(DequeueFromQueuesRequest([there, missing], 10))
        assert len(jobs) == 1
        assert isinstance(jobs.queue_errors["nowhere"], QueueNotFound)
        await ended(client, jobs)
        none = await asyncio.wait_for(
            client.dequeue_from_queues(DequeueFromQueuesRequest([missing], 1, wait_ms=60_000)), 20
        )
        assert none == []
        assert set(none.queue_errors) == {"nowhere"}


async def test_acks_of_several_queues_are_carried_out_first(server: RunningServer, age: str) -> None:
    async with client_of(server, age) as client:
        shares = await queues(client, "one", "two")
        for share in shares:
            await client.enqueue(share.queue, Job(b"x"))
        first = await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 2))
        acks = [QueueAcks(queue_of(job), [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)]) for job in first]
        answer = await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 2, acks))
        assert answer == []
        assert not answer.ack_outcomes
        found = await client.lookup([job.descriptor for job in first])
        assert {info.state for info in found.values()} == {JobState.SUCCEEDED}
        again = await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 2, acks))
        assert [list(outcomes) for outcomes in again.ack_outcomes] == [[AckOutcome.IGNORED]] * 2


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (DequeueFromQueuesRequest([], 1), "the length of queues is 0; allowed: 1 to 1000"),
        (
            DequeueFromQueuesRequest([QueueShare(f"q{n}") for n in range(1001)], 1),
            "the length of queues is 1001; allowed: 1 to 1000",
        ),
        (
            DequeueFromQueuesRequest([QueueShare("one"), QueueShare("one")], 1),
            "queues is 'one'; allowed: each queue once",
        ),
        (DequeueFromQueuesRequest([QueueShare("one", 0)], 1), "weight is 0; allowed: 1 to 1000"),
        (DequeueFromQueuesRequest([QueueShare("one", 1001)], 1), "weight is 1001; allowed: 1 to 1000"),
        (DequeueFromQueuesRequest([QueueShare("one", 1, -1)], 1), "prefetch is -1; allowed: 0 or more"),
        (DequeueFromQueuesRequest([QueueShare("one")], 0), "limit is 0; allowed: 1 or more"),
        (DequeueFromQueuesRequest([QueueShare("one")], 1, wait_ms=-1), "waitMillis is -1; allowed: 0 or more"),
        (
            DequeueFromQueuesRequest([QueueShare("one")], 1, claim_timeout_ms=0),
            "claimTimeoutMillis is 0; allowed: 1 or more",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_wrong_with_a_request_is_told(
    server: RunningServer, request_: DequeueFromQueuesRequest, told: str
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        with pytest.raises(RequestInvalid) as refused:
            await client.dequeue_from_queues(request_)
        assert told in refused.value.message


def test_a_client_without_asyncio_has_it_too(server: RunningServer, tmp_path: Path) -> None:
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("plain")
        client.enqueue("plain", Job(b"x"))
        (job,) = client.dequeue_from_queues(DequeueFromQueuesRequest([QueueShare("plain")], 1))
        client.ack("plain", [Ack(job.descriptor)])


async def test_acks_that_were_carried_out_are_not_sent_again_and_the_wait_gets_shorter() -> None:
    def answer(call: WireCall) -> bytes:
        if len(seen) == 1:
            refusal = exception_from_error(Overloaded("busy", retry_after_ms=50, acks_applied=True))
            return framed(encode_reply(call.name, call.seqid, exception=refusal))
        return framed(encode_reply(call.name, call.seqid, dequeued_from_queues_to_wire(DequeuedFromQueues())))

    async with scripted(answer) as (address, seen), AsyncClient(address) as client:
        request = DequeueFromQueuesRequest(
            [QueueShare("one")], 1, [QueueAcks("one", [Ack("one:s1:p1:1790000000000000")])], wait_ms=5_000
        )
        assert await client.dequeue_from_queues(request) == []
        first, second = [call.args.request for call in seen]
        assert first.acks is not None
        assert second.acks is None
        assert 0 < second.wait_ms < first.wait_ms == 5_000


async def test_acks_that_a_newer_server_has_carried_out_are_not_sent_to_an_older_one() -> None:
    """There they would have no effect, which says that what was done may be done again."""

    def answer(call: WireCall) -> bytes:
        if len(seen) == 1:
            refusal = exception_from_error(Overloaded("busy", retry_after_ms=50, acks_applied=True))
            return framed(encode_reply(call.name, call.seqid, exception=refusal))
        if call.name == CALL:
            unknown = ApplicationErrorKind.UNKNOWN_METHOD
            return framed(encode_application_exception(call.name, call.seqid, unknown, "there is no such method"))
        return framed(encode_reply(call.name, call.seqid, dequeued_to_wire([])))

    async with scripted(answer) as (address, seen), AsyncClient(address) as client:
        acks = [QueueAcks("one", [Ack("one:s1:p1:1790000000000000")])]
        assert await client.dequeue_from_queues(DequeueFromQueuesRequest([QueueShare("one")], 1, acks)) == []
        assert [call.name for call in seen] == [CALL, CALL, "dequeueJobs"]


# -- rounds of plain dequeues, at a server that does not know the call -------------------------------------------------


async def test_rounds_keep_a_pace_and_end_when_nobody_wants_to_wait_any_more(server: RunningServer) -> None:
    async with older_server(server.port, CALL) as older, AsyncClient(older.address) as client:
        shares = await queues(client, "one", "two")
        assert await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 1, wait_ms=1_000)) == []
        rounds = older.calls["dequeueJobs"] / len(shares)
        assert 2 <= rounds <= 1 + 1 / SHORTEST_PAUSE_S + 1
        poll = asyncio.create_task(client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 1, wait_ms=60_000)))
        await asyncio.sleep(0.2)
        client.cancel_long_polls()
        assert await asyncio.wait_for(poll, 60) == []


async def test_rounds_pass_by_a_queue_whose_rate_is_used_up_and_name_it(server: RunningServer) -> None:
    async with older_server(server.port, CALL) as older, AsyncClient(older.address, timeout=30) as client:
        shares = await queues(client, "slow", "quick")
        await client.update_queue("slow", PASSWORD, set={"max_jobs_per_second": "1/h"})
        await client.enqueue("slow", [Job(b"x")] * 5)
        taken = await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 5))
        await client.enqueue("quick", Job(b"x"))
        async with asyncio.timeout(60):  # not the minutes that its rate takes
            jobs = await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 5))
        assert [queue_of(job) for job in jobs] == ["quick"]
        assert jobs.queue_errors["slow"].reason == "RATE_LIMITED"
        await ended(client, [*taken, *jobs])


async def test_a_caller_that_goes_in_the_middle_of_a_round_gives_its_jobs_back(server: RunningServer) -> None:
    async with older_server(server.port, CALL) as older, AsyncClient(older.address) as client:
        shares = await queues(client, "one", "two")
        for share in shares:
            await client.enqueue(share.queue, Job(b"x", attempts_allowed=1))
        older.lose_after(2)  # the unknown call, and the first of the plain ones
        poll = asyncio.create_task(client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 2)))
        await asyncio.wait_for(older.lost.wait(), 60)
        poll.cancel()
        await asyncio.wait([poll])
        got: list[DequeuedJob] = []
        async with asyncio.timeout(60):
            while len(got) < 2:
                got += await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 2, wait_ms=1_000))
        assert {job.attempts_remaining for job in got} == {1}
        await ended(client, got)
