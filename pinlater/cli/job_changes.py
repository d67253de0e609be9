"""`pinlater job retry | delete | cancel`: changes to all jobs that match, in slices, or to those that are named.

In order: the options that say which jobs are meant, the question before jobs are removed, the slices, the commands.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from pinlater.cli.completion import offer_queues, only_first
from pinlater.cli.connection import can_ask, confirm, say, talks_to_server
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.job_keys import key_options, key_text
from pinlater.cli.job_states import selection_of, state_option, words_of
from pinlater.cli.job_text import COLUMNS, job_json, job_row, table_row
from pinlater.cli.job_views import (
    match_option,
    named_descriptors,
    say_no_descriptor,
    slices,
    status_match_option,
)
from pinlater.cli.named_jobs import change_named, queue_of, queue_of_words
from pinlater.cli.output import counted, has_new_keys, lower_outcome, open_output, output_option, write_all, write_one
from pinlater.cli.progress import Progress
from pinlater.cli.times import duration_option, moment_option, time_text
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.errors import PinLaterError
from pinlater.model import (
    CONTINUATION_END,
    CancelOutcome,
    JobAction,
    JobChange,
    JobFilter,
    JobsChanged,
    JobState,
    KeyRef,
    is_descriptor,
)
from pinlater.model.job_selection import FoundJobsChange, JobPhase, JobSelection, phases_of
from pinlater.printable import json_text

_SLICE = 1_000
_MOST_PRIORITIES = 127
_TOLD = 10
_DONE = {
    JobAction.RETRY: "retried",
    JobAction.DELETE: "deleted",
    JobAction.CANCEL: "cancelled",
    JobAction.REPLAY: "replayed",
}
_DO = {JobAction.DELETE: "Delete", JobAction.CANCEL: "Cancel"}
_DOES = {JobAction.DELETE: "deleting", JobAction.CANCEL: "cancelling"}


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
        **options: Any,
    ) -> None:
        extent = Extent(None if everything else limit, dry_run, format)
        command(wanted=Wanted(older_ms, newer_ms, match, status_match), extent=extent, **options)

    decorated: Callable[..., Any] = with_extent
    for option in (
        output_option,
        click.option("--dry-run", is_flag=True, help="Change nothing: count the jobs that are meant, and show ten."),
        click.option("--all", "everything", is_flag=True, help="All jobs, however many."),
        click.option(
            "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="At most so many jobs."
        ),
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
) -> Change:
    """Ages count by this machine's clock."""
    now_ms = SystemClock().now_ms()
    before_ms = None if wanted.older_ms is None else max(0, now_ms - wanted.older_ms)
    after_ms = None if wanted.newer_ms is None else max(0, now_ms - wanted.newer_ms)
    if not wanted.status_match:
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
    selection = selection_of(queue, phases, priority, wanted.match, wanted.status_match)
    selection = replace(selection, created_before_ms=before_ms, created_after_ms=after_ms)
    return FoundJobsChange(selection, action, attempts=attempts, run_after_ms=run_after_ms)


yes_option = click.option("--yes", is_flag=True, help="Do not ask on a terminal whether that is meant.")
"""For `run_removal`."""


def run_removal(
    client: Client, change: Change, extent: Extent, state: JobState = JobState.PENDING, *, yes: bool
) -> None:
    """As run_change, but it says what it touches, and on a terminal, unless `yes`, counts that first and asks.

    Then it removes no more jobs than were counted. SystemExit: it is not meant.
    """
    opening = ""
    if not extent.dry_run:
        what = _what(change, state)
        if yes or not can_ask():
            most = "all" if extent.limit is None else f"at most {extent.limit:,}"
            opening = f"{_DOES[change.action]} {most} {what}"
        else:
            found = _run(client, change, replace(extent, dry_run=True))
            _say_missing(found.missing)
            if found.jobs:
                rest = "" if found.is_all else ", and leave the rest"
                confirm(f"{_DO[change.action]} {found.jobs:,} {what}{rest}?", f"nothing was {_DONE[change.action]}")
                extent = replace(extent, limit=found.jobs)
            elif not found.missing:
                _print(extent, change.action, 0, [])
                return
    run_change(client, change, extent, opening)


