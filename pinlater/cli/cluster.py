"""`pinlater cluster status` and `pinlater audit`, and servers, shards and queues as rows of output."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import click

from pinlater.cli.connection import EXIT_CODES, ServerCommand, ServerGroup, talks_to_server
from pinlater.cli.output import Row, output_option, write_all
from pinlater.cli.times import age_text, moment_option, time_text
from pinlater.cli.worker import read_pages, summary_text, worker_json
from pinlater.client.client import Client
from pinlater.errors import MethodUnknown
from pinlater.model import (
    AuditEntry,
    BlockedChain,
    ClusterStatus,
    LevelView,
    QueueStatus,
    ServerView,
    ShardView,
    queue_order,
)
from pinlater.printable import json_text, printable

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
SHARD_COLUMNS = ("shard", "store", "state", "dequeue_only", "jobs", "keys", "trouble")
HEALTH_COLUMNS = ("shard", "state", "window", "skew_ms", "next_try", "maintained_by", "out_at", "full_at", "trouble")
COUNTS = ("ready", "scheduled", "waiting", "in_progress", "succeeded", "failed", "cancelled")
QUEUE_COLUMNS = ("queue", *COUNTS, "oldest", "flags")
OF_FEW = ("waiting", "cancelled")
"""Columns of a table only where there is anything in them."""


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
        "exposed": view.exposed,
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
        "blocked_chains": [asdict(each) for each in view.blocked_chains],
        "keys": keys_text(view),
        "is_home": view.is_home,
        "left_slots": view.left_slots,
        "barriers": view.barriers,
        "is_given_up": view.is_given_up,
        "has_windows_left": view.has_windows_left,
        "trouble": view.trouble,
    }


def keys_text(view: ShardView) -> str:
    """What a shard is to jobs with keys: "home", what is left of those that moved away or waits for them; "" for none.

    >>> keys_text(ShardView("2", "", "in", True, is_home=False, left_slots=7, barriers=1))
    '7 of 4,096 parts left, 1 waits'
    """
    said = ["home"] if view.is_home else []
    if view.is_given_up:
        said.append("given up")
    if view.left_slots:
        said.append(f"{view.left_slots:,} of 4,096 parts left")
    if view.barriers:
        said.append(f"{view.barriers:,} wait{'s' if view.barriers == 1 else ''}")
    return ", ".join(said)


def out_at(view: ShardView, status: ClusterStatus) -> list[str]:
    """The processes that have a shard out."""
    return [f"{each.server}/{each.process}" for each in status.servers if view.id in each.shards_out]


def state_text(view: ShardView) -> str:
    """In one word: a shard that is in and has no room for new jobs is full."""
    return "full" if view.is_full else view.state


def full_at(view: ShardView, status: ClusterStatus) -> list[str]:
    """The processes that take a shard for full."""
    return [f"{each.server}/{each.process}" for each in status.servers if view.id in each.shards_full]


def blocked_text(chain: BlockedChain, now_ms: int) -> str:
    """Which job keeps how many others waiting."""
    since = age_text(max(0, now_ms - chain.since_ms))
    others = "1 other" if chain.waiting == 1 else f"{chain.waiting:,} others"
    return f"{chain.first} keeps {others} of serialize key {chain.serialize_key!r} waiting, first for {since}"


def queue_row(queue: QueueStatus, now_ms: int) -> dict[str, Any]:
    """All its priorities together; JSON has each of them too."""
    oldest_ms = oldest_age_ms(queue, now_ms)
    return {
        "queue": queue.name,
        **totals(queue),
        "oldest": None if oldest_ms is None else age_text(oldest_ms),
        "oldest_ready_age_ms": oldest_ms,
        "flags": queue.flags,
        "pause": None if queue.pause is None else asdict(queue.pause),
        "rates": queue.rates,
        "levels": [_level(level) for level in queue.levels],
        "counted": time_text(queue.counted_at_ms or None),
        "counted_at_ms": queue.counted_at_ms,
    }


def flags_text(queue: QueueStatus, now_ms: int) -> str:
    """What holds a queue back; of a pause also who, why, since when and until when."""
    pause = queue.pause
    if pause is None:
        return ", ".join(queue.flags)
    said = ["paused"]
    if pause.by:
        said.append(f"by {pause.by}")
    if pause.at_ms is not None:
        said.append(f"{age_text(max(0, now_ms - pause.at_ms))} ago")
    if pause.until_ms is not None:
        said.append(f"for another {age_text(max(0, pause.until_ms - now_ms))}")
    why = f" ({pause.why})" if pause.why else ""
    return ", ".join([" ".join(said) + why, *(flag for flag in queue.flags if flag != "paused")])


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


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater cluster status

{EXIT_CODES}""",
)
def cluster() -> None:
    """Look at a cluster as a whole."""


