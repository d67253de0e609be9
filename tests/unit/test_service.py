"""The product's rules, call by call."""

from __future__ import annotations

import asyncio
import gc
import math
from typing import Any

import pytest

from pinlater.data_folder.password import hash_password
from pinlater.errors import (
    BodyTooLarge,
    ContinuationInvalid,
    NothingStored,
    OutcomeUnknown,
    PasswordInvalid,
    PinLaterError,
    PriorityNotSupported,
    QueueNameInvalid,
    QueueNameTooLong,
    QueueNotFound,
    RequestInvalid,
    ShardConnectionFailed,
    UnknownError,
)
from pinlater.model import (
    MAX_STATUS_CHARS,
    MAX_TIME_MS,
    Ack,
    AckOutcome,
    CancelOutcome,
    Checkpoint,
    DequeueRequest,
    Job,
    JobFilter,
    JobState,
    RequestContext,
)
from pinlater.service import ServiceSettings
from tests.unit.breaking import settled, until_quiet
from tests.unit.stand import ME, Stand, acks, stand

PENDING = JobFilter("mail", JobState.PENDING)
GHOST = "mail:s1:p1:1790000000000000"


async def stored(at: Stand) -> int:
    return await at.service.count(PENDING) + await at.service.count(JobFilter("mail", JobState.PENDING, future=True))


# -- what a request may hold


@pytest.mark.parametrize(
    ("job", "error", "says"),
    [
        (Job(b"x", 0), PriorityNotSupported, "1 (highest) to 3"),
        (Job(b"x", 4), PriorityNotSupported, "priority 4"),
        (Job(b"x", attempts_allowed=2**31), RequestInvalid, "numAttemptsAllowed"),
        (Job(b"x", run_after_ms=MAX_TIME_MS + 1), RequestInvalid, "runAfterTimestampMillis"),
        (Job(b"x" * 1025), BodyTooLarge, "1025"),
    ],
)
async def test_one_invalid_job_refuses_the_whole_request_before_anything_is_stored(
    job: Job, error: type[PinLaterError], says: str
) -> None:
    async with stand(settings=ServiceSettings(max_body_bytes=1024)) as at:
        with pytest.raises(error) as refused:
            await at.service.enqueue("mail", [Job(b"good"), job])
        assert says in refused.value.message
        assert await stored(at) == 0


async def test_the_largest_of_everything_is_taken() -> None:
    async with stand(settings=ServiceSettings(max_body_bytes=1024, max_jobs=2)) as at:
        job = Job(b"x" * 1024, 3, MAX_TIME_MS, 2**31 - 1)
        assert len(await at.service.enqueue("mail", [job, job])) == 2
        with pytest.raises(RequestInvalid, match="length of jobs is 3; allowed: at most 2"):
            await at.service.enqueue("mail", [job] * 3)


async def test_an_invalid_value_is_named_with_what_is_allowed() -> None:
    async with stand() as at:
        with pytest.raises(RequestInvalid) as refused:
            await at.dequeue(0)
        assert refused.value.wire_message() == "REQUEST_INVALID: limit is 0; allowed: 1 or more"


@pytest.mark.parametrize(
    "fields",
    [
        {"limit": 0},
        {"limit": -1},
        {"coverage": -0.1},
        {"coverage": 1.1},
        {"coverage": math.nan},
        {"wait_ms": -1},
        {"claim_timeout_ms": 0},
        {"failed": [Ack("none")]},
        {"succeeded": [Ack("none")]},
        {"failed": [Ack(GHOST, retry_delay_ms=MAX_TIME_MS)]},
        {"failed": [Ack(GHOST, retry_delay_ms=MAX_TIME_MS)], "wait_ms": 1000},
    ],
)
async def test_an_invalid_dequeue_carries_out_its_valid_acks_and_hands_out_nothing(fields: dict[str, Any]) -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        (job,) = await at.dequeue(1)
        riding = [*fields.get("succeeded", []), Ack(job.descriptor)]
        request = DequeueRequest(**{"queue": "mail", "limit": 1, **fields, "succeeded": riding})
        with pytest.raises(RequestInvalid) as refused:
            await at.service.dequeue(request)
        assert refused.value.acks_applied is True
        assert await at.service.count(JobFilter("mail", JobState.SUCCEEDED)) == 1
        assert await at.service.count(JobFilter("mail", JobState.IN_PROGRESS)) == 0
        assert await stored(at) == 1


