"""The vote over the clocks of a cluster, and what a server takes for the time, with every clock under control."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.cluster.clocks import CONFIRM_MS, JUMP_REMEMBERED_MS, ClusterClock, Reading, vote
from pinlater.cluster.lease import Lease
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.handle import ShardHandle
from tests.unit.breaking import HeldClock

HOUR_MS = 3_600_000
T = 1_000


def own(ahead_ms: int = 0) -> Reading:
    return Reading("this server", ahead_ms, ahead_ms)


def others(*ahead_ms: int | tuple[int, int]) -> list[Reading]:
    bounds = [each if isinstance(each, tuple) else (each, each) for each in ahead_ms]
    return [Reading(f"shard {number}", *each) for number, each in enumerate(bounds, 1)]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (0, [], ("own", 0, 0)),
        (0, [T], ("own", 0, 0)),
        (0, [-T, T], ("own", 0, 0)),
        (0, [T + 1], ("open", 0, T + 1)),
        (0, [-HOUR_MS], ("open", -HOUR_MS, 0)),
        (0, [0, HOUR_MS], ("own", 0, 0)),
        (HOUR_MS, [0, 3], ("outvoted", 0, 3)),
        (-HOUR_MS, [0, 0, T], ("outvoted", 0, T)),
        (0, [0, HOUR_MS, HOUR_MS], ("open", 0, HOUR_MS)),
        (0, [HOUR_MS, -HOUR_MS], ("open", -HOUR_MS, HOUR_MS)),
        (0, [(T + 1, T + 9), (T - 5, T + 9)], ("own", 0, 0)),
        (0, [(-T - 9, -T - 1), (-T - 9, -T - 1)], ("outvoted", -T - 9, -T - 1)),
        (0, [900, 1_800, 5 * T], ("open", 0, 5 * T)),
    ],
)
def test_the_vote(ours: int, theirs: list[int | tuple[int, int]], verdict: tuple[str, int, int]) -> None:
    assert vote(own(ours), others(*theirs), T) == verdict


class OwnClock(ShardDecorator):
    """As of a store on another machine."""

    has_own_clock = True


class Around:
    """One server, with the clocks around it: time passes, and clocks are set."""

    def __init__(self, *stores_ahead_ms: int, own_clocks: bool = True) -> None:
        self.held = HeldClock()
        self.clock = ClusterClock(passed_ns=lambda: self.held.now_ms() * 1_000_000, wall_ns=self.held.wall_ns)
        shards = [SqliteShard("sqlite://", str(number)) for number in range(1, len(stores_ahead_ms) + 1)]
        self.members = [ShardHandle(OwnClock(each) if own_clocks else each, self.clock.steady) for each in shards]
        for member in self.members:
            member.readmit()
        self.stores_ahead_ms = list(stores_ahead_ms)
        self.membership: list[Lease] = []
        self.renewals = 0
        self.judge()

    def judge(self, passed_ms: int = 0) -> tuple[int, int]:
        """How far the earliest and the latest time are ahead of the steady clock."""
        self.held.tick(passed_ms)
        now_ms = self.held.now_ms()
        for member, ahead_ms in zip(self.members, self.stores_ahead_ms, strict=True):
            if member.is_healthy:
                member.note_clock(now_ms + ahead_ms, now_ms, now_ms)
        self.clock.judge(self.members, self.membership, "me")
        earliest_ms = self.clock.now_ms() - now_ms
        return earliest_ms, earliest_ms + self.clock.uncertainty_ms

    def is_at(self, earliest_ms: int, latest_ms: int, passed_ms: int = 0) -> bool:
        """But for the millisecond that no ping can tell."""
        found = self.judge(passed_ms)
        return earliest_ms - 1 <= found[0] <= earliest_ms and latest_ms <= found[1] <= latest_ms + 2

    def tell(self, server: str, ahead_ms: int, process: str = "1") -> None:
        """By its lease, which it renews, the clock of a server is so far ahead."""
        self.renewals += 1
        told = {str(place): [each - ahead_ms - 1] * 2 for place, each in enumerate(self.stores_ahead_ms, 1)}
        self.membership = [lease for lease in self.membership if lease.name != f"{server}/{process}"]
        self.membership.append(
            Lease(
                server=server,
                process=process,
                address="",
                started_ms=0,
                renewed_ms=0,
                renewal=self.renewals,
                is_ready=True,
                more={"clocks": told},
            )
        )


def test_within_the_tolerance_the_time_is_that_of_the_machine_also_where_it_is_set() -> None:
    at = Around(-900, 900)
    assert at.judge(1_000) == (0, 0)
    at.held.set_ahead_ms = 80
    assert at.judge(1_000) == (80, 80)
    assert (at.clock.warning(), at.clock.correction_ms) == ("", 0)


def test_between_two_judgements_a_clock_that_is_set_changes_nothing() -> None:
    at = Around(0)
    before_ms = at.clock.now_ms()
    at.held.set_ahead_ms = HOUR_MS
    assert at.clock.now_ms() == before_ms
    at.held.tick(700)
    assert at.clock.now_ms() == before_ms + 700


def test_two_clocks_that_differ_are_both_right_and_the_text_says_what_is_done() -> None:
    at = Around(-HOUR_MS)
    assert at.is_at(-HOUR_MS, 0)
    assert "shard 1 is 3600000 ms behind this server's" in at.clock.warning()
    assert "jobs are due by the earliest time, claims and delays last by the latest, 360000" in at.clock.warning()
    at.stores_ahead_ms[0] = 0
    assert at.judge(1_000) == (0, 0)
    assert at.clock.warning() == ""


def test_a_server_that_agrees_with_the_store_outvotes_us() -> None:
    at = Around(-HOUR_MS)
    at.tell("other", -HOUR_MS)
    assert at.is_at(-HOUR_MS, -HOUR_MS)
    assert at.clock.verdict.way == "outvoted"
    assert at.clock.correction_ms in (-HOUR_MS, -HOUR_MS - 1)


def test_a_server_of_several_processes_has_one_vote_and_our_own_processes_have_none() -> None:
    at = Around(0)
    for process in "123":
        at.tell("wrong", HOUR_MS, process)
        at.tell("me", HOUR_MS, process)
    assert at.judge() == (0, 0)
    at.tell("wrong too", HOUR_MS)
    assert at.is_at(0, HOUR_MS)


def test_a_lease_of_another_version_tells_nothing() -> None:
    at = Around(0)
    at.tell("other", HOUR_MS)
    at.tell("third", HOUR_MS)
    at.tell("fourth", HOUR_MS)
    for lease, told in zip(at.membership, (None, {"1": "?"}, [1]), strict=True):
        assert isinstance(lease.more, dict)
        lease.more["clocks"] = told
    assert at.judge() == (0, 0)


def test_a_store_that_goes_out_keeps_its_word_and_so_does_a_server_that_leaves_while_clocks_differ() -> None:
    at = Around(-HOUR_MS)
    at.members[0].store_id = "x"
    at.members[0].health.trip(at.held.now_ms())
    assert at.is_at(-HOUR_MS, 0, 10 * HOUR_MS)
    at = Around(0, 0)
    at.stores_ahead_ms[0] = -HOUR_MS
    at.tell("other", -HOUR_MS)
    assert at.is_at(-HOUR_MS, 0)
    at.membership.clear()
    assert at.is_at(-HOUR_MS, 0, JUMP_REMEMBERED_MS - 1)
    assert at.judge(1) == (0, 0)


def test_a_server_that_leaves_while_all_agree_is_forgotten() -> None:
    at = Around(0)
    at.tell("other", 0)
    at.judge()
    at.membership.clear()
    at.judge(1_000)
    at.stores_ahead_ms[0] = -HOUR_MS
    assert at.is_at(-HOUR_MS, 0, 1_000)


def test_a_store_that_jumps_takes_no_server_along_that_has_not_told_of_it_yet() -> None:
    """What its lease says of the store is older than the jump, so its own clock seems to have jumped too."""
    at = Around(0)
    at.tell("other", 0)
    at.judge()
    at.stores_ahead_ms[0] = HOUR_MS
    for _ in range(CONFIRM_MS // 1_000):
        assert at.judge(1_000) == (0, 0)
    at.tell("other", 0)
    assert at.judge(1_000) == (0, 0)


def test_a_server_whose_clock_really_is_another_one_counts_as_such_after_some_seconds() -> None:
    at = Around(0)
    at.tell("other", HOUR_MS)
    assert at.judge() == (0, 0)
    at.held.set_ahead_ms = HOUR_MS  # ours as well, which both had wrong before by an hour
    at.judge(1_000)
    at.tell("other", 0)
    assert at.clock.verdict.way == "own"
    for _ in range(1 + CONFIRM_MS // 1_000):
        at.judge(1_000)
        at.tell("other", 0)
    assert at.clock.verdict.way == "outvoted"


# -- a machine that is alone with its clock --------------------------------------------------------------------------


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, T + 1])
def test_with_no_other_clock_both_sides_of_a_jump_count_for_an_hour(by_ms: int) -> None:
    at = Around(0, own_clocks=False)
    at.held.set_ahead_ms = by_ms
    with capture_logs() as logs:
        assert at.judge(1_000) == (min(0, by_ms), max(0, by_ms))
        assert at.judge(JUMP_REMEMBERED_MS - 1) == (min(0, by_ms), max(0, by_ms))
    assert [log["event"] for log in logs] == ["clock_jumped", "time_uncertain"]
    assert "was set, and no other can be read" in at.clock.warning()
    assert at.judge(1) == (by_ms, by_ms)
    assert at.clock.warning() == ""


def test_a_jump_that_is_undone_is_forgotten_at_once() -> None:
    at = Around(own_clocks=False)
    at.held.set_ahead_ms = HOUR_MS
    assert at.judge(1_000) == (0, HOUR_MS)
    at.held.set_ahead_ms = -200
    assert at.judge(1_000) == (-200, -200)
    assert at.clock.warning() == ""


def test_a_clock_that_goes_wrong_and_right_again_is_believed_by_those_that_did_neither() -> None:
    at = Around(0, 0)
    for ahead_ms, way in ((HOUR_MS, "outvoted"), (0, "own"), (-HOUR_MS, "outvoted"), (0, "own")):
        at.held.set_ahead_ms = ahead_ms
        assert at.is_at(0, 0, 1_000)
        assert at.clock.verdict.way == way


def test_a_restart_takes_the_clock_as_it_is() -> None:
    held = HeldClock()
    held.set_ahead_ms = HOUR_MS
    clock = ClusterClock(passed_ns=lambda: held.now_ms() * 1_000_000, wall_ns=held.wall_ns)
    clock.judge([])
    assert (clock.now_ms(), clock.uncertainty_ms) == (held.now_ms() + HOUR_MS, 0)


def test_a_store_that_jumps_along_is_on_this_machine_and_vouches_for_nothing() -> None:
    at = Around(0)
    at.held.set_ahead_ms = HOUR_MS
    assert at.is_at(0, HOUR_MS)
    at.stores_ahead_ms[0] = HOUR_MS
    assert at.is_at(0, HOUR_MS, 1_000)
    assert at.clock.verdict.way == "jumped"
    assert at.judge(JUMP_REMEMBERED_MS) == (HOUR_MS, HOUR_MS)


def test_a_jump_to_the_time_of_the_others_is_believed_at_once() -> None:
    at = Around(HOUR_MS, HOUR_MS)
    assert at.is_at(HOUR_MS, HOUR_MS)
    at.held.set_ahead_ms = HOUR_MS
    assert at.judge(1_000) == (HOUR_MS, HOUR_MS)
    assert at.clock.warning() == ""


# -- stores whose clocks are set ---------------------------------------------------------------------------------------


def tell_by_stores(at: Around, server: str, *stores_ahead_ms: int) -> None:
    """By its lease, the clocks of the stores are so far ahead of the server's own."""
    at.tell(server, 0)
    told = {str(place): [each - 1, each + 1] for place, each in enumerate(stores_ahead_ms, 1)}
    at.membership[-1] = replace(at.membership[-1], more={"clocks": told})


