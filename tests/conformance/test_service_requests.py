"""What the service refuses, whole and by name, and what it cuts."""

from __future__ import annotations

from collections.abc import Sequence
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
from pinlater.model import MAX_STATUS_CHARS, MAX_TIME_MS, Ack, Checkpoint, DequeueRequest, Job, JobState
from tests.conformance.served import QUEUE, Served

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


async def test_a_body_over_the_bound_is_refused_with_its_size_and_the_bound(served: Served) -> None:
    with pytest.raises(BodyTooLarge, match=rf"{MIB + 1}.*{MIB}"):
        await served.enqueue(Job(bytes(MIB + 1)))
    assert len(await served.enqueue(Job(bytes(MIB)), Job(b""))) == 2


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
async def test_an_invalid_dequeue_is_refused_and_its_acks_are_not_carried_out(
    served: Served, fields: dict[str, Any]
) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    valid: dict[str, Any] = {"queue": QUEUE, "limit": 1, "succeeded": [Ack(descriptor)]}
    request = DequeueRequest(**(valid | fields))
    with pytest.raises(RequestInvalid) as refused:
        await served.api.dequeue(request)
    assert refused.value.wire_message().startswith("REQUEST_INVALID")
    assert refused.value.acks_applied is not True
    assert (await served.info(descriptor)).state is JobState.IN_PROGRESS


async def test_an_ack_with_a_negative_delay_refuses_the_whole_request(served: Served) -> None:
    descriptors = await served.enqueue(Job(b""), Job(b""))
    await served.dequeue(2)
    with pytest.raises(RequestInvalid):
        await served.api.ack(QUEUE, [Ack(descriptors[0])], [Ack(descriptors[1], retry_delay_ms=-1)])
    for descriptor in descriptors:
        assert (await served.info(descriptor)).state is JobState.IN_PROGRESS


@pytest.mark.parametrize(
    "fields",
    [{"attempts_allowed": 2**31}, {"run_after_ms": MAX_TIME_MS + 1}, {"new_body": bytes(MIB + 1)}],
    ids=lambda fields: ", ".join(fields),
)
async def test_an_invalid_checkpoint_refuses_the_whole_request(served: Served, fields: dict[str, Any]) -> None:
    first, second = await served.enqueue(Job(b""), Job(b""))
    await served.dequeue(2)
    before = await served.info(first)
    with pytest.raises((RequestInvalid, BodyTooLarge)):
        await served.api.checkpoint(
            QUEUE, [Checkpoint(first, prepend_status="x"), Checkpoint(second, **fields)], context=served.context
        )
    assert await served.info(first) == before


async def test_lists_over_their_bound_are_refused_and_lists_of_exactly_the_bound_are_taken(served: Served) -> None:
    too_many = 10_001
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    calls: Sequence[Any] = (
        lambda: served.enqueue(*[Job(b"")] * too_many),
        lambda: served.api.ack(QUEUE, [Ack(descriptor)] * too_many, []),
        lambda: served.api.ack(QUEUE, [Ack(descriptor)] * 6_000, [Ack(descriptor)] * 6_000),
        lambda: served.api.checkpoint(QUEUE, [Checkpoint(descriptor)] * too_many),
        lambda: served.api.lookup([descriptor] * too_many),
        lambda: served.api.cancel(QUEUE, [descriptor] * too_many),
    )
    for call in calls:
        with pytest.raises(RequestInvalid):
            await call()
    assert await served.count(JobState.PENDING) == 0
    assert (await served.info(descriptor)).state is JobState.IN_PROGRESS
    assert len(await served.enqueue(*[Job(b"")] * 10_000)) == 10_000


async def test_limits_over_the_bound_are_cut_to_it(served: Served) -> None:
    for _ in range(3):
        await served.enqueue(*[Job(b"")] * 4_000)
    assert len(await served.dequeue(2_000_000)) == 10_000
    page = await served.api.scan(served.filter(JobState.IN_PROGRESS), limit=2_000_000)
    assert len(page.jobs) == 10_000


@pytest.mark.parametrize("name", ["", "a b", "a-b", "a:b", "naïve", "a\n", "a.b", "'; --", "a" * 63 + "!"])
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
