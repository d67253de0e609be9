"""Which claims are due, fail or are lost, at which time."""

from __future__ import annotations

import math

import pytest

from pinlater_workers.child_sockets import Frames
from pinlater_workers.heartbeat.beats import BeatSchedule, surely_held_s, usual_interval_s
from pinlater_workers.heartbeat.messages import ForgetClaims, HeartbeatEntry, WatchClaims, read_by_process, written

LEASE_S = 30.0


def watched(number: int = 1, *, good_s: float = 0.0, from_s: float = 0.0, until_s: float = math.inf) -> HeartbeatEntry:
    return HeartbeatEntry(number, "mail", "descriptor", "claim", good_s, from_s, until_s)


def due(table: BeatSchedule, now_s: float) -> set[int]:
    return {each.number for each in table.take_due(now_s)}


@pytest.fixture
def table() -> BeatSchedule:
    return BeatSchedule(LEASE_S, usual_interval_s(LEASE_S))


def test_a_short_lease_is_beaten_more_often_and_taken_for_held_nearly_to_its_end() -> None:
    assert (usual_interval_s(30.0), usual_interval_s(300.0), usual_interval_s(6.0)) == (10.0, 10.0, 2.0)
    assert (surely_held_s(30.0), surely_held_s(4.0)) == (28.0, 3.5)


def test_a_claim_is_due_at_once_and_then_every_interval_together_with_those_due_soon(table: BeatSchedule) -> None:
    table.watch([watched(1)])
    assert due(table, 0.0) == {1}
    table.watch([watched(2, good_s=6.0, from_s=6.0)])
    assert due(table, 6.0) == {1, 2}, "one beat for both"
    table.beaten([1, 2], 6.0)
    assert table.next_s() == 16.0
    assert due(table, 15.9) == set()
    assert due(table, 16.0) == {1, 2}


def test_a_young_claim_is_not_beaten_yet_whatever_else_is_due(table: BeatSchedule) -> None:
    table.watch([watched(1), watched(2, from_s=1.0)])
    assert due(table, 0.9) == {1}
    table.all_due(0.95)
    assert due(table, 0.95) == {1}
    assert table.next_s() == 1.0
    assert due(table, 1.0) == {2}


def test_watched_again_or_with_a_broken_connection_it_is_due_at_once(table: BeatSchedule) -> None:
    table.watch([watched(1), watched(2)])
    table.take_due(0.0)
    table.watch([watched(1)])
    assert due(table, 1.0) == {1}
    table.all_due(2.0)
    assert due(table, 2.0) == {1, 2}


def test_no_beat_comes_after_the_time_it_may_live(table: BeatSchedule) -> None:
    table.watch([watched(until_s=10.0)])
    assert due(table, 0.0) == {1}
    table.beaten([1], 0.0)
    assert due(table, 10.0) == set()
    assert table.next_s() == 28.0
    assert table.take_lost(27.9) == []
    assert table.take_lost(28.0) == [1]
    assert len(table) == 0


def test_two_failed_beats_in_a_row_are_told_once_and_tries_in_between_count_as_one(table: BeatSchedule) -> None:
    table.watch([watched()])
    table.take_due(0.0)
    table.beaten([1], 0.0)
    told = []
    for second in range(10, 28):
        assert due(table, second) == {1}, "tried again after a second"
        told += [second] * len(table.failed([1], second, second))
    assert told == [20]
    assert table.take_lost(28.0) == [1]


def test_a_good_beat_between_failures_starts_again(table: BeatSchedule) -> None:
    table.watch([watched()])
    assert table.failed([1], 10.0, 10.0) == []
    table.beaten([1], 15.0)
    assert table.failed([1], 14.0, 16.0) == [], "it began before the good one"
    assert table.failed([1], 25.0, 25.0) == []
    assert table.failed([1], 35.0, 35.0) == [1]


def test_what_is_forgotten_is_nothing_to_anybody(table: BeatSchedule) -> None:
    table.watch([watched()])
    table.take_due(0.0)
    table.forget([1, 7])
    table.beaten([1], 0.0)
    assert table.failed([1], 0.0, 1.0) == []
    assert table.next_s() == math.inf


def test_what_is_lost_stays_known_until_it_has_surely_expired(table: BeatSchedule) -> None:
    """Nobody who finds it in a scan is to keep it alive again."""
    table.watch([watched(1)])
    assert table.take_lost(28.0) == [1]
    assert table.known() == {("descriptor", "claim")}
    table.lose([], 80.0)
    assert table.known() == {("descriptor", "claim")}
    table.lose([], 90.0)
    assert table.known() == set()


def test_messages_are_read_as_they_were_written_however_they_come() -> None:
    messages: list[WatchClaims | ForgetClaims] = [
        WatchClaims([watched(7, good_s=1.5)]),
        ForgetClaims([1, 2**40]),
        ForgetClaims([]),
    ]
    data = b"".join([written(message) for message in messages])
    whole, bytewise = Frames(), Frames()
    assert [read_by_process(body) for body in whole.feed(data)] == messages
    read = [body for at in range(len(data)) for body in bytewise.feed(data[at : at + 1])]
    assert [read_by_process(body) for body in read] == messages