async def test_limits_over_their_bound_are_cut_and_lists_are_carried_out_in_slices() -> None:
    async with stand(settings=ServiceSettings(max_jobs=2, page_jobs=2)) as at:
        for _ in range(4):
            await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        first = await at.dequeue(10_000)
        assert len(first) == 2
        assert len((await at.service.scan(PENDING, limit=10_000)).jobs) == 2
        jobs = [job.descriptor for job in (*first, *await at.dequeue(), *await at.dequeue())]
        left = [job.descriptor for job in (await at.service.scan(PENDING, limit=2)).jobs]
        store = at.stores[0]
        beats = [Checkpoint(each, prepend_status="beat") for each in jobs[:5]]
        await at.service.checkpoint("mail", beats, context=ME)
        found = await at.service.lookup([*jobs, *left])
        assert [found[each].custom_status for each in jobs] == ["beat"] * 5 + [""]
        succeeded = [Ack(each) for each in (*jobs[:3], jobs[0])]
        outcomes = await at.service.ack("mail", succeeded, [Ack(jobs[3]), Ack(GHOST), Ack(jobs[4], permanent=True)])
        good, ignored = AckOutcome.SUCCEEDED, AckOutcome.IGNORED
        assert list(outcomes) == [good, good, good, ignored, AckOutcome.RETRIED, ignored, AckOutcome.FAILED]
        cancelled = await at.service.cancel("mail", [*left, jobs[5], GHOST[:-1] + "9"])
        assert [outcome.name for outcome in cancelled.values()] == [
            "CANCELLED",
            "CANCELLED",
            "IN_PROGRESS",
            "NOT_FOUND",
        ]
        for name in ("ack", "checkpoint", "cancel"):
            assert max(len(arguments[1]) for arguments in store.sent[name]) == 2


async def test_a_slice_that_fails_keeps_no_other_from_being_carried_out_and_the_error_does_not_say_nothing_stored() -> (
    None
):
    """A client would send everything again then, and end other attempts."""
    async with stand(settings=ServiceSettings(max_jobs=1)) as at:
        jobs = [await at.service.enqueue("mail", [Job(b"x")]) for _ in range(3)]
        while await at.dequeue():
            pass
        acks = [Ack(descriptor) for (descriptor,) in jobs]
        at.stores[0].failures["ack"] = [None, NothingStored("no room")]
        with pytest.raises(ShardConnectionFailed) as failed:
            await at.service.ack("mail", acks, [])
        assert failed.value.reason == "SHARD_CONNECTION_FAILED"
        states = [info.state for info in (await at.service.lookup([ack.descriptor for ack in acks])).values()]
        assert states == [JobState.SUCCEEDED, JobState.IN_PROGRESS, JobState.SUCCEEDED]


async def test_a_source_that_would_make_endless_claims_is_refused() -> None:
    async with stand() as at:
        with pytest.raises(RequestInvalid, match="source"):
            await at.service.dequeue(DequeueRequest("mail", 1), context=RequestContext("s" * 201))


# -- queues


@pytest.mark.parametrize("name", ["", "a b", "-ab", "é", "a\n", "x" * 64 + "."])
async def test_a_queue_s_name_is_letters_digits_underscores_and_dashes(name: str) -> None:
    async with stand() as at:
        with pytest.raises(QueueNameInvalid):
            await at.service.create_queue(name)


async def test_a_queue_s_name_has_at_most_64_characters() -> None:
    async with stand() as at:
        await at.service.create_queue("x" * 64)
        with pytest.raises(QueueNameTooLong):
            await at.service.create_queue("x" * 65)


@pytest.mark.parametrize("name", ["nowhere", "a b", ""])
async def test_a_queue_that_does_not_exist(name: str) -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue()
        nowhere = JobFilter(name, JobState.PENDING)
        for call in (
            at.service.enqueue(name, [Job(b"x")]),
            at.service.dequeue(DequeueRequest(name, 1)),
            at.service.dequeue(DequeueRequest(name, 1, dry_run=True)),
            at.service.count(nowhere),
            at.service.scan(nowhere),
            at.service.retry_failed(name),
            at.service.delete_jobs(nowhere),
        ):
            with pytest.raises(QueueNotFound):
                await call
        await at.service.ack(name, acks([job]), [])
        await at.service.checkpoint(name, [Checkpoint(job.descriptor)])
        assert await at.service.cancel(name, [job.descriptor]) == {job.descriptor: CancelOutcome.NOT_FOUND}
        assert await at.service.count(JobFilter("mail", JobState.IN_PROGRESS)) == 1


