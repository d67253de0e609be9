"""Waits of jobs that were handed out, against the goal of their queue: by recorded snapshots, and from real stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pinlater.alarms.evidence import JobWait, Snapshot
from pinlater.alarms.wait_sampler import EVERY_MS, MOST_QUEUES, WaitSampler
from pinlater.backends.extended import Offer
from pinlater.backends.requests import AckRequest
from pinlater.model import ExtendedJob, Job, parse_descriptor
from pinlater.model.alarm_views import Severity
from tests.unit.alarm_stand import MINUTE, AlarmStand, alarm_stand
from tests.unit.test_alarm_conditions import NOW, judge_all, only, queue, snapshot

GOAL_MS = 30_000


def waited(*waits_ms: int, goal_ms: int | None = GOAL_MS, ready: int = 0) -> Snapshot:
    goals = {} if goal_ms is None else {"mail": goal_ms}
    waits = [JobWait(NOW - each, NOW) for each in waits_ms]
    return snapshot(queue(ready=ready), waits={"mail": waits}, latency_goals=goals)


def test_one_job_in_twenty_that_waited_for_too_long_is_a_warning() -> None:
    assert judge_all(waited(*[1_000] * 190, *[GOAL_MS] * 10)).standing == []
    assert judge_all(waited(*[1_000] * 191, *[60_000] * 9)).standing == []
    for ready in (0, 3):
        alarm = only(judge_all(waited(*[1_000] * 190, *[60_000] * 10, ready=ready)))
        assert (alarm.name, alarm.severity, alarm.subject, alarm.size) == ("waits_long", Severity.WARNING, "mail", 10)
        assert alarm.title == "mail: one job in twenty waited for 1 min or longer"


def test_few_jobs_and_queues_without_a_goal_say_nothing() -> None:
    assert judge_all(waited(*[60_000] * 19)).standing == []
    assert judge_all(waited(*[60_000] * 200, goal_ms=None)).standing == []


@pytest.mark.parametrize("is_letters", [True, False])
def test_dead_letters_and_jobs_that_waited_for_a_pause_do_not_count(is_letters: bool) -> None:
    slow = waited(*[60_000] * 40)
    if is_letters:
        assert judge_all(replace(slow, dead_letter_queues=frozenset({"mail"}))).standing == []
    paused = snapshot(queue(is_paused=True, paused_since_ms=NOW - 60_000, at_ms=NOW - 1_000), at_ms=NOW - 1_000)
    assert judge_all(paused, slow).standing == []


# -- the sampler -------------------------------------------------------------------------------------------------------


async def run_jobs(stand: AlarmStand, name: str, jobs: list[Job], wait_ms: int, *, serialize_key: str = "") -> None:
    """They are handed out so much later, and succeed."""
    store = stand.cluster.stores[0]
    if serialize_key:
        offers = [Offer(ExtendedJob(job.body, serialize_key=serialize_key)) for job in jobs]
        await store.enqueue_extended(name, offers, stand.cluster.clock.now_ms())
    else:
        await store.enqueue(name, jobs, stand.cluster.clock.now_ms())
    stand.cluster.clock.tick(wait_ms)
    claimed = await stand.cluster.claimed(store, name, len(jobs))
    acks = [AckRequest(ref.priority, ref.id, True) for job in claimed if (ref := parse_descriptor(job.descriptor))]
    await store.ack(name, acks, stand.cluster.clock.now_ms())


async def test_waits_of_a_queue_with_a_goal_are_found_in_the_store() -> None:
    async with alarm_stand() as stand:
        first = stand.cluster.servers[0]
        for name in ("mail", "other"):
            await first.queues.create(name, "me")
        await first.queues.change("mail", {"latency_goal": "30s"}, (), False, "me")
        await stand.pass_time()
        for name in ("mail", "other"):
            await run_jobs(stand, name, [Job(b"x")] * 40, 45_000)
            first.metrics.add(40, "jobs_dequeued", name, 1)
            first.metrics.add(40, "jobs_acked", name, 1, "succeeded")
        await stand.pass_time()
        (alarm,) = (await stand.pages())[0].alarms
        assert (alarm.key, alarm.size) == (("waits_long", "mail"), 40)
        await stand.pass_time(6 * MINUTE)  # what was handed out then is of no concern any more
        await stand.pass_time()
        assert (await stand.pages())[0].alarms == []


async def test_jobs_of_serialize_keys_wait_for_others_and_do_not_count() -> None:
    async with alarm_stand() as stand:
        first = stand.cluster.servers[0]
        await first.queues.create("mail", "me")
        await run_jobs(stand, "mail", [Job(b"x")], 7_000)
        await run_jobs(stand, "mail", [Job(b"x")], 9_000, serialize_key="tenant:7")
        sampler = WaitSampler(first.members, (1, 2, 3), first.time)
        (wait,) = (await sampler.sample(["mail"]))["mail"]
        assert wait.claimed_ms - wait.due_ms == 7_000


async def test_some_queues_are_looked_at_at_a_time_and_each_only_so_often() -> None:
    async with alarm_stand() as stand:
        first = stand.cluster.servers[0]
        names = [f"q{number}" for number in range(MOST_QUEUES + 1)]
        for name in names:
            await first.queues.create(name, "me")
        sampler = WaitSampler(first.members, (1, 2, 3), first.time)
        assert list(await sampler.sample(names)) == names[:-1]
        assert len(await sampler.sample(names)) == len(names)
        await run_jobs(stand, "q0", [Job(b"x")], 1_000)
        assert (await sampler.sample(names))["q0"] == []
        stand.cluster.clock.tick(EVERY_MS)
        assert [wait.claimed_ms - wait.due_ms for wait in (await sampler.sample(names))["q0"]] == [1_000]
        assert list(await sampler.sample(["q1"])) == ["q1"]
