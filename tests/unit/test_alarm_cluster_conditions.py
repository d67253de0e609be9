"""Each condition of flows, tiers, slow shards and certificates by recorded snapshots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pinlater.alarms.evidence import FlowFacts, LostCallback, UnsealedStage
from pinlater.alarms.flow_watch import unsealed_stages
from pinlater.model import ShardView
from pinlater.model.alarm_views import Alarm, Severity
from pinlater.model.flow_words import FlowState, FlowStatus, Stage, StageStatus
from tests.unit.test_alarm_conditions import IN, MINUTE, NOW, judge_all, names, only, snapshot


def test_a_database_of_flows_that_is_away_is_critical() -> None:
    alarm = only(judge_all(snapshot(flows=FlowFacts(problem="no answer"))))
    assert (alarm.name, alarm.severity, alarm.why) == ("flows_away", Severity.CRITICAL, "no answer")


def test_a_callback_that_was_given_up_is_a_warning() -> None:
    lost = LostCallback("f1d0", "payroll", "pay", "it answered 500", NOW - MINUTE)
    alarm = only(judge_all(snapshot(lost_callbacks=[lost])))
    assert (alarm.name, alarm.severity, alarm.queue, alarm.since_ms) == (
        "callback_lost",
        Severity.WARNING,
        "pay",
        NOW - MINUTE,
    )
    assert alarm.why == "Its receiver did not learn that the flow is over: it answered 500"


def test_a_stage_that_waits_for_a_seal_for_an_hour_is_worth_knowing() -> None:
    def found(ms: int) -> list[Alarm]:
        stage = UnsealedStage("f1d0", "payroll", "pay", "root", 1_200, NOW - ms)
        return judge_all(snapshot(flows=FlowFacts(unsealed=[stage]))).standing

    assert found(60 * MINUTE - 1) == []
    (alarm,) = found(60 * MINUTE)
    assert (alarm.name, alarm.severity, alarm.subject) == ("stage_unsealed", Severity.INFO, "f1d0/root")
    assert alarm.command == "pinlater flow seal f1d0 root"


def flow(*stages: StageStatus) -> FlowStatus:
    return FlowStatus("f1", "payroll", FlowState.RUNNING, "", {}, stages, NOW, None)


def stage(name: str = "root", parent: str = "", pending: int = 0, errors: int = 0, sealed: bool = False) -> StageStatus:
    return StageStatus(Stage(name, "calc", "pay", parent), 5, pending, pending, 5 - pending, 0, errors, sealed)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([stage()], ["root"]),
        ([stage(pending=1)], []),
        ([stage(errors=1)], []),
        ([stage(sealed=True)], []),
        ([stage(), stage("child", "root")], ["root"]),
        ([stage(sealed=True), stage("child", "root")], ["child"]),
    ],
)
def test_what_waits_for_a_seal_has_nothing_else_to_wait_for(stages: list[StageStatus], expected: list[str]) -> None:
    found = unsealed_stages([flow(*stages)], {}, NOW)
    assert [each.stage for each in found] == expected
    since_ms = {("f1", name, 5): NOW - MINUTE for name in expected}
    assert {each.since_ms for each in unsealed_stages([flow(*stages)], since_ms, NOW)} <= {NOW - MINUTE}
    more = {("f1", name, 4): NOW - MINUTE for name in expected}
    assert {each.since_ms for each in unsealed_stages([flow(*stages)], more, NOW)} <= {NOW}


def test_a_tier_that_is_away_is_one_alarm_of_all_who_cannot_use_it() -> None:
    away = {"bucket": {"b/1": "no answer", "a/1": "no answer"}}
    alarm = only(judge_all(snapshot(tiers_away=away)))
    assert (alarm.name, alarm.severity, alarm.size) == ("tier_away", Severity.WARNING, 2)
    assert alarm.title == "Tier bucket of bodies cannot be used at a/1, b/1"


def test_a_slow_shard_is_a_warning_while_it_is_in() -> None:
    alarm = only(judge_all(snapshot(slow_shards={"1": ["a/1"]})))
    assert (alarm.name, alarm.severity, alarm.title) == ("shard_slow", Severity.WARNING, "Shard 1 is slow at a/1")
    out = ShardView("1", "redis", "out", False, trouble="gone")
    assert names(judge_all(snapshot(slow_shards={"1": ["a/1"]}, shards=[out, replace(IN, id="2")]))) == ["shard_out"]


DAY = 24 * 60 * MINUTE


@pytest.mark.parametrize(
    ("left_ms", "expected"),
    [
        (14 * DAY, None),
        (14 * DAY - 1, (Severity.WARNING, "The certificate of server a ends in 13 days")),
        (DAY + 1, (Severity.WARNING, "The certificate of server a ends in 1 day")),
        (DAY, (Severity.CRITICAL, "The certificate of server a ends in 1 day")),
        (0, (Severity.CRITICAL, "The certificate of server a has ended")),
    ],
)
def test_a_certificate_that_ends_soon_is_told_of(left_ms: int, expected: tuple[Severity, str] | None) -> None:
    found = judge_all(snapshot(certificates={"a": NOW + left_ms})).standing
    assert [(each.severity, each.title) for each in found] == ([] if expected is None else [expected])
