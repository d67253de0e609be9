"""`pinlater job retry | delete | cancel`: changes to all jobs that match, in slices, or to those that are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import click
from click.core import ParameterSource

from pinlater.cli.bulk_changes import (
    NOTHING_WANTED,
    Extent,
    Wanted,
    filter_options,
    job_change,
    print_changed,
    priority_or_all_option,
    run_change,
    run_filtered,
    run_removal,
    yes_option,
)
from pinlater.cli.completion import offer_queues, only_first
from pinlater.cli.connection import can_ask, confirm, say, talks_to_server
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.filtered_jobs import filter_option, refuse_beside_filter
from pinlater.cli.job_keys import key_options, key_text
from pinlater.cli.job_states import state_option, words_of
from pinlater.cli.job_views import (
    named_descriptors,
    say_no_descriptor,
    slices,
)
from pinlater.cli.named_jobs import change_named, queue_of, queue_of_words
from pinlater.cli.output import counted, lower_outcome, open_output, write_all
from pinlater.cli.progress import Progress
from pinlater.cli.times import moment_option
from pinlater.client.client import Client
from pinlater.errors import PinLaterError
from pinlater.job_filters.bulk_order import ACTIONS, RunOrder
from pinlater.job_filters.job_filter import FilterLine
from pinlater.model import (
    CancelOutcome,
    JobAction,
    JobFilter,
    JobState,
    KeyRef,
    is_descriptor,
)
from pinlater.model.job_selection import FoundJobsChange, JobPhase, JobSelection, phases_of

_SLICE = 1_000

_NAMED = JobSelection("", descriptors=())
"""Filled from the command line."""
_words_argument = click.argument(
    "words", nargs=-1, metavar="[QUEUE|DESCRIPTOR]...", shell_complete=only_first(offer_queues)
)


_OF_QUEUE = ("priority", "older_ms", "newer_ms", "match", "status_match", "tags")
"""Parameters that say which jobs of a queue are meant."""


def _queue_of(words: Sequence[str]) -> str | None:
    """The queue whose jobs are meant; None: jobs are named. UsageError: nothing is."""
    if not words:
        raise click.UsageError("give a QUEUE, descriptors, or --filter")
    return queue_of_words(words)


def _run_named(
    client: Client, words: Sequence[str], change: FoundJobsChange, takes: Sequence[JobPhase], extent: Extent
) -> None:
    """The jobs that are named, and print how many; SystemExit where any was not changed."""
    context = click.get_current_context()
    names = (*_OF_QUEUE, "limit", "everything")
    given = [each for each in names if context.get_parameter_source(each) is not ParameterSource.DEFAULT]
    if given:
        raise click.UsageError("a filter needs a QUEUE; descriptors name each job")
    found = change_named(client, words, replace(change, dry_run=extent.dry_run), takes)
    print_changed(extent, change.action, found.changed, found.samples)
    if found.lacking:
        raise SystemExit(EXIT_INCOMPLETE)


@click.command(
    short_help="Make failed jobs ready again: those of a queue, or those that are named.",
    epilog="""\b
