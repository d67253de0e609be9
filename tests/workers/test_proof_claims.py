"""Claims follow the life of their worker: released soon when it is killed, and kept through all else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.proxy import Proxy
from tests.stores.places import Places
from tests.workers.apps.proof_jobs import GATE
from tests.workers.apps.proof_journal import ENDED
from tests.workers.proof_stand import ProofStand, until

AGAIN_WITHIN_S = 5.0
HANDED_OVER_S = 10.5
"""A claim of that age is bound to the heartbeat process's connection."""

pytestmark = [pytest.mark.slow]


@pytest.fixture
def stand(tmp_path: Path, sqlite_places: Places) -> Iterator[ProofStand]:
    """Claims of 5 minutes, and no worker yet."""
    with ProofStand(tmp_path, sqlite_places.fresh(), workers=0, lease="5m") as running:
        yield running


def all_end(stand: ProofStand, jobs: list[int]) -> None:
    def have() -> bool:
        return set(jobs) <= {line.number for line in stand.journal.lines() if line.what == ENDED}

    until(have, "all jobs end")


def test_jobs_of_a_killed_worker_run_again_within_seconds_however_long_they_had_run(stand: ProofStand) -> None:
    """Each worker is full with the jobs that it is meant to have; one gets a free slot when the others are killed."""
    stand.start_ready_worker(1)
    stand.give_one("thread", "waits_for_gate")
    old = stand.start_ready_worker(2)
    jobs = [stand.give_one(queue, "sleeps_once") for queue in ("process", "thread")]
    until(lambda: time.monotonic() - stand.begun(jobs[-1])[0].moment / 1e9 > HANDED_OVER_S, "claims are handed over")
    young = stand.start_ready_worker(2)
    jobs += [stand.give_one(queue, "sleeps_once") for queue in ("process", "thread")]
    killed_s = time.monotonic()
    old.process.kill()
    young.process.kill()
    (stand.folder / GATE).touch()
    until(lambda: all(len(stand.begun(job)) == 2 for job in jobs), "all jobs run again")
    after = [stand.begun(job)[1].moment / 1e9 - killed_s for job in jobs]
    print("run again after", [f"{each:.2f} s" for each in after])
    assert max(after) < AGAIN_WITHIN_S
    all_end(stand, jobs)
    assert [stand.begun(job)[1].attempt for job in jobs] == [2] * len(jobs)


def test_a_worker_whose_connections_are_all_reset_keeps_its_claims(stand: ProofStand) -> None:
    with Proxy(stand.port) as proxy:
        stand.start_ready_worker(4, "--server", f"127.0.0.1:{proxy.port}")
        jobs = [stand.give_one(queue, "takes_long") for queue in ("process", "thread", "async", "thread")]
        began_s = time.monotonic()
        stand.start_ready_worker(4)
        for wait_s in (0.0, 2.5, 5.0):
            until(lambda wait_s=wait_s: time.monotonic() - began_s >= wait_s, "time passes")  # type: ignore[misc]
            proxy.drop_connections()
        all_end(stand, jobs)
        assert [len(stand.begun(job)) for job in jobs] == [1] * len(jobs)


def test_a_job_that_holds_the_interpreter_for_longer_than_its_lease_keeps_its_claim(stand: ProofStand) -> None:
    stand.start_ready_worker(2, "--lease", "3s")
    jobs = [stand.give_one("thread", "holds_interpreter")]
    stand.start_ready_worker(2)
    all_end(stand, jobs)
    assert [len(stand.begun(job)) for job in jobs] == [1]
