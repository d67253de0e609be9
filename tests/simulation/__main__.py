"""Simulate a cluster: `python -m tests.simulation --help`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import structlog

from tests.proof.results import Result, commit
from tests.simulation.cost import cost, table
from tests.simulation.cost_page import print_job_costs
from tests.simulation.faults import KINDS, WEIGHTS
from tests.simulation.parts import PARTS
from tests.simulation.plan import Plan, draw
from tests.simulation.run import Outcome
from tests.simulation.scenarios import SCENARIOS, simulate
from tests.simulation.scenarios import Outcome as ScenarioOutcome
from tests.simulation.shrink import rule_of, shrink
from tests.simulation.sweep import Summary, run_apart, sweep

SIZES = ((1, 2), (10, 20), (30, 60), (100, 200))
SECONDS = {1: 10.0, 10: 10.0, 30: 5.0, 100: 5.0}
SHRINK_TRIES = 60
EXAMPLES = """
examples:
  scripts/bench simulation                                    what an idle cluster costs, by size
  scripts/bench simulation --job-cost                         what a job costs from its enqueue to its ack
  scripts/bench simulation --scenario partition --servers 100 --shards 200
  scripts/bench simulation --random --seed 7                  the plan that is drawn from seed 7
  scripts/bench simulation --random --runs 20 --minutes 3     twenty short ones, from seed 1 on
  scripts/bench simulation --hours 10                         plans until ten virtual hours have passed; Ctrl-C ends it
  scripts/bench simulation --plan plan.json --history h.jsonl a plan of a file, and what its callers were answered
  pinlater history show h.jsonl --job mail:s1:p1:…            what became of a job there
