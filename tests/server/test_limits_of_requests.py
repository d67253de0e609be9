"""The bounds on what a request may hold, reached over a raw connection to a server as an operator runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater.errors import BodyTooLarge, Overloaded, PinLaterError, PriorityNotSupported, RequestInvalid
from pinlater.model import Ack, AckOutcome, Checkpoint, DequeueRequest, Job, JobFilter, JobState, RequestContext
from pinlater.wire.convert import (
    acks_to_wire,
    checkpoints_to_wire,
    dequeue_to_wire,
    dequeued_from_wire,
    enqueue_to_wire,
)
from pinlater.wire.faults import error_from_exception
from pinlater.wire.methods import CANCEL, LOOKUP, SCAN_JOBS
from tests.server.running import Plain, RunningServer, running

KIB = 1024
NOBODY = "mail:s1:p1:1000000000000000"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Small bounds, so that a test reaches them quickly."""
    small = ["--max-body", "1KiB", "--max-jobs", "20", "--max-waiters", "1"]
    times = ["--max-claim-timeout", "10s", "--claim-timeout", "5s", "--max-wait", "100ms"]
    with running(tmp_path_factory.mktemp("limits"), *small, *times) as server:
        yield server


@pytest.fixture
def plain(server: RunningServer, runner: asyncio.Runner) -> Iterator[Plain]:
    connection = runner.run(Plain.to(server.port))
    runner.run(connection.create_queue("mail"))
    yield connection
    runner.run(connection.close())


async def refusal(plain: Plain, method: str, **arguments: Any) -> PinLaterError:
    await plain.send(method, **arguments)
    reply = await plain.answer()
    assert reply.exception is not None, reply.success
    return error_from_exception(reply.exception)


async def dequeue(plain: Plain, limit: int, **more: Any) -> list[Any]:
    return dequeued_from_wire(
        await plain.call("dequeueJobs", request=dequeue_to_wire(DequeueRequest("mail", limit, **more)))
    )


async def count(plain: Plain, state: JobState = JobState.PENDING) -> int:
    page = SCAN_JOBS.result(await plain.call("scanJobs", request=SCAN_JOBS.request(JobFilter("mail", state), "0", 20)))
    return len(page.jobs)


async def clear(plain: Plain) -> None:
    while jobs := await dequeue(plain, 20):
        await plain.call("ackDequeuedJobs", request=acks_to_wire("mail", [Ack(job.descriptor) for job in jobs], []))


async def test_a_body_over_its_bound_is_refused_with_size_and_bound_and_nothing_of_the_request_is_stored(
    plain: Plain,
) -> None:
    await clear(plain)
    error = await refusal(plain, "enqueueJobs", request=enqueue_to_wire("mail", [Job(b"ok"), Job(b"x" * (KIB + 1))]))
    assert isinstance(error, BodyTooLarge)
    assert "1025" in error.message
    assert "1024" in error.message
    assert await count(plain) == 0
    await plain.enqueue("mail", b"x" * KIB)
    assert await count(plain) == 1


async def test_a_new_body_of_a_checkpoint_has_the_same_bound(plain: Plain) -> None:
    error = await refusal(
        plain, "checkpointJobs", request=checkpoints_to_wire("mail", [Checkpoint(NOBODY, new_body=b"x" * (KIB + 1))])
    )
    assert isinstance(error, BodyTooLarge)


async def test_jobs_over_their_bound_refuse_the_whole_request(plain: Plain) -> None:
    error = await refusal(plain, "enqueueJobs", request=enqueue_to_wire("mail", [Job(b"")] * 21))
    assert isinstance(error, RequestInvalid)
    assert error.wire_message().startswith("REQUEST_INVALID")
    assert "21" in error.message
    assert "20" in error.message
    await plain.call("enqueueJobs", request=enqueue_to_wire("mail", [Job(b"")] * 20))
    await clear(plain)


