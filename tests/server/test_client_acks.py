"""What a client learns of its acks: from servers that tell, from older ones, and where an answer was lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pinlater import Ack, AckOutcome, AsyncClient, Client, DequeueRequest, Job, JobFilter, JobState, errors
from pinlater.wire.codec import WireCall, encode_application_exception, encode_reply
from pinlater.wire.faults import exception_from_error
from pinlater.wire.message import ApplicationErrorKind
from pinlater.wire.methods import ACK
from tests.server.running import running
from tests.server.test_client_failures import framed, scripted

pytestmark = pytest.mark.usefixtures("way")

FENCED = Ack("mail:s1:p1:1790000000000000", claim_descriptor="a claim")


def older(call: WireCall) -> bytes:
    """What a server answers that has ackDequeuedJobs alone."""
    if call.name != "ackDequeuedJobs":
        kind = ApplicationErrorKind.UNKNOWN_METHOD
        return framed(encode_application_exception(call.name, call.seqid, kind, "there is no such method"))
    return framed(encode_reply(call.name, call.seqid))


def newer(call: WireCall, *outcomes: AckOutcome) -> bytes:
    return framed(encode_reply(call.name, call.seqid, ACK.answer(outcomes)))


async def test_an_older_server_is_asked_for_what_it_does_not_have_once_for_each_connection() -> None:
    async with scripted(older) as (address, seen):
        async with AsyncClient(address) as client:
            for _ in range(3):
                assert await client.ack("mail", [FENCED], [FENCED]) == [AckOutcome.UNKNOWN] * 2
        assert [call.name for call in seen] == ["ackJobs", *["ackDequeuedJobs"] * 3]
        assert all(call.args.request == seen[0].args.request for call in seen)


async def test_a_server_that_is_connected_to_again_may_be_a_newer_one() -> None:
    upgraded = False

    def answer(call: WireCall) -> bytes:
        if upgraded:
            return newer(call, AckOutcome.SUCCEEDED)
        return b"" if call.name == "getQueueNames" else older(call)

    async with scripted(answer) as (address, seen), AsyncClient(address, timeout=1.0) as client:
        assert await client.ack("mail", [FENCED]) == [AckOutcome.UNKNOWN]
        with pytest.raises(errors.ServerUnreachable):
            await client.queue_names()  # the connection ends
        upgraded = True
        assert await client.ack("mail", [FENCED]) == [AckOutcome.SUCCEEDED]
        assert Counter(call.name for call in seen)["ackDequeuedJobs"] == 1


async def test_of_several_servers_each_is_asked_for_what_it_has() -> None:
    async with scripted(older) as (old, _), scripted(lambda call: newer(call, AckOutcome.IGNORED)) as (new, _):
        async with AsyncClient(old, new) as client:
            told = Counter([(await client.ack("mail", [FENCED]))[0] for _ in range(20)])
        assert set(told) == {AckOutcome.UNKNOWN, AckOutcome.IGNORED}


async def test_a_method_that_has_no_older_one_is_an_error_at_once() -> None:
    async with scripted(older) as (address, seen), AsyncClient(address) as client:
        with pytest.raises(errors.MethodUnknown) as refused:
            await client.cancel("mail", [])
        assert refused.value.reason == "UNKNOWN_METHOD"
        assert len(seen) == 1


async def test_an_ack_without_effect_is_unknown_where_an_earlier_copy_may_have_had_it() -> None:
    """The first copy arrived, and its answer did not."""
    calls = 0

    def answer(call: WireCall) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 1:
            return b""
        return newer(call, AckOutcome.IGNORED, AckOutcome.SUCCEEDED)

    async with scripted(answer) as (address, _), AsyncClient(address) as client:
        assert await client.ack("mail", [FENCED, FENCED]) == [AckOutcome.UNKNOWN, AckOutcome.SUCCEEDED]
        assert await client.ack("mail", [FENCED, FENCED]) == [AckOutcome.IGNORED, AckOutcome.SUCCEEDED]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.Overloaded("full", retry_after_ms=1), AckOutcome.IGNORED),
        (errors.NothingStored("away", retry_after_ms=1), AckOutcome.IGNORED),
        (errors.ShardConnectionFailed("one of two is away", retry_after_ms=1), AckOutcome.UNKNOWN),
        (errors.OutcomeUnknown("perhaps", retry_after_ms=1), AckOutcome.UNKNOWN),
    ],
)
async def test_what_an_earlier_copy_can_have_done_follows_from_its_error(
    error: errors.PinLaterError, outcome: AckOutcome
) -> None:
    calls = 0

    def answer(call: WireCall) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 1:
            return framed(encode_reply(call.name, call.seqid, exception=exception_from_error(error)))
        return newer(call, AckOutcome.IGNORED)

    async with scripted(answer) as (address, _), AsyncClient(address) as client:
        assert await client.ack("mail", [FENCED]) == [outcome]


async def test_an_outcome_of_a_later_version_is_unknown() -> None:
    async with scripted(lambda call: newer(call, 9)) as (address, _), AsyncClient(address) as client:  # type: ignore[arg-type]
        assert await client.ack("mail", [FENCED]) == [AckOutcome.UNKNOWN]


async def test_a_second_failure_without_a_claim_is_told_and_so_is_the_success_that_it_took_away(tmp_path: Path) -> None:
    """The late copy of an ack ends another worker's attempt, whose success then has no effect, and says so."""
    with running(tmp_path) as server:
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            await client.create_queue("mail")
            await client.enqueue("mail", Job(b"", attempts_allowed=5))
            (job,) = await client.dequeue(DequeueRequest("mail", 1))
            assert await client.ack("mail", [], [Ack(job.descriptor)]) == [AckOutcome.RETRIED]
            (again,) = await client.dequeue(DequeueRequest("mail", 1))
            late = await client.ack("mail", [], [Ack(job.descriptor)])  # as one that was sent again
            assert late == [AckOutcome.RETRIED]
            done = Ack(again.descriptor, claim_descriptor=again.claim_descriptor)
            assert await client.ack("mail", [done]) == [AckOutcome.IGNORED]
            (third,) = await client.dequeue(DequeueRequest("mail", 1, [done], [Ack("mail:snone:p1:1000000000000000")]))
            assert third.descriptor == job.descriptor
            jobs = await client.dequeue(DequeueRequest("mail", 1, [done]))
            assert (jobs, jobs.ack_outcomes) == ([], [AckOutcome.IGNORED])
            jobs = await client.dequeue(DequeueRequest("mail", 1, [Ack(third.descriptor)]))
            assert (jobs, jobs.ack_outcomes) == ([], [])
            assert await client.count(JobFilter("mail", JobState.SUCCEEDED)) == 1


def test_the_client_for_threads_tells_the_same(tmp_path: Path) -> None:
    with running(tmp_path) as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
        client.enqueue("mail", Job(b""))
        (job,) = client.dequeue(DequeueRequest("mail", 1))
        assert client.ack("mail", [Ack(job.descriptor)]) == [AckOutcome.SUCCEEDED]
        jobs = client.dequeue(DequeueRequest("mail", 1, [Ack(job.descriptor)]))
        assert (jobs, jobs.ack_outcomes) == ([], [AckOutcome.IGNORED])


async def test_a_lookup_of_more_jobs_than_one_answer_holds_takes_several_calls(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            await client.create_queue("mail")
            names: list[str] = []
            for _ in range(3):
                names += await client.enqueue("mail", [Job(b"")] * 8_000)
            found = await client.lookup(names)
            assert list(found) == names
            assert await client.lookup([]) == {}
