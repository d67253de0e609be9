"""Runs of many plans, each in a process of its own, so many at a time, until it is enough."""

from __future__ import annotations

import os
import pickle
import resource
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection

from tests.simulation.plan import Plan
from tests.simulation.run import Outcome, run_plan

BROKE_OFF = "broke off"


def run_apart(
    plan: Plan,
    *,
    keeps_history: bool = False,
    run: Callable[[Plan], Outcome] = run_plan,
    at_most_s: int | None = None,
) -> Outcome:
    """In a process of its own, which leaves nothing behind; a run that breaks off is a violation, and so is one that
    takes more than `at_most_s` of a processor. The history comes back where it is asked for.
    """
    receiving, sending = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_send, args=(sending, plan, keeps_history, run, at_most_s))
    process.start()
    sending.close()
    try:
        outcome: Outcome = pickle.loads(receiving.recv_bytes())
    except EOFError:
        outcome = Outcome(plan, [f"{BROKE_OFF}: the process died"], 0.0, 0.0, 0, 0)
    process.join()
    return outcome


def _send(
    sending: Connection, plan: Plan, keeps_history: bool, run: Callable[[Plan], Outcome], at_most_s: int | None
) -> None:
    if at_most_s is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (at_most_s, at_most_s))
    try:
        outcome = run(plan)
    except BaseException:
        outcome = Outcome(plan, [f"{BROKE_OFF}: {traceback.format_exc()}"], 0.0, 0.0, 0, 0)
    if not keeps_history:
        outcome.history = []
    sending.send_bytes(pickle.dumps(outcome))
    os._exit(0)


@dataclass
class Summary:
    """What runs came to."""

    runs: int = 0
    virtual_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)
    calls: int = 0
    jobs: int = 0
    met: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    failed: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.virtual_s += outcome.virtual_s
        self.calls += outcome.calls
        self.jobs += outcome.jobs
        self.met.update(outcome.met)
        self.errors.update(outcome.errors)
        if outcome.violations:
            self.failed.append(outcome)

    @property
    def hours(self) -> float:
        return self.virtual_s / 3600

    def line(self) -> str:
        real_h = (time.monotonic() - self.began_s) / 3600
        return (
            f"{self.runs} plans, {self.hours:.2f} virtual hours ({self.hours / max(real_h, 1e-9):.0f} an hour), "
            f"{self.jobs} jobs, {self.calls} calls, {sum(self.met.values())} faults, {len(self.failed)} plans failed"
        )


def sweep(
    plans: Iterator[Plan],
    *,
    until: Callable[[Summary], bool],
    processes: int,
    on_end: Callable[[Outcome, Summary], None],
) -> Summary:
    """Run plans, so many at a time, until it is enough. `on_end` hears of each run that is over."""
    summary = Summary()
    with ThreadPoolExecutor(processes) as threads:
        running: set[Future[Outcome]] = set()
        try:
            while True:
                while len(running) < processes and not until(summary) and (plan := next(plans, None)) is not None:
                    running.add(threads.submit(run_apart, plan))
                if not running:
                    return summary
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    outcome = each.result()
                    summary.add(outcome)
                    on_end(outcome, summary)
        except KeyboardInterrupt:
            return summary
