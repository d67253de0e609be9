"""Dedupe keys, send ids, the marks of schedules, and the windows of keys."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.backends.base import ConfigEntry, DeadLetterTarget
from pinlater.backends.extended import SEND_ID_KEPT_MS, Offered, OfferOutcome
from pinlater.errors import HomesChanged, QueueNotFound
from pinlater.model import WHILE_KEPT, AckOutcome, JobState, OnDuplicate, new_version
from pinlater.model.status_text import not_replaced_status
from tests.conformance.crowd import Crowd
from tests.conformance.extended_subject import SLOT, found, newer_homes, offer, offer_all, offer_of, slots, store
from tests.conformance.subject import START_MS, Subject, key_of, new_name
from tests.queues import drop_queue, make_queue

KEPT, STORED, REPLACED = OfferOutcome.KEPT, OfferOutcome.STORED, OfferOutcome.REPLACED


async def end(subject: Subject, descriptor: str) -> None:
    assert (await subject.claimed()).descriptor == descriptor
    assert await subject.succeed(descriptor) is AckOutcome.SUCCEEDED


async def test_a_key_is_taken_while_its_job_is_live(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d")
    assert await offer(subject, dedupe_key="d") == Offered(KEPT, descriptor)
    await subject.claimed()
    assert await offer(subject, dedupe_key="d") == Offered(KEPT, descriptor)
    await subject.fail(descriptor)
    assert await offer(subject, dedupe_key="d") == Offered(KEPT, descriptor)
    assert len(await subject.claim(10)) == 1
    await subject.succeed(descriptor)
    assert await found(subject, "d") == descriptor
    again = await store(subject, dedupe_key="d")
    assert await found(subject, "d") == again


async def test_keys_are_those_of_a_queue_and_of_a_serialize_key(subject: Subject) -> None:
    other = await subject.beside("post")
    made = [await store(subject, dedupe_key="d"), await store(other, dedupe_key="d")]
    made += [await store(subject, dedupe_key="d", serialize_key=key) for key in ("a", "b")]
    assert await found(subject, "d") == made[0]
    assert await found(other, "d") == made[1]
    assert [await found(subject, "d", key) for key in ("a", "b", "c")] == [*made[2:], None]
    info = await subject.info(made[2])
    assert (info.dedupe_key, info.serialize_key) == ("d", "a")


async def test_offers_see_those_before_them(subject: Subject) -> None:
    first, second, third = await offer_all(
        subject,
        offer_of(b"1", dedupe_key="d"),
        offer_of(b"2", dedupe_key="d"),
        offer_of(b"3", dedupe_key="d", on_duplicate=OnDuplicate.REPLACE, run_after_ms=START_MS + 7),
    )
    assert second == Offered(KEPT, first.descriptor)
    assert third == Offered(REPLACED, first.descriptor, START_MS + 7)
    info = await subject.info(first.descriptor)
    assert (info.body, info.run_after_ms) == (b"3", START_MS + 7)


async def test_reject_names_the_job_that_stands(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d")
    rejected = await offer(subject, dedupe_key="d", on_duplicate=OnDuplicate.REJECT)
    assert rejected == Offered(OfferOutcome.REJECTED, descriptor)
    assert await subject.count(JobState.PENDING) == 1


async def test_replace_changes_a_pending_job_alone(subject: Subject) -> None:
    descriptor = await store(subject, b"1", dedupe_key="d", custom_status="as it was")
    subject.tick(5)
    fields = {"dedupe_key": "d", "on_duplicate": OnDuplicate.REPLACE}
    replaced = await offer(subject, b"2", attempts_allowed=7, run_after_ms=subject.now_ms + 9, **fields)
    assert replaced == Offered(REPLACED, descriptor, subject.now_ms + 9)
    info = await subject.info(descriptor)
    assert (info.body, info.attempts_allowed, info.attempts_remaining) == (b"2", 7, 7)
    assert (info.run_after_ms, info.custom_status) == (subject.now_ms + 9, "as it was")
    assert (info.created_at_ms, info.updated_at_ms) == (START_MS, subject.now_ms)
    different = await offer(subject, b"3", priority=2, **fields)
    assert different == Offered(OfferOutcome.DIFFERENT, descriptor)
    subject.tick(9)
    assert (await subject.claimed()).body == b"2"
    assert await offer(subject, b"3", **fields) == Offered(KEPT, descriptor)


async def test_a_job_in_progress_says_from_when_on_newer_arguments_were_not_taken(subject: Subject) -> None:
    """Once for each time that it runs; KEEP, REJECT and a sending that is sent again say nothing."""
    descriptor = await store(subject, b"1", dedupe_key="d", custom_status="é as it was\n", attempts_allowed=5)
    fields = {"dedupe_key": "d", "on_duplicate": OnDuplicate.REPLACE}
    for turn in range(2):
        subject.tick(1_000)
        await subject.claimed()
        status, claimed_ms = (await subject.info(descriptor)).custom_status, subject.now_ms
        for on_duplicate in (OnDuplicate.KEEP, OnDuplicate.REJECT):
            await offer(subject, b"2", dedupe_key="d", on_duplicate=on_duplicate)
        subject.tick(5)
        refused_ms = subject.now_ms
        assert await offer(subject, b"3", send_id=f"s{turn}", **fields) == Offered(KEPT, descriptor)
        subject.tick(5)
        assert await offer(subject, b"3", send_id=f"s{turn}", **fields) == Offered(KEPT, descriptor)
        assert [each.outcome for each in await offer_all(subject, *[offer_of(b"4", **fields)] * 2)] == [KEPT] * 2
        info = await subject.info(descriptor)
        assert info.custom_status == status + not_replaced_status(refused_ms)
        assert (info.body, info.state, info.updated_at_ms) == (b"1", JobState.IN_PROGRESS, claimed_ms)
        await subject.fail(descriptor, append_status="it failed\n")
    assert (await subject.info(descriptor)).custom_status.count("newer arguments were not taken") == 2
    assert await offer(subject, b"5", **fields) == Offered(REPLACED, descriptor, subject.now_ms)


async def test_a_window_begins_at_the_end(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d", dedupe_for_ms=1000)
    subject.tick(5000)
    await end(subject, descriptor)
    subject.tick(999)
    assert (await offer(subject, dedupe_key="d")).outcome is KEPT
    await subject.prune(succeeded_ttl_ms=0)
    assert await subject.find(descriptor) is None
    assert await offer(subject, dedupe_key="d") == Offered(KEPT, descriptor)
    assert await found(subject, "d") == descriptor
    subject.tick(1)
    await store(subject, dedupe_key="d")


async def test_a_window_outlasts_a_job_that_is_not_kept(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d", dedupe_for_ms=1000)
    await subject.claimed()
    assert await subject.ack_with(descriptor, True, keep_succeeded=False) is AckOutcome.SUCCEEDED
    assert await offer(subject, dedupe_key="d") == Offered(KEPT, descriptor)
    assert await slots(subject) == [SLOT]
    subject.tick(1000)
    await subject.prune()
    assert await slots(subject) == []
    assert await found(subject, "d") is None


async def test_a_key_names_its_last_job_while_that_is_kept(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d")
    await end(subject, descriptor)
    subject.tick(5000)
    await subject.prune()
    assert await found(subject, "d") == descriptor
    await subject.prune(succeeded_ttl_ms=0)
    assert await found(subject, "d") is None
    assert await slots(subject) == []


async def test_a_key_that_counts_while_its_job_is_kept(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d", dedupe_for_ms=WHILE_KEPT)
    await end(subject, descriptor)
    subject.tick(5000)
    await subject.prune()
    assert await offer(subject, dedupe_key="d") == Offered(KEPT, descriptor)
    await subject.prune(succeeded_ttl_ms=0)
    await store(subject, dedupe_key="d")


async def test_cancel_and_delete_end_the_window(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d", dedupe_for_ms=1000)
    await subject.cancel(descriptor)
    descriptor = await store(subject, dedupe_key="d", dedupe_for_ms=1000)
    await end(subject, descriptor)
    assert await subject.delete(JobState.SUCCEEDED) == 1
    await store(subject, dedupe_key="d")


async def test_a_deleted_queue_takes_its_keys_with_it(subject: Subject) -> None:
    await store(subject, dedupe_key="d", send_id="s")
    assert await drop_queue(subject.shard, subject.queue, subject.tick(1))
    assert await make_queue(subject.shard, subject.queue, subject.tick(1))
    await store(subject, dedupe_key="d", send_id="s")
    await subject.prune()
    assert await slots(subject) == [SLOT]
    assert (await offer(subject, dedupe_key="d")).outcome is KEPT


async def test_a_resend_gets_the_first_answer_until_ten_minutes_after_the_end(subject: Subject) -> None:
    first = await offer(subject, send_id="s")
    assert await offer(subject, send_id="s") == first._replace(ready_at_ms=None)
    await end(subject, first.descriptor)
    subject.tick(SEND_ID_KEPT_MS - 1)
    await subject.prune(succeeded_ttl_ms=0)
    assert await offer(subject, send_id="s") == first._replace(ready_at_ms=None)
    subject.tick(1)
    await subject.prune()
    assert await slots(subject) == []
    assert (await offer(subject, send_id="s")).descriptor != first.descriptor


async def test_a_send_id_that_comes_again_counts_for_its_new_slot(subject: Subject) -> None:
    descriptor = await store(subject, send_id="s", slot=1)
    await subject.cancel(descriptor)
    assert await slots(subject) == [1]
    subject.tick(SEND_ID_KEPT_MS)
    await store(subject, send_id="s", slot=2)
    assert await slots(subject) == [2]


@pytest.mark.parametrize("passed", [False, True])
async def test_a_retry_lets_a_send_id_stand_that_still_stands(subject: Subject, passed: bool) -> None:
    descriptor = await store(subject, send_id="s")
    await subject.claimed()
    await subject.fail(descriptor, permanent=True)
    subject.tick(SEND_ID_KEPT_MS - (not passed))
    assert await subject.retry_failed() == 1
    await end(subject, descriptor)
    subject.tick(SEND_ID_KEPT_MS - 1)
    assert ((await offer(subject, send_id="s")).descriptor == descriptor) is not passed


async def test_a_send_id_is_remembered_after_a_removal(subject: Subject) -> None:
    descriptor = await store(subject, send_id="s")
    await subject.cancel(descriptor)
    assert await offer(subject, send_id="s") == Offered(STORED, descriptor)


async def test_a_resend_of_what_was_kept_is_kept_again(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d")
    assert await offer(subject, dedupe_key="d", send_id="s") == Offered(KEPT, descriptor)
    await end(subject, descriptor)
    assert await offer(subject, dedupe_key="d", send_id="s") == Offered(KEPT, descriptor)


async def test_a_retry_leaves_a_job_whose_key_has_another_live_one(subject: Subject) -> None:
    failed = []
    for _ in range(2):
        failed.append(await store(subject, dedupe_key="d"))
        await subject.claimed()
        await subject.fail(failed[-1], permanent=True)
        subject.tick(1)
    free = await subject.job_in(JobState.FAILED)
    keys = [key_of(each) for each in (*failed, free)]
    assert await subject.shard.taken_keys(subject.queue, keys) == [None] * 3
    assert await subject.retry_failed() == 2
    live = await found(subject, "d")
    assert live == failed[0]
    assert await subject.shard.taken_keys(subject.queue, keys) == [None, live, None]
    assert await subject.retry_listed(failed[1]) == 0
    assert await subject.retry_failed() == 0
    await subject.cancel(live)
    assert await subject.retry_failed(limit=1) == 1
    assert (await offer(subject, dedupe_key="d")).descriptor == failed[1]


async def test_retries_go_on_behind_those_that_stay(subject: Subject) -> None:
    for number in range(3):
        failed = await store(subject, dedupe_key=str(number))
        await subject.claimed()
        await subject.fail(failed, permanent=True)
        await store(subject, dedupe_key=str(number), run_after_ms=START_MS + 10_000)
    await subject.job_in(JobState.FAILED)
    assert await subject.retry_failed(limit=1) == 1


async def test_a_replay_leaves_a_letter_whose_key_has_a_live_job(subject: Subject) -> None:
    letters = await subject.beside("letters")
    descriptor = await store(subject, dedupe_key="d")
    await subject.claimed()
    await subject.ack_with(descriptor, False, permanent=True, dead_letters=True)
    await subject.dead_letter({subject.queue: DeadLetterTarget("letters", 1)})
    (letter,) = await letters.scan()
    await store(letters, dedupe_key="d")
    live = await store(subject, dedupe_key="d")
    assert await letters.shard.taken_keys("letters", [key_of(letter.descriptor)]) == [live]
    assert await letters.replay(letter.descriptor) == [None]
    await subject.cancel(live)
    (replayed,) = await letters.replay(letter.descriptor)
    assert await found(subject, "d") == replayed


async def fire(subject: Subject, schedule: str, mark: str, **fields: object) -> Offered:
    return await offer(subject, dedupe_key=f"{schedule}/{mark}", schedule=schedule, mark=mark, **fields)


async def test_a_schedule_fires_once_for_each_time(subject: Subject) -> None:
    schedule = new_name("@schedule/nightly")
    assert await subject.shard.last_firings([schedule]) == [None]
    first = await fire(subject, schedule, "2000")
    assert first.outcome is STORED
    await end(subject, first.descriptor)
    assert await fire(subject, schedule, "2000") == Offered(KEPT)
    assert await fire(subject, schedule, "1999") == Offered(KEPT)
    assert await fire(subject, schedule, "2000", only_if_known=True) == Offered(KEPT)
    assert await fire(subject, schedule, "3000", only_if_known=True) == Offered(OfferOutcome.NOT_HERE)
    assert await subject.shard.last_firings([schedule]) == ["2000"]
    assert (await fire(subject, schedule, "3000")).outcome is STORED
    assert await subject.shard.last_firings([schedule, new_name("other")]) == ["3000", None]


async def test_a_mark_comes_to_a_new_home_and_never_falls(subject: Subject) -> None:
    schedule, other = new_name("@schedule/nightly"), new_name("@schedule/other")
    await subject.shard.raise_marks({})
    await subject.shard.raise_marks({schedule: "2000", other: "1000"})
    assert await subject.shard.last_firings([other, schedule]) == ["1000", "2000"]
    assert await fire(subject, schedule, "2000") == Offered(KEPT)
    assert (await fire(subject, schedule, "2001")).outcome is STORED
    await subject.shard.raise_marks({schedule: "2000", other: "1001"})
    assert await subject.shard.last_firings([schedule, other]) == ["2001", "1001"]


async def test_the_mark_of_a_schedule_goes_with_the_tombstone_of_its_entry(subject: Subject) -> None:
    deleted, again, live = (new_name(f"@schedule/{name}") for name in ("deleted", "again", "live"))
    await subject.shard.raise_marks(dict.fromkeys((deleted, again, live), "1000"))
    old, young = new_version(START_MS), new_version(START_MS + 1_000)
    entries = [
        ConfigEntry(deleted, old, "{}", old),
        ConfigEntry(again, old, "{}", old),
        ConfigEntry(again, young, "{}", old),
        ConfigEntry(live, old),
    ]
    await subject.shard.put_config(entries, START_MS)
    assert await subject.prune(tombstones_before=old) == {}
    assert await subject.shard.last_firings([deleted, again, live]) == ["1000"] * 3
    assert await subject.prune(tombstones_before=young) == {}
    assert await subject.shard.last_firings([deleted, again, live]) == [None, "1000", "1000"]


async def test_a_former_home_takes_what_it_knows(subject: Subject) -> None:
    not_here = Offered(OfferOutcome.NOT_HERE)
    assert await offer(subject, dedupe_key="d", only_if_known=True) == not_here
    assert await offer(subject, send_id="s", only_if_known=True) == not_here
    assert await offer(subject, serialize_key="k", only_if_known=True) == not_here
    descriptor = await store(subject, dedupe_key="d", serialize_key="k", send_id="s")
    assert await offer(subject, dedupe_key="d", serialize_key="k", only_if_known=True) == Offered(KEPT, descriptor)
    assert (await offer(subject, serialize_key="k", only_if_known=True)).outcome is STORED
    emptied = await offer(subject, serialize_key="k", only_if_known=True, takes_no_jobs=True)
    assert emptied == Offered(OfferOutcome.CHAIN_HERE)
    assert (await offer(subject, send_id="s", only_if_known=True, takes_no_jobs=True)).descriptor == descriptor


async def test_a_step_by_older_homes_stores_nothing(subject: Subject) -> None:
    old, new = await newer_homes(subject)
    with pytest.raises(HomesChanged):
        await offer(subject, homes_version=old, dedupe_key="d")
    assert await found(subject, "d") is None
    assert (await offer(subject, homes_version=new, dedupe_key="d")).outcome is STORED
    assert (await offer(subject, homes_version=new_version(START_MS, new), dedupe_key="d")).outcome is KEPT


async def test_an_unknown_queue_takes_nothing(subject: Subject) -> None:
    with pytest.raises(QueueNotFound):
        await subject.shard.enqueue_extended("none", [offer_of(dedupe_key="d")], START_MS)


async def test_windows_go_to_another_shard_and_count_there(subject: Subject) -> None:
    made = [await store(subject, dedupe_key=f"d{each}", dedupe_for_ms=1000 + each % 2) for each in range(5)]
    made.append(await store(subject, send_id="s"))
    live = await store(subject, dedupe_key="live", dedupe_for_ms=1000, serialize_key="é")
    await subject.ack_all([job.descriptor for job in await subject.claim(10) if job.descriptor != live])
    windows, after = [], ""
    while page := await subject.shard.list_windows(2, after, subject.now_ms):
        assert len(page) <= 2
        windows += page
        after = page[-1].name
    assert len({each.name for each in windows}) == len(windows) == 6
    assert {each.slot for each in windows} == {SLOT}
    await subject.ack_all([live])
    (last,) = [each for each in await subject.shard.list_windows(9, "", subject.now_ms) if "live" in each.text]
    windows.append(last)
    await subject.shard.drop_windows(windows)
    assert await slots(subject) == []
    assert await found(subject, "d0") is None
    await subject.shard.put_windows(windows, subject.now_ms)
    await subject.shard.put_windows(windows, subject.now_ms)
    assert await slots(subject) == [SLOT]
    assert await offer(subject, dedupe_key="d0") == Offered(KEPT, made[0])
    assert await offer(subject, send_id="s") == Offered(STORED, made[5])
    assert await found(subject, "live", "é") == live
    assert len(await subject.shard.list_windows(9, "", subject.now_ms)) == 7
    subject.tick(SEND_ID_KEPT_MS)
    await subject.prune()
    assert await slots(subject) == []


async def test_windows_of_a_queue_that_is_gone_are_left_out(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d", dedupe_for_ms=1000)
    await end(subject, descriptor)
    windows = await subject.shard.list_windows(9, "", subject.now_ms)
    assert len(windows) == 1
    assert await drop_queue(subject.shard, subject.queue, subject.tick(1))
    await subject.prune()
    await subject.shard.put_windows(windows, subject.now_ms)
    assert await slots(subject) == []


async def test_many_callers_store_one_job_of_each_key(crowd: Crowd) -> None:
    answers = await asyncio.gather(
        *(offer_all(subject, *[offer_of(dedupe_key=str(key)) for key in range(20)]) for subject in crowd)
    )
    assert len({each.descriptor for answer in answers for each in answer}) == 20
    stored = [each for answer in answers for each in answer if each.outcome is STORED]
    assert len(stored) == 20
