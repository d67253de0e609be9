"""One run of a plan: the cluster and its callers under faults, healing, finishing, and the judgement of the history.

What must hold is judged by the checker of histories, by the watch of the cluster, and by its end: every part finishes
within FINISH_S of the moment at which all was well again.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from pinlater.cluster.clocks import TOLERANCE_MS
from pinlater.config import Config
from pinlater.history.checker import check
from pinlater.history.history_files import events_in
from pinlater.history.recorder import Recorder, header
from tests.simulation import virtual_time
from tests.simulation.caller_network import CallerNetwork
from tests.simulation.callers import Callers
from tests.simulation.cluster import PASSWORD
from tests.simulation.faults import Faults
from tests.simulation.parts import PARTS
from tests.simulation.plan import Plan
from tests.simulation.served_cluster import ServedCluster

USED_AGAIN_S = 300.0
"""The longest pause of a shard that was out (`health_pause`), twice, and what it takes until it has proved itself."""

FINISH_S = 900.0
"""The longest claim, and retries with the delays that workers ask for."""

OF_CLOCKS = ("server_clock", "store_clock", "drift")
"""Faults by which servers may believe times that differ, by as much as they tolerate."""

DEFAULTS = {
    "crash_budget": "3",
    "succeeded_ttl": "24h",
    "failed_ttl": "7d",
    "max_in_progress": "none",
    "max_jobs_per_second": "none",
    "paused": "false",
    "paused_until": "none",
    "flow_items": "false",
    "result_ttl": "1h",
    "group_concurrency": "none",
    "group_rate": "none",
    "group_max_pending": "none",
}
"""The settings of a queue that nobody has set."""

OVERFLOW_BYTES = 16 << 20
TIER = "cold=file:///tier"


@dataclass
class Outcome:
    """What came of a run. `violations` is empty where all held that must."""

    plan: Plan
    violations: list[str]
    virtual_s: float
    real_s: float
    calls: int
    """Of callers."""

    jobs: int
    met: dict[str, int] = field(default_factory=dict)
    """Faults that began, by kind, and what befell callers."""

    errors: dict[str, int] = field(default_factory=dict)
    """Of callers, by call and reason."""

    store_calls: dict[str, int] = field(default_factory=dict)
    trace: str = ""
    """A hash of all calls of stores at their times: the same on each interpreter."""

    history: list[bytes] = field(default_factory=list)


def run_plan(plan: Plan, finish_s: float = FINISH_S) -> Outcome:
    """In virtual time, in this process. `finish_s`: within which all parts must have finished."""
    return virtual_time.run(_run(plan, finish_s), plan.seed)


def _config(plan: Plan) -> Config:
    return Config(
        lease_ms=plan.lease_ms,
        maintenance_interval_ms=plan.maintenance_interval_ms,
        stats_interval_ms=plan.stats_interval_ms,
        overflow_bytes=OVERFLOW_BYTES if plan.overflow else 0,
        bodies=(TIER,),
        body_rules=("cold: size > 4KiB",),
    )


async def _run(plan: Plan, finish_s: float) -> Outcome:
    began_s, loop = time.process_time(), asyncio.get_running_loop()
    lines: list[bytes] = [header(0.0)]
    recorder = Recorder(lines.append, lambda: virtual_time.EPOCH_MS + loop.time() * 1000)
    with CallerNetwork(random.Random(f"network {plan.seed}")) as network:
        cluster = ServedCluster(network, plan.shards, notifies=plan.notifies, config=_config(plan))
        await cluster.start_all(plan.servers)
        callers = Callers(network, f"callers {plan.seed}", recorder)
        operator = callers.start("operator")

        async def operate(shard_id: str, dequeue_only: bool, give_up: bool) -> object:
            return await operator.client.update_shard(shard_id, PASSWORD, dequeue_only=dequeue_only, give_up=give_up)

        faults = Faults(cluster, network, recorder, operate)
        parts = [
            PARTS[name](callers, random.Random(f"{name} {plan.seed}"), settings)
            for name, settings in plan.parts.items()
        ]
        for part in parts:
            await part.set_up()
        for part in parts:
            part.start()
        faults.start(plan.faults)
        await asyncio.sleep(plan.minutes * 60)
        await faults.heal()
        await cluster.until_all_is_used(USED_AGAIN_S)
        for part in parts:
            await part.stop_producing()
        left = [f"stuck: {each}" for part in parts for each in await part.finish(finish_s)]
        for part in parts:
            await part.stop()
        recorder.note("end")
        await callers.close_all()
        met, errors = faults.met | _befell(network), dict(callers.errors)
        virtual_s, tally = loop.time(), cluster.network.tally
        await cluster.close()
    verdict = check(
        events_in(lines, Path(f"seed {plan.seed}")),
        tolerance_ms=TOLERANCE_MS if any(fault.kind in OF_CLOCKS for fault in plan.faults) else 0.0,
        has_one_clock=True,
        defaults=DEFAULTS,
    )
    return Outcome(
        plan,
        [*cluster.violations, *left, *("\n".join(each.lines()) for each in verdict.violations)],
        virtual_s,
        time.process_time() - began_s,
        verdict.calls,
        verdict.jobs,
        met,
        errors,
        dict(tally.by_operation()),
        tally.hash(),
        lines,
    )


def _befell(network: CallerNetwork) -> dict[str, int]:
    return {f"befell callers: {kind}": times for kind, times in network.counts.items()}
