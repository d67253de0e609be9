"""What a running job can ask, say and wait for."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from pinlater.model import Checkpoint
from pinlater_workers.envelope import Envelope, read_envelope, write_envelope
from pinlater_workers.errors import ClaimLost
from pinlater_workers.jobs.context import JobContext, StopReason, current
from tests.workers.attempts import QUEUE, Sent, claimed, context_of

LONG_S = 60.0
ENVELOPE = Envelope("count", [1], {}, {"traceparent": "t"}, 3)


def test_what_it_knows() -> None:
    job = claimed(b"body", allowed=5, remaining=4)
    now = datetime.now(UTC)
    context = JobContext("count", QUEUE, job, Sent(), round(now.timestamp() * 1000) + 5_000, ENVELOPE)
    assert (context.job, context.queue, context.descriptor) == ("count", QUEUE, job.descriptor)
    assert (context.attempt, context.attempts_left) == (2, 3)
    assert abs(context.deadline - now - timedelta(seconds=5)) < timedelta(milliseconds=2)
    assert context.deadline.tzinfo is UTC
    assert context.headers == {"traceparent": "t"}
    assert (context.cancelled, context.cancel_reason) == (False, None)


def test_a_body_without_envelope_has_no_headers() -> None:
    assert context_of(claimed(b"\x00")).headers == {}


def test_outside_of_a_job_there_is_none() -> None:
    with pytest.raises(LookupError, match="no job runs in this thread or task"):
        current()


# -- being told to stop ------------------------------------------------------------------------------------------------


def test_it_is_told_to_stop_and_why() -> None:
    context = context_of(claimed())
    context.request_stop(StopReason.STOPPING)
    assert (context.cancelled, context.cancel_reason) == (True, StopReason.STOPPING)
    context.request_stop(StopReason.CLAIM_LOST)
    context.request_stop(StopReason.OUT_OF_TOUCH)
    assert context.cancel_reason is StopReason.CLAIM_LOST


def test_wait_is_over_at_once_for_a_job_that_was_told() -> None:
    context = context_of(claimed())
    assert context.wait(0) is False
    context.request_stop(StopReason.STOPPING)
    assert context.wait(LONG_S) is True


def test_a_waiting_job_wakes_up_when_it_is_told() -> None:
    context = context_of(claimed())
    entered = threading.Barrier(3)
    answers: list[bool] = []

    def wait() -> None:
        entered.wait(LONG_S)
        answers.append(context.wait(LONG_S))

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(LONG_S)
    context.request_stop(StopReason.TIME_LIMIT)
    for thread in threads:
        thread.join(LONG_S / 2)
    assert answers == [True, True]


def test_a_waiting_coroutine_wakes_up_when_another_thread_tells_it() -> None:
    context = context_of(claimed())

    async def main() -> list[bool]:
        assert await context.wait_async(0) is False
        waiting = [asyncio.create_task(context.wait_async(LONG_S)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.to_thread(context.request_stop, StopReason.CLAIM_LOST)
        async with asyncio.timeout(LONG_S / 2):
            return [*await asyncio.gather(*waiting), await context.wait_async(LONG_S)]

    assert asyncio.run(main()) == [True, True, True]


# -- telling the server ------------------------------------------------------------------------------------------------


def sending(sent: Sent, envelope: Envelope | None = ENVELOPE) -> JobContext:
    body = b"raw" if envelope is None else write_envelope(envelope)
    return JobContext("count", QUEUE, claimed(body), sent, 0, envelope)


def test_a_checkpoint_without_a_body_only_keeps_the_claim() -> None:
    sent = Sent()
    sending(sent).checkpoint()
    assert sent.asked == [Checkpoint("tested:1:1:1", claim_descriptor="claim-1")]


def test_a_checkpoint_stores_a_body_with_the_headers_and_snoozes_of_the_old_one() -> None:
    sent = Sent()
    context = sending(sent)
    context.checkpoint(write_envelope(Envelope("count", [2], {}, {"more": "m"})))
    expected = Envelope("count", [2], {}, {"traceparent": "t", "more": "m"}, 3)
    (asked,) = sent.asked
    assert asked.new_body == context.body == write_envelope(expected)
    assert context.envelope == expected
    assert (asked.move_to_pending, asked.prepend_status, asked.attempts_allowed) == (False, "", None)


def test_a_raw_job_stores_bytes_as_they_are() -> None:
    sent = Sent()
    context = sending(sent, None)
    context.checkpoint(b"\xff\x00")
    assert sent.asked[0].new_body == context.body == b"\xff\x00"


@pytest.mark.parametrize("body", [b"", b"bytes", b"PINLATER/1 application/json\n{"])
def test_a_body_that_no_worker_could_run_is_refused(body: bytes) -> None:
    sent = Sent()
    context = sending(sent)
    with pytest.raises(ValueError, match="a new body for job count"):
        context.checkpoint(body)
    assert sent.asked == []
    assert context.envelope is ENVELOPE


def test_a_status_is_a_line_in_front() -> None:
    sent = Sent()
    sending(sent).set_status("half way")
    assert sent.asked == [Checkpoint("tested:1:1:1", prepend_status="half way\n", claim_descriptor="claim-1")]


def test_any_text_makes_a_status_that_can_be_sent() -> None:
    sent = Sent()
    sending(sent).set_status("\ud800" + "x" * 10_000)
    assert sent.asked[0].prepend_status == "?" + "x" * 4_998 + "\n"


def test_coroutines_have_the_same() -> None:
    sent = Sent()
    context = sending(sent)

    async def main() -> None:
        await context.checkpoint_async(write_envelope(Envelope("count", [2])))
        await context.set_status_async("half way")

    asyncio.run(main())
    bodies = [None if each.new_body is None else read_envelope(each.new_body) for each in sent.asked]
    assert bodies == [Envelope("count", [2], {}, {"traceparent": "t"}, 3), None]
    assert sent.asked[1].prepend_status == "half way\n"


def test_what_was_not_stored_does_not_count() -> None:
    context = sending(Sent(ClaimLost("gone")))
    before = context.body
    with pytest.raises(ClaimLost):
        context.checkpoint(write_envelope(Envelope("count", [2])))
    assert (context.body, context.envelope) == (before, ENVELOPE)


def test_nothing_is_sent_under_a_claim_that_is_known_to_be_lost() -> None:
    sent = Sent()
    context = sending(sent)
    context.request_stop(StopReason.CLAIM_LOST)
    for call in (context.checkpoint, lambda: context.set_status("x"), lambda: asyncio.run(context.checkpoint_async())):
        with pytest.raises(ClaimLost, match="tested:1:1:1"):
            call()
    assert sent.asked == []


def test_a_job_that_is_told_anything_else_can_still_store() -> None:
    sent = Sent()
    context = sending(sent)
    for why in (StopReason.STOPPING, StopReason.OUT_OF_TOUCH):
        context.request_stop(why)
        context.checkpoint()
    assert len(sent.asked) == 2


def test_blocking_calls_are_refused_on_an_event_loop() -> None:
    context = sending(Sent())

    async def main() -> None:
        for call, instead in (
            (context.checkpoint, "checkpoint_async"),
            (lambda: context.set_status("x"), "set_status_async"),
            (lambda: context.wait(1), "wait_async"),
        ):
            with pytest.raises(RuntimeError, match=f"await {instead}"):
                call()

    asyncio.run(main())