async def test_a_queue_is_deleted_only_with_the_password_which_is_checked_first() -> None:
    async with stand(settings=ServiceSettings(admin_password_hash=hash_password("sesame"))) as at:
        for name in ("mail", "nowhere", "a b"):
            with pytest.raises(PasswordInvalid):
                await at.service.delete_queue(name, "wrong")
        assert await at.service.queue_names() == {"mail"}
        await at.service.delete_queue("nowhere", "sesame")
        await at.service.delete_queue("a b", "sesame")
        await at.service.delete_queue("mail", "sesame")
        assert await at.service.queue_names() == set()


async def test_without_a_password_no_queue_can_be_deleted() -> None:
    async with stand() as at:
        for password in ("", "anything"):
            with pytest.raises(PasswordInvalid):
                await at.service.delete_queue("mail", password)


# -- the life of a job


async def test_no_jobs_no_descriptors() -> None:
    async with stand() as at:
        assert await at.service.enqueue("mail", []) == []


async def test_a_long_status_is_cut_at_the_front_of_the_road_too() -> None:
    async with stand() as at:
        (descriptor,) = await at.service.enqueue("mail", [Job(b"x", custom_status="é" * (MAX_STATUS_CHARS + 1))])
        (info,) = (await at.service.lookup([descriptor])).values()
        assert info.custom_status == "é" * MAX_STATUS_CHARS


async def test_a_claim_names_server_process_start_counter_and_source() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        names = []
        for _ in range(2):
            jobs = await at.service.dequeue(DequeueRequest("mail", 1), context=RequestContext("worker:7"))
            names.append(jobs[0].claim_descriptor)
        start = at.clock.now_ms()
        assert names == [f"here:1:{start}:1:worker:7", f"here:1:{start}:2:worker:7"]


async def test_a_claim_s_own_time_out_is_cut_to_the_bound() -> None:
    async with stand(settings=ServiceSettings(claim_timeout_ms=1_000, max_claim_timeout_ms=5_000)) as at:
        await at.service.enqueue("mail", [Job(b"x")] * 3)
        expiries = []
        for timeout_ms in (None, 2_000, 9_000):
            (job,) = await at.dequeue(1, claim_timeout_ms=timeout_ms)
            expiries.append(job.claim_expires_at_ms - at.clock.now_ms())
        assert expiries == [1_000, 2_000, 5_000]


async def test_riding_acks_are_carried_out_first_under_their_own_queue() -> None:
    async with stand() as at:
        await at.service.create_queue("other")
        await at.service.enqueue("other", [Job(b"x", attempts_allowed=1)])
        (job,) = await at.service.dequeue(DequeueRequest("other", 1))
        request = DequeueRequest("mail", 1, failed=[Ack(job.descriptor, "no")], ack_queue="other", dry_run=True)
        assert await at.service.dequeue(request) == []
        assert await at.service.count(JobFilter("other", JobState.FAILED)) == 1


async def test_a_refused_dequeue_says_that_its_acks_were_applied() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue()
        with pytest.raises(QueueNotFound) as refused:
            await at.service.dequeue(DequeueRequest("nowhere", 1, succeeded=acks([job]), ack_queue="mail"))
        assert refused.value.acks_applied is True
        with pytest.raises(QueueNotFound) as refused:
            await at.service.dequeue(DequeueRequest("nowhere", 1))
        assert refused.value.acks_applied is None


async def test_riding_acks_are_sent_also_for_a_caller_that_leaves_meanwhile() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue()
        gate = at.stores[0].hold("enqueue")
        others = [asyncio.create_task(at.router.enqueue(f"q{n}", [Job(b"x")], at.clock.now_ms())) for n in range(16)]
        await at.stores[0].until_begun("enqueue", 17)  # every place is taken
        call = asyncio.create_task(at.dequeue(wait_ms=60_000, succeeded=acks([job])))
        await settled()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.set()
        await asyncio.gather(*others, return_exceptions=True)
        await until_quiet(*at.stores)
        assert await at.service.count(JobFilter("mail", JobState.SUCCEEDED)) == 1


