"""The proof on one store: jobs of every fate in every pool, while workers, their processes and the server die."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from tests.faults.recorded_run import RecordedRun
from tests.workers.apps.proof_jobs import FATES
from tests.workers.proof_judge import broken, summary
from tests.workers.proof_stand import ProofStand

SEED = "PINLATER_PROOF_SEED"
JOBS = int(os.environ.get("PINLATER_PROOF_JOBS", "2500"))
RARE = {
    "works": JOBS // 50,
    "stumbles": JOBS // 100,
    "snoozes": JOBS // 100,
    "goes_on": JOBS // 100,
    "refuses": JOBS // 100,
    "fails": JOBS // 100,
    "hangs_once": 4,
    "hangs": 2,
    "lasts": 3,
}
"""In each queue; of the others there is a share. What ends a process costs a new one."""

IN_PROCESSES = {"goes_on": 8, "exits": 4, "is_killed": 4}
SHARES = {"process": 0.5, "thread": 0.3, "async": 0.2}
STEPS = [
    *("kill_worker", "kill_pool_process", "kill_server", "kill_worker", "kill_heartbeat", "stop_worker"),
    *("kill_both", "kill_pool_process", "kill_worker", "kill_server"),
]


def counts(jobs: int) -> dict[tuple[str, str], int]:
    """How many of each queue and fate."""
    counted = {}
    for queue, share in SHARES.items():
        rare = RARE | IN_PROCESSES if queue == "process" else RARE
        counted |= {(queue, fate): number for fate, number in rare.items()}
        counted[queue, "quick"] = int(jobs * share) - sum(rare.values())
    assert {fate for _, fate in counted} == set(FATES)
    return counted


def prove(folder: Path, url: str) -> None:
    seed = os.environ.get(SEED) or str(random.randrange(10**6))
    print(f"{SEED}={seed}")
    rng = random.Random(seed)
    steps = rng.sample(STEPS, len(STEPS))
    run = RecordedRun(folder)
    with ProofStand(folder, url, history=str(run.folder)) as stand:
        began = time.monotonic()
        jobs = stand.give(counts(JOBS))
        stand.go_through(steps, rng, JOBS)
        found = stand.finish(jobs)
        lines = stand.journal.lines()
        print(f"{len(jobs)} jobs in {time.monotonic() - began:.1f} s; {summary(found, lines)}; {dict(stand.done)}")
        wrong = broken(jobs, found, lines)
        assert not wrong, wrong
        verdict = run.judge()
        assert verdict.jobs >= len(jobs)
        assert verdict.unsettled_jobs == 0
        tracebacks = stand.tracebacks()
        assert not tracebacks, tracebacks
