"""Dequeues that wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from pinlater.backends.base import NO_RULES, UNKNOWN_CHANGE, ClaimRequest, PerQueue
from pinlater.data_folder.password import hash_password
from pinlater.eager import InlineFuture
from pinlater.errors import NoHealthyShards, NothingStored, Overloaded, PinLaterError, QueueNotFound
from pinlater.model import Ack, Checkpoint, DequeuedJob, DequeueRequest, Job, JobFilter, JobState
from pinlater.service import ServiceSettings
from pinlater.service.longpoll.due import DueTimes
from pinlater.service.longpoll.poller import FIRST_BACKOFF_S
from pinlater.service.longpoll.poller_state import PollerState
from pinlater.service.longpoll.wait_queue import Waiter, WaitQueue
from tests.queues import drop_queue
from tests.speed import slower
from tests.unit.breaking import HeldTime, settled, until_quiet
from tests.unit.stand import ME, Stand, stand

LONG_MS = 60_000
ASKS_ONE = ClaimRequest("me", 1, (1,), LONG_MS, 1_000)
SELDOM = ServiceSettings(poll_min_ms=50_000, poll_max_ms=60_000)
"""Looking for what others did never happens within a test: whatever comes, was announced."""


async def in_line(at: Stand, limit: int = 1, wait_ms: int = LONG_MS) -> asyncio.Task[list[DequeuedJob]]:
    """One more dequeue that waits."""
    waiting = at.service.waiting
    task = asyncio.create_task(at.dequeue(limit, wait_ms=wait_ms))
    await until(lambda: at.service.waiting > waiting or task.done())
    return task


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


async def test_an_enqueue_on_this_server_ends_the_wait_at_once() -> None:
    async with stand(settings=SELDOM) as at:
        waiting = await in_line(at)
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await waiting
        assert job.body == b"x"


async def test_who_came_first_is_served_first() -> None:
    async with stand(settings=SELDOM) as at:
        waiting = [await in_line(at) for _ in range(3)]
        for number in range(3):
            await at.service.enqueue("mail", [Job(b"%d" % number)])
            await waiting[number]
        assert [task.result()[0].body for task in waiting] == [b"0", b"1", b"2"]


async def test_one_enqueue_of_many_jobs_serves_many_waiters_by_one_claim_each_its_own() -> None:
    async with stand(settings=SELDOM) as at:
        waiting = [await in_line(at) for _ in range(4)]
        claims = at.stores[0].begun["claim"]
        await at.service.enqueue("mail", [Job(b"%d" % number) for number in range(4)])
        answers = await asyncio.gather(*waiting)
        assert [jobs[0].body for jobs in answers] == [b"0", b"1", b"2", b"3"]
        assert len({jobs[0].claim_descriptor for jobs in answers}) == 4
        assert at.stores[0].begun["claim"] == claims + 1


async def test_a_retry_a_checkpoint_and_a_job_requeued_end_the_wait() -> None:
    async with stand(settings=SELDOM) as at:
        await at.service.enqueue("mail", [Job(b"x", attempts_allowed=9)])
        (job,) = await at.dequeue()
        waiting = await in_line(at)
        await at.service.ack("mail", [], [Ack(job.descriptor)])
        (job,) = await waiting
        waiting = await in_line(at)
        await at.service.checkpoint("mail", [Checkpoint(job.descriptor, move_to_pending=True)], context=ME)
        (job,) = await waiting
        waiting = await in_line(at)
        await at.service.requeue([job])
        (job,) = await waiting
        assert job.attempts_remaining == 8


async def test_an_operator_s_retry_ends_the_wait() -> None:
    async with stand(settings=SELDOM) as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue()
        await at.service.ack("mail", [], [Ack(job.descriptor, permanent=True)])
        waiting = await in_line(at)
        assert await at.service.retry_failed("mail") == 1
        assert len(await waiting) == 1


async def test_a_delayed_job_is_handed_out_when_it_is_due_and_not_before() -> None:
    async with stand(settings=SELDOM) as at:
        await at.service.enqueue("mail", [Job(b"x", run_after_ms=at.clock.now_ms() + 20)])
        waiting = await in_line(at)
        await asyncio.sleep(0.03)
        assert not waiting.done()
        at.clock.tick(20)
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_a_job_that_another_process_brought_is_found_by_looking() -> None:
    async with stand(settings=ServiceSettings(poll_min_ms=1, poll_max_ms=5)) as at:
        waiting = await in_line(at)
        await at.stores[0].inner.enqueue("mail", [Job(b"x")], at.clock.now_ms())
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_five_hundred_who_wait_look_once_and_not_five_hundred_times() -> None:
    async with stand(settings=ServiceSettings(poll_min_ms=5, poll_max_ms=10)) as at:
        waiting = [await in_line(at) for _ in range(500)]
        claims, looks = at.stores[0].begun["claim"], at.stores[0].begun["next_due"]
        await at.stores[0].until_begun("next_due", looks + 5)
        assert at.stores[0].begun["claim"] == claims
        at.service.start_draining()
        assert await asyncio.gather(*waiting) == [[]] * 500


async def test_when_the_time_is_over_the_answer_is_empty() -> None:
    async with stand(settings=SELDOM) as at:
        assert await at.dequeue(wait_ms=10) == []
        await until(lambda: at.service.long_polls.poller("mail") is None)


async def test_a_wait_is_cut_to_its_bound() -> None:
    async with stand(settings=ServiceSettings(max_wait_ms=10)) as at:
        assert await asyncio.wait_for(at.dequeue(wait_ms=LONG_MS), 60) == []


async def test_a_deleted_queue_ends_the_wait_with_an_error() -> None:
    settings = ServiceSettings(poll_min_ms=50_000, poll_max_ms=60_000, admin_password_hash=hash_password("x"))
    async with stand(settings=settings) as at:
        waiting = await in_line(at)
        await at.service.delete_queue("mail", "x")
        with pytest.raises(QueueNotFound):
            await waiting


async def test_a_queue_that_another_process_deleted_ends_the_wait_at_the_next_look() -> None:
    async with stand(settings=ServiceSettings(poll_min_ms=1, poll_max_ms=5)) as at:
        waiting = await in_line(at)
        await drop_queue(at.stores[0].inner, "mail", at.clock.now_ms())
        with pytest.raises(QueueNotFound):
            await asyncio.wait_for(waiting, 60)


async def test_a_draining_server_answers_at_once_with_nothing_and_nobody_waits_any_more() -> None:
    async with stand(settings=SELDOM) as at:
        waiting = await in_line(at)
        at.service.start_draining()
        assert await waiting == []
        assert await at.dequeue(wait_ms=LONG_MS) == []


async def test_one_waiter_too_many_is_refused() -> None:
    async with stand(settings=ServiceSettings(max_waiters=1)) as at:
        waiting = await in_line(at)
        with pytest.raises(Overloaded) as refused:
            await at.dequeue(wait_ms=LONG_MS)
        assert refused.value.limit == "waiting_dequeues"
        at.service.start_draining()
        await waiting


async def test_who_waits_anyway_is_not_refused_for_the_first_look() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        at.stores[0].failures["claim"] = [Overloaded("busy")]
        assert len(await at.dequeue(wait_ms=LONG_MS)) == 1


async def test_a_cancelled_waiter_leaves_the_line() -> None:
    async with stand(settings=SELDOM) as at:
        first, second = await in_line(at), await in_line(at)
        first.cancel()
        await settled()
        await at.service.enqueue("mail", [Job(b"x")])
        assert len(await second) == 1
        assert first.cancelled()


async def test_what_was_claimed_for_a_waiter_that_left_meanwhile_is_requeued() -> None:
    async with stand(settings=SELDOM) as at:
        waiting = await in_line(at)
        gate = at.stores[0].hold("claim")
        claims = at.stores[0].begun["claim"]
        await at.service.enqueue("mail", [Job(b"x")])
        await at.stores[0].until_begun("claim", claims + 1)
        waiting.cancel()
        await settled()
        gate.set()
        await at.stores[0].until_begun("requeue")
        await until_quiet(*at.stores)
        (job,) = await at.dequeue()
        assert job.attempts_remaining == 2


async def test_a_waiter_whose_time_ends_during_its_claim_gets_what_the_claim_brings() -> None:
    async with stand(settings=SELDOM) as at:
        waiting = await in_line(at)
        gate = at.stores[0].hold("claim")
        claims = at.stores[0].begun["claim"]
        await at.service.enqueue("mail", [Job(b"x")])
        await at.stores[0].until_begun("claim", claims + 1)
        at.service.start_draining()
        gate.set()
        assert len(await waiting) == 1


async def test_a_store_that_fails_while_waiting_is_asked_again_and_told_of_only_at_the_end() -> None:
    async with stand(settings=ServiceSettings(poll_min_ms=1, poll_max_ms=2)) as at:
        waiting = await in_line(at)
        doomed = await in_line(at, wait_ms=300)
        at.stores[0].broken = NothingStored("refused")
        with pytest.raises((NothingStored, NoHealthyShards)):
            await doomed
        at.stores[0].broken = None
        at.members.all[0].readmit()
        await at.service.enqueue("mail", [Job(b"x")])
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_who_joins_a_line_while_the_shard_is_out_gets_a_job_when_it_is_back() -> None:
    async with stand() as at:
        waiting = await in_line(at)
        at.members.all[0].eject("gone")
        late = await in_line(at)
        assert not late.done()
        at.members.all[0].readmit()
        await at.service.enqueue("mail", [Job(b"1"), Job(b"2")])
        assert [len(jobs) for jobs in await asyncio.wait_for(asyncio.gather(waiting, late), 60)] == [1, 1]


async def test_a_wait_over_several_shards() -> None:
    async with stand(3, settings=SELDOM) as at:
        waiting = [await in_line(at) for _ in range(6)]
        await asyncio.gather(*[at.service.enqueue("mail", [Job(b"x")]) for _ in range(6)])
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert len({jobs[0].descriptor for jobs in answers}) == 6


async def test_a_dry_run_does_not_wait() -> None:
    async with stand(settings=SELDOM) as at:
        assert await asyncio.wait_for(at.dequeue(dry_run=True, wait_ms=LONG_MS), 60) == []


async def test_riding_acks_are_said_to_be_applied_when_the_queue_goes_while_waiting() -> None:
    async with stand(settings=SELDOM) as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue()
        request = DequeueRequest("mail", 1, succeeded=[Ack(job.descriptor)], wait_ms=LONG_MS)
        waiting = asyncio.create_task(at.service.dequeue(request))
        await until(lambda: at.service.long_polls.poller("mail") is not None)
        at.service.long_polls.queue_deleted("mail")
        with pytest.raises(QueueNotFound) as refused:
            await waiting
        assert refused.value.acks_applied is True
        assert await at.service.count(JobFilter("mail", JobState.SUCCEEDED)) == 1


def test_of_due_times_the_earliest_is_kept_until_it_has_come() -> None:
    due = DueTimes()
    assert due.add("mail", range(2_000, 1_000, -1))
    assert not due.add("mail", [1_500])
    assert due.next("mail") == 1_001
    assert due.add("mail", [500])
    assert not due.take("mail", 499)
    assert due.take("mail", 500)
    assert not due.take("mail", 5_000)
    assert due.next("mail") is None


def test_what_comes_next_is_known_until_it_has_come_or_something_may_have_been_missed() -> None:
    due = DueTimes()
    assert not due.is_known("mail")
    due.confirm("mail")
    due.add("mail", [500])
    assert due.is_known("mail")
    assert due.take("mail", 500)
    assert not due.is_known("mail")
    due.confirm("mail")
    due.invalidate("mail")
    assert not due.is_known("mail")


def test_due_times_are_of_a_bounded_number_of_queues() -> None:
    due = DueTimes()
    for number in range(10_000):
        due.add(f"queue_{number}", [1_000])
    assert not due.add("mail", [500])
    assert due.next("mail") is None
    assert due.take("queue_0", 1_000)
    assert due.add("mail", [500])


def waiters_in(line: WaitQueue) -> list[int]:
    return [waiter.number for waiter in line.waiters()]


async def test_a_line_is_in_order_of_arrival_whoever_joins_late_or_leaves() -> None:
    line = WaitQueue()
    waiters = {number: Waiter(number, ASKS_ONE) for number in (1, 2, 5, 3, 4, 6)}
    for waiter in waiters.values():
        line.join(waiter)
    assert waiters_in(line) == [1, 2, 3, 4, 5, 6]
    for number in (1, 4, 4):
        line.leave(waiters[number])
    assert waiters_in(line) == [2, 3, 5, 6]
    for number in (4, 1):
        line.join(waiters[number])
    assert [waiter.number for waiter in line.first_for(3)] == [1, 2, 3]
    assert len(line) == 6


async def test_thousands_leave_a_line_as_fast_as_they_would_a_short_one() -> None:
    waiters = [Waiter(number, ASKS_ONE) for number in range(100_000)]
    line = WaitQueue()
    for waiter in waiters:
        line.join(waiter)
    began_s = time.process_time()
    for waiter in reversed(waiters):
        line.leave(waiter)
    assert time.process_time() - began_s < slower()  # a search through a list takes minutes
    assert not line


async def test_what_changes_while_a_look_is_under_way_is_looked_for_again() -> None:
    async with stand(settings=SELDOM) as at:
        waiting = await in_line(at)
        store = at.stores[0]
        late = store.hold_answer("next_due")
        looks = store.begun["next_due"]
        at.service.long_polls.on_event("mail", UNKNOWN_CHANGE)
        await store.until_begun("next_due", looks + 1)
        await store.until_quiet()
        await store.inner.enqueue("mail", [Job(b"x")], at.clock.now_ms())  # as another process does
        at.service.long_polls.on_event("mail", UNKNOWN_CHANGE)
        late.set()
        (job,) = await asyncio.wait_for(waiting, 60)
        assert job.body == b"x"


async def test_an_unforeseen_error_is_told_to_all_who_wait_and_logged_and_no_job_is_lost() -> None:
    async with stand(settings=SELDOM) as at:
        store = at.stores[0]
        waiting = [await in_line(at) for _ in range(3)]
        await settled()
        with capture_logs() as logs:
            store.losses["claim"] = [RuntimeError("a mistake of ours")]
            await at.service.enqueue("mail", [Job(b"x")])
            answers = await asyncio.gather(*waiting, return_exceptions=True)
        for answer in answers:
            assert isinstance(answer, PinLaterError)
            assert (answer.reason, answer.retryable) == ("SERVING_FAILED", True)
            assert "a mistake of ours" not in answer.message
            assert answer.retry_after_ms is not None
            assert answer.retry_after_ms >= 1_000
        failed = [each for each in logs if each["event"] == "serving_failed"]
        assert [each["queue"] for each in failed] == ["mail"]
        assert state(at) is PollerState.BACKING_OFF
        assert isinstance(failed[0]["exc_info"], RuntimeError)
        assert f"fault {failed[0]['fault']}" in answer.message
        at.clock.tick(LONG_MS * 10)
        await store.inner.expire_claims(10, at.clock.now_ms(), PerQueue(NO_RULES))
        assert [job.body for job in await at.dequeue()] == [b"x"]


async def test_a_queue_whose_serving_breaks_each_time_rests_longer_and_longer() -> None:
    async with stand() as at:
        store = at.stores[0]
        time_of_loop = HeldTime(store)
        broken = RuntimeError("a mistake of ours")
        store.failures["next_due"] = [broken] * 100
        with capture_logs() as logs:
            for _ in range(6):
                waiting = await in_line(at)
                await time_of_loop.leap(3.0)
                if not waiting.done():
                    await time_of_loop.leap(10.0)
                with pytest.raises(PinLaterError, match="a fault of the server") as told:
                    await waiting
                failed = [each for each in logs if each["event"] == "serving_failed"]
                assert f"fault {failed[-1]['fault']}" in str(told.value)  # those that are not logged go by the last one
        assert store.begun["next_due"] <= 6
        assert len(failed) <= 2
        store.failures.clear()
        waiting = await in_line(at)
        await at.service.enqueue("mail", [Job(b"x")])
        await time_of_loop.leap(10.0)
        (job,) = await asyncio.wait_for(waiting, 60)
        assert job.body == b"x"


async def test_a_server_that_ends_does_not_wait_for_a_queue_that_rests_after_an_error() -> None:
    async with stand() as at:
        at.stores[0].failures["next_due"] = [RuntimeError("a mistake of ours")] * 9
        with pytest.raises(PinLaterError):
            await at.dequeue(wait_ms=LONG_MS)
        ends_s = time.monotonic()
    assert time.monotonic() - ends_s < slower(time.monotonic) * FIRST_BACKOFF_S / 2


def state(at: Stand) -> PollerState:
    poller = at.service.long_polls.poller("mail")
    return PollerState.ENDED if poller is None else poller.state


async def test_a_poller_goes_through_the_states_that_are_drawn() -> None:
    async with stand(settings=SELDOM) as at:
        store = at.stores[0]
        gate = store.hold("next_due")
        waiting = await in_line(at)
        at.service.long_polls.on_event("mail", UNKNOWN_CHANGE)
        await store.until_begun("next_due")
        assert state(at) is PollerState.POLLING
        gate.set()
        await until_quiet(store)
        assert state(at) is PollerState.IDLE
        await at.service.enqueue("mail", [Job(b"x", run_after_ms=at.clock.now_ms() + 1)])
        await settled()
        assert state(at) is PollerState.DUE
        gate = store.hold("claim")
        claims = store.begun["claim"]
        at.clock.tick(1)
        await store.until_begun("claim", claims + 1)
        assert state(at) is PollerState.CLAIMING
        gate.set()
        await waiting
        await until_quiet(store)
        assert state(at) is PollerState.ENDED


async def test_a_poller_is_throttled_while_the_rate_allows_nothing() -> None:
    async with stand(settings=SELDOM) as at:
        await at.service.queues.change("mail", {"max_jobs_per_second": "1/m"}, [], False, "me")
        await at.service.enqueue("mail", [Job(b"x")] * 3)
        await at.dequeue(3)
        waiting = await in_line(at)
        await until_quiet(*at.stores)
        assert state(at) is PollerState.THROTTLED
        await at.service.queues.change("mail", {}, ["max_jobs_per_second"], False, "me")
        assert len(await asyncio.wait_for(waiting, 60)) == 1


async def test_a_caller_that_fails_as_it_is_answered_takes_nobody_with_it() -> None:
    loop = asyncio.get_running_loop()
    failed: list[str] = []
    loop.set_exception_handler(lambda _, about: failed.append(str(about.get("exception"))))
    promise: InlineFuture[int] = InlineFuture(loop)
    promise.add_done_callback(lambda _: {}["a key"])
    promise.set_result(1)
    assert promise.done()
    assert failed == ["'a key'"]