async def test_riding_acks_that_fail_behind_a_caller_that_left_are_no_error_of_the_event_loop() -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    async with stand() as at:
        await at.service.create_queue("other")
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue()
        gate = at.stores[0].hold("ack")
        at.stores[0].losses["ack"] = [OutcomeUnknown("the answer was lost")]
        request = DequeueRequest("other", 1, wait_ms=60_000, succeeded=acks([job]), ack_queue="mail")
        call = asyncio.create_task(at.service.dequeue(request))
        await at.stores[0].until_begun("ack", 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.set()
        await until_quiet(*at.stores)
    gc.collect()
    assert faults == []


async def test_acks_that_could_not_be_applied_refuse_the_dequeue_and_claim_nothing() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        (job,) = await at.dequeue(1)
        for operation in ("ack", "ack_and_claim"):
            at.stores[0].failures[operation] = [NothingStored("refused")]
        with pytest.raises(ShardConnectionFailed) as refused:
            await at.dequeue(1, succeeded=acks([job]))
        assert refused.value.acks_applied is False
        assert await stored(at) == 1


async def test_a_dry_run_hands_out_without_claiming() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue(dry_run=True)
        assert (job.claim_descriptor, job.claim_expires_at_ms) == ("", 0)
        await at.service.requeue([job])
        assert await stored(at) == 1


async def test_bodies_beyond_the_bound_of_an_answer_stay_unclaimed_but_never_all() -> None:
    async with stand(settings=ServiceSettings(max_answer_bytes=4_000, max_body_bytes=1_500)) as at:
        await at.service.enqueue("mail", [Job(b"x" * 1_500)] * 5)
        assert [len(await at.dequeue(5)) for _ in range(6)] == [1, 1, 1, 1, 1, 0]


async def test_ended_jobs_with_no_time_to_live_are_removed_at_once() -> None:
    async with stand(settings=ServiceSettings(succeeded_ttl_ms=0, failed_ttl_ms=0)) as at:
        descriptors = await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        good, bad = await at.dequeue()
        await at.service.ack("mail", acks([good]), [Ack(bad.descriptor, permanent=True)])
        assert await at.service.lookup(descriptors) == {}


OF_OTHER_SERVERS = {
    "mail:s1:p1:17",
    "mail:s1:p01:1790000000000000",
    "mail:s1:p1:9999999999999999",
    "mail:s1:p1:01790000000000000",
}
"""They name jobs somewhere else, as the ids of the classic server do: nothing is wrong with such a request."""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        "mail:s1:p1:17",
        "mail:s1:p01:1790000000000000",
        "mail:s1:p1:179000000000000x",
        "mail:s1:p1:1_90000000000000",
        "mail:s1:p1: 790000000000000",
        "mail:s1:p1:١٧٩٠٠٠٠٠٠٠٠٠٠٠٠٠",
        "mail:s1:p1:9999999999999999",
        "mail:s1:p1:01790000000000000",
    ],
)
async def test_a_text_that_is_no_descriptor_is_named_and_the_others_are_carried_out(text: str) -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue()
        if text in OF_OTHER_SERVERS:
            outcomes = await at.service.ack("mail", [Ack(text), Ack(job.descriptor)], [Ack(text)])
            assert list(outcomes) == [AckOutcome.IGNORED, AckOutcome.SUCCEEDED, AckOutcome.IGNORED]
            await at.service.checkpoint("mail", [Checkpoint(text)])
        else:
            with pytest.raises(
                RequestInvalid, match="2 of 3 acks were not carried out, all others were: jobDescriptor"
            ):
                await at.service.ack("mail", [Ack(text), Ack(job.descriptor)], [Ack(text)])
            with pytest.raises(RequestInvalid, match="1 of 1 checkpoints were not carried out"):
                await at.service.checkpoint("mail", [Checkpoint(text)])
        assert await at.service.lookup([text]) == {}
        assert await at.service.cancel("mail", [text]) == {text: CancelOutcome.NOT_FOUND}
        assert await at.service.count(JobFilter("mail", JobState.SUCCEEDED)) == 1


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint(GHOST, run_after_ms=MAX_TIME_MS + 1),
        Checkpoint(GHOST, attempts_allowed=2**31),
        Checkpoint(GHOST, new_body=b"x" * 1025),
    ],
)
async def test_an_invalid_checkpoint_keeps_no_other_from_being_carried_out(checkpoint: Checkpoint) -> None:
    async with stand(settings=ServiceSettings(max_body_bytes=1024)) as at:
        (descriptor,) = await at.service.enqueue("mail", [Job(b"x")])
        await at.dequeue()
        with pytest.raises(BodyTooLarge if checkpoint.new_body else RequestInvalid, match="1 of 2 checkpoints"):
            await at.service.checkpoint("mail", [checkpoint, Checkpoint(descriptor, new_body=b"new")], context=ME)
        assert (await at.service.lookup([descriptor], include_body=True))[descriptor].body == b"new"


