"""The answers about alarms, within the rights of the caller and its limit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pinlater.alarms.alarm_entries import encode_entry
from pinlater.alarms.judge import StandingEntry
from pinlater.alarms.judgement import MOST
from pinlater.model import AccessAction, RequestContext
from pinlater.model.alarm_views import Alarm, AlarmsPage, Severity
from pinlater.model.callers import Caller, Grant
from pinlater.service.alarm_calls import AlarmCalls
from tests.unit.breaking import HeldClock
from tests.unit.test_alarm_conditions import MINUTE, judge_all, queue, snapshot

SECRET = "Refused: card 4242"
OF_A = Alarm("failing", "a", Severity.WARNING, "a: 30 % of the jobs fail", 1, "a", 3, 3, error=SECRET)
OF_B = replace(OF_A, severity=Severity.CRITICAL, subject="b", queue="b", title="b: 30 % of the jobs fail")


@dataclass
class Judged:
    """What a judge has found."""

    alarms: list[Alarm]
    more: int = 0
    context: Any = field(default_factory=lambda: type("Parts", (), {"clock": HeldClock(), "admin": 0, "audit": 0}))

    async def page(self, limit: int) -> AlarmsPage:
        return AlarmsPage(5, self.alarms[:limit], more=self.more)

    ended_page = page

    async def seen(self, queues: str, limit: int, shows_bodies: bool = False, ended: bool = False) -> AlarmsPage:
        caller = Caller("token:a", grants=[Grant(frozenset({AccessAction.READ}), (queues,), shows_bodies)])
        return await AlarmCalls(self.context, self).page(ended, limit, RequestContext("me", caller=caller))  # type: ignore[arg-type]


@pytest.mark.parametrize("ended", [False, True])
async def test_a_limit_counts_what_the_caller_may_see(ended: bool) -> None:
    judged = Judged([OF_B, OF_A], more=7)
    page = await judged.seen("a", 1, ended=ended)
    assert ([each.subject for each in page.alarms], page.more) == (["a"], 0)
    page = await judged.seen("*", 1, ended=ended)
    assert ([each.subject for each in page.alarms], page.more) == (["b"], 8)


async def test_errors_are_for_who_may_see_bodies() -> None:
    judged = Judged([OF_A])
    assert SECRET not in repr(await judged.seen("*", 10))
    assert SECRET in repr(await judged.seen("*", 10, shows_bodies=True))


def test_fifty_alarms_of_two_thousand_queues_are_a_small_entry() -> None:
    """Two shards keep it, and it is read when somebody asks; a judgement of more is cut."""
    judged = judge_all(
        snapshot(*[queue(f"q{number:04}", waits_ms=2 * MINUTE * (number < 50)) for number in range(2_000)])
    )
    assert len(judged.standing) == 50
    assert len(encode_entry(StandingEntry("a/1", 5, tuple(judged.standing)))) < 8 * 1024
    worst = judge_all(snapshot(*[queue(f"q{number:04}", waits_ms=2 * MINUTE) for number in range(2_000)]))
    assert (len(worst.standing), worst.more) == (MOST, 2_000 - MOST)
    assert len(encode_entry(StandingEntry("a/1", 5, tuple(worst.standing)))) < 32 * 1024
