"""Plant faults, and show by which rule each is found: `python -m tests.simulation.planted --help`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import structlog

from tests.simulation.plan import Plan
from tests.simulation.planted.catalogue import Entry, entries
from tests.simulation.planted.page import page
from tests.simulation.planted.plans import PLANS
from tests.simulation.planted.trial import Trial, attempt, attempt_all, shrunk
from tests.simulation.shrink import rule_of


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.planted",
        description="Take one guard after the other out of simulated servers; each must be found by a plan of its own.",
    )
    parser.add_argument("names", nargs="*", help="words of which a name has one [all that a plan finds]")
    parser.add_argument("--hours", type=float, help="all small plans in turn, for so many virtual hours at most")
    parser.add_argument("--shrink", action="store_true", help="show the shortest plan that finds it")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time [one a core]")
    parser.add_argument("--page", action="store_true", help="print docs/simulation-faults.md, and run nothing")
    return parser


def _all_plans() -> Iterator[Plan]:
    return (plan.without(seed=seed) for seed in count(1) for plan in PLANS.values())


def _tried(entry: Entry, hours: float | None) -> Trial:
    if hours is not None:
        return attempt_all(entry.change, _all_plans(), 60 * hours)
    return attempt(entry.change, entry.by(), entry.minutes, entry.rule)


def _text(entry: Entry, trial: Trial, *, shrinks: bool) -> str:
    name = " ".join(entry.name.split())
    if not trial.is_found:
        instead = f", but the rules {', '.join(trial.others)} were broken" if trial.others else ""
        return f"NOT FOUND in {trial.minutes} virtual minutes{instead}: {name}"
    outcome = shrunk(entry.change, trial) if shrinks else trial.outcome
    cause = next(each for each in outcome.violations if rule_of(each) == trial.rule).replace("\n", "\n    ")
    again = f"\n  by {outcome.plan.to_json()}" if shrinks else ""
    return f"found in {trial.minutes} virtual minutes, by the rule {trial.rule}: {name}\n    {cause}{again}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.page:
        print(page(), end="")
        return 0
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of names are in another order each time otherwise
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation.planted", *sys.argv[1:]], environment)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger("pinlater.client").setLevel(logging.ERROR)
    chosen = [
        each
        for each in entries().values()
        if any(word in each.name for word in options.names or [""])
        and (each.is_planted or (options.hours is not None and each.change.store == "sqlite"))
    ]
    if not chosen:
        print("no guard that can be planted has such a name; see --page", file=sys.stderr)
        return 2
    missed = 0
    with ThreadPoolExecutor(options.processes) as threads:
        for entry, trial in zip(chosen, threads.map(lambda each: _tried(each, options.hours), chosen), strict=True):
            missed += not trial.is_found
            print(_text(entry, trial, shrinks=options.shrink), flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} were found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
