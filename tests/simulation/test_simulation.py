"""Clusters in virtual time: what must hold in every scenario, what a cluster may cost, and that a seed decides all."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest

from pinlater.cluster.membership import PLACES
from pinlater.model import AckOutcome, DequeuedJob
from tests.simulation import virtual_time
from tests.simulation.cost import cost
from tests.simulation.load import Ledger
from tests.simulation.scenarios import SCENARIOS, rate_violations, simulate

pytestmark = pytest.mark.usefixtures("quiet_servers")

SERVERS, SHARDS = 4, 9
"""More shards than leases have places, and than one poll of config entries reads."""

RENEWALS_PER_S = 0.6
"""A lease of 5 s is renewed three times."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_is_lost_early_or_done_twice_and_every_shard_has_an_owner(scenario: str) -> None:
    outcome = simulate(scenario, SERVERS, SHARDS, seed=7)
    assert outcome.violations == []
    assert outcome.jobs > 50


def test_stores_that_do_not_notify_are_polled_and_jobs_are_found() -> None:
    outcome = simulate("crash", SERVERS, SHARDS, seed=3, notifies=False)
    assert (outcome.violations, outcome.notifications) == ([], 0)


def test_a_dead_shard_costs_no_caller_an_error_or_a_second() -> None:
    outcome = simulate("dead", SERVERS, SHARDS, seed=11)
    assert not [call for call in outcome.errors if call.startswith("enqueue")]
    assert outcome.enqueue_max_ms < 100


@pytest.mark.slow
def test_a_larger_cluster_holds_while_a_quarter_of_it_is_cut_off() -> None:
    outcome = simulate("partition", 12, 24, seed=5)
    assert outcome.violations == []


def test_one_seed_is_one_run_and_another_seed_another() -> None:
    first, again, other = (simulate("crash", 3, 9, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert other.trace != first.trace


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_what_a_server_costs_for_leases_and_config_entries_does_not_grow_with_the_cluster() -> None:
    small, large = cost(2, 9, seconds=5), cost(4, 18, seconds=5)
    for part in ("leases", "config"):
        assert large.per_s[part] / 4 == pytest.approx(small.per_s[part] / 2, rel=0.15)
    assert large.per_s["leases"] / 4 <= 2 * PLACES * RENEWALS_PER_S * 1.15


def test_a_process_looks_after_its_own_shards_only() -> None:
    few, many = cost(1, 9, seconds=5), cost(3, 9, seconds=5)
    assert many.per_s["maintenance"] == pytest.approx(few.per_s["maintenance"], rel=0.25)


def test_a_job_is_looked_for_only_where_it_is() -> None:
    servers, shards = 5, 9
    found = cost(servers, shards, seconds=2).job_calls
    the_server_that_enqueued_it_and_the_one_that_got_it = 2 * shards
    assert found["count_ready"] <= 1.5 * the_server_that_enqueued_it_and_the_one_that_got_it
    assert found["claim"] <= servers + 1


# -- the judge can find fault ------------------------------------------------------------------------------------------


def test_the_ledger_sees_what_is_early_handed_out_twice_or_lost() -> None:
    async def judged() -> Ledger:
        ledger, at_ms = Ledger(), virtual_time.now_ms()
        job = DequeuedJob("mail:s1:p1:1", b"", 1, 2, 2, at_ms, at_ms, "claim", at_ms + 10_000)
        ledger.stored(job.descriptor, at_ms)
        ledger.stored("mail:s1:p1:2", at_ms + 1)
        ledger.received("mail", job)
        assert ledger.violations == []
        ledger.received("mail", job)
        ledger.acked(job.descriptor, AckOutcome.SUCCEEDED)
        ledger.received("mail", job)
        ledger.received("mail", replace(job, descriptor="mail:s1:p1:2"))
        return ledger

    ledger = virtual_time.run(judged(), 1)
    assert [each.partition(" was ")[2].split(" ")[2:4] for each in ledger.violations] == [
        ["again", "10000"],
        ["although", "it"],
        ["0", "ms"],
    ]
    assert ledger.undone() == {"mail:s1:p1:2"}


def test_a_rate_that_is_passed_is_seen() -> None:
    assert rate_violations([second / 20 for second in range(400)], 20) == []
    assert len(rate_violations([second / 45 for second in range(900)], 20)) == 2


def test_a_deadlock_ends_a_run() -> None:
    async def waits_for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(virtual_time.NothingLeft):
        virtual_time.run(waits_for_nobody(), 1)


@pytest.mark.parametrize("scenario", ["hanging", "partition"])
def test_nothing_of_a_run_is_left_pending_when_it_ends(scenario: str, caplog: pytest.LogCaptureFixture) -> None:
    simulate(scenario, 3, 4, seed=1)
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