def _what(change: Change, state: JobState) -> str:
    """The jobs that a change means, for a person."""
    selection: JobChange | JobSelection
    if isinstance(change, JobChange):
        selection, priority = change, change.priority
    else:
        selection = change.selection
        priority = next(iter(selection.priorities or ()), None)
    parts = [f"{words_of(phases_of(state))} jobs of queue {selection.queue}"]
    parts.append("all priorities" if priority is None else f"priority {priority}")
    if selection.created_before_ms is not None:
        parts.append(f"created before {time_text(selection.created_before_ms)}")
    if selection.created_after_ms is not None:
        parts.append(f"created since {time_text(selection.created_after_ms)}")
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
    found = _run(client, change, extent, opening)
    _print(extent, change.action, found.jobs, found.samples)
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
        say(f"not all was looked at; missing shards: {', '.join(sorted(missing))}")


@dataclass
class _Found:
    """How many jobs it was, some of them (of a dry run), those that were left alone, and whether those were all."""

    jobs: int = 0
    samples: list[Any] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    is_all: bool = False


def _run(client: Client, change: Change, extent: Extent, opening: str = "") -> _Found:
    change = replace(change, dry_run=extent.dry_run)
    word = "jobs match" if extent.dry_run else f"jobs {_DONE[change.action]}"
    found = _Found()
    examined = 0
    began_s = time.monotonic()
    with Progress(word) as progress:
        while True:
            change.limit = _slice(extent, progress.done)
            answer = _slice_done(client, change)
            if opening:
                say(opening)
                opening = ""
            change.continuation = answer.continuation
            examined += answer.looked_at
            found.samples += answer.samples[: 10 - len(found.samples)]
            found.missing.update(answer.missing_shards)
            found.refusals |= answer.refusals
            progress.add(answer.changed, f", {examined:,} looked at")
            found.is_all = answer.continuation == CONTINUATION_END
            if found.is_all or (extent.limit is not None and progress.done >= extent.limit):
                break
            if extent.per_second is not None and not extent.dry_run:
                time.sleep(max(0.0, began_s + progress.done / extent.per_second - time.monotonic()))
    found.jobs = progress.done
    if isinstance(change, FoundJobsChange) and not (found.is_all or extent.dry_run):
        client.change_found_jobs(replace(change, limit=0, is_last=True))  # the audit gets the sum
    return found


def _slice_done(client: Client, change: Change) -> JobsChanged:
    return client.change_jobs(change) if isinstance(change, JobChange) else client.change_found_jobs(change)


def _slice(extent: Extent, done: int) -> int:
    """How many jobs the next call may change: with a rate, what may be done within a second."""
    room = _SLICE if extent.limit is None else min(_SLICE, extent.limit - done)
    return room if extent.per_second is None else max(1, min(room, round(extent.per_second)))


def _print(extent: Extent, action: JobAction, done: int, samples: Sequence[Any]) -> None:
    if not extent.dry_run:
        write_one(extent.format, _DONE[action], done, "changed")
        return
    if extent.format == "table":
        click.echo(done)
        write_all("table", COLUMNS, samples, table_row)
        say("nothing was changed")
    else:
        is_new = has_new_keys(extent.format)
        shown = map(job_json if is_new else job_row, samples)
        click.echo(json_text({"changed" if is_new else "matched": done, "samples": list(shown)}))


_NAMED = JobSelection("", descriptors=())
"""Filled from the command line."""
_words_argument = click.argument(
    "words", nargs=-1, required=True, metavar="QUEUE|DESCRIPTOR...", shell_complete=only_first(offer_queues)
)


def _run_named(
    client: Client, words: Sequence[str], change: FoundJobsChange, takes: Sequence[JobPhase], extent: Extent
) -> None:
    """The jobs that are named, and print how many; SystemExit where any was not changed."""
    context = click.get_current_context()
    names = ("priority", "older_ms", "newer_ms", "match", "status_match", "limit", "everything")
    given = [each for each in names if context.get_parameter_source(each) is not ParameterSource.DEFAULT]
    if given:
        raise click.UsageError("a filter needs a QUEUE; descriptors name each job")
    found = change_named(client, words, replace(change, dry_run=extent.dry_run), takes)
    _print(extent, change.action, found.changed, found.samples)
    if found.lacking:
        raise SystemExit(EXIT_INCOMPLETE)