"""


def _parser() -> argparse.ArgumentParser:
    scenarios = "\n".join(f"  {name:10} {(what.__doc__ or '').strip()}" for name, what in SCENARIOS.items())
    kinds = "\n".join(f"  {name:16} {(what.__doc__ or '').strip()}" for name, what in KINDS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench simulation",
        description="Simulate a cluster in virtual time: the product's code over simulated stores and networks.",
        epilog=f"{EXAMPLES}\nscenarios:\n{scenarios}\n\nfaults of random plans:\n{kinds}\n\n"
        f"parts of callers: {', '.join(PARTS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--servers", type=int, help="server processes of a scenario or a table")
    parser.add_argument("--shards", type=int, help="stores, likewise")
    parser.add_argument("--seed", type=int, default=1, help="what all chance follows from; of several, the first [1]")
    parser.add_argument("--scenario", choices=[*SCENARIOS, "all"], help="what happens, or all of them")
    parser.add_argument("--polled", action="store_true", help="stores that do not notify, as MariaDB")
    parser.add_argument("--job-cost", action="store_true", help="what a delivered job costs, at three rates")
    parser.add_argument("--random", action="store_true", help="a plan drawn from the seed, or several (--runs)")
    parser.add_argument("--runs", type=int, default=1, help="so many plans, of seeds that follow each other [1]")
    parser.add_argument("--hours", type=float, help="plans until so many virtual hours have passed")
    parser.add_argument("--minutes", type=float, default=60.0, help="the longest that a drawn plan lasts [60]")
    parser.add_argument("--parts", default="", help="the parts that drawn plans have, in place of some: plain,keyed")
    parser.add_argument("--faults", default="", help="the kinds of faults that they have, likewise: kill,add_shard")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time [one a core]")
    parser.add_argument("--plan", help="a plan as JSON, or the file that has it")
    parser.add_argument("--history", type=Path, help="where to write what the callers of --plan were answered")
    parser.add_argument("--no-shrink", action="store_true", help="show plans that fail as they were drawn")
    parser.add_argument("--log", action="store_true", help="show what the servers log")
    parser.add_argument("--record", action="store_true", help="write what came of plans where docs/proof.md is made of")
    return parser


# -- scenarios ---------------------------------------------------------------------------------------------------------


def _show(outcome: ScenarioOutcome) -> None:
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


def _scenarios(options: argparse.Namespace) -> int:
    failed = False
    for name in SCENARIOS if options.scenario == "all" else (options.scenario,):
        outcome = simulate(name, options.servers or 8, options.shards or 12, options.seed, notifies=not options.polled)
        _show(outcome)
        failed = failed or bool(outcome.violations)
    return int(failed)


def _costs(options: argparse.Namespace) -> int:
    one = (options.servers or 1, options.shards or 2)
    costs = []
    for servers, shards in SIZES if options.servers is None and options.shards is None else (one,):
        seconds = SECONDS.get(servers, 5.0)
        costs.append(cost(servers, shards, notifies=not options.polled, seconds=seconds, seed=options.seed))
        print(f"{servers} servers, {shards} shards: done", file=sys.stderr, flush=True)
    print(table(costs))
    return 0


# -- plans -------------------------------------------------------------------------------------------------------------


def _plans(options: argparse.Namespace) -> int:
    parts, kinds = _listed(options.parts), _listed(options.faults)
    for what, named, there in (("part", parts, PARTS), ("fault", kinds, KINDS)):
        if unknown := set(named) - set(there):
            print(f"there is no {what} {sorted(unknown)[0]!r}; there are {', '.join(there)}", file=sys.stderr)
            return 2
    weights = {kind: WEIGHTS[kind] for kind in kinds or WEIGHTS}

    def is_enough(summary: Summary) -> bool:
        return options.hours is not None and summary.hours >= options.hours

    seeds = count(options.seed) if options.hours is not None else range(options.seed, options.seed + options.runs)
    drawn = (draw(seed, weights, most_minutes=options.minutes, parts=parts) for seed in seeds)
    summary = sweep(drawn, until=is_enough, processes=options.processes, on_end=_report_run)
    print(f"\n{summary.line()}")
    print(f"faults met: {dict(sorted(summary.met.items()))}")
    print(f"errors of callers: {dict(summary.errors.most_common(12))}")
    if options.record:
        print(f"recorded in {_result(options, summary).record()}")
    for outcome in summary.failed:
        _show_failed(outcome, shrinks=not options.no_shrink)
    return int(bool(summary.failed))


def _result(options: argparse.Namespace, summary: Summary) -> Result:
    length = f"--hours {options.hours:g}" if options.hours is not None else f"--random --runs {options.runs}"
    parts = {"--parts": options.parts, "--faults": options.faults}
    named = "".join(f" {name} {text}" for name, text in parts.items() if text)
    seeds = ", ".join(str(each.plan.seed) for each in summary.failed)
    return Result(
        name="simulation",
        command=f"scripts/bench simulation {length} --minutes {options.minutes:g} --seed {options.seed}{named}",
        outcome=f"violations in the plans of these seeds: {seeds}" if seeds else "no violation",
        is_right=not summary.failed,
        seconds=time.monotonic() - summary.began_s,
        amounts={
            "plans": summary.runs,
            "virtual hours": round(summary.hours, 1),
            "jobs": summary.jobs,
            "calls": summary.calls,
            "faults": sum(summary.met.values()),
            "plans that failed": len(summary.failed),
        },
    )


def _listed(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


def _report_run(outcome: Outcome, summary: Summary) -> None:
    what = f"FAILED: {outcome.violations[0].splitlines()[0]}" if outcome.violations else "held"
    print(
        f"seed {outcome.plan.seed}: {outcome.virtual_s / 60:.1f} virtual minutes, {what}. {summary.line()}", flush=True
    )


def _show_failed(outcome: Outcome, *, shrinks: bool) -> None:
    rule, plan, shown = rule_of(outcome.violations[0]), outcome.plan, outcome
    print(f"\nseed {plan.seed} of commit {commit()} breaks this:")
    if shrinks:
        found: dict[str, Outcome] = {}

        def breaks_it(shorter: Plan) -> bool:
            tried = run_apart(shorter)
            fails = rule in map(rule_of, tried.violations)
            if fails:
                found["last"] = tried
            return fails

        plan = shrink(plan, breaks_it, SHRINK_TRIES)
        shown = found.get("last", outcome)
    for violation in shown.violations[:10]:
        print(f"  {violation}")
    print(f"again: scripts/bench simulation --plan '{plan.to_json()}'")


def _one_plan(options: argparse.Namespace) -> int:
    try:
        file = Path(options.plan)
        text = options.plan if options.plan.lstrip().startswith("{") else file.read_text()
        plan = Plan.from_json(text, KINDS)
    except (OSError, ValueError) as error:
        print(f"--plan: {error}", file=sys.stderr)
        return 2
    outcome = run_apart(plan, keeps_history=options.history is not None)
    if options.history is not None:
        options.history.write_bytes(b"".join(outcome.history))
    print(
        f"{outcome.virtual_s / 60:.1f} virtual minutes in {outcome.real_s:.1f} s of a processor; {outcome.jobs} jobs, "
        f"{outcome.calls} calls; trace {outcome.trace}\nfaults met: {outcome.met}\nerrors of callers: {outcome.errors}"
    )
    for violation in outcome.violations[:20]:
        print(f"VIOLATION: {violation}")
    return int(bool(outcome.violations))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of names are in another order each time otherwise
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment)
    if not options.log:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        logging.getLogger("pinlater.client").setLevel(logging.ERROR)
    if options.plan is not None:
        return _one_plan(options)
    if options.job_cost:
        print_job_costs(options.servers, options.shards, notifies=not options.polled)
        return 0
    if options.random or options.hours is not None:
        return _plans(options)
    return _costs(options) if options.scenario is None else _scenarios(options)


if __name__ == "__main__":
    sys.exit(main())
