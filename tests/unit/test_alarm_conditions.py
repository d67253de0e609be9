"""Each condition by recorded snapshots: where it begins, where it ends, and what it must not be raised for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pinlater.alarms.alarms_page import docs_page
from pinlater.alarms.condition import QUIET_MS
from pinlater.alarms.condition_table import BY_NAME, CONDITIONS
from pinlater.alarms.end_sampler import sample_of_types
from pinlater.alarms.evidence import (
    Evidence,
    FlowFacts,
    GoneServer,
    LimitSet,
    QueueFacts,
    Snapshot,
    StuckFlow,
    TypeSample,
    WorkerSeen,
)
from pinlater.alarms.judgement import Judged, Judgement
from pinlater.backends.status_lines import crash_budget_status, expired_status
from pinlater.errors import StoreReplaced
from pinlater.job_filters.filter_parser import parse_filter
from pinlater.job_filters.job_filter import Term
from pinlater.model import BlockedChain, JobInfo, JobState, ProcessCounters, ServerView, ShardView, WorkerInfo
from pinlater.model.alarm_views import AbsorbedAlarm, Alarm, Severity
from pinlater.schedules.firer import UnfiredCause

NOW = 1_800_000_000_000
MINUTE = 60_000
IN = ShardView("1", "redis", "in", False)
READY_SERVER = ServerView("a", "1", "a:9010", NOW - 3_600_000, NOW, True)


def snapshot(*queues: QueueFacts, at_ms: int = NOW, **more: Any) -> Snapshot:
    more = {"shards": [IN], "servers": [READY_SERVER], **more}
    return Snapshot(now_ms=at_ms, queues={each.name: each for each in queues}, **more)


def queue(name: str = "mail", ready: int = 3, waits_ms: int = 0, at_ms: int = NOW, **more: Any) -> QueueFacts:
    return QueueFacts(name=name, ready=ready, oldest_ready_ms=at_ms - waits_ms, counted_at_ms=at_ms, **more)


def worker(id: str = "w1", *queues: str, name: str = "web", at_ms: int = NOW, **more: Any) -> WorkerInfo:
    fields: dict[str, Any] = {"started_ms": at_ms - 3_600_000, "seen_ms": at_ms, "stuck_slots": 0, "is_stopping": False}
    fields |= more
    return WorkerInfo(
        id,
        name,
        "host-1",
        7,
        dict.fromkeys(queues or ("mail",), 1),
        4,
        1,
        fields["stuck_slots"],
        [],
        None,
        {},
        fields["is_stopping"],
        fields["started_ms"],
        fields["seen_ms"],
        fields.get("silent_since_ms"),
        outbox=fields.get("outbox"),
        unknown_types=fields.get("unknown_types", []),
    )


def names(judged: Judged) -> list[str]:
    return [alarm.name for alarm in judged.standing]


def judge_all(*snapshots: Snapshot, judgement: Judgement | None = None) -> Judged:
    judgement = judgement or Judgement()
    for each in snapshots:
        judgement.observe(each)
        judged = judgement.judge(each)
    return judged


def only(judged: Judged) -> Alarm:
    (alarm,) = judged.standing
    return alarm


# -- no worker ---------------------------------------------------------------------------------------------------------


def test_a_queue_without_a_worker_is_an_alarm_after_a_minute() -> None:
    assert judge_all(snapshot(queue(waits_ms=MINUTE))).standing == []
    alarm = only(judge_all(snapshot(queue(waits_ms=MINUTE + 1, ready=1_204))))
    assert (alarm.name, alarm.severity, alarm.queue, alarm.since_ms) == (
        "no_worker",
        Severity.CRITICAL,
        "mail",
        NOW - 1,
    )
    assert alarm.title == "mail: no worker takes its 1,204 ready jobs"


LONG = 10 * MINUTE


def test_an_open_breaker_is_one_alarm_at_once_and_no_forgotten_pause() -> None:
    reason = "90 of 120 attempts failed in 1m; one job is tried every 30s until one succeeds"
    held = queue(is_paused=True, paused_since_ms=NOW - 2 * 60 * MINUTE, paused_by="@breaker", paused_why=reason)
    alarm = only(judge_all(snapshot(held)))
    assert (alarm.name, alarm.severity, alarm.queue) == ("breaker_open", Severity.CRITICAL, "mail")
    assert (alarm.since_ms, alarm.why, alarm.impact) == (NOW - 2 * 60 * MINUTE, f"{reason}.", "3 ready jobs wait")
    assert alarm.title == "mail: its circuit breaker is open, with 3 ready jobs"


@pytest.mark.parametrize(
    ("facts", "more"),
    [
        pytest.param(queue(waits_ms=LONG), {"dead_letter_queues": frozenset({"mail"})}, id="dead letters"),
        pytest.param(queue(waits_ms=LONG, is_paused=True, paused_since_ms=NOW - LONG), {}, id="paused"),
        pytest.param(queue(ready=0, waits_ms=LONG), {}, id="no ready jobs"),
        pytest.param(QueueFacts(name="mail", counted_at_ms=NOW), {}, id="no jobs"),
    ],
)
def test_what_nobody_is_to_work_on_raises_nothing(facts: QueueFacts, more: dict[str, Any]) -> None:
    assert judge_all(snapshot(facts, **more)).standing == []


def test_a_queue_with_a_worker_has_one() -> None:
    waits = queue(waits_ms=2 * MINUTE)
    assert judge_all(snapshot(waits, workers=[WorkerSeen(worker())])).standing == []
    assert names(judge_all(snapshot(waits, workers=[WorkerSeen(worker("w", "other"))]))) == ["no_worker"]
    assert names(judge_all(snapshot(waits, workers=[WorkerSeen(worker(), is_stopping=True)]))) == ["no_worker"]
    assert judge_all(snapshot(waits, workers=None)).standing == []  # nobody knows which there are
    assert judge_all(snapshot(replace(waits, dequeued_per_second=0.1))).standing == []


def test_a_queue_whose_jobs_were_handed_out_in_the_last_minute_has_a_worker() -> None:
    def at(ms: int, dequeued: int) -> Snapshot:
        counters = [ProcessCounters("a/1", NOW - LONG, NOW + ms, {"mail": (100, dequeued, 0, 0, 0)})]
        return snapshot(queue(waits_ms=2 * MINUTE + ms, at_ms=NOW + ms), at_ms=NOW + ms, counters=counters)

    judgement = Judgement()
    judgement.observe(at(0, 5))
    assert judge_all(at(5_000, 6), judgement=judgement).standing == []
    assert judge_all(at(65_000, 6), judgement=judgement).standing == []
    assert names(judge_all(at(65_001, 6), judgement=judgement)) == ["no_worker"]


def test_each_queue_has_an_alarm_of_its_own_with_the_largest_first() -> None:
    judged = judge_all(snapshot(*[queue(f"q{size}", size, 2 * MINUTE) for size in (5, 70, 12)]))
    assert [alarm.subject for alarm in judged.standing] == ["q70", "q12", "q5"]


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [LimitSet(jobs_per_second=0), LimitSet(in_progress=0)])
def test_a_queue_that_is_limited_to_nothing_is_a_warning_after_a_minute(limit: LimitSet) -> None:
    limits = {"mail": limit}
    assert judge_all(snapshot(queue(waits_ms=MINUTE), limits=limits)).standing == []
    alarm = only(judge_all(snapshot(queue(waits_ms=LONG), limits=limits)))
    assert (alarm.name, alarm.severity, alarm.since_ms) == ("throttled", Severity.WARNING, NOW - LONG + MINUTE)
    assert [each.name for each in alarm.absorbed] == ["waits_long"]
    assert alarm.title == "mail: its limits let none of its 3 ready jobs through"


def test_a_maximum_in_progress_that_is_reached_for_as_long_as_jobs_may_wait_is_a_warning() -> None:
    more: dict[str, Any] = {"limits": {"mail": LimitSet(in_progress=4)}, "latency_goals": {"mail": 2 * LONG}}
    assert judge_all(snapshot(queue(waits_ms=2 * LONG, running=4), **more)).standing == []
    alarm = only(judge_all(snapshot(queue(waits_ms=2 * LONG + 1, running=4), **more)))
    assert (alarm.name, "has 4 jobs in progress, as many as it may" in alarm.why) == ("throttled", True)


def test_limits_that_let_jobs_through_raise_nothing() -> None:
    def found(limit: LimitSet, **facts: Any) -> list[str]:
        return names(judge_all(polled(queue(waits_ms=3 * MINUTE, **facts), limits={"mail": limit})))

    assert found(LimitSet(in_progress=4), running=4) == []
    assert found(LimitSet(in_progress=4), running=3) == []
    assert found(LimitSet(jobs_per_second=1 / 3_600)) == []
    assert found(LimitSet(jobs_per_second=0), dequeued_per_second=0.1) == []  # it was set a moment ago
    waits = queue(waits_ms=LONG)
    assert names(judge_all(polled(waits, limits={"mail": LimitSet(1 / 3_600)}))) == ["throttled"]
    assert names(judge_all(polled(waits, limits={"mail": LimitSet(2.0, 4)}))) == ["waits_long"]
    paused = replace(waits, is_paused=True)
    assert judge_all(snapshot(paused, limits={"mail": LimitSet(0)})).standing == []


def test_a_queue_with_few_jobs_in_progress_still_wants_a_worker() -> None:
    assert names(judge_all(snapshot(queue(waits_ms=LONG), limits={"mail": LimitSet(5.0, 4)}))) == ["no_worker"]


# -- workers -----------------------------------------------------------------------------------------------------------


def with_workers(at_ms: int, *workers: WorkerSeen) -> Snapshot:
    return snapshot(queue(at_ms=at_ms), at_ms=at_ms, workers=workers)


def test_a_worker_that_is_gone_is_an_alarm_of_each_of_its_queues() -> None:
    here, other = WorkerSeen(worker("w1", "mail", "sms")), WorkerSeen(worker("w2", "sms", name="other"))
    judged = judge_all(with_workers(NOW, here, other), with_workers(NOW + 5_000, other))
    by_queue = {alarm.subject: alarm for alarm in judged.standing}
    assert {subject: alarm.severity for subject, alarm in by_queue.items()} == {
        "mail": Severity.CRITICAL,
        "sms": Severity.INFO,
    }
    assert by_queue["mail"].title == "mail: 1 worker is gone, and none is left"
    assert by_queue["sms"].title == "sms: 1 worker is gone, 1 left"
    assert by_queue["mail"].since_ms == NOW
    assert "web on host-1" in by_queue["mail"].why


def test_a_deploy_raises_nothing() -> None:
    old, stopping = WorkerSeen(worker()), WorkerSeen(worker(), is_stopping=True)
    new = WorkerSeen(worker("w2", started_ms=NOW + 5_000, at_ms=NOW + 10_000))
    judged = judge_all(with_workers(NOW, old), with_workers(NOW + 5_000, stopping), with_workers(NOW + 10_000, new))
    assert judged.standing == []


def test_a_worker_in_the_place_of_the_lost_one_ends_the_alarm() -> None:
    judgement = Judgement()
    judge_all(with_workers(NOW, WorkerSeen(worker())), with_workers(NOW + 5_000), judgement=judgement)
    assert [alarm.name for alarm in judgement.standing] == ["worker_gone"]
    new = WorkerSeen(worker("w2", started_ms=NOW + 8_000, at_ms=NOW + 10_000))
    judged = judge_all(with_workers(NOW + 5_000 + QUIET_MS, new), judgement=judgement)
    assert judged.standing == []
    assert [(alarm.name, alarm.ended_ms) for alarm in judged.ended] == [("worker_gone", NOW + 5_000 + QUIET_MS)]


def test_a_worker_of_that_name_which_takes_from_other_queues_is_none_in_its_place() -> None:
    lost, other = WorkerSeen(worker("w1", "mail")), WorkerSeen(worker("w2", "sms", started_ms=NOW))
    judged = judge_all(with_workers(NOW, lost, other), with_workers(NOW + 5_000, other))
    assert [(alarm.name, alarm.subject) for alarm in judged.standing] == [("worker_gone", "mail")]


def test_a_judge_that_takes_over_forgets_no_lost_worker() -> None:
    first, then = Judgement(), Judgement()
    judge_all(with_workers(NOW, WorkerSeen(worker())), with_workers(NOW + 5_000), judgement=first)
    then.resume(first.standing, NOW + 10_000)
    alarm = only(judge_all(with_workers(NOW + 10_000), judgement=then))
    assert (alarm.name, alarm.severity, alarm.since_ms) == ("worker_gone", Severity.CRITICAL, NOW)
    assert "web on host-1" in alarm.why
    new = WorkerSeen(worker("w2", at_ms=NOW + 20_000))
    assert judge_all(with_workers(NOW + 20_000, new), judgement=then).standing == []


def test_a_lost_worker_among_others_is_told_of_for_a_quarter_of_an_hour() -> None:
    left = WorkerSeen(worker("w2", name="other"))
    judgement = Judgement()
    judge_all(with_workers(NOW, WorkerSeen(worker()), left), with_workers(NOW + 5_000, left), judgement=judgement)
    assert names(judge_all(with_workers(NOW + 5_000 + 15 * MINUTE, left), judgement=judgement)) == ["worker_gone"]
    assert judge_all(with_workers(NOW + 15_000 + 15 * MINUTE, left), judgement=judgement).standing == []


def test_a_killed_worker_and_what_comes_of_it_are_one_alarm() -> None:
    judgement = Judgement()
    later = NOW + 6 * MINUTE
    judged = judge_all(
        with_workers(NOW, WorkerSeen(worker())),
        with_workers(NOW + 5_000),
        snapshot(queue("mail", 9, 6 * MINUTE, later), queue("sms", waits_ms=2 * MINUTE, at_ms=later), at_ms=later),
        judgement=judgement,
    )
    assert [(alarm.name, alarm.subject) for alarm in judged.standing] == [("worker_gone", "mail"), ("no_worker", "sms")]
    assert [each.name for each in judged.standing[0].absorbed] == ["no_worker", "waits_long"]
    assert judged.ended == []


def test_silent_workers_and_stuck_slots_are_told_of() -> None:
    silent = worker("w1", silent_since_ms=NOW - MINUTE, stuck_slots=2)
    judged = judge_all(snapshot(workers=[WorkerSeen(silent), WorkerSeen(worker("w2"))]))
    assert {alarm.title for alarm in judged.standing} == {
        "1 worker is silent, although the process is there",
        "2 slots of workers are stuck",
    }


# -- failures ----------------------------------------------------------------------------------------------------------


def ends(at_ms: int, succeeded: int, failed: int, retried: int = 0) -> Snapshot:
    """What the only server process has counted of the queue since it began."""
    numbers = {"mail": (0, 0, succeeded, failed, retried)}
    return snapshot(at_ms=at_ms, counters=[ProcessCounters("a/1", NOW - 3_600_000, at_ms, numbers)])


@pytest.mark.parametrize(
    ("succeeded", "failed", "expected"),
    [(8, 2, ["failing"]), (8, 1, []), (7, 2, []), (9, 2, []), (0, 10, ["failing"])],
    ids=["at the bound", "nine jobs", "nine jobs, of which many", "below the bound", "all"],
)
def test_a_fifth_of_ten_jobs_that_fail_is_an_alarm(succeeded: int, failed: int, expected: list[str]) -> None:
    judged = judge_all(ends(NOW, 1_000, 1_000), ends(NOW + 5_000, 1_000 + succeeded, 1_000 + failed))
    assert names(judged) == expected


def test_failures_end_when_they_were_few_for_five_minutes() -> None:
    judgement = Judgement()
    judge_all(ends(NOW, 0, 0), ends(NOW + 5_000, 8, 2), judgement=judgement)
    few = ends(NOW + MINUTE, 108, 2)
    assert names(judge_all(few, judgement=judgement)) == ["failing"]  # quiet, for no time yet
    assert names(judge_all(ends(NOW + 5 * MINUTE, 108, 2), judgement=judgement)) == ["failing"]
    judged = judge_all(ends(NOW + 5 * MINUTE + 5_000, 108, 2), judgement=judgement)
    assert judged.standing == []
    assert [(alarm.name, alarm.peak) for alarm in judged.ended] == [("failing", 2)]


def test_attempts_that_fail_twice_as_often_as_before_are_a_warning() -> None:
    judgement = Judgement()
    usual = [ends(NOW + minute * MINUTE, 100 * minute, 0, 10 * minute) for minute in range(10)]
    assert judge_all(*usual, judgement=judgement).standing == []
    worse = ends(NOW + 14 * MINUTE, 900 + 80, 0, 90 + 20)
    alarm = only(judge_all(worse, judgement=judgement))
    assert (alarm.name, alarm.severity) == ("attempts_failing", Severity.WARNING)


def test_attempts_are_not_judged_where_nothing_of_before_is_known() -> None:
    assert judge_all(ends(NOW, 0, 0), ends(NOW + 15 * MINUTE - 1, 8, 0, 3)).standing == []
    calm = ends(NOW + 15 * MINUTE, 0, 0)
    assert names(judge_all(ends(NOW, 0, 0), calm, ends(NOW + 15 * MINUTE + 5_000, 8, 0, 3))) == ["attempts_failing"]


def test_attempts_that_fail_as_always_raise_nothing() -> None:
    judgement = Judgement()
    at_ms, succeeded, retried = NOW, 0, 0
    found = []
    for _ in range(40):
        at_ms, succeeded, retried = at_ms + MINUTE, succeeded + 70, retried + 30
        found.append(names(judge_all(ends(at_ms, succeeded, 0, retried), judgement=judgement)))
    assert found == [[]] * 40


def samples(**types: tuple[int, int]) -> dict[str, dict[str, TypeSample]]:
    """By type of job of the queue: how many of the sample succeeded, and failed."""
    return {"mail": {name: TypeSample(*numbers, f"{name} failed") for name, numbers in types.items()}}


def test_one_type_of_job_that_fails_does_not_vanish_among_the_others() -> None:
    first, then = ends(NOW, 0, 0), ends(NOW + 5_000, 920, 40)
    assert judge_all(first, then).standing == []
    judged = judge_all(first, replace(then, types=samples(invoice=(16, 40), greet=(184, 0))))
    alarm = only(judged)
    assert (alarm.subject, alarm.queue, alarm.error) == ("mail/invoice", "mail", "invoice failed")
    assert alarm.title == "mail/invoice: 35% of the jobs fail"
    assert "about 40 of 114 jobs of type invoice" in alarm.why


def test_a_type_with_few_jobs_raises_nothing() -> None:
    few = replace(ends(NOW + 5_000, 995, 5), types=samples(invoice=(0, 5), greet=(200, 0)))
    assert judge_all(ends(NOW, 0, 0), few).standing == []


def test_where_bodies_name_no_type_the_queue_counts() -> None:
    types = {"mail": {"": TypeSample(8, 4, "it did not work")}}
    alarm = only(judge_all(ends(NOW, 0, 0), replace(ends(NOW + 5_000, 8, 4), types=types)))
    assert (alarm.subject, alarm.error) == ("mail", "it did not work")
    gone = replace(ends(NOW + 5_000, 8, 4), types=samples(invoice=(0, 4)))  # jobs that succeed are not kept
    assert only(judge_all(ends(NOW, 0, 0), gone)).subject == "mail"


@pytest.mark.parametrize("type_name", ["invoice", "make invoice", 'a"b', "größe", "a,b", "x*"])
def test_one_click_finds_the_failed_jobs_of_that_type(type_name: str) -> None:
    then = replace(ends(NOW + 5_000, 8, 4), types={"mail": {type_name: TypeSample(8, 4, "no")}})
    alarm = only(judge_all(ends(NOW, 0, 0), then))
    (line,) = parse_qs(urlsplit(alarm.path).query)["filter"]
    assert parse_filter(line).terms == (
        Term("queue", ("mail",)),
        Term("state", ("failed",)),
        Term("type", (type_name,)),
    )
    assert shlex.split(alarm.command) == ["pinlater", "job", "get", "--filter", line]


def test_a_crash_budget_that_is_used_up_is_told_apart_from_attempts() -> None:
    types = {"mail": {"invoice": TypeSample(0, 6, "[failed: crash budget used up, 3 crashes]", 4, 2)}}
    first, crashed = lost(NOW), replace(lost(NOW + 5_000, 0, 6, 60), types=types)
    alarm = only(judge_all(first, crashed))
    assert (alarm.name, alarm.title) == (
        "jobs_crashed",
        "mail: 6 jobs failed as workers were lost, their crash budget used up",
    )
    assert "Of 6 failed jobs that were examined 4 had used up the crash budget" in alarm.why
    assert "2 had used up their attempts" in alarm.why
    assert alarm.command == """pinlater job get --filter 'queue:mail state:failed error:"too many crashes"'"""
    attempts = {"mail": {"invoice": TypeSample(0, 6, "[claim expired at 1, attempts remaining 0]", 0, 6)}}
    alarm = only(judge_all(first, replace(crashed, types=attempts)))
    assert (alarm.title, alarm.path) == (
        "mail: 6 jobs failed as workers were lost",
        "/dashboard/jobs?filter=queue:mail+state:failed",
    )
    failing = only(judge_all(first, replace(lost(NOW + 5_000, 0, 20, 20), types=types)))
    assert failing.name == "failing"
    assert "4 had used up the crash budget" in failing.why


def test_a_sample_tells_what_jobs_that_were_lost_had_used_up() -> None:
    def failed(status: str) -> JobInfo:
        return JobInfo("mail:s1:p1:1", JobState.FAILED, 1, 3, 0, status, 1, 1, 1)

    expired, budget = expired_status(7, 0), expired_status(7, 2) + crash_budget_status(3)
    (sample,) = sample_of_types(map(failed, [expired, budget, budget, "attempt 3 of 3: ValueError: no"])).values()
    assert (sample.failed, sample.over_budget, sample.unheard) == (4, 2, 1)


def test_a_server_that_begins_anew_is_not_counted_twice() -> None:
    restarted = snapshot(
        at_ms=NOW + 10_000, counters=[ProcessCounters("a/1", NOW + 6_000, NOW + 10_000, {"mail": (0, 0, 9, 0, 0)})]
    )
    assert judge_all(ends(NOW, 500, 400), restarted).standing == []


# -- jobs that are lost ------------------------------------------------------------------------------------------------


def lost(at_ms: int, expired: int = 0, crashed: int = 0, succeeded: int = 0) -> Snapshot:
    """What the only server process has counted since it began, an hour ago."""
    numbers = {"mail": (expired, crashed)} if expired or crashed else {}
    counted = ends(at_ms, succeeded, expired + crashed)
    return replace(counted, lost=[ProcessCounters("a/1", NOW - 3_600_000, at_ms, numbers)])


def test_one_job_that_expires_is_a_warning_until_a_quarter_of_an_hour_later() -> None:
    judgement = Judgement()
    assert judge_all(lost(NOW), lost(NOW + 5_000), judgement=judgement).standing == []
    alarm = only(judge_all(lost(NOW + MINUTE, 1), judgement=judgement))
    assert (alarm.name, alarm.severity, alarm.size, alarm.queue) == ("jobs_expired", Severity.WARNING, 1, "mail")
    assert alarm.title == "mail: 1 job expired"
    times = [NOW + MINUTE * (1 + minutes) for minutes in range(1, 16)]
    stands = [names(judge_all(lost(at_ms, 1), judgement=judgement)) for at_ms in times]
    assert stands[:13] == [["jobs_expired"]] * 13
    assert stands[-1] == []


def test_what_had_expired_before_anybody_judged_raises_nothing() -> None:
    assert judge_all(lost(NOW, 7, 7), lost(NOW + 5_000, 7, 7)).standing == []


@pytest.mark.parametrize(("expired", "succeeded", "severity"), [(10, 40, 0), (9, 0, 1), (10, 41, 1)])
def test_many_jobs_that_expire_are_critical_and_no_failures(expired: int, succeeded: int, severity: int) -> None:
    alarm = only(judge_all(lost(NOW), lost(NOW + 5_000, expired, 0, succeeded)))
    assert (alarm.name, alarm.severity) == ("jobs_expired", severity)


def test_one_job_whose_workers_crashed_too_often_is_a_warning() -> None:
    alarm = only(judge_all(lost(NOW), lost(NOW + 5_000, 0, 1, 50)))
    assert (alarm.name, alarm.severity, alarm.size) == ("jobs_crashed", Severity.WARNING, 1)
    assert alarm.title == "mail: 1 job failed as workers were lost"
    many = only(judge_all(lost(NOW), lost(NOW + 5_000, 0, 10, 40)))
    assert (many.name, [each.name for each in many.absorbed]) == ("failing", ["jobs_crashed"])


def test_jobs_that_expire_while_nobody_works_are_the_missing_workers_alarm() -> None:
    waits = queue(waits_ms=2 * MINUTE, at_ms=NOW + 5_000)
    alarm = only(judge_all(lost(NOW), replace(lost(NOW + 5_000, 3), queues={"mail": waits})))
    assert (alarm.name, [each.name for each in alarm.absorbed]) == ("no_worker", ["jobs_expired"])


# -- waits and backlogs ------------------------------------------------------------------------------------------------


def polled(*queues: QueueFacts, **more: Any) -> Snapshot:
    at_ms = more.get("at_ms", NOW)
    return snapshot(*queues, workers=[WorkerSeen(worker("w", *(each.name for each in queues), at_ms=at_ms))], **more)


def test_a_wait_is_long_after_five_minutes_or_the_goal_of_the_queue() -> None:
    assert judge_all(polled(queue(waits_ms=5 * MINUTE))).standing == []
    alarm = only(judge_all(polled(queue(waits_ms=5 * MINUTE + 1))))
    assert (alarm.name, alarm.severity, alarm.since_ms) == ("waits_long", Severity.WARNING, NOW - 1)
    goals = {"mail": 30_000}
    assert names(judge_all(polled(queue(waits_ms=30_001), latency_goals=goals))) == ["waits_long"]
    assert judge_all(polled(queue(waits_ms=LONG), latency_goals={"mail": 2 * LONG})).standing == []


def grown(sizes: Sequence[int]) -> list[Snapshot]:
    """A reading each minute."""
    times = [NOW + place * MINUTE for place in range(len(sizes))]
    return [polled(queue(ready=size, at_ms=at_ms), at_ms=at_ms) for size, at_ms in zip(sizes, times, strict=True)]


def test_a_backlog_that_grows_for_ten_minutes_is_a_warning() -> None:
    sizes = [200 + 50 * place for place in range(11)]
    assert judge_all(*grown(sizes[:10])).standing == []
    alarm = only(judge_all(*grown(sizes)))
    assert alarm.title == "mail: its backlog of 700 ready jobs grows by 50 a minute"
    assert "never empty" in alarm.why


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([700 - 50 * place for place in range(11)], id="shrinks"),
        pytest.param([500] * 5 + [900] * 6, id="jumped once"),
        pytest.param([1_000 + place for place in range(11)], id="hardly grows"),
        pytest.param([5 * place for place in range(11)], id="small"),
    ],
)
def test_other_backlogs_raise_nothing(sizes: list[int]) -> None:
    assert judge_all(*grown(sizes)).standing == []


def test_a_pause_that_was_forgotten_says_why_it_was_made() -> None:
    paused = queue(is_paused=True, paused_since_ms=NOW - 2 * 60 * MINUTE, paused_by="anna", paused_why="no provider")
    assert only(judge_all(snapshot(paused))).why == "It was paused by anna, with no end: no provider"
    assert only(judge_all(snapshot(replace(paused, ready=1)))).impact == "1 ready job waits"


def test_a_pause_that_was_forgotten_is_worth_knowing() -> None:
    def paused(ms: int, **more: Any) -> QueueFacts:
        return queue(waits_ms=2 * ms, is_paused=True, paused_since_ms=NOW - ms, paused_by="me", **more)

    assert judge_all(snapshot(paused(60 * MINUTE))).standing == []
    alarm = only(judge_all(snapshot(paused(60 * MINUTE + 1))))
    assert (alarm.name, alarm.severity, alarm.since_ms) == ("paused_long", Severity.INFO, NOW - 60 * MINUTE - 1)
    assert judge_all(snapshot(paused(2 * 60 * MINUTE, paused_until_ms=NOW + MINUTE))).standing == []
    assert judge_all(snapshot(replace(paused(2 * 60 * MINUTE), ready=0))).standing == []


# -- shards and servers ------------------------------------------------------------------------------------------------


def test_a_shard_that_is_out_says_what_it_holds_and_what_to_do() -> None:
    out = ShardView("2", "redis", "out", False, trouble="shard 2: connection refused", jobs=69, is_home=True)
    judgement = Judgement()
    judge_all(snapshot(shards=[IN, out]), judgement=judgement)
    alarm = only(judge_all(snapshot(shards=[IN, out], at_ms=NOW + MINUTE), judgement=judgement))
    assert (alarm.name, alarm.subject, alarm.severity) == ("shard_out", "2", Severity.WARNING)
    assert (alarm.since_ms, alarm.why, alarm.size) == (NOW, "connection refused", 69)
    assert alarm.impact.startswith("69 jobs that had not ended are held there; jobs with keys")
    assert "pinlater shard give-up 2" in alarm.action
    refused = only(judge_all(snapshot(shards=[IN, out], refused={"2": 164})))
    assert refused.impact.endswith("held there; 164 calls with keys that live there were refused")
    assert only(judge_all(snapshot(shards=[out]))).severity is Severity.CRITICAL


def test_a_shard_that_is_out_says_no_number_where_nobody_has_read_it() -> None:
    out = ShardView("2", "redis", "out", False, trouble="shard 2: connection refused", jobs=None)
    judgement = Judgement()
    for minute in range(2):
        alarm = only(judge_all(snapshot(shards=[IN, out], at_ms=NOW + minute * MINUTE), judgement=judgement))
        assert (alarm.size, alarm.impact) == (0, "")


def test_a_shard_whose_store_was_wiped_says_how_the_new_one_is_taken() -> None:
    error = StoreReplaced.since("a75c8a4c", place="redis 127.0.0.1:6379/0")
    out = ShardView("2", "redis", "out", False, trouble=error.message)
    alarm = only(judge_all(snapshot(shards=[IN, out])))
    assert alarm.why == (
        "redis 127.0.0.1:6379/0: this was store a75c8a4c before, and is nothing now: it was wiped or replaced"
    )
    assert alarm.command == "pinlater serve --accept-new-store 2"


def test_a_shard_that_one_server_cannot_use_is_told_of() -> None:
    cut_off = replace(READY_SERVER, process="2", shards_out=["1"])
    assert only(judge_all(snapshot(servers=[READY_SERVER, cut_off]))).title == "Shard 1 is out at a/2"


def test_old_counts_of_a_shard_that_is_out_are_its_alarm() -> None:
    old = replace(queue(ready=0), counted_at_ms=NOW - MINUTE - 1)
    assert names(judge_all(snapshot(old))) == ["counts_old"]
    assert judge_all(snapshot(replace(old, counted_at_ms=NOW - MINUTE))).standing == []
    assert judge_all(snapshot(replace(old, counted_at_ms=0))).standing == []  # never counted: it is being made
    out = ShardView("2", "redis", "out", False, trouble="gone")
    alarm = only(judge_all(snapshot(old, shards=[IN, out])))
    assert [each.name for each in alarm.absorbed] == ["counts_old"]


def test_a_full_shard_is_critical_where_no_other_takes_jobs() -> None:
    full = ShardView("1", "redis", "in", False, trouble="maxmemory", is_full=True)
    assert only(judge_all(snapshot(shards=[full, replace(IN, id="2")]))).severity is Severity.WARNING
    assert only(judge_all(snapshot(shards=[full]))).severity is Severity.CRITICAL


def test_a_server_that_is_not_ready_is_an_alarm_unless_it_drains() -> None:
    unready = replace(READY_SERVER, process="2", is_ready=False)
    assert names(judge_all(snapshot(servers=[replace(unready, trouble="no store")]))) == ["server_unready"]
    for word in ("draining", "starting"):
        assert judge_all(snapshot(servers=[replace(unready, trouble=word)])).standing == []
    assert names(judge_all(snapshot(servers=[replace(READY_SERVER, trouble="its clock is 3 s off")]))) == [
        "server_problem"
    ]


def test_a_server_whose_lease_ran_out_is_told_of_until_one_of_its_name_or_address_is_there() -> None:
    gone = replace(READY_SERVER, server="b", address="b:9010", seen_ms=NOW - MINUTE)
    third = replace(READY_SERVER, server="c", address="c:9010")

    def found(*servers: ServerView, missing_ms: int = 15_000) -> list[Alarm]:
        return judge_all(snapshot(servers=servers, gone_servers=[GoneServer(gone, NOW - missing_ms)])).standing

    (alarm,) = found(READY_SERVER, third)
    assert (alarm.name, alarm.subject, alarm.severity, alarm.since_ms) == (
        "server_gone",
        "b",
        Severity.INFO,
        NOW - MINUTE,
    )
    assert alarm.title == "Server b at b:9010 is gone"
    assert [each.severity for each in found(READY_SERVER)] == [Severity.WARNING]
    assert found(READY_SERVER, third, missing_ms=14_999) == []
    assert found(READY_SERVER, replace(third, server="b")) == []
    assert found(READY_SERVER, replace(third, address="b:9010")) == []
    assert found(READY_SERVER, replace(gone, process="2", address="b:9011")) == []


def test_what_servers_say_of_the_cluster_is_told_of() -> None:
    chain = BlockedChain("tenant:7", "mail:s1:p1:5", 12, NOW - LONG)
    judged = judge_all(
        snapshot(
            shards=[replace(IN, blocked_chains=[chain])],
            servers=[replace(READY_SERVER, exposed="everybody may do all")],
            homes_problem="shard 3 is away",
            schedule_problems={"nightly": ("mail", "no such queue")},
        )
    )
    assert sorted(names(judged)) == ["chain_blocked", "exposed", "homes_stuck", "schedule_silent"]
    by_name = {alarm.name: alarm for alarm in judged.standing}
    assert (by_name["chain_blocked"].queue, by_name["chain_blocked"].since_ms) == ("mail", NOW - LONG)
    assert by_name["schedule_silent"].queue == "mail"


@pytest.mark.parametrize(
    ("cause", "command"),
    [
        (UnfiredCause.CLOCK_AHEAD, "pinlater schedule resume nightly"),
        (UnfiredCause.TIMETABLE, "pinlater schedule set nightly --timezone ZONE"),
        ("of a newer version", "pinlater schedule show nightly"),
    ],
)
def test_a_schedule_that_does_not_fire_has_the_remedy_of_its_cause(cause: str, command: str) -> None:
    now = snapshot(schedule_problems={"nightly": ("mail", "so it is")}, schedule_causes={"nightly": cause})
    alarm = only(judge_all(now))
    assert (alarm.name, alarm.why, alarm.command) == ("schedule_silent", "so it is", command)


def test_a_schedule_that_fails_by_itself_does_not_hide_behind_a_shard() -> None:
    out = replace(IN, id="2", state="out")
    problems = {"nightly": ("mail", "queue 'mail' does not exist"), "hourly": ("mail", "shard 2 is out")}
    now = snapshot(shards=[IN, out], schedule_problems=problems, schedules_of_shards=frozenset({"hourly"}))
    alarms = {alarm.name: alarm for alarm in judge_all(now).standing}
    assert alarms["schedule_silent"].subject == "nightly"
    assert [each.title for each in alarms["shard_out"].absorbed] == ["Schedule hourly does not fire"]


def test_jobs_on_the_disk_of_a_server_are_the_shards_fault_where_one_is_out() -> None:
    keeps = replace(READY_SERVER, overflow_jobs=12)
    alarm = only(judge_all(snapshot(servers=[keeps])))
    assert (alarm.name, alarm.size, alarm.title) == ("overflow_used", 12, "Server a keeps jobs on its own disk")
    assert judge_all(snapshot(servers=[replace(keeps, overflow_jobs=0)])).standing == []
    out = ShardView("2", "redis", "out", False, trouble="gone")
    assert [each.name for each in only(judge_all(snapshot(servers=[keeps], shards=[out]))).absorbed] == [
        "overflow_used"
    ]


def test_a_flow_that_cannot_go_on_is_a_warning() -> None:
    flow = StuckFlow("f1d0", "payroll", "pay", True, "the children of 2 items of stage pay could not be made")
    alarm = only(judge_all(snapshot(flows=FlowFacts([flow]))))
    assert (alarm.title, alarm.queue, alarm.why) == ("Flow payroll cannot go on", "pay", flow.why)
    assert alarm.command == "pinlater flow resume f1d0"


def test_a_disk_that_fills_is_a_warning() -> None:
    alarm = only(judge_all(snapshot(low_disks={"a": (9 * 2**30, 100 * 2**30)})))
    assert alarm.title == "Server a: 9% of the disk of its data folder is free"


def test_a_caller_sees_no_more_than_it_may() -> None:
    effects = (AbsorbedAlarm("no_worker", "mail waits", "mail"), AbsorbedAlarm("no_worker", "pay waits", "pay"))
    alarm = Alarm("x", "1", Severity.INFO, "t", 1, size=7, peak=9, impact="7 jobs", error="E: ada", absorbed=effects)
    shown = alarm.shown_to(lambda queue, bodies: queue == "mail" and not bodies)
    assert shown is not None
    assert (shown.size, shown.peak, shown.impact, shown.error) == (0, 0, "", "")
    assert [each.queue for each in shown.absorbed] == ["mail"]
    of_mail = replace(alarm, queue="mail")
    shown = of_mail.shown_to(lambda queue, bodies: queue == "mail" and not bodies)
    assert shown is not None
    assert (shown.size, shown.impact, shown.error) == (7, "7 jobs", "")
    assert of_mail.shown_to(lambda queue, bodies: queue == "pay") is None
    assert of_mail.shown_to(lambda queue, bodies: True) == of_mail


# -- all of them -------------------------------------------------------------------------------------------------------


def test_a_busy_healthy_cluster_raises_nothing() -> None:
    busy = [
        queue("mail", 5_000, 20_000, dequeued_per_second=50.0, enqueued_per_second=50.0),
        queue("mail_dead", 700, 48 * 60 * MINUTE),
        queue("later", 10, MINUTE, is_paused=True, paused_since_ms=NOW - 10 * MINUTE),
    ]
    calm = polled(*busy, dead_letter_queues=frozenset({"mail_dead"}))
    assert judge_all(calm, replace(calm, now_ms=NOW + 5_000)).standing == []


def test_the_page_is_as_the_table_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "alarms.md").read_text(encoding="utf-8")
    assert page == docs_page(), "write it anew: python -m pinlater.alarms > docs/alarms.md"


def test_the_table_is_in_order() -> None:
    """Causes stand before what they absorb, and each condition that is absorbed is one."""
    places = {each.name: place for place, each in enumerate(CONDITIONS)}
    assert len(places) == len(BY_NAME) == len(CONDITIONS)
    assert [
        (each.name, effect) for each in CONDITIONS for effect in each.absorbs if places[effect] <= places[each.name]
    ] == []


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda each: each.name)
def test_a_condition_finds_nothing_where_there_is_nothing(condition: Any) -> None:
    assert list(condition.find(Evidence(snapshot()))) == []


# -- coming and going --------------------------------------------------------------------------------------------------


def test_what_comes_and_goes_within_seconds_is_one_alarm() -> None:
    judgement = Judgement()
    ended = []
    for number in range(12):
        at_ms = NOW + 5_000 * number
        waits_ms = 2 * MINUTE if number % 2 == 0 else 0
        judged = judge_all(snapshot(queue(waits_ms=waits_ms, at_ms=at_ms), at_ms=at_ms), judgement=judgement)
        ended += judged.ended
        assert names(judged) == ["no_worker"]
    assert ended == []
    assert only(judged).since_ms == NOW - MINUTE


def test_with_a_queue_its_alarms_end_at_once_but_for_those_of_its_schedules() -> None:
    problems = {"nightly": ("mail", "its queue 'mail' is not there")}
    begun, failed = ([ProcessCounters("a/1", NOW - LONG, NOW, {"mail": (100, 100, 0, each, 0)})] for each in (0, 50))
    judgement = Judgement()
    lost = {"workers": (), "schedule_problems": problems}
    judgement.observe(snapshot(workers=[WorkerSeen(worker())], queue_names={"mail"}, counters=begun))
    judge_all(snapshot(queue_names={"mail"}, counters=failed, at_ms=NOW + 5_000, **lost), judgement=judgement)
    assert {each.name for each in judgement.standing} == {"worker_gone", "failing", "schedule_silent"}
    judged = judge_all(snapshot(queue_names=set(), at_ms=NOW + 10_000, **lost), judgement=judgement)
    assert names(judged) == ["schedule_silent"]
    assert {each.name for each in judged.ended} == {"worker_gone", "failing"}


def test_the_names_of_workers_are_for_who_may_read_all_queues() -> None:
    seen = [WorkerSeen(worker("w1", "b", silent_since_ms=NOW, stuck_slots=2))]
    for alarm in judge_all(snapshot(workers=seen)).standing:
        assert "host-1" in alarm.impact
        shown = alarm.shown_to(lambda queue, _: queue == "a")
        assert shown is not None
        assert "host-1" not in repr(shown)
