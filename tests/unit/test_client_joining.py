"""Single enqueues are joined into batches, and every caller has its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from pinlater import errors
from pinlater.client.enqueue_batching import EnqueueBatcher, EnqueueBatchLimits, Outcome
from pinlater.model import Job

POISON = b"poison"


class Calls:
    """Answers every job with its body; each call waits until it is `let_go`, unless there is nothing to hold it."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.deadlines_s: list[float] = []
        self.hold: asyncio.Semaphore | None = None
        self.refuse: Callable[[list[bytes]], Exception | None] = lambda bodies: None

    async def send(self, jobs: Sequence[Job], deadline_s: float) -> list[str]:
        bodies = [job.body for job in jobs]
        self.batches.append(bodies)
        self.deadlines_s.append(deadline_s)
        if self.hold is not None:
            await self.hold.acquire()
        if error := self.refuse(bodies):
            raise error
        return [body.decode() for body in bodies]

    def joiner(self, timeout_s: float = 10.0, **limits: int) -> EnqueueBatcher:
        return EnqueueBatcher(lambda *_: False, self.send, timeout_s, EnqueueBatchLimits(**limits))


class FirstAttempt:
    """First attempts without a task; their outcomes are told when the test says so."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.batches: list[list[bytes]] = []
        self.ends: list[Callable[[Outcome], None]] = []
        self.joiner = EnqueueBatcher(self.begin, self.calls.send, 10.0, EnqueueBatchLimits())

    def begin(self, jobs: Sequence[Job], deadline_s: float, on_end: Callable[[Outcome], None]) -> bool:
        self.batches.append([job.body for job in jobs])
        self.ends.append(on_end)
        return True


async def _turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _add(joiner: EnqueueBatcher, *numbers: int) -> list[asyncio.Future[str]]:
    return [joiner.add(Job(b"%d" % number)) for number in numbers]


async def test_what_is_enqueued_in_one_turn_travels_in_one_call() -> None:
    calls = Calls()
    assert await asyncio.gather(*_add(calls.joiner(), 1, 2, 3)) == ["1", "2", "3"]
    assert calls.batches == [[b"1", b"2", b"3"]]


async def test_while_a_call_is_under_way_the_next_gathers() -> None:
    calls = Calls()
    calls.hold = asyncio.Semaphore(0)
    joiner = calls.joiner()
    futures = _add(joiner, 1)
    await _turns()
    futures += _add(joiner, 2)
    await _turns()
    futures += _add(joiner, 3)
    await _turns()
    assert calls.batches == [[b"1"]]
    calls.hold.release()
    assert await futures[0] == "1"
    await _turns()
    assert calls.batches == [[b"1"], [b"2", b"3"]]
    calls.hold.release()
    assert await asyncio.gather(*futures) == ["1", "2", "3"]


async def test_callers_that_go_on_at_once_are_joined_again() -> None:
    calls = Calls()
    joiner = calls.joiner()

    async def caller(number: int) -> None:
        for _ in range(10):
            await joiner.add(Job(b"%d" % number))

    await asyncio.gather(*map(caller, range(50)))
    assert [len(batch) for batch in calls.batches] == [50] * 10


async def test_a_slow_call_holds_the_next_back_for_a_moment_only() -> None:
    calls = Calls()
    calls.hold = asyncio.Semaphore(0)
    joiner = calls.joiner()
    first = _add(joiner, 1)
    await _turns()
    later = _add(joiner, 2)
    while len(calls.batches) < 2:
        await asyncio.sleep(0.005)
    assert calls.batches == [[b"1"], [b"2"]]
    calls.hold.release()
    calls.hold.release()
    await asyncio.gather(*first, *later)


async def test_a_batch_is_bounded_in_jobs_and_in_bytes() -> None:
    calls = Calls()
    await asyncio.gather(*_add(calls.joiner(batch_jobs=4), *range(10)))
    assert [len(batch) for batch in calls.batches] == [4, 4, 2]
    calls.batches.clear()
    joiner = calls.joiner(batch_bytes=1_000)
    bodies = [b"a" * 400, b"b" * 400, b"c" * 400, b"d" * 5_000]
    await asyncio.gather(*(joiner.add(Job(body)) for body in bodies))
    assert [len(batch) for batch in calls.batches] == [2, 1, 1]


async def test_too_many_waiting_batches_are_refused() -> None:
    calls = Calls()
    calls.hold = asyncio.Semaphore(0)
    joiner = calls.joiner(batch_jobs=1, batches_in_flight=2, batches_waiting=3)
    futures = _add(joiner, 1, 2, 3, 4, 5)
    with pytest.raises(errors.Overloaded):
        joiner.add(Job(b"6"))
    for _ in futures:
        calls.hold.release()
    assert await asyncio.gather(*futures) == ["1", "2", "3", "4", "5"]


async def test_a_refusal_for_one_member_is_that_members_alone() -> None:
    calls = Calls()
    calls.refuse = lambda bodies: errors.BodyTooLarge("too large") if POISON in bodies else None
    joiner = calls.joiner()
    bodies = [b"%d" % number for number in range(20)]
    bodies[7] = POISON
    answers = await asyncio.gather(*(joiner.add(Job(body)) for body in bodies), return_exceptions=True)
    assert isinstance(answers.pop(7), errors.BodyTooLarge)
    assert answers == [str(number) for number in range(20) if number != 7]
    await joiner.close(RuntimeError("closed"))


@pytest.mark.parametrize("error", [errors.OutcomeUnknown("?"), errors.QueueNotFound("q"), errors.ProtocolError("!")])
async def test_any_other_failure_is_everybodys_and_nothing_is_sent_again(error: errors.PinLaterError) -> None:
    calls = Calls()
    calls.refuse = lambda bodies: error
    answers = await asyncio.gather(*_add(calls.joiner(), 1, 2, 3), return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(error)] * 3
    assert len({id(answer) for answer in answers}) == 3
    assert len(calls.batches) == 1


async def test_a_caller_that_went_away_does_not_disturb_the_others() -> None:
    calls = Calls()
    first, second = _add(calls.joiner(), 1, 2)
    first.cancel()
    assert await second == "2"


async def test_the_deadline_is_that_of_the_first_member() -> None:
    calls = Calls()
    begun_s = asyncio.get_running_loop().time()
    await asyncio.gather(*_add(calls.joiner(timeout_s=3.0), 1, 2))
    assert begun_s + 3.0 <= calls.deadlines_s[0] < begun_s + 4.0


async def test_at_the_end_everyone_who_waits_is_told() -> None:
    calls = Calls()
    calls.hold = asyncio.Semaphore(0)
    joiner = calls.joiner()
    futures = _add(joiner, 1)
    await _turns()
    futures += _add(joiner, 2)
    await joiner.close(RuntimeError("closed"))
    answers = await asyncio.gather(*futures, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["closed", "closed"]


async def test_a_first_attempt_that_succeeds_needs_no_other() -> None:
    first = FirstAttempt()
    futures = _add(first.joiner, 1, 2)
    await _turns()
    more = _add(first.joiner, 3)
    await _turns()
    assert first.batches == [[b"1", b"2"]]
    first.ends[0](["one", "two"])
    assert await asyncio.gather(*futures) == ["one", "two"]
    await _turns()
    assert first.batches == [[b"1", b"2"], [b"3"]]
    first.ends[1](["three"])
    assert await more[0] == "three"
    await _turns()
    assert first.joiner.is_idle
    assert first.calls.batches == []


async def test_what_is_left_after_a_first_attempt_is_done_for_its_callers() -> None:
    first = FirstAttempt()
    futures = _add(first.joiner, 1, 2)
    await _turns()

    async def rest() -> list[str]:
        raise errors.RequestInvalid("poison")

    first.ends[0](rest)
    assert await asyncio.gather(*futures) == ["1", "2"]
    assert first.calls.batches == [[b"1"], [b"2"]], "refused for one member's sake, sent again in halves"


async def test_a_first_attempt_under_way_ends_with_the_joiner() -> None:
    first = FirstAttempt()
    futures = _add(first.joiner, 1)
    await _turns()
    await first.joiner.close(RuntimeError("closed"))
    with pytest.raises(RuntimeError, match="closed"):
        await futures[0]
    first.ends[0](["too late"])
    await _turns()
    assert first.joiner.is_idle


async def test_a_first_attempt_that_cannot_be_made_is_left_to_the_other_way() -> None:
    calls = Calls()

    def begin(jobs: Sequence[Job], deadline_s: float, on_end: Callable[[Outcome], None]) -> bool:
        raise ValueError("no")

    joiner = EnqueueBatcher(begin, calls.send, 10.0, EnqueueBatchLimits())
    assert await asyncio.gather(*_add(joiner, 1, 2)) == ["1", "2"]