@click.command(
    short_help="Make failed jobs ready again: those of a queue, or those that are named.",
    epilog="""\b
Examples:
  pinlater job retry mail
  pinlater job retry mail:s1:p1:1790000000000000
  pinlater job retry mail --priority 2 --attempts 3 --run-after +1h --all
  pinlater job retry mail --newer-than 2h --status-match 'timed? ?out' --dry-run""",
)
@_words_argument
@priority_or_all_option("all")
@click.option(
    "--attempts", type=click.IntRange(min=1), default=1, show_default=True, help="How often they may be tried again."
)
@click.option("--run-after", type=moment_option, metavar="TIME", help="Not before this time: ISO, or +10m from now.")
@filter_options
@talks_to_server
def retry(
    client: Client,
    words: tuple[str, ...],
    priority: int | None,
    attempts: int,
    run_after: int | None,
    wanted: Wanted,
    extent: Extent,
) -> None:
    """Make failed jobs of QUEUE ready again, in slices of 1,000, and print how many.

    Jobs that fail while it runs are left alone. Where a shard is out, the others are done, it is named on stderr, and
    the exit code is 5.

    With descriptors these jobs alone, cancelled ones too; - reads descriptors from standard input. A job that did not
    fail is left alone and named on stderr, and the exit code is 5.
    """
    queue = queue_of_words(words)
    if queue is None:
        retried = FoundJobsChange(_NAMED, JobAction.RETRY, attempts=attempts, run_after_ms=run_after)
        _run_named(client, words, retried, phases_of(JobState.FAILED), extent)
        return
    change = job_change(queue, JobAction.RETRY, priority, wanted, attempts=attempts, run_after_ms=run_after)
    run_change(client, change, extent)


@click.command(
    short_help="Delete jobs: those of a queue in one state, or those that are named.",
    epilog="""\b
Examples:
  pinlater job delete mail:s1:p1:1790000000000000
  pinlater job delete mail --state failed --all
  pinlater job delete mail --state pending --priority 3 --match 'newsletter 17' --limit 5000
  pinlater job delete mail --state succeeded --priority all --older-than 2d --all --dry-run""",
)
@_words_argument
@state_option
@priority_or_all_option("1")
@filter_options
@yes_option
@talks_to_server
def delete(
    client: Client,
    words: tuple[str, ...],
    state: JobState | None,
    priority: int | None,
    wanted: Wanted,
    extent: Extent,
    yes: bool,
) -> None:
    """Delete jobs of QUEUE in one state, in slices of 1,000, and print how many.

    On a terminal it counts them first and asks whether that is meant; then it deletes no more than it has counted.
    Where a shard is out, the others are done, it is named on stderr, and the exit code is 5. Jobs of other priorities
    than 1 are deleted only where --priority says so; how many are left is said.

    With descriptors these jobs alone, whatever their state is unless --state says one; - reads descriptors from
    standard input. Where one is not there, the exit code is 5.
    """
    queue = queue_of_words(words)
    if queue is None:
        if not (yes or extent.dry_run or "-" in words) and can_ask():
            confirm(f"Delete {counted(len(set(words)), 'job')}?", "nothing was deleted")
        phases = list(JobPhase) if state is None else phases_of(state)
        _run_named(client, words, FoundJobsChange(_NAMED, JobAction.DELETE), phases, extent)
        return
    if state is None:
        raise click.UsageError("Missing option '--state'.")
    change = job_change(queue, JobAction.DELETE, priority, wanted, state=state)
    run_removal(client, change, extent, state, yes=yes)
    if click.get_current_context().get_parameter_source("priority") is ParameterSource.DEFAULT:
        _say_other_priorities(client, queue, state)


def _say_other_priorities(client: Client, queue: str, state: JobState) -> None:
    """A deletion gets no wider than it was asked for, and says what it left alone."""
    filters = [JobFilter(queue, state, priority, future) for priority in (None, 1) for future in (False, True)]
    try:
        *everywhere, ready, later = client.counts(filters, allow_partial=True)
    except PinLaterError:
        return
    others = sum(everywhere) - ready - later
    if others > 0:
        jobs = f"{counted(others, f'{words_of(phases_of(state))} job')} of other priorities"
        say(f"{jobs} {'is' if others == 1 else 'are'} left alone; --priority all means them too")


