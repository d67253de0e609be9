"""Changes to all jobs that match: the options that say which, and the slices in which it is done."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click

from pinlater.cli.failures import EXIT_INCOMPLETE, say
from pinlater.cli.job_rows import COLUMNS, job_row, match_option
from pinlater.cli.output import output_option, write_all, write_one
from pinlater.cli.progress import Progress
from pinlater.cli.times import duration_option
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.model import CONTINUATION_END, JobAction, JobChange

_SLICE = 1_000
_MOST_PRIORITIES = 127
_DONE = {
    JobAction.RETRY: "retried",
    JobAction.DELETE: "deleted",
    JobAction.CANCEL: "cancelled",
    JobAction.REPLAY: "replayed",
}


@dataclass(frozen=True)
class Extent:
    """How far a change goes: so many jobs at most (None: all), so many per second (None: as fast as it goes)."""

    limit: int | None
    dry_run: bool
    format: str
    per_second: float | None = None


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them but the priority, as the arguments `older_ms`, `newer_ms`, `match`, `extent`."""

    @functools.wraps(command)
    def with_extent(limit: int, everything: bool, dry_run: bool, format: str, **options: Any) -> None:
        command(extent=Extent(None if everything else limit, dry_run, format), **options)

    decorated: Callable[..., Any] = with_extent
    for option in (
        output_option,
        click.option("--dry-run", is_flag=True, help="Change nothing: count the jobs that are meant, and show ten."),
        click.option("--all", "everything", is_flag=True, help="All jobs, however many."),
        click.option(
            "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="At most so many jobs."
        ),
        match_option,
        click.option(
            "--newer-than", "newer_ms", type=duration_option, metavar="DURATION", help="Only jobs created since."
        ),
        click.option(
            "--older-than", "older_ms", type=duration_option, metavar="DURATION", help="Only jobs created before that."
        ),
    ):
        decorated = option(decorated)
    return decorated


def _priority(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isdecimal() and 1 <= int(text) <= _MOST_PRIORITIES):
        raise click.BadParameter(f"{text!r} is no priority; allowed: 1 to {_MOST_PRIORITIES}, or all")
    return int(text)


def priority_or_all_option(default: str) -> Callable[[Any], Any]:
    """--priority, where one or all can be meant."""
    return click.option(
        "--priority",
        type=_priority,
        default=default,
        show_default=True,
        metavar="N|all",
        help="The priority of the jobs.",
    )


def job_change(
    queue: str, action: JobAction, priority: int | None, older_ms: int | None, newer_ms: int | None, match: str
) -> JobChange:
    """Ages count from now, by this machine's clock."""
    now_ms = SystemClock().now_ms()
    return JobChange(
        queue,
        action,
        priority=priority,
        created_before_ms=None if older_ms is None else max(0, now_ms - older_ms),
        created_after_ms=None if newer_ms is None else max(0, now_ms - newer_ms),
        body_regex=match,
    )


def run_change(client: Client, change: JobChange, extent: Extent) -> None:
    """Slice by slice to the end or the limit, and print how many jobs it was; SystemExit where a shard was missing."""
    change = replace(change, dry_run=extent.dry_run)
    word = "jobs match" if extent.dry_run else f"jobs {_DONE[change.action]}"
    samples: list[Any] = []
    missing: set[str] = set()
    looked_at = 0
    began_s = time.monotonic()
    with Progress(word) as progress:
        while True:
            change.limit = _slice(extent, progress.done)
            answer = client.change_jobs(change)
            change.continuation = answer.continuation
            looked_at += answer.looked_at
            samples += answer.samples[: 10 - len(samples)]
            missing.update(answer.missing_shards)
            progress.add(answer.changed, f", {looked_at:,} looked at")
            is_all = answer.continuation == CONTINUATION_END
            if is_all or (extent.limit is not None and progress.done >= extent.limit):
                break
            if extent.per_second is not None and not extent.dry_run:
                time.sleep(max(0.0, began_s + progress.done / extent.per_second - time.monotonic()))
    _print(extent, change.action, progress.done, samples)
    if extent.dry_run and not is_all:
        say("more may match; --all counts them all")
    if missing:
        say(f"not all was looked at; missing shards: {', '.join(sorted(missing))}")
        raise SystemExit(EXIT_INCOMPLETE)


def _slice(extent: Extent, done: int) -> int:
    """How many jobs the next call may change: with a rate, what may be done within a second."""
    room = _SLICE if extent.limit is None else min(_SLICE, extent.limit - done)
    return room if extent.per_second is None else max(1, min(room, round(extent.per_second)))


def _print(extent: Extent, action: JobAction, done: int, samples: list[Any]) -> None:
    if not extent.dry_run:
        write_one(extent.format, _DONE[action], done)
        return
    rows = [job_row(info) for info in samples]
    if extent.format == "table":
        click.echo(done)
        write_all("table", COLUMNS, rows)
        say("nothing was changed")
    else:
        click.echo(json.dumps({"matched": done, "samples": rows}, ensure_ascii=False))