async def test_acks_and_descriptors_over_their_bound_are_carried_out_in_slices(plain: Plain) -> None:
    await clear(plain)
    names: list[str] = []
    for _ in range(2):
        answer = await plain.call("enqueueJobs", request=enqueue_to_wire("mail", [Job(b"", attempts_allowed=1)] * 20))
        names += answer.job_descriptors
    assert len([*await dequeue(plain, 20), *await dequeue(plain, 20)]) == 40
    await plain.call("checkpointJobs", request=checkpoints_to_wire("mail", [Checkpoint(each) for each in names]))
    acks = acks_to_wire("mail", [Ack(each) for each in names[:25]], [Ack(each) for each in (*names[25:], NOBODY)])
    await plain.call("ackDequeuedJobs", request=acks)
    found = await plain.call("lookupJobs", request=LOOKUP.request([*names, NOBODY], False))
    states = [LOOKUP.result(found)[each].state for each in names]
    assert states == [JobState.SUCCEEDED] * 25 + [JobState.FAILED] * 15
    cancelled = await plain.call("cancelJobs", request=CANCEL.request("mail", [*names, NOBODY]))
    assert len(cancelled.outcomes) == 41


async def test_more_acks_and_descriptors_than_ten_thousand_reach_a_server_with_the_usual_bounds(tmp_path: Path) -> None:
    """What an unknown job costs is enough to see that nothing refuses them on their way."""
    number, many = int(NOBODY.rpartition(":")[2]), 12_000
    nobody = [NOBODY.rpartition(":")[0] + f":{number + offset}" for offset in range(many)]
    with running(tmp_path) as usual:
        plain = await Plain.to(usual.port)
        await plain.create_queue("mail")
        await plain.enqueue("mail", b"")
        (job,) = await dequeue(plain, 1)
        acks = acks_to_wire("mail", [*map(Ack, nobody), Ack(job.descriptor)], [])
        outcomes = (await plain.call("ackJobs", request=acks)).outcomes
        assert (outcomes[:-1], outcomes[-1]) == ([AckOutcome.IGNORED] * many, AckOutcome.SUCCEEDED)
        await plain.call("checkpointJobs", request=checkpoints_to_wire("mail", list(map(Checkpoint, nobody))))
        found = await plain.call("lookupJobs", request=LOOKUP.request([*nobody, job.descriptor], False))
        assert list(found) == [job.descriptor]
        cancelled = await plain.call("cancelJobs", request=CANCEL.request("mail", nobody))
        assert len(cancelled.outcomes) == many
        await plain.close()


@pytest.mark.parametrize("method", ["ackDequeuedJobs", "ackJobs", "dequeueJobs"])
async def test_an_invalid_ack_is_named_and_the_others_are_carried_out(plain: Plain, method: str) -> None:
    await clear(plain)
    answer = await plain.call("enqueueJobs", request=enqueue_to_wire("mail", [Job(b"")] * 2))
    one, two = answer.job_descriptors
    await dequeue(plain, 2)
    succeeded, failed = [Ack(one), Ack("cut:s1")], [Ack(two, permanent=True), Ack(NOBODY, retry_delay_ms=2**62)]
    request: Any = acks_to_wire("mail", succeeded, failed)
    if method == "dequeueJobs":
        request = dequeue_to_wire(DequeueRequest("mail", 1, succeeded, failed))
    error = await refusal(plain, method, request=request)
    assert isinstance(error, RequestInvalid)
    assert (error.reason, error.acks_applied) == ("REQUEST_INVALID", True)
    assert "2 of 4 acks were not carried out, all others were: jobDescriptor is 'cut:s1'" in error.message
    assert f"retryDelayMillis of {NOBODY} is {2**62}" in error.message
    found = LOOKUP.result(await plain.call("lookupJobs", request=LOOKUP.request([one, two], False)))
    assert [info.state for info in found.values()] == [JobState.SUCCEEDED, JobState.FAILED]


