"""The time at which the next job of a queue is due, and the notifications of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pinlater.backends.base import UNKNOWN_CHANGE, DeadLetterTarget, Notification
from pinlater.model import Job, JobState
from tests.conformance.subject import ALL, START_MS, TIMEOUT_MS, Subject
from tests.queues import drop_queue

WITHIN_S = 60.0


async def next_due(subject: Subject) -> int | None:
    return (await subject.shard.next_due([subject.queue], ALL))[subject.queue]


async def test_the_next_job_is_the_one_with_the_smallest_time_over_all_priorities(subject: Subject) -> None:
    assert await next_due(subject) is None
    await subject.enqueue(Job(b"", 2, run_after_ms=START_MS + 50), Job(b"", 1, run_after_ms=START_MS + 70))
    assert await next_due(subject) == START_MS + 50
    await subject.job(priority=3)
    assert await next_due(subject) == START_MS


async def test_of_the_priorities_not_asked_for_none_is_next(subject: Subject) -> None:
    await subject.enqueue(Job(b"", 1, run_after_ms=START_MS + 50), Job(b"", 2, run_after_ms=START_MS + 70))
    assert await subject.shard.next_due([subject.queue], (2,)) == {subject.queue: START_MS + 70}
    assert await subject.shard.next_due([subject.queue], (3,)) == {subject.queue: None}


@pytest.mark.parametrize("state", [JobState.IN_PROGRESS, JobState.SUCCEEDED, JobState.FAILED])
async def test_only_pending_jobs_are_due(subject: Subject, state: JobState) -> None:
    await subject.job_in(state)
    assert await next_due(subject) is None


async def test_several_queues_are_asked_for_at_once_and_one_that_is_not_there_is_left_out(subject: Subject) -> None:
    other, gone = await subject.beside("other"), await subject.beside("gone")
    await other.job(run_after_ms=START_MS + 5)
    await gone.job()
    await drop_queue(subject.shard, gone.queue, subject.tick(1))
    found = await subject.shard.next_due([other.queue, gone.queue, subject.queue, "never"], ALL)
    assert found == {other.queue: START_MS + 5, subject.queue: None}
    assert await subject.shard.next_due([], ALL) == {}


class Ear:
    """The notifications of a queue."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._heard: asyncio.Queue[Notification | None] = asyncio.Queue()

    async def listens(self) -> bool:
        return await self._subject.shard.subscribe(self._subject.queue, self._heard.put_nowait)

    async def leaves(self) -> None:
        assert not await self._subject.shard.subscribe(self._subject.queue, None)

    async def next(self) -> Notification | None:
        return await asyncio.wait_for(self._heard.get(), WITHIN_S)

    async def expect(self, ready: int, due_ms: int | None = None) -> None:
        """Of this, and of nothing before it; or of changes, of which one lets a look find it."""
        news = await self.next()
        while news == UNKNOWN_CHANGE:
            found_ms = await next_due(self._subject)
            if found_ms is not None and (found_ms <= self._subject.now_ms if ready else found_ms == due_ms):
                return
            news = await self.next()
        assert news == Notification(ready, due_ms)


async def _retry(subject: Subject) -> None:
    (job,) = await subject.claim()
    await subject.fail(job.descriptor)


async def _later(subject: Subject) -> None:
    (job,) = await subject.claim()
    await subject.fail(job.descriptor, retry_delay_ms=500)


async def _move(subject: Subject) -> None:
    (job,) = await subject.claim()
    await subject.checkpoint(job.descriptor, move_to_pending=True, run_after_ms=subject.now_ms + 500)


async def _give_back(subject: Subject) -> None:
    await subject.requeue(*await subject.claim())


async def _release(subject: Subject) -> None:
    await subject.expire_disconnected(*await subject.claim())


async def _expire(subject: Subject) -> None:
    await subject.claim()
    subject.tick(TIMEOUT_MS + 1)
    await subject.expire()


async def _operator(subject: Subject) -> None:
    (job,) = await subject.claim()
    await subject.fail(job.descriptor, permanent=True)
    await subject.retry_failed()


async def _operator_by_name(subject: Subject) -> None:
    (job,) = await subject.claim()
    await subject.fail(job.descriptor, permanent=True)
    await subject.retry_listed(job.descriptor, run_after_ms=subject.now_ms + 500)


NOW, LATER = Notification(1, None), Notification(0, START_MS + 500)


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (_retry, NOW),
        (_later, LATER),
        (_move, LATER),
        (_give_back, NOW),
        (_release, NOW),
        (_expire, NOW),
        (_operator, NOW),
        (_operator_by_name, LATER),
    ],
)
async def test_whatever_makes_a_job_pending_again_is_told(
    subject: Subject, do: Callable[[Subject], Awaitable[None]], expected: Notification
) -> None:
    await subject.job(attempts_allowed=3)
    ear = Ear(subject)
    if await ear.listens():
        await do(subject)
        await ear.expect(*expected)
        await ear.leaves()


async def test_dead_letters_that_come_and_go_back_are_told_where_they_come(subject: Subject) -> None:
    target = await subject.beside("target")
    descriptor = await subject.job()
    here, there = Ear(subject), Ear(target)
    if not (await here.listens() and await there.listens()):
        return
    await subject.claim()
    await subject.ack_with(descriptor, False, permanent=True, dead_letters=True)
    await subject.dead_letter({subject.queue: DeadLetterTarget(target.queue, 1)})
    await there.expect(1)
    (letter,) = await target.claim()
    await target.requeue(letter)
    await there.expect(1)
    await target.replay(letter.descriptor)
    await here.expect(1)
    await here.leaves()
    await there.leaves()


async def test_nothing_is_heard_of_other_queues_nor_when_nobody_listens_any_more(subject: Subject) -> None:
    other = await subject.beside("other")
    ear = Ear(subject)
    if not await ear.listens():
        return
    await other.job()
    await _give_back(other)
    await subject.job()
    await _give_back(subject)
    await ear.expect(1)
    await ear.leaves()
    await _give_back(subject)
    assert await ear.listens()
    await _later(subject)
    await ear.expect(0, START_MS + 500)
    await ear.leaves()
