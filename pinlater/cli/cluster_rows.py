"""Servers, shards and queues of a cluster as rows of output."""

from __future__ import annotations

from typing import Any

from pinlater.cli.output import Row
from pinlater.cli.times import age_text, time_text
from pinlater.model import ClusterStatus, LevelView, QueueStatus, ServerView, ShardView

SERVER_COLUMNS = (
    "server",
    "process",
    "address",
    "ready",
    "maintains",
    "shards_out",
    "overflow_jobs",
    "seen",
    "trouble",
)
SHARD_COLUMNS = ("shard", "store", "state", "dequeue_only", "jobs", "trouble")
HEALTH_COLUMNS = ("shard", "state", "window", "skew_ms", "next_try", "maintained_by", "out_at", "full_at", "trouble")
QUEUE_COLUMNS = ("queue", "ready", "scheduled", "in_progress", "succeeded", "failed", "oldest", "flags")
COUNTS = ("ready", "scheduled", "in_progress", "succeeded", "failed")


def server_row(view: ServerView) -> Row:
    """A process that is alive."""
    return {
        "server": view.server,
        "process": view.process,
        "address": view.address,
        "ready": view.is_ready,
        "trouble": view.trouble,
        "maintains": view.maintains,
        "shards_out": view.shards_out,
        "shards_full": view.shards_full,
        "overflow_jobs": view.overflow_jobs,
        "started": time_text(view.started_ms),
        "started_ms": view.started_ms,
        "seen": time_text(view.seen_ms),
        "seen_ms": view.seen_ms,
    }


def shard_row(view: ShardView, status: ClusterStatus) -> Row:
    """As the process sees it that answered; `out_at` are those that have it out, `full_at` those that see it full."""
    return {
        "shard": view.id,
        "store": view.store,
        "state": state_text(view),
        "dequeue_only": view.dequeue_only,
        "jobs": view.jobs,
        "jobs_by_queue": view.jobs_by_queue,
        "counted": time_text(view.counted_at_ms or None),
        "counted_at_ms": view.counted_at_ms,
        "window": f"{view.good}/{view.samples}",
        "good": view.good,
        "samples": view.samples,
        "skew_ms": view.skew_ms,
        "next_try": time_text(view.next_try_ms),
        "next_try_ms": view.next_try_ms,
        "maintained_by": view.maintained_by,
        "out_at": out_at(view, status),
        "full_at": full_at(view, status),
        "trouble": view.trouble,
    }


def out_at(view: ShardView, status: ClusterStatus) -> list[str]:
    """The processes that have a shard out."""
    return [f"{each.server}/{each.process}" for each in status.servers if view.id in each.shards_out]


def state_text(view: ShardView) -> str:
    """In one word: a shard that is in and has no room for new jobs is full."""
    return "full" if view.is_full else view.state


def full_at(view: ShardView, status: ClusterStatus) -> list[str]:
    """The processes that take a shard for full."""
    return [f"{each.server}/{each.process}" for each in status.servers if view.id in each.shards_full]


def queue_row(queue: QueueStatus, now_ms: int) -> dict[str, Any]:
    """All its priorities together; JSON has each of them too."""
    oldest_ms = oldest_age_ms(queue, now_ms)
    return {
        "queue": queue.name,
        **totals(queue),
        "oldest": None if oldest_ms is None else age_text(oldest_ms),
        "oldest_ready_age_ms": oldest_ms,
        "flags": queue.flags,
        "rates": queue.rates,
        "levels": [_level(level) for level in queue.levels],
        "counted": time_text(queue.counted_at_ms or None),
        "counted_at_ms": queue.counted_at_ms,
    }


def totals(queue: QueueStatus) -> dict[str, int]:
    """How many jobs of each kind, over all priorities."""
    return {word: sum(getattr(level, word) for level in queue.levels) for word in COUNTS}


def oldest_age_ms(queue: QueueStatus, now_ms: int) -> int | None:
    """For how long the job has been ready that has been so for the longest."""
    since = [level.oldest_ready_ms for level in queue.levels if level.oldest_ready_ms is not None]
    return max(0, now_ms - min(since)) if since else None


def _level(level: LevelView) -> Row:
    counts = {word: getattr(level, word) for word in COUNTS}
    return {"priority": level.priority, **counts, "oldest_ready_ms": level.oldest_ready_ms}
