"""What the service refuses, whole and by name, and what it cuts."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from pinlater.errors import (
    BodyTooLarge,
    PasswordInvalid,
    PinLaterError,
    PriorityNotSupported,
    QueueNameInvalid,
    QueueNameTooLong,
    QueueNotFound,
    RequestInvalid,
)
from pinlater.model import (
    MAX_STATUS_CHARS,
    MAX_TIME_MS,
    Ack,
    AckOutcome,
    CancelOutcome,
    Checkpoint,
    DequeuedJobs,
    DequeueRequest,
    Job,
    JobState,
)
from tests.conformance.bindings import Binding
from tests.conformance.served import QUEUE, START_MS, Served

MIB = 2**20
BAD_JOBS: dict[str, tuple[Job, type[PinLaterError]]] = {
    "priority 0": (Job(b"", 0), PriorityNotSupported),
    "priority 4": (Job(b"", 4), PriorityNotSupported),
    "a negative priority": (Job(b"", -1), PriorityNotSupported),
    "attempts beyond an i32": (Job(b"", attempts_allowed=2**31), RequestInvalid),
    "a time after all time": (Job(b"", run_after_ms=MAX_TIME_MS + 1), RequestInvalid),
    "a body over the bound": (Job(bytes(MIB + 1)), BodyTooLarge),
}


@pytest.mark.parametrize(("bad", "error"), list(BAD_JOBS.values()), ids=list(BAD_JOBS))
async def test_one_invalid_job_refuses_the_whole_request(served: Served, bad: Job, error: type[PinLaterError]) -> None:
    with pytest.raises(error):
        await served.enqueue(Job(b"good"), bad, Job(b"good"))
    assert await served.count(JobState.PENDING) == 0


async def test_a_body_over_the_bound_is_refused_with_its_size_and_the_bound(served: Served, binding: Binding) -> None:
    with pytest.raises(BodyTooLarge, match=rf"{MIB + 1}.*{MIB}"):
        await served.enqueue(Job(bytes(MIB + 1)))
    assert len(await served.enqueue(Job(bytes(binding.most_body_bytes)), Job(b""))) == 2


async def test_no_jobs_are_an_empty_answer(served: Served) -> None:
    assert await served.enqueue() == []


async def test_an_unknown_queue_is_not_found(served: Served) -> None:
    for queue in ("none", "", "not a name", "x" * 65, "naïve", f"{QUEUE}\n"):
        with pytest.raises(QueueNotFound):
            await served.api.enqueue(queue, [Job(b"")])
        with pytest.raises(QueueNotFound):
            await served.api.dequeue(DequeueRequest(queue, 1))
        for call in (served.api.count, served.api.scan, served.api.delete_jobs):
            with pytest.raises(QueueNotFound):
                await call(served.filter(JobState.FAILED, queue=queue, priority=1))
        with pytest.raises(QueueNotFound):
            await served.api.retry_failed(queue)


@pytest.mark.parametrize(
    "fields",
    [
        {"limit": 0},
        {"limit": -1},
        {"coverage": 1.1},
        {"coverage": -0.1},
        {"coverage": nan},
        {"wait_ms": -1},
        {"claim_timeout_ms": 0},
        {"claim_timeout_ms": -5},
    ],
    ids=str,
)
async def test_an_invalid_dequeue_is_refused_and_its_acks_are_carried_out(
    served: Served, fields: dict[str, Any]
) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    valid: dict[str, Any] = {"queue": QUEUE, "limit": 1, "succeeded": [Ack(descriptor)]}
    request = DequeueRequest(**(valid | fields))
    with pytest.raises(RequestInvalid) as refused:
        await served.api.dequeue(request)
    assert refused.value.wire_message().startswith("REQUEST_INVALID")
    assert refused.value.acks_applied is True
    assert (await served.info(descriptor)).state is JobState.SUCCEEDED


@pytest.mark.parametrize("delay_ms", [-1, -1_000, -(2**63)])
@pytest.mark.parametrize("riding", [False, True], ids=["alone", "riding"])
async def test_a_negative_delay_is_none(served: Served, delay_ms: int, riding: bool) -> None:
    """The classic example worker counts it out of attempts that an operator may have added to."""
    good, bad = await served.enqueue(Job(b""), Job(b"", attempts_allowed=3))
    await served.dequeue(2)
    succeeded, failed = [Ack(good, retry_delay_ms=delay_ms)], [Ack(bad, retry_delay_ms=delay_ms)]
    if riding:
        assert len(await served.api.dequeue(DequeueRequest(QUEUE, 5, succeeded, failed))) == 1
    else:
        assert list(await served.api.ack(QUEUE, succeeded, failed)) == [AckOutcome.SUCCEEDED, AckOutcome.RETRIED]
        assert (await served.info(bad)).state is JobState.PENDING
    assert (await served.info(good)).state is JobState.SUCCEEDED
    assert (await served.info(bad)).run_after_ms == served.clock.now_ms()


INVALID_ACKS: dict[str, Ack] = {
    "no descriptor": Ack("nothing"),
    "an empty descriptor": Ack(""),
    "a descriptor that was cut": Ack("mail:s1:p1:"),
    "a delay beyond all time": Ack(f"{QUEUE}:s1:p1:{START_MS * 1000}", retry_delay_ms=MAX_TIME_MS),
}


@pytest.mark.parametrize("invalid", list(INVALID_ACKS.values()), ids=list(INVALID_ACKS))
async def test_an_invalid_ack_keeps_no_other_from_being_carried_out(served: Served, invalid: Ack) -> None:
    descriptors = await served.spread(8)
    await served.dequeue(8)
    succeeded, failed = list(map(Ack, descriptors[:4])), [Ack(each, permanent=True) for each in descriptors[4:]]
    with pytest.raises(RequestInvalid, match=r"^2 of 10 acks were not carried out, all others were: ") as refused:
        await served.api.ack(QUEUE, succeeded, [failed[0], invalid, *failed[1:], invalid])
    assert refused.value.acks_applied is True
    found = await served.api.lookup(descriptors)
    assert [found[each].state for each in descriptors] == [JobState.SUCCEEDED] * 4 + [JobState.FAILED] * 4


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_an_invalid_ack_that_rides_keeps_the_dequeue_from_jobs_and_no_other_ack_from_being_carried_out(
    served: Served, wait_ms: int
) -> None:
    (done,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    (more,) = await served.enqueue(Job(b""))
    request = DequeueRequest(QUEUE, 5, [Ack("nothing"), Ack(done)], wait_ms=wait_ms)
    with pytest.raises(RequestInvalid, match=r"^1 of 2 acks were not carried out, all others were: ") as refused:
        await served.api.dequeue(request, context=served.context)
    assert refused.value.acks_applied is True
    assert (await served.info(done)).state is JobState.SUCCEEDED
    assert (await served.info(more)).state is JobState.PENDING


async def test_what_names_no_job_here_is_no_error(served: Served) -> None:
    """Of another queue, of a shard that never was, of the classic server: nothing is changed, and nothing is wrong."""
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    number = descriptor.rpartition(":")[2]
    elsewhere = [f"other:s1:p1:{number}", f"{QUEUE}:snever:p1:{number}", f"{QUEUE}:s1:p1:17"]
    ignored = [AckOutcome.IGNORED] * 3
    outcomes = await served.api.ack(QUEUE, [*map(Ack, elsewhere), Ack(descriptor)], list(map(Ack, elsewhere)))
    assert list(outcomes) == [*ignored, AckOutcome.SUCCEEDED, *ignored]
    await served.api.checkpoint(QUEUE, list(map(Checkpoint, elsewhere)), context=served.context)


async def test_what_became_of_each_ack_comes_in_the_order_of_the_acks_over_all_shards(served: Served) -> None:
    descriptors = await served.spread(12)
    claims = {job.descriptor: job.claim_descriptor for job in await served.dequeue(12)}
    succeeded = [Ack(each, claim_descriptor=claims[each] + "x" * (n % 2)) for n, each in enumerate(descriptors[:6])]
    failed = [Ack(each, permanent=n % 2 == 0) for n, each in enumerate(descriptors[6:])]
    outcomes = await served.api.ack(QUEUE, succeeded, [*failed, failed[0]])
    good = [AckOutcome.SUCCEEDED, AckOutcome.IGNORED] * 3
    assert list(outcomes) == [*good, *[AckOutcome.FAILED, AckOutcome.RETRIED] * 3, AckOutcome.IGNORED]


async def test_a_dequeue_tells_what_became_of_its_acks_where_one_of_them_had_no_effect(served: Served) -> None:
    one, two, three = await served.enqueue(Job(b"1"), Job(b"2"), Job(b"3"))
    await served.dequeue(2)
    jobs = await served.api.dequeue(DequeueRequest(QUEUE, 5, [Ack(one)]))
    assert [job.descriptor for job in jobs] == [three]
    assert not isinstance(jobs, DequeuedJobs)
    jobs = await served.api.dequeue(DequeueRequest(QUEUE, 5, [Ack(two), Ack(one)], [Ack(three)]))
    assert isinstance(jobs, DequeuedJobs)
    assert list(jobs.ack_outcomes) == [AckOutcome.SUCCEEDED, AckOutcome.IGNORED, AckOutcome.RETRIED]
    assert [job.descriptor for job in jobs] == [three]
    jobs = await served.api.dequeue(DequeueRequest(QUEUE, 5, [Ack(one)], ack_queue="nowhere"))
    assert isinstance(jobs, DequeuedJobs)
    assert list(jobs.ack_outcomes) == [AckOutcome.IGNORED]


@pytest.mark.parametrize(
    "fields",
    [{"attempts_allowed": 2**31}, {"run_after_ms": MAX_TIME_MS + 1}, {"new_body": bytes(MIB + 1)}],
    ids=lambda fields: ", ".join(fields),
)
async def test_an_invalid_checkpoint_keeps_no_other_from_being_carried_out(
    served: Served, fields: dict[str, Any]
) -> None:
    first, second = await served.enqueue(Job(b""), Job(b""))
    await served.dequeue(2)
    before = await served.info(second)
    with pytest.raises((RequestInvalid, BodyTooLarge), match=r"^1 of 2 checkpoints were not carried out"):
        await served.api.checkpoint(
            QUEUE, [Checkpoint(second, **fields), Checkpoint(first, prepend_status="x")], context=served.context
        )
    assert (await served.info(first)).custom_status == "x"
    assert await served.info(second) == before


async def test_more_jobs_than_the_bound_are_refused_and_exactly_as_many_are_taken(
    served_many: Served, binding: Binding
) -> None:
    many, served = binding.many_jobs, served_many
    with pytest.raises(RequestInvalid):
        await served.enqueue(*[Job(b"")] * (many + 1))
    assert await served.count(JobState.PENDING) == 0
    assert len(await served.enqueue(*[Job(b"")] * many)) == many


async def test_more_acks_and_descriptors_than_the_bound_are_carried_out_in_slices(sliced: Served) -> None:
    descriptors = await sliced.spread(22)
    for _ in range(5):
        assert len(await sliced.dequeue(4)) == 4
    beats = [Checkpoint(each, prepend_status="beat") for each in descriptors]
    await sliced.api.checkpoint(QUEUE, beats, context=sliced.context)
    found = await sliced.api.lookup(descriptors)
    beaten = [each for each in descriptors if found[each].custom_status == "beat"]
    pending = [each for each in descriptors if found[each].state is JobState.PENDING]
    assert (len(beaten), len(pending)) == (20, 2)
    outcomes = await sliced.api.ack(QUEUE, list(map(Ack, beaten[:9])), [Ack(each) for each in beaten[9:]])
    assert list(outcomes) == [AckOutcome.SUCCEEDED] * 9 + [AckOutcome.RETRIED] * 11
    cancelled = await sliced.api.cancel(QUEUE, descriptors)
    assert [each for each in descriptors if cancelled[each] is CancelOutcome.ENDED] == beaten[:9]
    assert await sliced.count(JobState.PENDING) == 0


async def test_limits_over_the_bound_are_cut_to_it(served_many: Served, binding: Binding) -> None:
    many, served = binding.many_jobs, served_many
    for _ in range(3):
        await served.enqueue(*[Job(b"")] * (many * 2 // 5))
    assert len(await served.dequeue(2_000_000)) == many
    page = await served.api.scan(served.filter(JobState.IN_PROGRESS), limit=2_000_000)
    assert len(page.jobs) == many


@pytest.mark.parametrize("name", ["", "a b", "-b", "a:b", "naïve", "a\n", "a.b", "'; --", "a" * 63 + "!"])
async def test_a_queue_name_is_letters_digits_and_underscores_only(served: Served, name: str) -> None:
    with pytest.raises(QueueNameInvalid):
        await served.api.create_queue(name)


async def test_a_queue_name_has_at_most_sixty_four_characters(served: Served) -> None:
    await served.api.create_queue("a" * 64)
    with pytest.raises(QueueNameTooLong):
        await served.api.create_queue("a" * 65)


async def test_a_wrong_password_deletes_nothing(served: Served) -> None:
    for password in ("", "wrong", served.password + " ", served.password.upper()):
        with pytest.raises(PasswordInvalid):
            await served.api.delete_queue(QUEUE, password)
    with pytest.raises(PasswordInvalid):
        await served.api.delete_queue("none", "wrong")
    assert await served.api.queue_names() == {QUEUE}


async def test_a_status_is_cut_when_it_is_enqueued_too(served: Served) -> None:
    long = "🦆" * (MAX_STATUS_CHARS + 1)
    (descriptor,) = await served.enqueue(Job(b"", custom_status=long))
    assert (await served.info(descriptor)).custom_status == long[:MAX_STATUS_CHARS]


@pytest.mark.parametrize("priority", [0, 4, -1])
async def test_an_unsupported_priority_is_refused_by_every_call_that_takes_one(served: Served, priority: int) -> None:
    for call in (served.api.count, served.api.scan, served.api.delete_jobs):
        with pytest.raises(PriorityNotSupported):
            await call(served.filter(JobState.PENDING, priority=priority))
    with pytest.raises(PriorityNotSupported):
        await served.api.retry_failed(QUEUE, priority=priority)


async def test_invalid_limits_and_attempts_of_operators_are_refused(served: Served) -> None:
    pending = served.filter(JobState.PENDING, priority=1)
    for limit in (0, -1):
        with pytest.raises(RequestInvalid):
            await served.api.scan(pending, limit=limit)
        with pytest.raises(RequestInvalid):
            await served.api.delete_jobs(pending, limit=limit)
        with pytest.raises(RequestInvalid):
            await served.api.retry_failed(QUEUE, limit=limit)
    with pytest.raises(RequestInvalid):
        await served.api.retry_failed(QUEUE, attempts=2**31)
    with pytest.raises(RequestInvalid):
        await served.api.retry_failed(QUEUE, run_after_ms=MAX_TIME_MS + 1)


@pytest.mark.parametrize("value", [0, -1, -(2**31)])
async def test_no_time_is_now_and_no_attempts_are_one(served: Served, value: int) -> None:
    """Clients of the classic server fill every field: such a job may neither overtake older ones nor be stuck."""
    (descriptor,) = await served.enqueue(Job(b"", run_after_ms=value, attempts_allowed=value))
    await _has_one_attempt_from_now_on(served, descriptor)
    served.clock.tick(5)
    (job,) = await served.dequeue(1)
    beat = Checkpoint(job.descriptor, run_after_ms=value, attempts_allowed=value)
    await served.api.checkpoint(QUEUE, [beat], context=served.context)
    await _has_one_attempt_from_now_on(served, descriptor)
    await served.api.ack(QUEUE, [], [Ack(descriptor)])
    assert (await served.info(descriptor)).state is JobState.FAILED
    served.clock.tick(5)
    assert await served.api.retry_failed(QUEUE, attempts=value, run_after_ms=value) == 1
    await _has_one_attempt_from_now_on(served, descriptor)
    assert [job.descriptor for job in await served.dequeue(1)] == [descriptor]


async def _has_one_attempt_from_now_on(served: Served, descriptor: str) -> None:
    info = await served.info(descriptor)
    assert (info.attempts_allowed, info.attempts_remaining) == (1, 1)
    assert info.run_after_ms == served.clock.now_ms()
