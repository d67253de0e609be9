"""The status that a server process reports to its supervisor: its gauges, and whether it can serve."""

from __future__ import annotations

from typing import Any

from pinlater.cluster.clocks import ClusterClock
from pinlater.cluster.membership import Membership
from pinlater.metrics import Metrics
from pinlater.overflow.overflow import Overflow
from pinlater.server.thrift_server import ThriftServer
from pinlater.service import Service
from pinlater.shards.shard_set import ShardSet


def set_gauges(
    metrics: Metrics, members: ShardSet, server: ThriftServer, service: Service, overflow: Overflow, clock: ClusterClock
) -> None:
    """Bring the gauges of this process up to date, and the counts that its parts keep themselves."""
    shards: dict[tuple[Any, ...], float] = {}
    full: dict[tuple[Any, ...], float] = {}
    skews: dict[tuple[Any, ...], float] = {}
    for member in members.all:
        shards["shard_in", member.shard.shard_id] = float(member.is_healthy)
        full["shard_full", member.shard.shard_id] = float(member.is_healthy and bool(member.full))
        skews["shard_clock_skew_seconds", member.shard.shard_id] = member.store_ahead_ms / 1000
    metrics.set_gauges(("shard_in",), shards)
    metrics.set_gauges(("shard_full",), full)
    metrics.set_gauges(("shard_clock_skew_seconds",), skews)
    metrics.set_gauges(("clock_uncertainty_seconds",), {("clock_uncertainty_seconds",): clock.uncertainty_ms / 1000})
    metrics.set_gauges(("clock_correction_seconds",), {("clock_correction_seconds",): clock.correction_ms / 1000})
    metrics.set_gauges(("connections",), {("connections",): server.connections})
    metrics.set_gauges(("waiting_dequeues",), {("waiting_dequeues",): service.waiting})
    metrics.set_gauges(("dequeue_round_seconds",), {("dequeue_round_seconds",): service.long_polls.longest_round_s()})
    metrics.set_gauges(("waiting_lookups",), {("waiting_lookups",): service.end_waits.waiters})
    jobs = overflow.describe().get("overflow_jobs")
    metrics.set_gauges(("overflow_jobs",), {} if jobs is None else {("overflow_jobs",): jobs})
    for limit, hits in server.counters.items():
        metrics.counters["limits_hit", limit] = hits


def unready_reasons(members: ShardSet, membership: Membership, overflow: Overflow) -> list[str]:
    """Why this process cannot serve; nothing where it can, as without a shard where its own disk takes jobs."""
    found = [membership.unready_reason()] if membership.unready_reason() else []
    if not members.healthy() and not overflow.takes_jobs:
        found.append(members.none_left().message)
    return found


def remarks(members: ShardSet, clock: ClusterClock) -> list[str]:
    """What keeps this process from some of its work, though it can serve: shards without room for new jobs, and clocks
    that differ.
    """
    found = [f"shard {member.shard.shard_id} is full: {member.full}" for member in members.full()]
    return [*found, clock.warning()] if clock.warning() else found
