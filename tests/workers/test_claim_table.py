"""Which claims a worker holds, and which of them are kept alive."""

from __future__ import annotations

import math

from pinlater.model import DequeuedJob
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.worker.claims import FIRST_BEAT_AFTER_S, MARGIN_S, TOLERANCE_S, ClaimTable

LEASE_S = 30.0


def running(number: int, until_s: float = 100.0) -> RunningJob:
    job = DequeuedJob(f"mail:s1:p1:{number}", b"", 1, 2, 2, 5, 5, "one claim for all", 9)
    return RunningJob(job, "mail", None, 0.0, until_s)


def test_a_claim_is_beaten_once_it_is_old_enough_and_until_its_job_must_have_ended() -> None:
    leases = ClaimTable(LEASE_S)
    first, second = leases.take([running(1), running(2)], 5.0)
    (third,) = leases.take([running(3)], 6.0)
    assert len({first.number, second.number, third.number}) == 3
    assert (second.queue, second.descriptor, second.claim) == ("mail", "mail:s1:p1:2", "one claim for all")
    assert (third.good_s, third.from_s, third.until_s) == (6.0, 6.0 + FIRST_BEAT_AFTER_S, 100.0 + MARGIN_S)
    (hurried,) = ClaimTable(1.0).take([running(1)], 0.0)
    assert hurried.from_s < 0.2


def test_with_a_lost_connection_all_are_due_at_once() -> None:
    leases = ClaimTable(LEASE_S)
    taken = leases.take([running(1), running(2)], 5.0)
    assert leases.at_once() == taken
    assert {each.from_s for each in taken} == {0.0}


def test_one_that_ends_is_not_held_any_more() -> None:
    leases = ClaimTable(LEASE_S)
    one = running(1)
    (watched,) = leases.take([one], 0.0)
    assert leases.find(watched.number) is one
    assert (leases.end([one]), leases.end([one])) == ([watched.number], [])
    assert (leases.find(watched.number), len(leases), leases.at_once()) == (None, 0, [])


def test_one_with_an_unconfirmed_result_is_kept_without_an_end() -> None:
    leases = ClaimTable(LEASE_S)
    one, gone = running(1), running(2)
    (watched,) = leases.take([one], 0.0)
    assert leases.keep([one, gone]) == [watched]
    assert watched.until_s == math.inf


def test_a_claim_has_surely_expired_a_lease_after_the_last_good_beat() -> None:
    leases = ClaimTable(LEASE_S)
    one = running(1)
    assert leases.has_expired(one, 0.0)
    (watched,) = leases.take([one], 10.0)
    assert not leases.has_expired(one, 10.0 + LEASE_S)
    watched.good_s = 20.0
    assert not leases.has_expired(one, 19.9 + LEASE_S + TOLERANCE_S)
    assert leases.has_expired(one, 20.0 + LEASE_S + TOLERANCE_S)


def test_quick_ones_have_no_number_until_they_are_old_and_are_held_all_the_same() -> None:
    leases = ClaimTable(LEASE_S)
    ended, old, young, unknown = (running(number) for number in range(4))
    leases.take_short([ended, old], 5.0)
    leases.take_short([young], 6.0)
    assert len(leases) == 3
    assert leases.end([ended]) == []
    assert leases.has_expired(ended, 5.0)
    assert not leases.has_expired(old, 5.0 + LEASE_S)
    assert leases.has_expired(old, 5.0 + LEASE_S + TOLERANCE_S)
    (told,) = leases.promote(5.0)
    assert (leases.of(told), told.good_s, told.from_s) == (old, 5.0, 5.0 + FIRST_BEAT_AFTER_S)
    assert leases.promote(5.9) == []
    (kept,) = leases.keep([young, unknown])
    assert (leases.of(kept), kept.until_s) == (young, math.inf)
    assert leases.end([old, young]) == [told.number, kept.number]
    assert len(leases) == 0


def test_with_a_lost_connection_quick_ones_are_due_at_once_too() -> None:
    leases = ClaimTable(LEASE_S)
    leases.take_short([running(1)], 5.0)
    assert [each.from_s for each in leases.at_once()] == [0.0]
