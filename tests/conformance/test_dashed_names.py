"""Queues whose names have dashes, beside others whose names begin likewise: each has its own jobs."""

from __future__ import annotations

from pinlater.backends.base import DeadLetterTarget
from pinlater.model import AckOutcome, CancelOutcome, JobState, parse_descriptor
from tests.conformance.subject import Subject

NAMES = ("mail-1", "mail-1-1", "mail_1", "MAIL-1")


async def test_names_with_dashes_are_names_like_any_other(subject: Subject) -> None:
    queues = [await subject.beside(name) for name in NAMES]
    for number, each in enumerate(queues, 1):
        made = [await each.job(custom_status=each.queue) for _ in range(number + 2)]
        assert {ref.queue for ref in map(parse_descriptor, made) if ref is not None} == {each.queue}
        assert await each.cancel(made[-1]) == [CancelOutcome.CANCELLED]
        assert await each.succeed((await each.claimed()).descriptor) is AckOutcome.SUCCEEDED
    for number, each in enumerate(queues, 1):
        assert await each.count(JobState.PENDING) == number
        assert {info.custom_status for info in await each.scan()} == {each.queue}
        assert len(await each.claim(100, timeout_ms=1_000)) == number
        assert await each.count(JobState.SUCCEEDED) == 1
    subject.tick(2_000)
    expired = await subject.expire(limit=100)
    assert {name: expired[name].retried for name in NAMES} == {name: number for number, name in enumerate(NAMES, 1)}


async def test_dead_letters_go_to_a_queue_with_a_dash_and_back_to_one(subject: Subject) -> None:
    mail, dead = await subject.beside("mail-1"), await subject.beside("mail-1-dead")
    job = await mail.job()
    await mail.claimed()
    assert await mail.ack_with(job, False, permanent=True, dead_letters=True) is AckOutcome.FAILED
    assert await subject.dead_letter({"mail-1": DeadLetterTarget("mail-1-dead", 5)}) == {"mail-1": 1}
    (letter,) = await dead.scan()
    assert letter.origin == job
    (back,) = await dead.replay(letter.descriptor)
    assert (await mail.info(back or "")).state is JobState.PENDING