async def test_the_limit_of_a_dequeue_and_of_a_scan_is_cut_to_its_bound(plain: Plain) -> None:
    await clear(plain)
    for _ in range(2):
        await plain.enqueue("mail", *[b""] * 20)
    page = SCAN_JOBS.result(
        await plain.call("scanJobs", request=SCAN_JOBS.request(JobFilter("mail", JobState.PENDING), "0", 2**31 - 1))
    )
    assert len(page.jobs) == 20
    assert len(await dequeue(plain, 2**31 - 1)) == 20
    await clear(plain)


async def test_a_priority_outside_its_levels_is_refused_before_anything_is_stored(plain: Plain) -> None:
    await clear(plain)
    error = await refusal(plain, "enqueueJobs", request=enqueue_to_wire("mail", [Job(b""), Job(b"", priority=4)]))
    assert isinstance(error, PriorityNotSupported)
    assert await count(plain) == 0


async def test_a_custom_status_is_cut_at_its_bound_and_keeps_what_came_last(plain: Plain) -> None:
    await clear(plain)
    first = "é" * 4_999
    answer = await plain.call("enqueueJobs", request=enqueue_to_wire("mail", [Job(b"", custom_status=first)]))
    (job,) = await dequeue(plain, 1)
    await plain.call("ackDequeuedJobs", request=acks_to_wire("mail", [Ack(job.descriptor, "🎈🎈")], []))
    found = LOOKUP.result(await plain.call("lookupJobs", request=LOOKUP.request(answer.job_descriptors, False)))
    assert found[job.descriptor].custom_status == "é" * 4_996 + "…\n🎈🎈"


async def test_the_time_out_of_a_claim_is_cut_to_its_bound(plain: Plain) -> None:
    await clear(plain)
    await plain.enqueue("mail", b"", b"")
    (usual,) = await dequeue(plain, 1)
    (longest,) = await dequeue(plain, 1, claim_timeout_ms=86_400_000)
    more_ms = longest.claim_expires_at_ms - usual.claim_expires_at_ms
    assert 5_000 <= more_ms < 10_000
    await plain.call(
        "ackDequeuedJobs", request=acks_to_wire("mail", [Ack(usual.descriptor), Ack(longest.descriptor)], [])
    )


async def test_one_waiter_too_many_is_refused_as_overload(server: RunningServer, plain: Plain) -> None:
    await clear(plain)
    first = await Plain.to(server.port)
    await first.send("dequeueJobs", request=dequeue_to_wire(DequeueRequest("mail", 1, wait_ms=60_000)))
    error = None
    while error is None:
        await plain.send("dequeueJobs", request=dequeue_to_wire(DequeueRequest("mail", 1, wait_ms=60_000)))
        reply = await plain.answer()
        error = reply.exception and error_from_exception(reply.exception)
        if error is None:
            await first.answer()
            await first.send("dequeueJobs", request=dequeue_to_wire(DequeueRequest("mail", 1, wait_ms=60_000)))
    assert isinstance(error, Overloaded)
    assert error.retryable
    await first.answer()  # at most 100 ms later: waitMillis is cut too
    await first.close()


async def test_a_dequeue_gives_fewer_jobs_than_asked_where_their_bodies_would_pass_the_frame(tmp_path: Path) -> None:
    with running(tmp_path, "--max-frame", "256KiB", "--max-unframed", "256KiB", "--max-body", "100KiB") as narrow:
        plain = await Plain.to(narrow.port)
        await plain.create_queue("mail")
        for _ in range(3):
            await plain.enqueue("mail", b"x" * 100 * KIB)
        taken = [len(await dequeue(plain, 10)), len(await dequeue(plain, 10)), len(await dequeue(plain, 10))]
        assert sum(taken) == 3
        assert max(taken) < 3
        await plain.close()


async def test_a_source_over_its_bound_is_refused(plain: Plain) -> None:
    long = RequestContext("s" * 100_000)
    error = await refusal(plain, "dequeueJobs", context=long, request=dequeue_to_wire(DequeueRequest("mail", 1)))
    assert isinstance(error, RequestInvalid)
    assert "source" in error.message