@cluster.command(
    short_help="Show servers, shards and queues.",
    epilog="""\b
Examples:
  pinlater cluster status
  pinlater cluster status -o json | jq '.shards[] | select(.state != "in")'    out or full
  pinlater cluster status -o jsonl | jq 'select(.kind == "queue" and .failed > 0)'""",
)
@output_option
@talks_to_server
def status(client: Client, format: str) -> None:
    """Show the server processes that are alive, the shards as one of them sees them, the queues as last counted, and
    how many workers there are.

    It answers also when no shard can be used. JSON is one object with `servers`, `shards`, `queues` and `workers`, each
    with the jobs it runs; in jsonl each line says its `kind`. Servers of earlier versions know of no workers.
    """
    found = client.cluster_status()
    servers = [server_row(each) for each in found.servers]
    shards = [shard_row(each, found) for each in found.shards]
    queues: list[Row] = [queue_row(each, found.now_ms) for each in found.queues]
    if format == "table":
        write_all(format, SERVER_COLUMNS, servers)
        for exposed in sorted({each.exposed for each in found.servers} - {""}):
            names = dict.fromkeys(each.server for each in found.servers if each.exposed == exposed)
            click.echo(printable(f"{', '.join(names)}: {exposed}"))
        click.echo()
        write_all(format, SHARD_COLUMNS, shards)
        for shard in found.shards:
            for chain in shard.blocked_chains:
                click.echo(printable(f"shard {shard.id}: {blocked_text(chain, found.now_ms)}"))
        if found.homes_trouble:
            click.echo(f"keys cannot move: {printable(found.homes_trouble)}")
        if queues:
            click.echo()
        named = zip(queues, found.queues, strict=True)
        told = [{**row, "flags": flags_text(each, found.now_ms)} for row, each in named]
        columns = [name for name in QUEUE_COLUMNS if name not in OF_FEW or any(row[name] for row in told)]
        write_all(format, columns, sorted(told, key=lambda row: queue_order(row["queue"])))
        _write_summary(client)
        return
    workers = _workers(client)
    if format == "json":
        whole = {"now_ms": found.now_ms, "servers": servers, "shards": shards, "queues": queues, "workers": workers}
        whole["homes_trouble"] = found.homes_trouble
        click.echo(json_text(whole, indent=1))
    else:
        kinds = {"server": servers, "shard": shards, "queue": queues, "worker": workers}
        write_all(format, (), [{"kind": kind, **row} for kind, rows in kinds.items() for row in rows])


def _workers(client: Client) -> list[Row]:
    """None where the servers are too old to know any."""
    try:
        return [worker_json(each, page.now_ms) for page in read_pages(client, running=True) for each in page.workers]
    except MethodUnknown:
        return []


def _write_summary(client: Client) -> None:
    """One line about the workers, where any is known."""
    with suppress(MethodUnknown):
        page = client.get_workers(limit=1)
        if page.total:
            click.echo(f"\n{summary_text(page)}; pinlater worker list shows them")


_MOMENT = re.compile(r"\b(paused_until=)([0-9]{1,16})\b")
_COLUMNS = ("at", "who", "action", "target", "detail")


@click.command(
    cls=ServerCommand,
    epilog=f"""\b
Examples:
  pinlater audit
  pinlater audit --limit 1000 --before 2026-01-31T12:00:00Z
  pinlater audit -o jsonl | jq 'select(.target == "mail")'

{EXIT_CODES}""",
)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@click.option("--before", "before_ms", type=moment_option, metavar="TIME", help="Only changes of before this time.")
@output_option
@talks_to_server
def audit(client: Client, limit: int, before_ms: int | None, format: str) -> None:
    """Show what operators changed, the latest first: who, what and when. The last 90 days are kept."""
    write_all(format, _COLUMNS, [_row(entry, format) for entry in client.audit(limit=limit, before_ms=before_ms)])


def _row(entry: AuditEntry, format: str) -> Row:
    """In a table, a moment is shown as a time."""
    detail = _MOMENT.sub(lambda found: found[1] + time_text(int(found[2])), entry.detail)
    return {
        "at": time_text(entry.at_ms),
        "at_ms": entry.at_ms,
        "who": entry.who,
        "action": entry.action,
        "target": entry.target,
        "detail": detail if format == "table" else entry.detail,
        "server": entry.server,
    }
