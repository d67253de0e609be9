"""`pinlater cluster status` and `pinlater audit`, and servers, shards and queues as rows of output."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import starmap
from typing import Any

import click

from pinlater.cli.connection import EXIT_CODES, ServerCommand, ServerGroup, readable_status, talks_to_server
from pinlater.cli.output import (
    NO_QUEUES,
    Columns,
    Row,
    has_new_keys,
    json_object,
    output_option,
    renamed,
    whole,
    write_all,
)
from pinlater.cli.times import moment_option, time_text
from pinlater.cli.worker import read_pages, summary_text, worker_json
from pinlater.client.client import Client
from pinlater.durations import age_text
from pinlater.errors import Forbidden, MethodUnknown
from pinlater.model import (
    AuditEntry,
    BlockedChain,
    ClusterStatus,
    QueueStatus,
    ServerView,
    ShardView,
    WorkerInfo,
    queue_order,
)
from pinlater.model.job_selection import PHASE_WORDS, JobPhase
from pinlater.printable import json_text, printable
from pinlater.text_table import Column

SERVER_COLUMNS = (
    "server",
    "process",
    "address",
    "ready",
    "maintains",
    Column("shards_out", 6),
    Column("overflow_jobs", 4),
    whole("seen", 5),
    "trouble",
)
SHARD_COLUMNS = ("shard", "store", "state", "dequeue_only", "jobs", Column("keys", 6), "trouble")
HEALTH_COLUMNS = (
    "shard",
    "state",
    "window",
    "skew_ms",
    whole("next_try", 5),
    "maintained_by",
    "out_at",
    "full_at",
    "trouble",
)
RUNNING = JobPhase.IN_PROGRESS.word
LIMITED = "limited"
"""The column of the ready jobs whose groups are paused or at their limits."""

_READY, *_OTHERS = PHASE_WORDS.values()
QUEUE_COLUMNS: Columns = ("queue", _READY, LIMITED, *_OTHERS, Column("oldest", is_number=True), "flags")
OF_FEW = (LIMITED, "waiting", "cancelled", "replayed")
"""Columns of a table only where there is anything in them."""


def server_row(view: ServerView) -> Row:
    """A process that is alive."""
    times = {"started": time_text(view.started_ms), "seen": time_text(view.seen_ms)}
    return {**renamed(is_ready="ready")(asdict(view)), **times}


def shard_row(view: ShardView, status: ClusterStatus) -> Row:
    """As the process sees it that answered; `out_at` are those that have it out, `full_at` those that see it full."""
    row = renamed(id="shard")(asdict(view))
    return {key: value for key, value in row.items() if key != "is_full"} | {
        "state": state_text(view),
        "counted": time_text(view.counted_at_ms or None),
        "window": f"{view.good}/{view.samples}",
        "next_try": time_text(view.next_try_ms),
        "out_at": out_at(view, status),
        "full_at": full_at(view, status),
        "keys": keys_text(view),
    }


def keys_text(view: ShardView) -> str:
    """What a shard is to jobs with keys: "home", what is left of those that moved away or waits for them; "" for none.

    >>> keys_text(ShardView("2", "", "in", True, is_home=False, left_slots=7, barriers=1))
    '7 of 4,096 parts left, 1 waits'
    """
    notes = ["home"] if view.is_home else []
    if view.is_given_up:
        notes.append("given up")
    if view.left_slots:
        notes.append(f"{view.left_slots:,} of 4,096 parts left")
    if view.barriers:
        notes.append(f"{view.barriers:,} wait{'s' if view.barriers == 1 else ''}")
    return ", ".join(notes)


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
    since = age_text(now_ms - chain.since_ms)
    others = "1 other" if chain.waiting == 1 else f"{chain.waiting:,} others"
    return f"{chain.first} keeps {others} of serialize key {chain.serialize_key!r} waiting, first for {since}"


def queue_row(queue: QueueStatus, now_ms: int) -> dict[str, Any]:
    """All its priorities together; JSON has each of them too."""
    oldest_ms = oldest_age_ms(queue, now_ms)
    row = asdict(queue)
    del row["ended_counted_at_ms"]  # keys of before are without
    for level in row["levels"]:
        del level["ready_limited"]
    return {
        **renamed(name="queue")(row),
        **totals(queue),
        "oldest": None if oldest_ms is None else age_text(oldest_ms),
        "oldest_ready_age_ms": oldest_ms,
        "counted": time_text(queue.counted_at_ms or None),
    }


def flags_text(queue: QueueStatus, now_ms: int) -> str:
    """What holds a queue back; of a pause also who, why, since when and until when."""
    pause = queue.pause
    if pause is None:
        return ", ".join(queue.flags)
    parts = ["paused"]
    if pause.by:
        parts.append(f"by {pause.by}")
    if pause.at_ms is not None:
        parts.append(f"{age_text(now_ms - pause.at_ms)} ago")
    if pause.until_ms is not None:
        parts.append(f"for another {age_text(pause.until_ms - now_ms)}")
    why = f" ({pause.why})" if pause.why else ""
    return ", ".join([" ".join(parts) + why, *(flag for flag in queue.flags if flag != "paused")])


def no_queues(status: ClusterStatus) -> str:
    """What to say of a cluster without queues; "" where no shard can be read, which has perhaps some."""
    return NO_QUEUES if any(shard.state == "in" for shard in status.shards) else ""


def totals(queue: QueueStatus) -> dict[str, int]:
    """How many jobs of each kind, over all priorities."""
    return {word: sum(getattr(level, word) for level in queue.levels) for word in PHASE_WORDS}


def oldest_age_ms(queue: QueueStatus, now_ms: int) -> int | None:
    """For how long the job has been ready that has been so for the longest."""
    since = [level.oldest_ready_ms for level in queue.levels if level.oldest_ready_ms is not None]
    return max(0, now_ms - min(since)) if since else None


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater cluster status

{EXIT_CODES}""",
)
def cluster() -> None:
    """Show a cluster as a whole."""


