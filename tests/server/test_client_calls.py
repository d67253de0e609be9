"""Every call of the clients against a real server on SQLite."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.rpc import client_context
from thriftpy2.transport import TFramedTransportFactory

from pinlater import (
    Ack,
    AckOutcome,
    AsyncClient,
    CancelOutcome,
    Checkpoint,
    Client,
    DequeueRequest,
    Job,
    JobFilter,
    JobState,
    RequestContext,
    errors,
)
from pinlater.api import Api
from pinlater.data_folder.password import hash_password
from tests.server.running import running
from tests.speed import slower
from tests.thrift_module import MODULE

PASSWORD = "correct horse"
UNKNOWN_ID = "1790000000000000"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("served")
    with running(folder, "--admin-password-hash", hash_password(PASSWORD)) as server:
        yield f"127.0.0.1:{server.port}"


async def test_the_life_of_a_job_over_the_async_client(address: str) -> None:
    async with AsyncClient(address, source="life") as client:
        api: Api = client
        await api.create_queue("life")
        await client.create_queue("life")
        assert "life" in await client.queue_names()
        one = await client.enqueue("life", Job(b"\x00\xff", priority=2))
        two, three = await client.enqueue("life", [Job(b"two"), Job(b"three", attempts_allowed=1, custom_status="new")])

        jobs = await client.dequeue(DequeueRequest("life", 10))
        assert [(job.descriptor, job.body) for job in jobs] == [(two, b"two"), (three, b"three"), (one, b"\x00\xff")]
        assert all(job.claim_descriptor.endswith(":life") for job in jobs)

        await client.checkpoint("life", [Checkpoint(two, new_body=b"\xfe", prepend_status="half;")])
        await client.ack("life", [Ack(one)], [Ack(three, "broken")])
        found = await client.lookup([one, two, three, f"life:s1:p1:{UNKNOWN_ID}"], include_body=True)
        assert {name: found[name].state.name for name in found} == {
            one: "SUCCEEDED",
            two: "IN_PROGRESS",
            three: "FAILED",
        }
        assert (found[two].body, found[two].custom_status) == (b"\xfe", "half;")
        assert found[three].custom_status == "newbroken"

        failed = JobFilter("life", JobState.FAILED)
        assert await client.count(failed) == 1
        assert [info.descriptor for info in (await client.scan(failed)).jobs] == [three]
        assert await client.retry_failed("life") == 1
        assert await client.cancel("life", [three, two]) == {
            three: CancelOutcome.CANCELLED,
            two: CancelOutcome.IN_PROGRESS,
        }
        assert await client.delete_jobs(JobFilter("life", JobState.SUCCEEDED, 2)) == 1
        await client.delete_queue("life", PASSWORD)
        assert "life" not in await client.queue_names()


NOT_DESCRIPTORS = ["nonsense", "mail:s1:p1", 17]


async def test_jobs_are_named_with_their_queue_or_without(address: str) -> None:
    async with AsyncClient(address) as client:
        for queue in ("named", "other"):
            await client.create_queue(queue)
        one, two = await client.enqueue("named", [Job(b"one"), Job(b"two")])
        three = await client.enqueue("other", Job(b"three"))
        classic = "named:s1d1:p1:17"
        assert set(await client.lookup([one, three, classic])) == {one, three}
        assert set(await client.lookup("named", [one, three])) == {one}
        assert set(await client.lookup(descriptors=[two])) == {two}
        assert await client.cancel("named", [one, three]) == {
            one: CancelOutcome.CANCELLED,
            three: CancelOutcome.NOT_FOUND,
        }
        assert await client.cancel([two, three, classic]) == {
            two: CancelOutcome.CANCELLED,
            three: CancelOutcome.CANCELLED,
            classic: CancelOutcome.NOT_FOUND,
        }
        assert await client.cancel([]) == {}
        assert await client.lookup([]) == {}


def test_jobs_are_named_with_their_queue_or_without_over_the_client_for_threads(address: str) -> None:
    with Client(address) as client:
        client.create_queue("named")
        one, two = client.enqueue("named", [Job(b"one"), Job(b"two")])
        assert set(client.lookup("named", [one])) == set(client.lookup([one])) == {one}
        assert client.cancel([one]) == {one: CancelOutcome.CANCELLED}
        assert client.cancel("named", [two]) == {two: CancelOutcome.CANCELLED}


@pytest.mark.parametrize("wrong", NOT_DESCRIPTORS, ids=repr)
async def test_a_text_that_is_no_descriptor_is_an_error_that_says_so(address: str, wrong: Any) -> None:
    good = "mail:s1:p1:1790000000000000"
    said = f"no descriptor: {wrong!r}; allowed: descriptors as an "
    if not isinstance(wrong, str):
        said = rf"\[[01]\] is {wrong!r}, of the kind {type(wrong).__name__}; allowed: str"
    async with AsyncClient(address) as client:
        for call, named in (
            (client.lookup, [[good, wrong]]),
            (client.cancel, [[good, wrong]]),
            (client.cancel, ["mail", [wrong]]),
        ):
            with pytest.raises(errors.RequestInvalid, match=said):
                await call(*named)
        with pytest.raises(errors.RequestInvalid, match=r"jobDescriptors is 'mail:s1:p1:.*allowed: a list"):
            await client.lookup(good)


def test_the_life_of_a_job_over_the_client_for_threads(address: str) -> None:
    with Client(address, source="threads") as client:
        client.create_queue("threads")
        one = client.enqueue("threads", Job(b"one"))
        two, three = client.enqueue("threads", [Job(b"two"), Job(b"three")])
        jobs = client.dequeue(DequeueRequest("threads", 3, wait_ms=1_000))
        assert [job.descriptor for job in jobs] == [one, two, three]
        client.checkpoint("threads", [Checkpoint(two)])
        client.ack("threads", succeeded=[Ack(one), Ack(two)], failed=[Ack(three, permanent=True)])
        assert client.lookup([one])[one].state is JobState.SUCCEEDED
        assert client.count(JobFilter("threads", JobState.SUCCEEDED)) == 2
        assert [len(page.jobs) for page in client.scan_pages(JobFilter("threads", JobState.SUCCEEDED), limit=1)] == [
            1,
            1,
        ]
        assert len(client.scan(JobFilter("threads", JobState.FAILED)).jobs) == 1
        assert client.retry_failed("threads") == 1
        assert client.cancel("threads", [three]) == {three: CancelOutcome.CANCELLED}
        assert client.delete_jobs(JobFilter("threads", JobState.SUCCEEDED)) == 2
        client.delete_queue("threads", PASSWORD)
        assert "threads" not in client.queue_names()


LARGE = 900_000


async def test_a_lookup_is_whole_however_much_that_is(address: str) -> None:
    async with AsyncClient(address) as client, AsyncClient(address, whole_lookups=False) as single:
        await client.create_queue("large")
        names = [await client.enqueue("large", Job(b"%02d" % number * (LARGE // 2))) for number in range(40)]
        found = await client.lookup(names, include_body=True)
        assert [found[name].body for name in names] == [b"%02d" % number * (LARGE // 2) for number in range(40)]
        assert not any(info.body_left_out for info in found.values())
        with Client(address) as threads:
            seen = await asyncio.to_thread(threads.lookup, names[:25], include_body=True)
        assert {info.body is None for info in seen.values()} == {False}
        one = await single.lookup(names, include_body=True)
        assert {(info.body is None, info.body_left_out) for info in one.values()} == {(False, None), (True, True)}
        waited = await client.lookup(names, include_body=True, wait_ms=1)
        assert {info.body is None for info in waited.values()} == {False}


async def test_errors_are_typed_and_say_what_is_wrong(address: str) -> None:
    async with AsyncClient(address) as client:
        await client.create_queue("typed")
        with pytest.raises(errors.QueueNotFound, match="pinlater queue create nothing"):
            await client.enqueue("nothing", Job(b""))
        with pytest.raises(errors.PriorityNotSupported):
            await client.enqueue("typed", [Job(b"", priority=9), Job(b"")])
        with pytest.raises(errors.QueueNameInvalid):
            await client.create_queue("no.dots")
        with pytest.raises(errors.PasswordInvalid):
            await client.delete_queue("typed", "wrong")
        with pytest.raises(errors.ContinuationInvalid):
            await client.scan(JobFilter("typed", JobState.PENDING), continuation="x")
        with pytest.raises(errors.RequestInvalid, match="limit"):
            await client.dequeue(DequeueRequest("typed", 0))
        with pytest.raises(errors.BodyTooLarge):
            await client.enqueue("typed", Job(bytes(2_000_000)))
        for wrong in (Job("text"), [Job(b""), Job(None)]):  # type: ignore[arg-type]
            with pytest.raises(errors.RequestInvalid, match="allowed: bytes"):
                await client.enqueue("typed", wrong)
        with pytest.raises(errors.RequestInvalid, match="run_after_ms is 'soon', of the kind str; allowed: int"):
            await client.enqueue("typed", Job(b"", run_after_ms="soon"))  # type: ignore[arg-type]
        assert await client.count(JobFilter("typed", JobState.PENDING)) == 0


async def test_a_delay_is_seconds_or_a_text_and_counts_from_now(address: str) -> None:
    async with AsyncClient(address) as client:
        await client.create_queue("delayed")
        before_ms = time.time_ns() // 1_000_000
        one = await client.enqueue("delayed", Job(b"1"), delay="1h")
        two, three = await client.enqueue("delayed", [Job(b"2"), Job(b"3")], delay=3_600)
        found = await client.lookup([one, two, three])
        for info in found.values():
            assert before_ms + 3_600_000 <= info.run_after_ms <= time.time_ns() // 1_000_000 + 3_600_000
        for delay, why in (("soon", "allowed: 0 seconds or more, a text as in 30s"), (-1, "a delay of -1")):
            with pytest.raises(errors.RequestInvalid, match=why):
                await client.enqueue("delayed", Job(b""), delay=delay)
        with pytest.raises(errors.RequestInvalid, match="not both"):
            await client.enqueue("delayed", [Job(b""), Job(b"", run_after_ms=1)], delay=1)
        assert await client.count(JobFilter("delayed", JobState.PENDING, future=True)) == 3


def test_seconds_where_milliseconds_are_wanted_are_refused_by_the_clients_alone(address: str) -> None:
    seconds = 1_790_000_005
    with Client(address) as client:
        client.create_queue("seconds")
        for wrong in (
            lambda: client.enqueue("seconds", Job(b"", run_after_ms=seconds)),
            lambda: client.enqueue("seconds", [Job(b""), Job(b"", run_after_ms=seconds)]),
            lambda: client.checkpoint("seconds", [Checkpoint("", run_after_ms=seconds)]),
            lambda: client.retry_failed("seconds", run_after_ms=seconds),
        ):
            with pytest.raises(errors.RequestInvalid, match=r"run_after_ms is 1790000005, which can only be seconds"):
                wrong()
        long_ago = client.enqueue("seconds", Job(b"", run_after_ms=1))
        assert client.lookup([long_ago])[long_ago].run_after_ms == 1
    host, port = address.split(":")
    with client_context(
        MODULE.PinLater, host, int(port), trans_factory=TFramedTransportFactory(), socket_timeout=60_000
    ) as classic:
        jobs = [MODULE.PinLaterJob(body=b"", runAfterTimestampMillis=seconds)]
        request = MODULE.PinLaterEnqueueRequest(queueName="seconds", jobs=jobs)
        assert len(classic.enqueueJobs(MODULE.RequestContext(source="classic"), request).jobDescriptors) == 1


async def test_one_bad_job_among_joined_ones_is_refused_alone(address: str) -> None:
    async with AsyncClient(address) as client:
        await client.create_queue("poison")
        bad = {3: Job(b"", priority=99), 11: Job(bytes(2_000_000)), 12: Job(b"", priority="1")}  # type: ignore[arg-type]
        jobs = [bad.get(number, Job(b"%d" % number)) for number in range(30)]
        answers = await asyncio.gather(*(client.enqueue("poison", job) for job in jobs), return_exceptions=True)
        refused = {number: type(answer) for number, answer in enumerate(answers) if not isinstance(answer, str)}
        assert refused == {3: errors.PriorityNotSupported, 11: errors.BodyTooLarge, 12: errors.ArgumentInvalid}
        assert await client.count(JobFilter("poison", JobState.PENDING)) == 27


async def test_a_call_may_be_made_in_another_name(address: str) -> None:
    async with AsyncClient(address, source="one") as client:
        await client.create_queue("names")
        await client.enqueue("names", Job(b""), context=RequestContext("two", "request-7"))
        (job,) = await client.dequeue(DequeueRequest("names", 1), context=RequestContext("two"))
        assert job.claim_descriptor.endswith(":two")


async def test_a_long_poll_holds_nothing_else_back(address: str) -> None:
    async with AsyncClient(address) as client:
        await client.create_queue("poll")
        polls = [asyncio.create_task(client.dequeue(DequeueRequest("poll", 1, wait_ms=30_000))) for _ in range(20)]
        await asyncio.sleep(0.1)
        begun_s = time.monotonic()
        await asyncio.gather(*(client.queue_names() for _ in range(50)))
        assert time.monotonic() - begun_s < slower(time.monotonic) * 5
        assert not any(poll.done() for poll in polls)
        await asyncio.gather(*(client.enqueue("poll", Job(b"")) for _ in range(20)))
        assert [len(jobs) for jobs in await asyncio.gather(*polls)] == [1] * 20


async def test_a_long_poll_may_take_longer_than_the_timeout(address: str) -> None:
    async with AsyncClient(address, timeout=0.2) as client:
        await client.create_queue("patient")
        assert await client.dequeue(DequeueRequest("patient", 1, wait_ms=600)) == []


def test_threads_share_one_client_and_their_enqueues_are_joined(address: str, client_way: str) -> None:
    queue = f"many-{client_way}"
    with Client(address) as client:
        client.create_queue(queue)
        descriptors: list[str] = []

        def caller() -> None:
            for number in range(20):
                descriptors.append(client.enqueue(queue, Job(b"%d" % number)))

        threads = [threading.Thread(target=caller) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(descriptors)) == 160
        assert client.count(JobFilter(queue, JobState.PENDING)) == 160


def test_a_forked_child_has_connections_of_its_own(address: str, client_way: str) -> None:
    queue = f"forked-{client_way}"
    with Client(address) as client:
        client.create_queue(queue)
        client.enqueue(queue, Job(b"parent"))
        child = os.fork()
        if child == 0:
            try:
                client.enqueue(queue, Job(b"child"))
                client.close()
                os._exit(0)
            finally:
                os._exit(1)
        for _ in range(50):
            client.enqueue(queue, Job(b"parent"))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.count(JobFilter(queue, JobState.PENDING)) == 52


def test_a_closed_client_says_so(address: str, client_way: str) -> None:
    client = Client(address)
    client.queue_names()
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.queue_names()


def test_closing_ends_the_waits_of_other_threads(address: str, client_way: str) -> None:
    client = Client(address)
    client.create_queue("waits")
    ended: list[BaseException] = []
    first = threading.Barrier(3)

    def wait(call: Callable[[], object]) -> None:
        first.wait()
        try:
            call()
        except (RuntimeError, errors.PinLaterError) as error:
            ended.append(error)

    poll = DequeueRequest("waits", 1, wait_ms=30_000)
    calls: list[Callable[[], object]] = [lambda: client.dequeue(poll), lambda: client.enqueue("nobody", Job(b""))]
    threads = [threading.Thread(target=wait, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    first.wait()
    time.sleep(0.1)
    client.close()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert len(ended) == 2


async def test_a_closed_async_client_says_so_also_to_those_who_wait(address: str) -> None:
    client = AsyncClient(address)
    await client.create_queue("closing")
    poll = asyncio.create_task(client.dequeue(DequeueRequest("closing", 1, wait_ms=30_000)))
    await asyncio.sleep(1.0)  # it is on its way by then, on a busy machine too
    await client.close()
    with pytest.raises(errors.OutcomeUnknown, match="client was closed"):
        await poll
    for call in (client.queue_names(), client.enqueue("closing", Job(b""))):
        with pytest.raises(RuntimeError, match="closed"):
            await call


def test_an_async_client_belongs_to_one_loop(address: str) -> None:
    client = AsyncClient(address)

    async def use_and_keep() -> None:
        await client.queue_names()

    async def use_elsewhere() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await client.queue_names()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(use_and_keep())
        second.run(use_elsewhere())
        first.run(client.close())


def test_what_a_hand_writes_first_works(address: str) -> None:
    with Client(address) as client:
        client.create_queue("short")
        one = client.enqueue("short", b"one")
        client.enqueue("short", [b"two", Job(b"three")])
        client.enqueue("short", b"later", delay="1h")
        assert client.count("short") == 3
        first, second, third = client.dequeue("short", 10, wait="5s")
        assert [first.descriptor, second.body, third.body] == [one, b"two", b"three"]
        assert client.ack("short", succeeded=[first, second]) == [AckOutcome.SUCCEEDED] * 2
        assert client.ack("short", failed=[Ack(third.descriptor, permanent=True)]) == [AckOutcome.FAILED]
        assert client.count("short", JobState.SUCCEEDED) == 2
        client.enqueue("short", b"four")
        (fourth,) = client.dequeue_from_queues(["short"], limit=10, wait=5)
        assert client.ack("short", failed=[fourth]) == [AckOutcome.RETRIED]


async def test_a_job_of_another_kind_harms_no_job_that_travels_with_it(address: str) -> None:
    async with AsyncClient(address) as client:
        await client.create_queue("kinds")
        jobs = [Job(b"good"), Job(b"bad", priority="high"), Job(b"wide", attempts_allowed=2**31), Job(b"good")]  # type: ignore[arg-type]
        good, bad, wide, also = await asyncio.gather(
            *(client.enqueue("kinds", job) for job in jobs), return_exceptions=True
        )
        assert isinstance(good, str)
        assert isinstance(also, str)
        assert isinstance(bad, TypeError)
        assert "enqueue: jobs.priority is 'high', of the kind str; allowed: int of 8 bits" in str(bad)
        assert "enqueue: jobs.attempts_allowed is 2147483648, of the kind int; allowed: int of 32 bits" in str(wide)
