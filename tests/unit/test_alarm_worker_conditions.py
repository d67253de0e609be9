"""The conditions of relays of outboxes, and of jobs that no worker knows, by recorded snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.alarms.condition import QUIET_MS
from pinlater.alarms.evidence import Snapshot, WorkerSeen
from pinlater.alarms.judgement import Judgement
from pinlater.model import OutboxReport, ShardView, UnknownType
from pinlater.model.alarm_views import Severity
from tests.unit.test_alarm_conditions import IN, MINUTE, NOW, judge_all, names, only, snapshot, worker

SHOP = "postgresql://db/shop/pinlater_outbox"


def relay(id: str = "r1", outbox: str = SHOP, at_ms: int = NOW, is_stopping: bool = False, **of: Any) -> WorkerSeen:
    report = OutboxReport(outbox, of.pop("waiting", 0), of.pop("oldest_ms", 0), of.pop("goal_ms", 5 * MINUTE), **of)
    info = worker(id, at_ms=at_ms, outbox=report)
    info.queues = {}
    return WorkerSeen(info, is_stopping)


def at(ms: int, *workers: WorkerSeen, **more: Any) -> Snapshot:
    return snapshot(at_ms=NOW + ms, workers=workers, **more)


def test_an_outbox_whose_relay_is_gone_is_critical_until_another_one_comes() -> None:
    judgement = Judgement()
    assert judge_all(at(0, relay(waiting=3)), judgement=judgement).standing == []
    alarm = only(judge_all(at(5_000), judgement=judgement))
    assert (alarm.name, alarm.severity, alarm.subject, alarm.queue) == (
        "outbox_not_relayed",
        Severity.CRITICAL,
        SHOP,
        "",
    )
    assert (alarm.since_ms, alarm.size) == (NOW, 3)
    assert "3 committed jobs waited there then" in alarm.why
    later = NOW + 10_000
    there = relay("r2", at_ms=later)
    assert judge_all(at(10_000, there), at(15_000, there), judgement=judgement).standing == []
    stopping = relay("r2", at_ms=later, is_stopping=True)
    assert judge_all(at(20_000, stopping), at(25_000), judgement=judgement).standing == []


@pytest.mark.parametrize(
    "then",
    [
        pytest.param([relay(is_stopping=True)], id="it stops"),
        pytest.param([relay("r2")], id="another one is there"),
    ],
)
def test_a_relay_that_stops_or_has_others_is_not_missed(then: list[WorkerSeen]) -> None:
    others = [each for each in then if each.worker.id != "r1"]
    judged = judge_all(at(0, relay(), *others), at(5_000, *then), at(10_000, *others))
    assert judged.standing == []


def test_a_relay_of_another_outbox_is_none_in_its_place() -> None:
    other = relay("r2", "sqlite:///mail.db/pinlater_outbox")
    assert only(judge_all(at(0, relay(), other), at(5_000, other))).subject == SHOP


def test_a_judge_that_takes_over_forgets_no_lost_relay() -> None:
    first, then = Judgement(), Judgement()
    judge_all(at(0, relay(waiting=3)), at(5_000), judgement=first)
    then.resume(first.standing, NOW + 10_000)
    alarm = only(judge_all(at(10_000), judgement=then))
    assert (alarm.name, alarm.severity, alarm.since_ms, alarm.size) == ("outbox_not_relayed", Severity.CRITICAL, NOW, 3)
    there = relay("r2", at_ms=NOW + 15_000)
    assert judge_all(at(15_000, there), at(20_000, there), judgement=then).standing == []


def test_a_job_that_waits_in_an_outbox_for_longer_than_its_goal_is_a_warning() -> None:
    good = relay(waiting=9, oldest_ms=5 * MINUTE)
    assert judge_all(at(0, good)).standing == []
    late = relay(waiting=9, oldest_ms=5 * MINUTE + 1, problem="queue mail takes no jobs: it is full")
    alarm = only(judge_all(at(0, late)))
    assert (alarm.name, alarm.severity, alarm.size, alarm.since_ms) == (
        "outbox_not_relayed",
        Severity.WARNING,
        9,
        NOW - 1,
    )
    assert alarm.error == "queue mail takes no jobs: it is full"
    assert judge_all(at(0, relay(waiting=0, oldest_ms=5 * MINUTE + 1))).standing == []


def test_a_shard_that_is_out_explains_what_waits_in_an_outbox_and_no_lost_relay() -> None:
    out = [IN, ShardView("2", "redis", "out", False, trouble="gone")]
    late = relay("r2", "other", waiting=9, oldest_ms=6 * MINUTE)
    judged = judge_all(at(0, relay(), late, shards=out), at(5_000, late, shards=out))
    assert names(judged) == ["outbox_not_relayed", "shard_out"]
    assert judged.standing[0].severity is Severity.CRITICAL
    assert [each.name for each in judged.standing[1].absorbed] == ["outbox_not_relayed"]


# -- types that nobody knows -------------------------------------------------------------------------------------------


def meets(at_ms: int, *types: UnknownType, id: str = "w1", knows: tuple[str, ...] = ("send",)) -> WorkerSeen:
    return WorkerSeen(worker(id, at_ms=NOW + at_ms, unknown_types=list(types)), job_types=knows)


def test_a_type_that_no_worker_knows_is_a_warning_after_five_minutes() -> None:
    judgement = Judgement()
    first = meets(0, UnknownType("mail", "resize", 2, 1_000))
    assert judge_all(at(0, first), judgement=judgement).standing == []
    late = 5 * MINUTE - 1_001
    again = meets(late, UnknownType("mail", "resize", 3, 0))
    assert judge_all(at(late, again), judgement=judgement).standing == []
    alarm = only(judge_all(at(late + 1, again), judgement=judgement))
    assert (alarm.name, alarm.severity, alarm.subject, alarm.queue) == (
        "type_unknown",
        Severity.WARNING,
        "mail/resize",
        "mail",
    )
    assert (alarm.title, alarm.size, alarm.since_ms) == ("mail: no worker knows jobs of type resize", 3, NOW - 1_000)
    assert alarm.path == "/dashboard/jobs?filter=queue:mail+state:scheduled+type:resize"
    knowing = meets(late + 2, id="w2", knows=("send", "resize"))
    assert (
        judge_all(at(late + 2, again, knowing), at(late + QUIET_MS + 1, again, knowing), judgement=judgement).standing
        == []
    )


def test_it_ends_when_none_was_met_for_longer_than_a_round() -> None:
    judgement = Judgement()
    judge_all(at(0, meets(0, UnknownType("mail", "resize", 1))), judgement=judgement)
    assert names(judge_all(at(15 * MINUTE - 1, meets(0)), judgement=judgement)) == ["type_unknown"]
    ended = 15 * MINUTE - 1 + QUIET_MS
    assert judge_all(at(15 * MINUTE, meets(0)), at(ended, meets(0)), judgement=judgement).standing == []


@pytest.mark.parametrize(
    ("other", "is_raised"),
    [
        pytest.param(meets(0, id="w2", knows=("resize",)), False, id="it knows"),
        pytest.param(meets(0, id="w2", knows=()), False, id="it says nothing"),
        pytest.param(meets(0, id="w2", knows=("a",) * 100), False, id="it may know more than it says"),
        pytest.param(meets(0, id="w2"), True, id="it knows others"),
        pytest.param(meets(0, UnknownType("mail", "resize"), id="w2", knows=()), True, id="it met it too"),
        pytest.param(WorkerSeen(worker("w2", "sms"), job_types=("resize",)), True, id="it takes from another queue"),
        pytest.param(WorkerSeen(worker("w2"), True, ("resize",)), True, id="it stops"),
    ],
)
def test_a_worker_that_may_know_the_type_is_enough(other: WorkerSeen, is_raised: bool) -> None:
    met = meets(0, UnknownType("mail", "resize", 1))
    judged = judge_all(at(0, met, other), at(5 * MINUTE, met, other))
    assert names(judged) == ["type_unknown"] * is_raised


def test_bodies_that_nobody_can_read_are_told_of_by_the_queue() -> None:
    met = meets(0, UnknownType("mail", "", 1))
    alarm = only(judge_all(at(0, met), at(5 * MINUTE, met)))
    assert (alarm.subject, alarm.title) == ("mail", "mail: no worker knows jobs whose bodies they cannot read")


def test_a_judge_that_takes_over_goes_on_at_once() -> None:
    first, then = Judgement(), Judgement()
    met = meets(0, UnknownType("mail", "resize", 1))
    judge_all(at(0, met), at(5 * MINUTE, met), judgement=first)
    then.resume(first.standing, NOW + 6 * MINUTE)
    again = meets(6 * MINUTE, UnknownType("mail", "resize", 1))
    assert only(judge_all(at(6 * MINUTE, again), judgement=then)).since_ms == NOW