@cluster.command(
    short_help="Show servers, shards and queues.",
    epilog="""\b
Examples:
  pinlater cluster status
  pinlater cluster status -o json | jq '.shards[] | select(.state != "in" or .is_full)'
  pinlater cluster status -o jsonl | jq 'select(.kind == "queue" and .pause).name'""",
)
@output_option
@talks_to_server
def status(client: Client, format: str) -> None:
    """Show the server processes that are alive, the shards as one of them sees them, the queues as last counted, and
    how many workers there are.

    It answers also when no shard can be used. JSON is one object with `servers`, `shards`, `queues` and `workers`, each
    with the jobs it runs; in jsonl each line says its `kind`. Servers of earlier versions know of no workers.
    """
    found = readable_status(client)
    if format != "table":
        _write_json(client, found, format)
        return
    write_all(format, SERVER_COLUMNS, found.servers, server_row)
    for exposed in sorted({each.exposed for each in found.servers} - {""}):
        names = dict.fromkeys(each.server for each in found.servers if each.exposed == exposed)
        click.echo(printable(f"{', '.join(names)}: {exposed}"))
    click.echo()
    write_all(format, SHARD_COLUMNS, found.shards, partial(shard_row, status=found))
    for shard in found.shards:
        for chain in shard.blocked_chains:
            click.echo(printable(f"shard {shard.id}: {blocked_text(chain, found.now_ms)}"))
    if found.homes_trouble:
        click.echo(f"keys cannot move: {printable(found.homes_trouble)}")
    if found.queues:
        click.echo()
    rows = [renamed(in_progress=RUNNING)(queue_row(each, found.now_ms)) for each in found.queues]
    shown = [
        {**row, LIMITED: sum(level.ready_limited for level in each.levels), "flags": flags_text(each, found.now_ms)}
        for row, each in zip(rows, found.queues, strict=True)
    ]
    columns = [each for each in QUEUE_COLUMNS if each not in OF_FEW or any(row[str(each)] for row in shown)]
    write_all(format, columns, sorted(shown, key=lambda row: queue_order(row["queue"])), empty=no_queues(found))
    _write_summary(client)


def _write_json(client: Client, found: ClusterStatus, format: str) -> None:
    whole: dict[str, Any]
    if has_new_keys(format):
        whole = json_object(found) | {"workers": [json_object(each) for each, _ in _workers(client)]}
    else:
        whole = {
            "now_ms": found.now_ms,
            "servers": list(map(server_row, found.servers)),
            "shards": [shard_row(each, found) for each in found.shards],
            "queues": [queue_row(each, found.now_ms) for each in found.queues],
            "workers": list(starmap(worker_json, _workers(client))),
            "homes_trouble": found.homes_trouble,
        }
    if format == "json":
        click.echo(json_text(whole, indent=1))
        return
    for kind in ("server", "shard", "queue", "worker"):
        write_all(format, (), [{"kind": kind, **each} for each in whole[f"{kind}s"]], to_json=dict)


def _workers(client: Client) -> list[tuple[WorkerInfo, int]]:
    """Each with the time of the servers. None where they are too old to know any, or the caller may not read all."""
    try:
        return [(each, page.now_ms) for page in read_pages(client, running=True) for each in page.workers]
    except (MethodUnknown, Forbidden):
        return []


def _write_summary(client: Client) -> None:
    """One line about the workers, where any is known, and the caller may read them all."""
    with suppress(MethodUnknown, Forbidden):
        page = client.get_workers(limit=1)
        if page.total:
            click.echo(f"\n{summary_text(page)}; pinlater worker list shows them")


_MOMENT = re.compile(r"\b(paused_until=)([0-9]{1,16})\b")
_COLUMNS = ("at", "who", whole("action"), whole("target"), "detail")


@click.command(
    cls=ServerCommand,
    epilog=f"""\b
Examples:
  pinlater audit
  pinlater audit --limit 1000 --before 2026-01-31T12:00:00Z
  pinlater audit -o jsonl | jq 'select(.target == "mail")'

{EXIT_CODES}""",
)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The most entries to show.")
@click.option("--before", "before_ms", type=moment_option, metavar="TIME", help="Only changes of before this time.")
@output_option
@talks_to_server
def audit(client: Client, limit: int, before_ms: int | None, format: str) -> None:
    """Show what operators changed, the latest first: who, what and when. The last 90 days are kept."""
    empty = "operators have changed nothing in the last 90 days" if before_ms is None else "nothing is on record before"
    entries = client.audit(limit=limit, before_ms=before_ms)
    write_all(format, _COLUMNS, entries, partial(_row, format=format), empty=empty)


def _row(entry: AuditEntry, format: str) -> Row:
    """In a table, a moment is shown as a time."""
    detail = _MOMENT.sub(lambda found: found[1] + time_text(int(found[2])), entry.detail)
    return {**asdict(entry), "at": time_text(entry.at_ms), "detail": detail if format == "table" else entry.detail}