@pytest.mark.parametrize("others", [2, 3, 5, 7])
def test_a_store_that_jumps_takes_no_server_along_however_long_leases_take(others: int) -> None:
    """Leases of half a minute are renewed each ten seconds: what they say of a store is as old."""
    at = Around(0, 0)
    for number in range(others):
        tell_by_stores(at, f"other {number}", 0, 0)
    at.judge()
    at.stores_ahead_ms[0] = HOUR_MS
    for _ in range(12):
        assert at.judge(1_000) == (0, 0)
    for number in range(others):
        tell_by_stores(at, f"other {number}", HOUR_MS, 0)
    assert at.judge(1_000) == (0, 0)


@pytest.mark.parametrize("others", [2, 3, 5, 7])
def test_a_store_that_jumps_while_this_server_does_not_reach_it_takes_no_server_along(others: int) -> None:
    at = Around(0, 0, 0)
    for number in range(others):
        tell_by_stores(at, f"other {number}", 0, 0, 0)
    at.judge()
    at.members[0].store_id = "x"
    at.members[0].health.trip(at.held.now_ms())
    for number in range(others):
        tell_by_stores(at, f"other {number}", HOUR_MS, 0, 0)
    for _ in range(12):
        assert at.judge(1_000) == (0, 0)


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_the_lease_of_a_dead_server_says_nothing_of_a_store_that_jumped_since(by_ms: int) -> None:
    """Nor does that store alone, though it is the only one."""
    at = Around(0)
    at.tell("dead", 0)
    at.judge()
    at.stores_ahead_ms[0] = by_ms
    for _ in range(60):
        assert at.judge(1_000) == (0, 0)
    at.tell("next", 0)
    assert at.judge(1_000) == (0, 0)
