"""Which claims a worker holds, and which of them are kept alive."""

from __future__ import annotations

import math

from pinlater.model import DequeuedJob
from pinlater_workers.heartbeat.messages import ClaimKey
from pinlater_workers.running import Running
from pinlater_workers.worker.leases import HANDED_AFTER_S, MARGIN_S, TOLERANCE_S, Leases

LEASE_S = 30.0


def running(number: int, until_s: float = 100.0) -> Running:
    job = DequeuedJob(f"mail:s1:p1:{number}", b"", 1, 2, 2, 5, 5, "one claim for all", 9)
    return Running(job, "mail", None, 0.0, until_s)


def test_a_claim_is_handed_over_once_when_it_is_old_enough() -> None:
    leases = Leases(LEASE_S)
    one, two, three = running(1), running(2), running(3)
    assert leases.next_s() == math.inf
    leases.take(one, 0.0)
    leases.take(two, 0.5)
    leases.take(three, 1.5)
    assert leases.next_s() == HANDED_AFTER_S
    assert [each.descriptor for each in leases.old_enough(1.6)] == ["mail:s1:p1:1", "mail:s1:p1:2"]
    assert leases.old_enough(1.6) == []
    assert leases.next_s() == 2.5
    (last,) = leases.old_enough(2.5)
    assert (last.queue, last.key) == ("mail", ClaimKey("mail:s1:p1:3", "one claim for all"))
    assert (last.good_s, last.until_s) == (1.5, 100.0 + MARGIN_S)


def test_one_that_ends_is_forgotten_and_told_of_where_it_was_handed_over() -> None:
    leases = Leases(LEASE_S)
    young, old = running(1), running(2)
    leases.take(old, 0.0)
    (watched,) = leases.all()
    leases.take(young, 1.0)
    assert leases.find(watched.key) is old
    assert (leases.end(young), leases.end(old), leases.end(old)) == (None, watched.key, None)
    assert leases.find(watched.key) is None
    assert (len(leases), leases.holds(old), leases.all()) == (0, False, [])


def test_one_with_an_unconfirmed_result_is_kept_without_an_end() -> None:
    leases = Leases(LEASE_S)
    young, old, gone = running(1), running(2), running(3)
    leases.take(old, 0.0)
    leases.old_enough(1.0)
    leases.take(young, 1.0)
    assert [each.until_s for each in leases.keep([young, old, gone])] == [math.inf, math.inf]
    assert leases.old_enough(9.0) == []


def test_a_claim_has_surely_expired_a_lease_after_the_last_good_beat() -> None:
    leases = Leases(LEASE_S)
    one = running(1)
    assert leases.has_expired(one, 0.0)
    leases.take(one, 10.0)
    assert not leases.has_expired(one, 10.0 + LEASE_S)
    (watched,) = leases.all()
    leases.beaten([watched.key, ClaimKey("unknown", "claim")], 20.0)
    leases.beaten([watched.key], 15.0)
    assert not leases.has_expired(one, 19.9 + LEASE_S + TOLERANCE_S)
    assert leases.has_expired(one, 20.0 + LEASE_S + TOLERANCE_S)