# -- looking


async def test_a_count_and_a_scan_with_a_pattern_look_into_bodies() -> None:
    async with stand(settings=ServiceSettings(page_jobs=2)) as at:
        await at.service.enqueue("mail", [Job(b"a%d" % number) for number in range(5)] + [Job(b"\xff\xfeb")])
        matching = JobFilter("mail", JobState.PENDING, body_regex="a[0-3]")
        assert await at.service.count(matching) == 4
        first = await at.service.scan(matching, limit=3)
        rest = await at.service.scan(matching, limit=3, continuation=first.continuation)
        assert (len(first.jobs), len(rest.jobs), rest.continuation) == (3, 1, "-1")
        assert all(job.body is None for job in first.jobs)
        assert await at.service.count(JobFilter("mail", JobState.PENDING, body_regex=r"\xff")) == 1


async def test_a_bad_pattern_is_an_invalid_request() -> None:
    async with stand() as at:
        bad = JobFilter("mail", JobState.PENDING, body_regex="(")
        for call in (at.service.count(bad), at.service.scan(bad), at.service.delete_jobs(bad)):
            with pytest.raises(RequestInvalid, match="bodyRegexToMatch"):
                await call


async def test_a_search_that_takes_too_long_ends_with_an_error_or_with_what_it_has() -> None:
    async with stand(settings=ServiceSettings(page_jobs=1, long_call_ms=0)) as at:
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y")])
        nothing = JobFilter("mail", JobState.PENDING, body_regex="y")
        with pytest.raises(UnknownError, match="pattern"):
            await at.service.count(nothing)
        page = await at.service.scan(nothing, limit=5)
        assert page.continuation != "-1"
        with pytest.raises(UnknownError):
            await at.service.delete_jobs(nothing)


async def test_a_continuation_works_with_the_same_filter_only() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")] * 3)
        token = (await at.service.scan(PENDING, limit=1)).continuation
        assert len((await at.service.scan(PENDING, continuation=token, limit=5)).jobs) == 2
        others = [
            JobFilter("mail", JobState.FAILED),
            JobFilter("mail", JobState.PENDING, priority=1),
            JobFilter("mail", JobState.PENDING, future=True),
            JobFilter("mail", JobState.PENDING, body_regex="x"),
        ]
        for other in others:
            with pytest.raises(ContinuationInvalid):
                await at.service.scan(other, continuation=token)
        for text in ("-1", "", "1", token + "0", "x" + token, token.replace(".1.", ".2.")):
            with pytest.raises(ContinuationInvalid):
                await at.service.scan(PENDING, continuation=text)


async def test_a_scan_goes_on_with_the_now_it_began_with() -> None:
    async with stand() as at:
        now_ms = at.clock.now_ms()
        await at.service.enqueue("mail", [Job(b"x"), Job(b"y"), Job(b"z", run_after_ms=now_ms + 10)])
        first = await at.service.scan(PENDING, limit=1)
        at.clock.tick(20)
        rest = await at.service.scan(PENDING, continuation=first.continuation)
        assert [job.run_after_ms for job in first.jobs + rest.jobs] == [now_ms, now_ms]


@pytest.mark.parametrize("pattern", ["", "x"])
async def test_a_shard_that_was_missing_for_one_step_of_a_scan_is_named(pattern: str) -> None:
    async with stand(2, settings=ServiceSettings(page_jobs=2)) as at:
        for _ in range(10):
            await at.service.enqueue("mail", [Job(b"x")])
        at.stores[1].failures["scan"] = [NothingStored("refused")] * 4
        page = await at.service.scan(JobFilter("mail", JobState.PENDING, body_regex=pattern))
        assert page.missing_shards == ["2"]


async def test_answers_stay_under_their_bound() -> None:
    async with stand(settings=ServiceSettings(max_answer_bytes=20_000)) as at:
        descriptors = await at.service.enqueue("mail", [Job(b"x" * 100, custom_status="s" * 4_000)] * 6)
        page = await at.service.scan(PENDING)
        assert len(page.jobs) == 4
        rest = await at.service.scan(PENDING, continuation=page.continuation)
        assert (len(rest.jobs), rest.continuation) == (2, "-1")
        with pytest.raises(RequestInvalid, match="fewer"):
            await at.service.lookup(descriptors)
        assert len(await at.service.lookup(descriptors[:4])) == 4


