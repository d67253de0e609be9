"""The checker of histories, where groups have limits: what counts for a group, what is certain, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.history.call_events import CallError
from pinlater.history.checker import Verdict
from pinlater.history.checker.group_settings import GroupSettingsHistory
from pinlater.history.checker.history_queue import HistoryQueue
from pinlater.history.checker.job_machine import Surroundings
from pinlater.model import CONTINUATION_END, AckOutcome
from tests.unit.checker_stand import (
    QUEUE,
    NoteRow,
    Row,
    ack,
    claim,
    claimed_at,
    enqueue,
    enqueue_lost,
    judged,
    ms,
    queue_settings,
    set_queue,
)

Rows = list[Row | NoteRow]
NONE = {"group_concurrency": "none", "group_rate": "none", "group_max_pending": "none"}
FULL = CallError("EnqueueRejected", "GROUP_FULL", "nothing")


def groups(at_s: float, **concurrency: tuple[str, str]) -> Row:
    """A page that lists these groups alone, with the maximum of each and where that comes from."""
    views = [
        {"name": name.replace("_", "-"), "settings": {"concurrency": {"value": value, "source": source}}}
        for name, (value, source) in concurrency.items()
    ]
    answer = {"groups": views, "continuation": CONTINUATION_END}
    return Row(at_s, at_s + 0.1, "operator", "getGroups", {"queueName": QUEUE}, answer)


def set_group(at_s: float, name: str, *, unset: tuple[str, ...] = (), **settings: str) -> Row:
    request = {"queueName": QUEUE, "group": name, "settings": settings, "unset": list(unset)}
    return Row(at_s, at_s + 0.1, "operator", "updateGroup", request, {"version": "2"})


def give_up(at_s: float, shard: str) -> Row:
    request = {"shardId": shard, "dequeueOnly": True, "giveUp": True}
    return Row(at_s, at_s + 0.1, "operator", "updateShard", request, {"version": "2"})


def stored(names: str, group: str = "acme", **fields: Any) -> Rows:
    return [enqueue(0, name, group=group, **fields) for name in names]


def rules(verdict: Verdict) -> list[str]:
    return [each.rule for each in verdict.violations]


def limited(most: str = "1") -> Rows:
    """Each group has this maximum, and nothing else is set."""
    return [queue_settings(-100, **NONE | {"group_concurrency": most}), groups(-90), *stored("ABCD")]


TWO = [claim(1, "A"), claim(2, "B")]


def test_a_group_with_more_claims_than_its_maximum_is_found_over_all_shards() -> None:
    rows = [*limited()[:2], enqueue(0, "A", group="acme"), enqueue(0, "B", group="acme", shard="2")]
    verdict = judged(*rows, claim(1, "A"), claim(2, "B", shard="2"))
    assert rules(verdict) == ["permit"], list(verdict.lines())
    assert verdict.violations[0].text == "2 jobs of the group acme are in progress, and 1 may be"
    assert verdict.violations[0].calls == (5, 6)
    assert judged(*limited("2"), *TWO).is_explained


def test_each_group_has_its_own_and_jobs_without_one_have_none() -> None:
    rows: Rows = [*limited()[:2], *stored("A"), *stored("B", "betty"), enqueue(0, "C"), enqueue(0, "D")]
    assert judged(*rows, *(claim(1 + number, name) for number, name in enumerate("ABCD"))).is_explained


@pytest.mark.parametrize(
    "between",
    [
        [ack(1.5, "A", claimed_at(1))],
        [ack(1.5, "A", claimed_at(1), AckOutcome.RETRIED, failed=True)],
        [set_queue(-40, group_concurrency="2"), set_queue(-20, group_concurrency="1")],
        [set_group(-20, "acme", concurrency="2")],
        [set_group(-50, "acme", concurrency="none")],
        [set_group(-50, "a*", concurrency="2")],
        [
            set_group(-50, "acme", weight="2"),
            set_group(-50, "a*", concurrency="1"),
            set_queue(-5, group_concurrency="2"),
        ],
        [NoteRow(1.5, "rollback", "7", 1.2)],
        [give_up(1.5, "7")],
        [give_up(-20, "7")],
    ],
    ids=[
        "ended",
        "failed",
        "a smaller one takes no claim away",
        "raised",
        "lifted",
        "a pattern",
        "the group says something else",
        "a store was set back",
        "a shard is given up",
        "not every server knows yet",
    ],
)
def test_what_may_allow_a_second_claim_does(between: Rows) -> None:
    assert judged(*limited(), *between, *TWO).is_explained


def test_claims_that_may_go_back_by_themselves_do_not_count() -> None:
    assert judged(*limited(), claim(1, "A", releaseOnDisconnect=True), claim(2, "B")).is_explained
    assert judged(*limited(), claim(1, "A", confirmsReceipt=True), claim(2, "B")).is_explained
    assert judged(*limited(), claim(1, "A", until_s=2.4), claim(2, "B")).is_explained


def test_claims_of_before_there_was_a_maximum_do_not_count() -> None:
    rows: Rows = [queue_settings(-100, **NONE), groups(-90), *stored("ABCD"), claim(1, "A"), claim(2, "B")]
    assert judged(*rows, set_queue(3, group_concurrency="1"), claim(60, "C")).is_explained
    assert rules(judged(*rows, set_queue(3, group_concurrency="1"), claim(60, "C"), claim(61, "D"))) == ["permit"]


def test_a_change_counts_half_a_minute_later() -> None:
    rows: Rows = [*limited("2"), set_queue(0, group_concurrency="1")]
    assert judged(*rows, claim(20, "A"), claim(29, "B")).is_explained
    assert rules(judged(*rows, claim(20, "A"), claim(31, "B"))) == ["permit"]


def test_what_is_set_is_not_known_before_the_groups_are_listed() -> None:
    known, _, *rest = limited()
    assert judged(known, *rest, *TWO).is_explained
    assert judged(known, *rest, groups(0.5), *TWO).violations
    assert judged(known, *rest, set_group(-50, "acme", concurrency="1"), *TWO).violations, "it says so itself"


def test_what_a_store_may_have_lost_counts_once_it_is_shown_again() -> None:
    rows: Rows = [*limited(), NoteRow(0.5, "rollback", "1", 0.4)]
    assert judged(*rows, claim(40, "A"), claim(41, "B")).is_explained
    shown = [queue_settings(2, **NONE | {"group_concurrency": "1"}), groups(3)]
    assert rules(judged(*rows, *shown, claim(40, "C"), claim(41, "D"))) == ["permit"]


def test_listed_groups_say_where_their_maximum_comes_from() -> None:
    settings = GroupSettingsHistory(HistoryQueue(Surroundings(0.0, True), NONE))
    for name, value, source in (
        ("acme", "3", "group"),
        ("trial-1", "2", "pattern trial-*"),
        ("trial-*", "2", "group"),
        ("other", "none", "default"),
    ):
        settings.shown(name, {"concurrency": {"value": value, "source": source}}, 0, 1)
    settings.listed(["acme", "trial-1", "trial-*", "other"], 0, 1)
    found = {name: settings.values(name, "concurrency", 10, 20) for name in ("acme", "trial-1", "trial-9", "other")}
    assert found == {"acme": ["3"], "trial-1": ["2"], "trial-9": ["2"], "other": ["none"]}


def test_more_of_a_group_than_its_rate_allows_are_found() -> None:
    letters = [chr(0x100 + number) for number in range(60)]
    rows: Rows = [
        queue_settings(-100, **NONE),
        groups(-90),
        set_group(-80, "acme", rate="1/s"),
        *stored("".join(letters)),
    ]
    paces = {
        pause_s: judged(*rows, *(claim(1 + place * pause_s, name, took_s=0.01) for place, name in enumerate(letters)))
        for pause_s in (0.2, 1.0)
    }
    assert (rules(paces[0.2])[:1], rules(paces[1.0])) == (["rate"], [])


def test_a_paused_group_gets_none_while_it_has_no_end() -> None:
    rows: Rows = [queue_settings(-100, **NONE), groups(-90), *stored("AB"), *stored("C", "betty")]
    pause = set_group(-50, "acme", paused="true")
    assert rules(judged(*rows, pause, claim(1, "C"), claim(2, "A"))) == ["paused"]
    assert judged(*rows, pause, set_group(-10, "acme", unset=("paused",)), claim(2, "A")).is_explained
    assert judged(*rows, set_group(-50, "acme", paused="true", paused_until=str(ms(0))), claim(2, "A")).is_explained


@pytest.mark.parametrize(
    ("others", "is_right"),
    [
        (stored("AB"), False),
        (stored("ABC"), True),
        ([*stored("AB"), *stored("CDE", "betty")], False),
        ([*stored("ABC"), *(row for name in "ABC" for row in (claim(1, name), ack(2, name, claimed_at(1))))], False),
        ([*stored("AB"), enqueue_lost(0, group="acme")], True),
        ([*stored("AB"), set_queue(80, group_max_pending="2")], True),
        ([*stored("AB"), enqueue(80, "C", group="acme", dedupeKey="c", outcome=1)], True),
    ],
    ids=["few", "full", "others", "ended long ago", "one that may be there", "a smaller bound", "one that was kept"],
)
def test_a_group_is_full_only_where_its_jobs_may_pass_its_bound(others: Rows, is_right: bool) -> None:
    settings = queue_settings(-100, **NONE | {"group_max_pending": "3"}, succeeded_ttl="0s")
    refused = enqueue(100, "Z", group="acme", error=FULL)
    assert rules(judged(settings, *others, refused)) == ([] if is_right else ["full"])
