"""What the settings of a queue mean for calls, and the operators' calls for queues and shards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest
import structlog

from pinlater.data_folder.password import hash_password
from pinlater.errors import (
    BodyTooLarge,
    EnqueueRejected,
    NothingStored,
    PasswordInvalid,
    PinLaterError,
    PriorityNotSupported,
    QueueNameInvalid,
    QueueNotFound,
    RequestInvalid,
    ShardConnectionFailed,
)
from pinlater.model import (
    Ack,
    AuditEntry,
    Checkpoint,
    DequeueRequest,
    Job,
    JobAction,
    JobChange,
    JobFilter,
    JobState,
    RequestContext,
)
from pinlater.service import ServiceSettings
from tests.unit.several import AWAY, Server, several
from tests.unit.stand import ME, Stand, stand

SESAME = ServiceSettings(admin_password_hash=hash_password("sesame"))
ANN = RequestContext("ann")


async def told(at: Stand, **settings: str) -> None:
    await at.service.queues.change("mail", settings, [], False, "ann")


def counted(at: Stand | Server, family: str) -> dict[tuple[object, ...], float]:
    """A family of counters, by its labels."""
    return {key[1:]: value for key, value in at.service.metrics.counters.items() if key[0] == family}


# -- what a queue's settings refuse


@pytest.mark.parametrize(
    ("settings", "job", "error", "says", "reason"),
    [
        ({"draining": "true"}, Job(b"x"), EnqueueRejected, "is draining", "draining"),
        ({"max_attempts": "3"}, Job(b"x", attempts_allowed=4), RequestInvalid, "is 4; allowed: 1 to 3", "attempts"),
        ({"max_body": "5B"}, Job(b"123456"), BodyTooLarge, "at most 5 (max_body of the queue, ", "body"),
        ({"max_pending": "0"}, Job(b"x"), EnqueueRejected, "0", "pending"),
        ({}, Job(b"x", 9), PriorityNotSupported, "priority 9", "priority"),
        ({}, Job(b"x", run_after_ms=2**53), RequestInvalid, "runAfter", "invalid"),
    ],
)  # fmt: skip
async def test_a_refused_enqueue_stores_nothing_says_why_and_is_counted(
    settings: Mapping[str, str], job: Job, error: type[PinLaterError], says: str, reason: str
) -> None:
    async with stand() as at:
        await told(at, **settings)
        with pytest.raises(error) as refused:
            await at.service.enqueue("mail", [Job(b"good", attempts_allowed=1), job])
        assert says in refused.value.message
        assert await at.service.count(JobFilter("mail", JobState.PENDING)) == 0
        assert counted(at, "enqueues_rejected") == {("mail", reason): 1}


async def test_a_checkpoint_is_held_to_the_same_bounds() -> None:
    async with stand() as at:
        await told(at, max_body="5B", max_attempts="3")
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue()
        with pytest.raises(BodyTooLarge, match=r"a body has 6 bytes; allowed: at most 5 \(max_body of the queue, "):
            await at.service.checkpoint("mail", [Checkpoint(job.descriptor, new_body=b"123456")], context=ME)
        with pytest.raises(RequestInvalid, match="numOfAttemptsAllowed is 4; allowed: 1 to 3"):
            await at.service.checkpoint("mail", [Checkpoint(job.descriptor, attempts_allowed=4)], context=ME)
        good = Checkpoint(job.descriptor, new_body=b"12345", attempts_allowed=3)
        await at.service.checkpoint("mail", [good], context=ME)
        (info,) = (await at.service.lookup([job.descriptor], include_body=True)).values()
        assert (info.body, info.attempts_allowed) == (b"12345", 3)


async def test_draining_refuses_new_jobs_and_lets_workers_finish() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"x")] * 2)
        await told(at, draining="true")
        with pytest.raises(EnqueueRejected) as refused:
            await at.service.enqueue("mail", [Job(b"x")])
        assert (refused.value.reason, refused.value.retryable) == ("QUEUE_DRAINING", True)
        assert await at.service.enqueue("mail", []) == []
        jobs = await at.dequeue()
        await at.service.ack("mail", [Ack(job.descriptor) for job in jobs], [])
        assert await at.service.count(JobFilter("mail", JobState.SUCCEEDED)) == 2
        await told(at, draining="false")
        assert len(await at.service.enqueue("mail", [Job(b"x")])) == 1


async def test_an_enqueue_to_a_queue_not_heard_of_is_for_the_shards_to_decide() -> None:
    async with several() as (one, two):
        await one.service.create_queue("mail")
        assert len(await two.service.enqueue("mail", [Job(b"x")])) == 1
        assert await two.service.queue_names() == {"mail"}
        with pytest.raises(QueueNotFound):
            await two.service.enqueue("nowhere", [Job(b"x")])
        with pytest.raises(BodyTooLarge):
            await two.service.enqueue("nowhere", [Job(b"x" * 2**21)])
        assert counted(two, "enqueues_rejected") == {}


# -- what it says of ends


async def test_a_job_whose_time_to_live_is_nothing_goes_with_its_last_ack() -> None:
    async with stand() as at:
        await told(at, succeeded_ttl="0s", failed_ttl="0s")
        await at.service.enqueue("mail", [Job(b"x")] * 2)
        good, bad = await at.dequeue()
        await at.service.ack("mail", [Ack(good.descriptor)], [Ack(bad.descriptor, permanent=True)])
        assert await at.service.lookup([good.descriptor, bad.descriptor]) == {}
        await told(at, dead_letter_queue="")
        await at.service.create_queue("dead")
        await told(at, dead_letter_queue="dead")
        await at.service.enqueue("mail", [Job(b"x")])
        (bad,) = await at.dequeue()
        await at.service.ack("mail", [], [Ack(bad.descriptor, permanent=True)])
        assert (await at.service.lookup([bad.descriptor]))[bad.descriptor].state is JobState.FAILED
        for store in at.stores:
            assert await store.dead_letter(10, at.clock.now_ms(), at.service.queues.dead_letter_targets()) == {
                "mail": 1
            }


async def test_the_claim_time_out_is_the_queue_s() -> None:
    async with stand() as at:
        await told(at, claim_timeout="7s")
        await at.service.enqueue("mail", [Job(b"x")])
        (job,) = await at.dequeue()
        assert job.claim_expires_at_ms - at.clock.now_ms() == 7_000


async def test_jobs_are_counted_by_priority_and_acks_by_what_became_of_them() -> None:
    async with stand() as at:
        await at.service.enqueue("mail", [Job(b"a", 1), Job(b"b", 2), Job(b"c", 2, attempts_allowed=1), Job(b"d", 1)])
        await at.service.enqueue("mail", [Job(b"e", 3)])
        assert counted(at, "jobs_enqueued") == {("mail", 1): 2, ("mail", 2): 2, ("mail", 3): 1}
        jobs = {job.body: Ack(job.descriptor) for job in await at.dequeue()}
        await at.service.ack("mail", [jobs[b"a"], jobs[b"d"]], [jobs[b"b"], jobs[b"c"]])
        await at.service.ack("mail", [jobs[b"a"]], [])
        await at.service.ack("mail", [Ack("mail:s9:p1:1790000000000000")], [])
        assert counted(at, "jobs_acked") == {
            ("mail", 1, "succeeded"): 2,
            ("mail", 2, "retried"): 1,
            ("mail", 2, "failed"): 1,
            ("mail", 1, "ignored"): 1,
        }


async def test_an_ack_of_a_job_in_no_queue_is_no_label_of_its_own() -> None:
    async with stand() as at:
        await at.service.ack("nowhere", [Ack("nowhere:s1:p1:1790000000000000")], [])
        assert counted(at, "jobs_acked") == {}


# -- making and deleting


async def test_a_queue_is_made_and_deleted_while_one_shard_is_away() -> None:
    async with several(1, settings=SESAME) as (one,):
        one.lose(2)
        await one.service.create_queue("mail", context=ANN)
        assert len(await one.service.enqueue("mail", [Job(b"x")])) == 1
        await one.find(2)
        await one.service.create_queue("other")
        one.lose(1)
        assert len(await one.service.enqueue("mail", [Job(b"x")])) == 1
        await one.service.delete_queue("mail", "sesame")
        await one.find(1)
        with pytest.raises(QueueNotFound):
            await one.service.enqueue("mail", [Job(b"x")])
        assert await one.service.queue_names() == {"other"}


async def test_names_need_a_shard_that_answers() -> None:
    async with stand() as at:
        at.stores[0].failures["list_config"] = [NothingStored("no")] * 4
        with pytest.raises(ShardConnectionFailed):
            await at.service.queue_names()


async def test_who_waits_for_a_queue_that_another_server_deletes_is_told_at_the_next_poll() -> None:
    async with several(settings=SESAME) as (one, two):
        await one.service.create_queue("mail")
        waiting = asyncio.create_task(two.service.dequeue(DequeueRequest("mail", 1, wait_ms=60_000)))
        await two.ways[0].until_begun("next_due", 2)
        await one.service.delete_queue("mail", "sesame")
        await two.queues.poll()
        with pytest.raises(QueueNotFound):
            await waiting


async def test_a_dead_letter_queue_is_not_deleted_from_under_another_one() -> None:
    async with several(1, settings=SESAME) as (one,):
        for name in ("mail", "dead"):
            await one.service.create_queue(name)
        await one.service.update_queue("mail", "sesame", set={"dead_letter_queue": "dead"})
        with pytest.raises(RequestInvalid, match="mail"):
            await one.service.delete_queue("dead", "sesame")


# -- the calls of operators


async def test_settings_are_changed_with_the_password_and_shown_with_their_origin() -> None:
    async with several(2, settings=SESAME) as (one, two):
        await one.service.create_queue("mail")
        with pytest.raises(PasswordInvalid):
            await one.service.update_queue("mail", "wrong", set={"paused": "true"})
        with pytest.raises(QueueNotFound):
            await one.service.update_queue("nowhere", "sesame", set={"paused": "true"})
        with pytest.raises(QueueNotFound):
            await one.service.update_queue("@shard/1", "sesame", set={"paused": "true"})
        with pytest.raises(QueueNameInvalid):
            await one.service.update_queue("a b", "sesame", create=True)
        with pytest.raises(RequestInvalid, match="number of settings"):
            await one.service.update_queue("mail", "sesame", unset=["paused"] * 101)
        one.ways[1].failures["put_config"] = [AWAY]
        changed = await one.service.update_queue("mail", "sesame", set={"paused": "true"}, context=ANN)
        assert changed.missed_shards == ["2"]
        (shown,) = await two.service.get_queues()
        assert (shown.name, shown.version) == ("mail", changed.version)
        assert shown.settings["paused_by"] == ("ann", "queue")
        await two.service.update_queue("@defaults", "sesame", set={"max_pending": "9"})
        (shown, for_all) = await one.service.get_queues(["mail", "@defaults"])
        assert (shown.settings["max_pending"], for_all.settings["max_pending"]) == (("9", "default"),) * 2
        await one.service.update_queue("fresh", "sesame", create=True)
        assert [each.name for each in await two.service.get_queues()] == ["fresh", "mail"]
        with pytest.raises(QueueNotFound):
            await one.service.get_queues(["nowhere"])


async def test_a_shard_that_is_ordered_so_takes_no_new_jobs() -> None:
    async with several(1, settings=SESAME) as (one,):
        await one.service.create_queue("mail")
        with pytest.raises(PasswordInvalid):
            await one.service.update_shard("1", "wrong", dequeue_only=True)
        await one.service.update_shard("1", "sesame", dequeue_only=True)
        for _ in range(20):
            (descriptor,) = await one.service.enqueue("mail", [Job(b"x")])
            assert ":s2:" in descriptor
        status = await one.service.cluster_status()
        assert [(shard.id, shard.dequeue_only, shard.state) for shard in status.shards] == [
            ("1", True, "in"),
            ("2", False, "in"),
        ]


# -- the record of changes


def lines(entries: list[AuditEntry]) -> list[tuple[str, str, str, str]]:
    return [(entry.who, entry.action, entry.target, entry.detail) for entry in entries]


async def test_every_change_is_recorded_with_who_what_and_when() -> None:
    async with several(2, settings=SESAME) as (one, two):
        calls = one.service
        await calls.create_queue("mail", context=ANN)
        await calls.create_queue("mail", context=ANN)
        await calls.enqueue("mail", [Job(b"x")] * 8, context=ANN)
        jobs = await calls.dequeue(DequeueRequest("mail", 5), context=ANN)
        await calls.ack("mail", [], [Ack(job.descriptor, permanent=True) for job in jobs], context=ANN)
        await calls.retry_failed("mail", priority=1, limit=2, context=ANN)
        await calls.delete_jobs(JobFilter("mail", JobState.FAILED, body_regex="x"), limit=1, context=ANN)
        (pending, *_) = (await calls.scan(JobFilter("mail", JobState.PENDING))).jobs
        await calls.cancel("mail", [pending.descriptor, "nothing"], context=ANN)
        await calls.cancel("mail", ["nothing"], context=ANN)
        one.clock.tick(5)
        failed = [job.descriptor for job in (await calls.scan(JobFilter("mail", JobState.FAILED))).jobs]
        await calls.change_jobs(JobChange("mail", JobAction.RETRY, priority=1, body_regex="x"), context=ANN)
        await calls.change_jobs(JobChange("mail", JobAction.RETRY), context=ANN)
        await calls.change_jobs(JobChange("mail", JobAction.CANCEL, dry_run=True), context=ANN)
        await calls.update_queue("mail", "sesame", set={"max_pending": "5"}, unset=["paused"], context=ANN)
        await calls.update_queue("mail", "sesame", set={"max_pending": "5"}, context=ANN)
        await calls.update_shard("1", "sesame", dequeue_only=True, context=ANN)
        await calls.delete_queue("mail", "sesame", context=ANN)
        await calls.delete_queue("mail", "sesame", context=ANN)
        entries = await two.service.audit()
        retried = next(each.detail for each in entries if each.action == "retry_jobs").partition(", of ")[2].split()
        assert sorted(retried) == sorted(failed)
        assert lines(entries) == [
            ("ann", "delete_queue", "mail", ""),
            ("ann", "update_shard", "1", "dequeue_only"),
            ("ann", "update_queue", "mail", "max_pending=5, paused unset"),
            ("ann", "retry_jobs", "mail", f"2 jobs, priority 1, body matches x, of {' '.join(retried)}"),
            ("ann", "cancel_jobs", "mail", f"1 job, of {pending.descriptor}"),
            ("ann", "delete_jobs", "mail", "1 job, FAILED, priority 1, body matches x"),
            ("ann", "retry_failed_jobs", "mail", "2 jobs of priority 1"),
            ("ann", "create_queue", "mail", ""),
        ]
        assert {entry.server for entry in entries} == {"server0"}
        assert entries[0].at_ms == one.clock.now_ms()
        assert lines(await two.service.audit(limit=1)) == lines(entries)[:1]
        assert lines(await two.service.audit(before_ms=one.clock.now_ms())) == lines(entries)[4:]
        with pytest.raises(RequestInvalid):
            await two.service.audit(limit=0)
        with pytest.raises(RequestInvalid):
            await two.service.audit(before_ms=-1)
        assert counted(one, "jobs_retried_by_operator") == {("mail",): 4}
        assert counted(one, "jobs_deleted_by_operator") == {("mail",): 2}


async def test_what_every_caller_may_do_takes_no_place_of_what_needs_the_password() -> None:
    async with several(1, settings=SESAME) as (one,):
        await one.service.create_queue("mail")
        await one.service.update_queue("mail", "sesame", set={"max_pending": "5"})
        await one.service.enqueue("mail", [Job(b"x")])
        await one.service.delete_jobs(JobFilter("mail", JobState.PENDING))
        kept = {}
        for kind in ("audit", "audit-open"):
            notes = (await one.ways[0].kv_list(kind, one.clock.now_ms())).values()
            kept[kind] = sorted(json.loads(note.body)["action"] for note in notes)
        assert kept == {"audit": ["update_queue"], "audit-open": ["create_queue", "delete_jobs"]}
        assert len(await one.service.audit()) == 3


async def test_the_record_is_read_from_all_shards_that_answer() -> None:
    async with several(2) as (one, two):
        one.ways[0].failures["kv_put"] = [AWAY]
        await one.service.create_queue("mail")
        one.ways[1].failures["kv_put"] = [AWAY]
        await one.service.create_queue("other")
        assert [entry.target for entry in await two.service.audit()] == ["other", "mail"]
        two.lose(1)
        assert [entry.target for entry in await two.service.audit()] == ["mail"]


async def test_what_could_not_be_recorded_stands_in_the_log_and_is_done_all_the_same() -> None:
    async with several(1) as (one,):
        for way in one.ways:
            way.failures["kv_put"] = [AWAY]
        with structlog.testing.capture_logs() as logs:
            await one.service.create_queue("mail", context=ANN)
        (log,) = [log for log in logs if log["event"] == "change_not_recorded"]
        assert (log["who"], log["action"], log["target"], log["log_level"]) == ("ann", "create_queue", "mail", "error")
        assert await one.service.queue_names() == {"mail"}


async def test_an_entry_of_another_version_is_read_as_far_as_it_goes() -> None:
    async with several(1) as (one,):
        now_ms = one.clock.now_ms()
        body = json.dumps({"at_ms": now_ms, "who": "ann", "news": 1}).encode()
        await one.ways[0].inner.kv_put("audit", "1790000000000000-00000000", body, now_ms + 1, now_ms)
        assert await one.service.audit() == [AuditEntry(now_ms, "ann", "", "")]


async def test_the_caller_s_source_is_bounded_where_it_is_recorded() -> None:
    async with stand() as at:
        with pytest.raises(RequestInvalid, match="source"):
            await at.service.create_queue("other", context=RequestContext("s" * 201))
        assert await at.service.retry_failed("mail", context=ME) == 0