async def test_a_large_lookup_asks_in_steps_and_stops_when_the_answer_cannot_fit() -> None:
    async with stand(settings=ServiceSettings(page_jobs=3, max_answer_bytes=20_000)) as at:
        names = await at.service.enqueue("mail", [Job(b"x")] * 8)
        assert list(await at.service.lookup(names)) == names
        assert [len(keys) for _, keys in at.stores[0].sent["lookup"]] == [3, 3, 2]
        names = await at.service.enqueue("mail", [Job(b"x", custom_status="s" * 5_000)] * 20)
        with pytest.raises(RequestInvalid, match="jobDescriptors"):
            await at.service.lookup(names)
        assert at.stores[0].begun["lookup"] == 3 + 2


async def test_a_lookup_over_endless_queues_ends() -> None:
    async with stand(settings=ServiceSettings(long_call_ms=0)) as at:
        (name,) = await at.service.enqueue("mail", [Job(b"x")])
        others = [name.replace("mail", f"q{number}") for number in range(40)]
        with pytest.raises(UnknownError, match="lookup did not end"):
            await at.service.lookup([name, *others])


async def test_bodies_of_a_lookup_are_left_out_where_they_do_not_fit() -> None:
    async with stand(settings=ServiceSettings(max_answer_bytes=2_000)) as at:
        descriptors = await at.service.enqueue("mail", [Job(b"x" * 1_000)] * 3)
        found = await at.service.lookup(descriptors, include_body=True)
        assert [found[each].body is not None for each in descriptors] == [True, False, False]


# -- operators


async def test_retry_and_delete_work_in_slices_up_to_any_limit() -> None:
    async with stand(2, settings=ServiceSettings(page_jobs=3)) as at:
        for _ in range(5):
            await at.service.enqueue("mail", [Job(b"x")] * 4)
        jobs = await at.dequeue(100)
        await at.service.ack("mail", [], [Ack(job.descriptor, permanent=True) for job in jobs])
        assert await at.service.retry_failed("mail", limit=7) == 7
        assert await at.service.retry_failed("mail", limit=10**9) == 13
        assert await at.service.delete_jobs(PENDING, limit=10**9) == 20


async def test_a_shard_that_failed_is_an_error_of_an_operator_s_call_also_when_its_time_is_over() -> None:
    async with stand(2, settings=ServiceSettings(long_call_ms=0)) as at:
        for store in at.stores:
            store.failures["delete_jobs"] = [NothingStored("refused")]
        with pytest.raises(ShardConnectionFailed):
            await at.service.delete_jobs(PENDING)


async def test_nothing_done_in_time_is_not_nothing_left_to_do() -> None:
    async with stand(2, settings=ServiceSettings(long_call_ms=0)) as at:
        with pytest.raises(UnknownError) as late:
            await at.service.delete_jobs(PENDING)
        assert (late.value.reason, late.value.retryable) == ("DEADLINE_EXCEEDED", True)
        with pytest.raises(UnknownError):
            await at.service.retry_failed("mail")


async def test_a_delete_with_a_pattern_takes_what_matches_now_and_later_up_to_its_limit() -> None:
    async with stand(2, settings=ServiceSettings(page_jobs=2)) as at:
        later_ms = at.clock.now_ms() + 1_000
        for _ in range(4):
            await at.service.enqueue("mail", [Job(b"a"), Job(b"b"), Job(b"a", run_after_ms=later_ms)])
        matching = JobFilter("mail", JobState.PENDING, body_regex="a")
        assert await at.service.delete_jobs(matching, limit=3) == 3
        assert await at.service.delete_jobs(matching) == 5
        assert await stored(at) == 4


@pytest.mark.parametrize("fields", [{"attempts": 2**31}, {"limit": 0}, {"run_after_ms": 2**53}])
async def test_an_invalid_retry(fields: dict[str, int]) -> None:
    async with stand() as at:
        with pytest.raises(RequestInvalid):
            await at.service.retry_failed("mail", **fields)


async def test_an_unsupported_priority_of_an_operator_s_call() -> None:
    async with stand() as at:
        beyond = JobFilter("mail", JobState.PENDING, priority=4)
        for call in (
            at.service.retry_failed("mail", priority=0),
            at.service.count(beyond),
            at.service.scan(beyond),
            at.service.delete_jobs(beyond),
        ):
            with pytest.raises(PriorityNotSupported):
                await call