@click.command(
    epilog="""\b
Examples:
  pinlater job cancel mail:s1:p1:1790000000000000
  pinlater job scan mail --state pending --future -o jsonl | jq -r .descriptor | pinlater job cancel -
  pinlater job cancel --queue mail --match 'newsletter 17' --dry-run
  pinlater job cancel --queue mail --older-than 7d --all
  pinlater job cancel --queue mail --key welcome-17
  pinlater job cancel --running mail:s1:p1:1790000000000000"""
)
@click.argument("descriptors", nargs=-1, metavar="[DESCRIPTOR]...")
@click.option(
    "--queue",
    metavar="QUEUE",
    shell_complete=offer_queues,
    help="In place of descriptors: the jobs of this queue that match and no worker has yet; or those that --key names.",
)
@key_options
@click.option("--running", is_flag=True, help="Also ask workers to stop what is running.")
@priority_or_all_option("all")
@filter_options
@yes_option
@talks_to_server
def cancel(
    client: Client,
    descriptors: tuple[str, ...],
    queue: str | None,
    keys: list[KeyRef],
    running: bool,
    priority: int | None,
    wanted: Wanted,
    extent: Extent,
    yes: bool,
) -> None:
    """Remove jobs that no worker has yet.

    By descriptor or key, it prints what became of each; - reads descriptors from standard input. The outcomes:
    CANCELLED, IN_PROGRESS (a worker has it), ENDED, NOT_FOUND (also for what is no descriptor), and with --running
    REQUESTED (its worker is asked to stop; whatever it does but succeed ends it as cancelled). Where any other was not
    cancelled, the exit code is 5.

    With --queue and no key, all of its jobs that match, scheduled ones too, in slices of 1,000, and it prints how many.
    On a terminal it counts them first and asks whether that is meant; then it cancels no more than it has counted.
    """
    by_name = bool(descriptors) or bool(keys)
    if not keys and bool(descriptors) == (queue is not None):
        raise click.UsageError(
            "give descriptors or --queue, not both" if descriptors else "give descriptors or --queue"
        )
    if running and not by_name:
        raise click.UsageError("--running needs descriptors or --key")
    if queue is not None and not by_name:
        change = job_change(queue, JobAction.CANCEL, priority, wanted)
        run_removal(client, change, extent, yes=yes)
        return
    if extent.dry_run or priority or wanted != NOTHING_WANTED:
        raise click.UsageError("a filter and --dry-run need --queue; descriptors and keys name each job")
    if any(not key.dedupe_key for key in keys):
        raise click.UsageError("--serialize-key alone names many jobs; give --key too")
    failed = _cancel_keyed(client, queue or "", keys, running, extent.format) if keys else False
    if descriptors:
        failed = _cancel_named(client, descriptors, running, extent.format) or failed
    if failed:
        raise SystemExit(EXIT_INCOMPLETE)


_MEANT = (CancelOutcome.CANCELLED, CancelOutcome.REQUESTED)


def _cancel_keyed(client: Client, queue: str, keys: list[KeyRef], running: bool, format: str) -> bool:
    """Whether any of them was not cancelled."""
    outcomes = client.cancel(queue, keys=keys, running=running).by_key
    rows = [{"key": key_text(key), "outcome": each.name} for key, each in zip(keys, outcomes, strict=True)]
    write_all(format, ["key", "outcome"], rows, to_json=lower_outcome)
    return any(outcome not in _MEANT for outcome in outcomes)


def _cancel_named(client: Client, descriptors: tuple[str, ...], running: bool, format: str) -> bool:
    """Whether any of them was not cancelled."""
    output = open_output(format, ["descriptor", "outcome"], to_json=lower_outcome)
    failed = False
    with Progress("jobs looked at") as progress:
        for queue, named in groupby(named_descriptors(descriptors), queue_of):
            for part in slices(named, _SLICE, _SLICE, lambda _: 0):
                outcomes = {} if queue is None else client.cancel(queue, part, running=running)
                for each in part:
                    if not is_descriptor(each):
                        say_no_descriptor(each)
                rows = [(each, outcomes.get(each, CancelOutcome.NOT_FOUND)) for each in part]
                failed = failed or any(outcome not in _MEANT for _, outcome in rows)
                progress.add(len(part))
                output.write([{"descriptor": each, "outcome": outcome.name} for each, outcome in rows])
    output.close()
    return failed
