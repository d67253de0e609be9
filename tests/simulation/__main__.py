"""Simulate a cluster: `python -m tests.simulation --help`."""

from __future__ import annotations

import argparse
import logging
import os
import sys

import structlog

from tests.simulation.cost import cost, table
from tests.simulation.scenarios import SCENARIOS, Outcome, simulate

SIZES = ((1, 2), (10, 20), (30, 60), (100, 200))
SECONDS = {1: 10.0, 10: 10.0, 30: 5.0, 100: 5.0}


def _parser() -> argparse.ArgumentParser:
    told = "\n".join(f"  {name:10} {(what.__doc__ or '').strip()}" for name, what in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench simulation",
        description="Simulate a cluster in virtual time: the product's code over simulated stores and network.",
        epilog=f"scenarios:\n{told}\n\nWithout --scenario it counts what an idle cluster costs, by size.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--servers", type=int, help="server processes")
    parser.add_argument("--shards", type=int, help="stores")
    parser.add_argument("--seed", type=int, default=1, help="what all chance follows from [1]")
    parser.add_argument("--scenario", choices=[*SCENARIOS, "all"], help="what happens, or all of them")
    parser.add_argument("--polled", action="store_true", help="stores that do not notify, as MariaDB")
    parser.add_argument("--log", action="store_true", help="show what the servers log")
    return parser


def _show(outcome: Outcome) -> None:
    print(
        f"{outcome.scenario}: {outcome.servers} servers, {outcome.shards} shards, seed {outcome.seed}: "
        f"{outcome.jobs} jobs in {outcome.virtual_s:.0f} virtual s\n"
        f"  enqueues during it: p50 {outcome.enqueue_p50_ms:.1f} ms, longest {outcome.enqueue_max_ms:.0f} ms; "
        f"errors of callers: {dict(outcome.errors) or 'none'}\n"
        f"  longest without an owner: {outcome.longest_unowned_s:.1f} s; all shards used again after "
        f"{outcome.used_again_s:.1f} s\n"
        f"  calls of stores: {outcome.calls.total()}, notifications: {outcome.notifications}; trace {outcome.trace}"
    )
    for violation in outcome.violations[:20]:
        print(f"  VIOLATION: {violation}")


def main() -> int:
    options = _parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of names are in another order each time otherwise
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment)
    if not options.log:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    notifies = not options.polled
    if options.scenario is None:
        one = (options.servers or 1, options.shards or 2)
        sizes = SIZES if options.servers is None and options.shards is None else (one,)
        costs = []
        for servers, shards in sizes:
            seconds = SECONDS.get(servers, 5.0)
            costs.append(cost(servers, shards, notifies=notifies, seconds=seconds, seed=options.seed))
            print(f"{servers} servers, {shards} shards: done", file=sys.stderr, flush=True)
        print(table(costs))
        return 0
    failed = False
    for name in SCENARIOS if options.scenario == "all" else (options.scenario,):
        outcome = simulate(name, options.servers or 8, options.shards or 12, options.seed, notifies=notifies)
        _show(outcome)
        failed = failed or bool(outcome.violations)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