Examples:
  pinlater job retry mail
  pinlater job retry mail:s1:p1:1790000000000000
  pinlater job retry mail --tag tenant:7 --all
  pinlater job retry mail --priority 2 --attempts 3 --run-after +1h --all
  pinlater job retry --filter 'queue:mail,sms error:*Timeout* ended:<1h'
  pinlater job retry mail --newer-than 2h --status-match 'timed? ?out' --dry-run""",
)
@_words_argument
@priority_or_all_option("all")
@click.option(
    "--attempts", type=click.IntRange(min=1), default=1, show_default=True, help="How often they may be tried again."
)
@click.option("--run-after", type=moment_option, metavar="TIME", help="Not before this time: ISO, or +10m from now.")
@filter_option
@filter_options
@yes_option
@talks_to_server
def retry(
    client: Client,
    words: tuple[str, ...],
    line: FilterLine | None,
    priority: int | None,
    attempts: int,
    run_after: int | None,
    wanted: Wanted,
    extent: Extent,
    yes: bool,
) -> None:
    """Make failed jobs of QUEUE ready again, in slices of 1,000, and print how many.

    On a terminal it counts them first and asks for confirmation.
    Jobs that fail while it runs are left alone. Where a shard is out, the others are done, it is named on stderr, and
    the exit code is 5.

    With descriptors these jobs alone, cancelled ones too; - reads descriptors from standard input. A job that did not
    fail is left alone and named on stderr, and the exit code is 5.

    With --filter all failed jobs that it finds, in whichever queues; cancelled ones where it says state:cancelled. On a
    terminal it counts them first and asks for confirmation.

    The dead letter of a job goes with its retry. Where the letter runs or succeeded, or lies on another shard, the job
    is left alone and named on stderr; so is one that is named and whose letter was replayed.
    """
    if line is not None:
        refuse_beside_filter("words", *_OF_QUEUE)
        run_filtered(client, RunOrder(ACTIONS["retry"], line, (), attempts, run_after), extent, yes=yes)
        return
    queue = _queue_of(words)
    if queue is None:
        retried = FoundJobsChange(_NAMED, JobAction.RETRY, attempts=attempts, run_after_ms=run_after)
        _run_named(client, words, retried, (JobPhase.FAILED, JobPhase.CANCELLED), extent)
        return
    change = job_change(queue, JobAction.RETRY, priority, wanted, attempts=attempts, run_after_ms=run_after)
    if can_ask():
        run_removal(client, change, extent, JobState.FAILED, yes=yes)
    else:
        run_change(client, change, extent)


@click.command(
    short_help="Delete jobs: those of a queue in one state, or those that are named.",
    epilog="""\b
Examples:
  pinlater job delete mail:s1:p1:1790000000000000
  pinlater job delete mail --state failed --all
  pinlater job delete --filter 'queue:mail-* state:succeeded ended:>7d' --all
  pinlater job delete mail --state pending --priority 3 --match 'newsletter 17' --limit 5000
  pinlater job delete mail --state succeeded --priority all --older-than 2d --all --dry-run""",
)
@_words_argument
@state_option
@priority_or_all_option("1")
@filter_option
@filter_options
@yes_option
@talks_to_server
def delete(
    client: Client,
    words: tuple[str, ...],
    line: FilterLine | None,
    state: JobState | None,
    priority: int | None,
    wanted: Wanted,
    extent: Extent,
    yes: bool,
) -> None:
    """Delete jobs of QUEUE in one state, in slices of 1,000, and print how many.

    On a terminal it counts them first and asks for confirmation; then it deletes no more than it has counted.
    Where a shard is out, the others are done, it is named on stderr, and the exit code is 5. Jobs of other priorities
    than 1 are deleted only where --priority says so; how many are left is said.

    With descriptors these jobs alone, whatever their state is unless --state says one; - reads descriptors from
    standard input. Where one is not there, the exit code is 5.

    With --filter all jobs that it finds, in whichever queues; it has to say which states.
    """
    if line is not None:
        refuse_beside_filter("words", "state", *_OF_QUEUE)
        run_filtered(client, RunOrder(ACTIONS["delete"], line), extent, yes=yes)
        return
    queue = _queue_of(words)
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
  pinlater job cancel --filter 'type:newsletter.* age:>1d'
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
@filter_option
@filter_options
@yes_option
@talks_to_server
def cancel(
    client: Client,
    descriptors: tuple[str, ...],
    line: FilterLine | None,
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
    On a terminal it counts them first and asks for confirmation; then it cancels no more than it has counted.

    With --filter all jobs that it finds, in whichever queues, and no worker has yet; with --running the workers of the
    others are asked to stop.
    """
    if line is not None:
        refuse_beside_filter("descriptors", "queue", *_OF_QUEUE)
        run_filtered(client, RunOrder(ACTIONS["cancel"], line, stops_running=running), extent, yes=yes)
        return
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
    with Progress("jobs examined") as progress:
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
