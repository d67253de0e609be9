"""Bodies are bytes that nobody looks into (decision 16), and numbers go to their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pinlater.backends.base import SLICE_BYTES, AckOutcome, AckRequest, EndRules, JobKey
from pinlater.model import MAX_STATUS_CHARS, Job, JobState
from tests.conformance.subject import NO_BOUND, Subject, key_of

THIRD = SLICE_BYTES // 3
BODIES = {
    "empty": b"",
    "nul": b"\0",
    "all bytes": bytes(range(256)),
    "not UTF-8": b"\xff\xfe\x80",
    "blanks": b"  \n\t ",
    "looks packed": b"\x83\xa1a\x01\xc3",
    "separators": b":|,;\x1f\x1e\r\n",
    "a number": b"1e5",
    "the largest": None,
}


@pytest.fixture(params=list(BODIES.values()), ids=list(BODIES))
def body(request: pytest.FixtureRequest, most_body_bytes: int) -> bytes:
    chosen: bytes | None = request.param
    return bytes(range(256)) * (most_body_bytes // 256) if chosen is None else chosen


async def test_a_body_comes_back_as_it_was_given_wherever_it_is_seen(subject: Subject, body: bytes) -> None:
    descriptor = await subject.job(body)
    assert (await subject.info(descriptor)).body == body
    seen = await subject.shard.peek(subject.queue, (1,), 1, NO_BOUND, subject.now_ms)
    assert [job.body for job in seen] == [body]
    assert [info.body for info in await subject.scan(with_body=True)] == [body]
    assert (await subject.claimed()).body == body
    await subject.succeed(descriptor)
    assert (await subject.info(descriptor)).body == body


async def test_a_checkpoint_stores_any_body(subject: Subject, body: bytes) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, b"before")
    assert await subject.checkpoint(descriptor, new_body=body, move_to_pending=True)
    assert (await subject.claimed()).body == body


async def test_a_lookup_shows_bodies_only_where_asked_for(subject: Subject) -> None:
    descriptor = await subject.job(b"data")
    (info,) = await subject.shard.lookup(subject.queue, [key_of(descriptor)], with_body=False, max_bytes=NO_BOUND)
    assert info is not None
    assert info.body is None


async def test_a_lookup_leaves_out_the_bodies_beyond_the_bound(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(bytes(10)) for _ in range(4)])
    keys = [key_of(each) for each in descriptors]

    async def sizes(max_bytes: int) -> list[int | None]:
        found = await subject.shard.lookup(subject.queue, keys, with_body=True, max_bytes=max_bytes)
        assert None not in found
        return [None if info.body is None else len(info.body) for info in found if info is not None]

    assert await sizes(25) == [10, 10, None, None]
    assert await sizes(40) == [10, 10, 10, 10]
    assert await sizes(39) == [10, 10, 10, None]
    assert await sizes(1) == [10, None, None, None]


async def test_a_lookup_says_which_bodies_and_results_it_left_out(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(bytes(10)) for _ in range(5)])
    keys = [key_of(each) for each in descriptors]
    claims = {job.descriptor: job.claim_descriptor for job in await subject.claim(5)}
    acks = [
        AckRequest(*key, True, claim_descriptor=claims[name], result=bytes(10))
        for key, name in zip(keys, descriptors, strict=True)
    ]
    await subject.ack(acks[0], rules=EndRules(keep_succeeded=False))  # it is gone, and its result is kept
    await subject.ack(*acks[1:4])

    async def seen(max_bytes: int, **which: bool) -> list[str]:
        """Of each job a small letter for what came, and a large one for what was left out."""
        found = await subject.shard.lookup(
            subject.queue, keys, **{"with_body": False, "with_result": False} | which, max_bytes=max_bytes
        )
        words = []
        for info in found:
            assert info is None or not (info.body_left_out and info.body is not None)
            assert info is None or not (info.result_left_out and info.result is not None)
            words.append(
                "-"
                if info is None
                else ("b" if info.body is not None else "B" if info.body_left_out else "")
                + ("r" if info.result is not None else "R" if info.result_left_out else "")
            )
        return words

    assert await seen(NO_BOUND) == ["-", "", "", "", ""]
    assert await seen(NO_BOUND, with_body=True, with_result=True) == ["r", "br", "br", "br", "b"]
    assert await seen(NO_BOUND, with_body=True) == ["-", "b", "b", "b", "b"]
    assert await seen(25, with_body=True) == ["-", "b", "b", "B", "B"]
    assert await seen(1, with_body=True) == ["-", "b", "B", "B", "B"]
    assert await seen(0, with_body=True) == ["-", "B", "B", "B", "B"]
    assert await seen(25, with_result=True) == ["r", "r", "R", "R", ""]
    assert await seen(1, with_result=True) == ["r", "R", "R", "R", ""]
    assert await seen(0, with_result=True) == ["R", "R", "R", "R", ""]
    assert await seen(0, with_body=True, with_result=True) == ["R", "BR", "BR", "BR", "B"]
    tight = await seen(35, with_body=True, with_result=True)
    assert sum(word.count("b") + word.count("r") for word in tight) == 3  # which ones is the store's choice
    assert [word.lower() for word in tight] == ["r", "br", "br", "br", "b"]
    subject.tick(3_600_001)
    await subject.prune()  # the result of the job that is gone outlives its queue


async def test_a_lookup_reads_large_bodies_in_slices_and_brings_them_all(subject: Subject) -> None:
    descriptors = [await subject.job(bytes([n]) * THIRD) for n in range(10)]
    keys = [key_of(each) for each in descriptors]
    keys.insert(5, JobKey(1, 1))
    found = await subject.shard.lookup(subject.queue, keys, with_body=True, max_bytes=NO_BOUND)
    assert [info and (info.body or b"")[:1] for info in found] == [
        *[bytes([n]) for n in range(5)],
        None,
        *[bytes([n]) for n in range(5, 10)],
    ]
    bound = SLICE_BYTES * 2
    found = await subject.shard.lookup(subject.queue, keys, with_body=True, max_bytes=bound)
    assert [info.body is not None for info in found if info is not None] == [True] * 6 + [False] * 4
    found = await subject.shard.lookup(subject.queue, keys, with_body=False, max_bytes=0)
    assert [info.descriptor for info in found if info is not None] == descriptors


async def test_a_small_lookup_ends_before_a_large_one_that_began_earlier(subject: Subject) -> None:
    large = [await subject.job(bytes(THIRD)) for _ in range(36)]
    small = await subject.job(b"x")
    ended: list[str] = []

    async def look_up(name: str, descriptors: Sequence[str]) -> None:
        keys = [key_of(each) for each in descriptors]
        await subject.shard.lookup(subject.queue, keys, with_body=True, max_bytes=NO_BOUND)
        ended.append(name)

    await asyncio.gather(*[look_up("small", [small]) for _ in range(4)])  # every connection is there
    ended.clear()
    first = asyncio.create_task(look_up("large", large))
    await asyncio.sleep(0)
    await asyncio.gather(first, look_up("small", [small]))
    assert ended == ["small", "large"]


@pytest.mark.parametrize("attempts", [1, 2**31 - 1])
async def test_attempts_go_from_one_to_the_largest_i32(subject: Subject, attempts: int) -> None:
    descriptor = await subject.job(attempts_allowed=attempts)
    job = await subject.claimed()
    assert (job.attempts_allowed, job.attempts_remaining) == (attempts, attempts)
    outcome = await subject.fail(descriptor)
    assert outcome is (AckOutcome.FAILED if attempts == 1 else AckOutcome.RETRIED)
    assert (await subject.info(descriptor)).attempts_remaining == attempts - 1


@pytest.mark.parametrize("attempts", [1, 2**31 - 1])
async def test_a_checkpoint_and_a_retry_set_attempts_to_either_end(subject: Subject, attempts: int) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.checkpoint(descriptor, attempts_allowed=attempts)
    assert (await subject.info(descriptor)).attempts_remaining == attempts
    await subject.fail(descriptor, permanent=True)
    assert await subject.retry_failed(attempts) == 1
    assert (await subject.info(descriptor)).attempts_remaining == attempts


async def test_a_job_may_have_a_full_status_a_long_source_and_a_large_body_at_once(
    subject: Subject, most_body_bytes: int
) -> None:
    source, body, status = "s" * 1_000, bytes(most_body_bytes), "🦆" * MAX_STATUS_CHARS
    descriptor = await subject.job(body, custom_status=status)
    job = await subject.claimed(source=source)
    assert await subject.checkpoint(descriptor, source)
    info = await subject.info(descriptor)
    assert (info.claim_descriptor, info.custom_status, info.body) == (job.claim_descriptor, status, body)
