"""Changes to all jobs that match, in slices: the options that say which, the question before, and the run."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import click

from pinlater.cli.connection import can_ask, confirm, say
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.filtered_jobs import FilteredQueues
from pinlater.cli.job_states import selection_of, words_of
from pinlater.cli.job_text import COLUMNS, job_json, job_row, table_row
from pinlater.cli.job_views import (
    match_option,
    status_match_option,
    tag_option,
)
from pinlater.cli.output import counted, has_new_keys, output_option, write_all, write_one
from pinlater.cli.progress import Progress
from pinlater.cli.times import duration_option, time_text
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.job_filters.bulk_order import ACTIONS, RunOrder
from pinlater.model import (
    CONTINUATION_END,
    JobAction,
    JobChange,
    JobsChanged,
    JobState,
)
from pinlater.model.job_selection import FoundJobsChange, JobPhase, JobSelection, phases_of
from pinlater.printable import json_text

_SLICE = 1_000
_MOST_PRIORITIES = 127
_TOLD = 10
_ACTIONS = {each.action: each for each in ACTIONS.values()}
"""With their words."""


@dataclass(frozen=True)
class Extent:
    """How far a change goes: so many jobs at most (None: all), so many per second (None: as fast as it goes)."""

    limit: int | None
    dry_run: bool
    format: str
    per_second: float | None = None


class Wanted(NamedTuple):
    """Which jobs are meant, beside their queue, state and priority. Ages count from now."""

    older_ms: int | None
    newer_ms: int | None
    match: str
    status_match: str = ""
    tags: tuple[str, ...] = ()


NOTHING_WANTED = Wanted(None, None, "")


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them but the priority, as the arguments `wanted` and `extent`."""

    @functools.wraps(command)
    def with_extent(
        limit: int,
        everything: bool,
        dry_run: bool,
        format: str,
        older_ms: int | None,
        newer_ms: int | None,
        match: str,
        status_match: str,
        tags: tuple[str, ...],
        **options: Any,
    ) -> None:
        extent = Extent(None if everything else limit, dry_run, format)
        command(wanted=Wanted(older_ms, newer_ms, match, status_match, tags), extent=extent, **options)

    decorated: Callable[..., Any] = with_extent
    for option in (
        output_option,
        click.option("--dry-run", is_flag=True, help="Change nothing: count the jobs that match, and show ten."),
        click.option("--all", "everything", is_flag=True, help="All jobs, however many."),
        click.option(
            "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="The most jobs to change."
        ),
        tag_option,
        status_match_option,
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


Change = JobChange | FoundJobsChange
"""The second one has conditions on more than bodies; older servers do not know it."""


def job_change(
    queue: str,
    action: JobAction,
    priority: int | None,
    wanted: Wanted,
    *,
    state: JobState | None = None,
    attempts: int | None = None,
    run_after_ms: int | None = None,
    origin_queue: str = "",
) -> Change:
    """Ages count by this machine's clock. `origin_queue`: of copies of its jobs alone."""
    now_ms = SystemClock().now_ms()
    before_ms = None if wanted.older_ms is None else max(0, now_ms - wanted.older_ms)
    after_ms = None if wanted.newer_ms is None else max(0, now_ms - wanted.newer_ms)
    if not (wanted.status_match or wanted.tags or origin_queue):
        return JobChange(
            queue,
            action,
            state,
            priority,
            before_ms,
            after_ms,
            wanted.match,
            attempts=attempts,
            run_after_ms=run_after_ms,
        )
    phases = None if state is None else phases_of(state)
    if phases is not None and action is JobAction.REPLAY:
        phases = [phase for phase in phases if phase is not JobPhase.REPLAYED]
    selection = selection_of(queue, phases, priority, wanted.match, wanted.status_match, wanted.tags)
    selection = replace(
        selection, created_before_ms=before_ms, created_after_ms=after_ms, origin_queue=origin_queue or None
    )
    return FoundJobsChange(selection, action, attempts=attempts, run_after_ms=run_after_ms)


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation on a terminal.")
"""For `run_removal`."""


def run_removal(
    client: Client, change: Change, extent: Extent, state: JobState = JobState.PENDING, *, yes: bool
) -> None:
    """As run_change, but it says what it changes, and on a terminal, unless `yes`, counts that first and asks.

    Then it changes no more jobs than were counted. SystemExit: it is not meant.
    """
    _run_confirmed(client, change.action, [change], extent, _what(change, state), yes=yes)


def run_filtered(client: Client, order: RunOrder, extent: Extent, *, yes: bool) -> None:
    """The same with all jobs of any queues that a filter finds. UsageError: the filter names states of no such jobs."""
    if why_not := order.why_not():
        raise click.UsageError(why_not)
    queues = FilteredQueues(client, order.line, order.phases())
    changes = [order.change(each, queues.now_ms, queues.priorities_of(each)) for each in queues.names]
    meant = [each for each in changes if each is not None]
    what = f"{words_of(order.phases())} jobs that {order.line.text()} finds"
    _run_confirmed(client, order.action.action, meant, extent, what, yes=yes)


def _run_confirmed(
    client: Client, action: JobAction, changes: Sequence[Change], extent: Extent, what: str, *, yes: bool
) -> None:
    opening = ""
    words = _ACTIONS[action]
    if not extent.dry_run:
        if yes or not can_ask():
            most = "all" if extent.limit is None else f"at most {extent.limit:,}"
            opening = f"{words.doing} {most} {what}"
        else:
            found = carried_out(client, action, changes, replace(extent, dry_run=True))
            _say_missing(found.missing)
            if found.jobs:
                rest = "" if found.is_all else ", and leave the rest"
                confirm(f"{words.label} {found.jobs:,} {what}{rest}?", f"nothing was {words.done}")
                extent = replace(extent, limit=found.jobs)
            elif not found.missing:
                print_changed(extent, action, 0, [])
                return
    _run_changes(client, action, changes, extent, opening)


def _what(change: Change, state: JobState) -> str:
    """The jobs that a change means, for a person."""
    selection: JobChange | JobSelection
    if isinstance(change, JobChange):
        selection, priority = change, change.priority
    else:
        selection = change.selection
        priority = next(iter(selection.priorities or ()), None)
    phases = _ACTIONS[change.action].means if change.action is JobAction.RETRY else phases_of(state)
    parts = [f"{words_of(phases)} jobs of queue {selection.queue}"]
    parts.append("all priorities" if priority is None else f"priority {priority}")
    if selection.created_before_ms is not None:
        parts.append(f"created before {time_text(selection.created_before_ms)}")
    if selection.created_after_ms is not None:
        parts.append(f"created since {time_text(selection.created_after_ms)}")
    if isinstance(selection, JobSelection):
        parts += [f"with the tag {tag!r}" for tag in selection.tags]
    for what, regex in _patterns(change):
        parts.append(f"with a {what} that matches {regex!r}")
    return ", ".join(parts)


def _patterns(change: Change) -> list[tuple[str, str]]:
    if isinstance(change, JobChange):
        return [("body", change.body_regex)] if change.body_regex else []
    selection = change.selection
    bodies, statuses = selection.body_conditions, selection.status_conditions
    return [("body", each.regex) for each in bodies] + [("status", each.regex) for each in statuses]


def run_change(client: Client, change: Change, extent: Extent, opening: str = "") -> None:
    """Slice by slice to the end or the limit, and print how many jobs it was; SystemExit where a shard was missing.

    The `opening` is said when a server has begun it.
    """
    _run_changes(client, change.action, [change], extent, opening)


def _run_changes(
    client: Client, action: JobAction, changes: Sequence[Change], extent: Extent, opening: str = ""
) -> None:
    found = carried_out(client, action, changes, extent, opening)
    print_changed(extent, action, found.jobs, found.samples)
    if extent.dry_run and not found.is_all:
        say("more may match; --all counts them all")
    for descriptor, why in list(found.refusals.items())[:_TOLD]:
        say(f"left alone: {descriptor}: {why}")
    if len(found.refusals) > _TOLD:
        say(f"left alone, for such reasons: {counted(len(found.refusals) - _TOLD, 'other job')}")
    if found.missing:
        _say_missing(found.missing)
        raise SystemExit(EXIT_INCOMPLETE)


def _say_missing(missing: set[str]) -> None:
    if missing:
        say(f"not all jobs were searched; missing shards: {', '.join(sorted(missing))}")


@dataclass
class BulkFound:
    """How many jobs it was, some of them (of a dry run), those that were left alone, and whether those were all."""

    jobs: int = 0
    examined: int = 0
    samples: list[Any] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    is_all: bool = False


def carried_out(
    client: Client, action: JobAction, changes: Sequence[Change], extent: Extent, opening: str = ""
) -> BulkFound:
    """One change after the other."""
    word = "jobs match" if extent.dry_run else f"jobs {_ACTIONS[action].done}"
    found = BulkFound(is_all=True)
    with Progress(word) as progress:
        if opening and not changes:
            say(opening)
        for change in changes:
            if extent.limit is not None and progress.done >= extent.limit:
                found.is_all = False
                break
            _run_one(client, replace(change, dry_run=extent.dry_run), extent, found, progress, opening)
            opening = ""
    found.jobs = progress.done
    return found


def _run_one(
    client: Client, change: Change, extent: Extent, found: BulkFound, progress: Progress, opening: str
) -> None:
    is_over = False
    done_before, began_s = progress.done, time.monotonic()
    while not is_over:
        change.limit = _slice(extent, progress.done)
        answer = _slice_done(client, change)
        if opening:
            say(opening)
            opening = ""
        change.continuation = answer.continuation
        found.examined += answer.looked_at
        found.samples += answer.samples[: 10 - len(found.samples)]
        found.missing.update(answer.missing_shards)
        found.refusals |= answer.refusals
        progress.add(answer.changed, f", {found.examined:,} looked at")
        is_over = answer.continuation == CONTINUATION_END
        if extent.limit is not None and progress.done >= extent.limit:
            break
        if extent.per_second is not None and not (extent.dry_run or is_over):
            done = progress.done - done_before
            time.sleep(max(0.0, began_s + done / extent.per_second - time.monotonic()))
    found.is_all = found.is_all and is_over
    if isinstance(change, FoundJobsChange) and not (is_over or extent.dry_run):
        client.change_found_jobs(replace(change, limit=0, is_last=True))  # the audit gets the sum


def _slice_done(client: Client, change: Change) -> JobsChanged:
    return client.change_jobs(change) if isinstance(change, JobChange) else client.change_found_jobs(change)


def _slice(extent: Extent, done: int) -> int:
    """How many jobs the next call may change: with a rate, what may be done within a second."""
    room = _SLICE if extent.limit is None else min(_SLICE, extent.limit - done)
    return room if extent.per_second is None else max(1, min(room, round(extent.per_second)))


def print_changed(extent: Extent, action: JobAction, done: int, samples: Sequence[Any]) -> None:
    if not extent.dry_run:
        write_one(extent.format, _ACTIONS[action].done, done, "changed")
        return
    if extent.format == "table":
        click.echo(done)
        write_all("table", COLUMNS, samples, table_row)
        say("nothing was changed")
    else:
        is_new = has_new_keys(extent.format)
        shown = map(job_json if is_new else job_row, samples)
        click.echo(json_text({"changed" if is_new else "matched": done, "samples": list(shown)}))
