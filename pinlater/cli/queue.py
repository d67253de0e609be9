"""`pinlater queue`: create, list, statistics, drain, replay and delete. queue_settings.py has settings and pauses."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from pinlater.cli.admin import PASSWORD_HELP, admin_password, needs_password
from pinlater.cli.bulk_changes import Extent, Wanted, filter_options, job_change, priority_or_all_option, run_change
from pinlater.cli.completion import offer_queues, one_of
from pinlater.cli.connection import (
    EXIT_CODES,
    ServerGroup,
    can_ask,
    confirm,
    near_queue,
    out_shards,
    say,
    say_missed,
    talks_to_server,
)
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.job_states import Apart, count_apart, state_choice
from pinlater.cli.output import NO_QUEUES, Row, has_new_keys, open_output, output_option, renamed, write_all
from pinlater.cli.progress import Left, wait_until_empty
from pinlater.client.client import Client
from pinlater.errors import Forbidden, PinLaterError, PriorityNotSupported, QueueNotFound, ServerUnreachable
from pinlater.model import JobAction, JobFilter, JobState, queue_order
from pinlater.model.job_selection import PENDING_PHASES, JobPhase
from pinlater.password_search import PASSWORD_VARIABLE
from pinlater.setting_kinds import Rate
from pinlater.text_table import Column
from pinlater.wire.methods import DELETE_QUEUE

_NAMED = renamed(queue="name")
_LIMITED = "limited"
_TABLED = renamed(in_progress=JobPhase.IN_PROGRESS.word, ready_limited=_LIMITED)
_SOON_S = 2.0
"""So long a script waits for what is only said."""


@click.command(
    epilog="""\b
Examples:
  pinlater queue create mail
  pinlater queue create mail thumbnails --cluster production"""
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@talks_to_server
def create(client: Client, names: tuple[str, ...]) -> None:
    """Create queues. One that is there already is left as it is.

    A name is letters, digits, _ and -, up to 64, with no - in front. Shards that are out are named: they get the
    queues before they serve again.
    """
    for name in names:
        client.create_queue(name)
    say_missed(out_shards(client))


@click.command(
    "list",
    epilog="""\b
Examples:
  pinlater queue list
  pinlater queue list -o json --server queue-1:9010""",
)
@output_option
@talks_to_server
def list_queues(client: Client, format: str) -> None:
    """List the queues, by name."""
    rows = [{"queue": name} for name in sorted(client.queue_names(), key=queue_order)]
    write_all(format, ["queue"], rows, to_json=_NAMED, empty=NO_QUEUES)


@click.command(
    help=f"""Delete a queue and all its jobs, in every state.

    It shows how many jobs those are, and asks for confirmation on a terminal.

    {PASSWORD_HELP} A queue that does not exist is no error.""",
    epilog=f"""\b
Examples:
  pinlater queue delete old_mail                              asks for the password and for confirmation
  pass show pinlater | pinlater queue delete old_mail --yes
  {PASSWORD_VARIABLE}=… pinlater queue delete old_mail --yes""",
)
@click.argument("name", shell_complete=offer_queues)
@click.option("--yes", is_flag=True, help="Do not ask whether that is meant.")
@needs_password
@talks_to_server
def delete(client: Client, name: str, yes: bool) -> None:
    if not (yes or can_ask()):
        raise click.UsageError("without a terminal to ask on, --yes is needed")
    is_there = _say_contents(client, name, None if can_ask() else _SOON_S)
    if is_there and not yes:
        confirm(f"Delete queue {name!r} and all its jobs?", "nothing was deleted")
    client.delete_queue(name, admin_password(client, DELETE_QUEUE, name))
    say_missed(out_shards(client))


def _say_contents(client: Client, name: str, timeout_s: float | None) -> bool:
    """What goes with a queue; False where it does not exist. What cannot be counted keeps nobody from deleting it."""
    try:
        out = out_shards(client)
        counts = holds(client, name, partial=bool(out), timeout_s=timeout_s)
    except QueueNotFound:
        say(f"queue {name} does not exist{near_queue(client, name)}")
        return False
    except ServerUnreachable:
        pass  # too slow, or the deletion itself will say so
    except PinLaterError as error:
        say(f"how many jobs queue {name} holds is not known: {error.message}")
    else:
        text = ", ".join(f"{count:,} {_HELD.get(column, column)}" for column, count in counts.items())
        beyond = f", and what is on shard {', '.join(out)}, which cannot be counted" if out else ""
        say(f"queue {name} holds {text}{beyond}")
    return True


COUNTS = ("pending", "scheduled", "in_progress", "succeeded", "failed")
"""Those of the wire, and of the JSON of before: jobs that wait are among the first two, cancelled and replayed
ones among the last.
"""
_HELD = {"pending": "ready or waiting", "in_progress": "running", "failed": "failed, cancelled or replayed"}
"""What such a count has, for people."""

WORDS = tuple(phase.word for phase in JobPhase.in_order())
"""Columns of a table, each job in one of them."""
_LEFT_OUT_FIRST = {"replayed": 2, "cancelled": 3, "waiting": 4, "succeeded": 5}
_COUNT_COLUMNS = tuple(
    Column(word, _LEFT_OUT_FIRST.get(word, 7), is_number=True)
    for each in WORDS
    for word in ((each, _LIMITED) if each == JobPhase.READY.word else (each,))
)

_COUNTED = [
    ("scheduled" if (state, future) == (JobState.PENDING, True) else state.name.lower(), state, future)
    for state in JobState
    for future in (False, True)
]
"""Where each count goes. Outside of PENDING it says little that run_after is yet to come, as after a checkpoint."""
_APART = {
    JobPhase.WAITING: ("pending", "scheduled"),
    JobPhase.CANCELLED: ("failed",),
    JobPhase.REPLAYED: ("failed",),
}
"""What the wire does not tell apart, and the counts of it that have it."""

_MOST_PRIORITIES = 127


_ALL = "all"
"""In place of a priority: all of them together."""


@click.command(
    short_help="Count the jobs of each queue.",
    epilog="""\b
Examples:
  pinlater queue stats mail
  pinlater queue stats --by-priority
  pinlater queue stats -o jsonl | jq 'select(.failed > 0).name'""",
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=offer_queues)
@click.option(
    "--by-priority/--totals",
    "by_priority",
    default=None,
    help="A row for each priority, or one for each queue. [default: one, and those of its priorities where more than "
    "one has jobs; in JSON one for each priority]",
)
@output_option
@talks_to_server
def stats(client: Client, names: tuple[str, ...], by_priority: bool | None, format: str) -> None:
    """Count the jobs of each queue by state; without a NAME of all queues.

    `ready` jobs may run now, `scheduled` ones only later, `waiting` ones when another of their serialize key has ended;
    `cancelled` ones ran, were asked to stop and did not succeed; `replayed` ones failed, and their dead letters were
    sent back. JSON has `in_progress` for `running`. `limited` are those of the ready jobs whose groups are paused or at
    their limits, as the servers last counted them; it is there where a queue has some, in JSON as `ready_limited`.
    Where a shard is out, it is named on stderr, its jobs are not counted, and the exit code is 5.
    """
    out = out_shards(client)
    in_phases = format == "table" or has_new_keys(format)
    if by_priority is None and format != "table":
        by_priority = True
    output = None if format == "table" else open_output(format, (), dict, _NAMED)
    priorities = 0
    aligned: list[Row] = []  # columns are as wide as the widest number of all queues
    try:
        chosen = names or sorted(client.queue_names(), key=queue_order)
        limited = _limited(client, chosen) if in_phases else {}
        for name in chosen:
            priorities = priorities or _priorities(client, name, bool(out))
            levels = _counted(client, name, priorities, bool(out))
            shown = _chosen(_by_phase(client, name, levels, limited) if in_phases else levels, by_priority)
            if output is None:
                aligned += shown
            else:
                output.write(shown)
    finally:
        if output is None:
            # where no row is of one priority, that column gives way to the numbers
            priority = Column("priority", 1 if all(row["priority"] == _ALL for row in aligned) else 7)
            any_limited = any(row.get("ready_limited") for row in aligned)
            counts = [each for each in _COUNT_COLUMNS if any_limited or each.heading != _LIMITED]
            output = open_output(format, ["queue", priority, *counts], _TABLED, empty=NO_QUEUES)
            output.write(aligned)
    output.close()
    if out:
        say(f"not all was counted; missing shards: {', '.join(out)}")
        raise SystemExit(EXIT_INCOMPLETE)


def _chosen(levels: Sequence[Row], by_priority: bool | None) -> Sequence[Row]:
    """The rows of one queue that are printed, of those of its priorities."""
    if by_priority:
        return levels
    names = levels[0].keys() - {"queue", "priority"}
    whole = {**levels[0], "priority": _ALL, **{name: sum(level[name] for level in levels) for name in names}}
    used = [level for level in levels if any(level[name] for name in names)]
    return [whole] if by_priority is False or len(used) < 2 else [whole, *used]


def holds(client: Client, name: str, *, partial: bool, timeout_s: float | None = None) -> dict[str, int]:
    """How many jobs of each kind a queue holds, all priorities together. QueueNotFound."""
    counts = dict.fromkeys(COUNTS, 0)
    filters = [JobFilter(name, state, future=future) for _, state, future in _COUNTED]
    found = client.counts(filters, allow_partial=partial, timeout=timeout_s)
    for (column, *_), count in zip(_COUNTED, found, strict=True):
        counts[column] += count
    return counts


def _priorities(client: Client, name: str, partial: bool) -> int:
    """How many the server has; the same for all its queues."""
    for priority in range(1, _MOST_PRIORITIES + 1):
        try:
            client.count(JobFilter(name, JobState.PENDING, priority, future=True), allow_partial=partial)
        except PriorityNotSupported:
            return priority - 1
    return _MOST_PRIORITIES


def _counted(client: Client, name: str, priorities: int, partial: bool) -> list[dict[str, Any]]:
    """A row of each priority, from counts that are asked for all at once."""
    filters = [
        (priority, column, JobFilter(name, state, priority, future=future))
        for priority in range(1, priorities + 1)
        for column, state, future in _COUNTED
    ]
    rows: list[dict[str, Any]] = [
        {"queue": name, "priority": priority, **dict.fromkeys(COUNTS, 0)} for priority in range(1, priorities + 1)
    ]
    counts = client.counts([filter for *_, filter in filters], allow_partial=partial)
    for (priority, column, _), count in zip(filters, counts, strict=True):
        rows[priority - 1][column] += count
    return rows


def _limited(client: Client, names: Sequence[str]) -> dict[str, dict[int, int]]:
    """Of the queues with any, by priority, the ready jobs that their groups hold back. That takes no other right than
    to read these queues; where the caller may not read one of them, its own counts say so.
    """
    try:
        found = client.cluster_status(queues=names).queues
    except Forbidden:
        return {}
    levels = {queue.name: {level.priority: level.ready_limited for level in queue.levels} for queue in found}
    return {name: jobs for name, jobs in levels.items() if any(jobs.values())}


def _by_phase(client: Client, name: str, counted: Sequence[Row], limited: Mapping[str, Mapping[int, int]]) -> list[Row]:
    """The same by phase, each job in one of them; and those of the ready ones that are `limited`, where any are."""
    phases = [phase for phase, held in _APART.items() if any(row[column] for row in counted for column in held)]
    apart = count_apart(client, name, phases) if phases else {}
    rows: list[Row] = []
    for row in counted:
        waiting, later, cancelled, replayed = apart.get(row["priority"], Apart())
        ready = max(0, row["pending"] - waiting + later)
        held = limited.get(name)
        numbers = {
            "scheduled": max(0, row["scheduled"] - later),
            "ready": ready,
            "waiting": waiting,
            "in_progress": row["in_progress"],
            "succeeded": row["succeeded"],
            "failed": max(0, row["failed"] - cancelled - replayed),
            "cancelled": cancelled,
            "replayed": replayed,
        }
        if held is not None:
            numbers["ready_limited"] = min(ready, held.get(row["priority"], 0))
        rows.append({"queue": name, "priority": row["priority"], **numbers})
    return rows


_EVERYWHERE_S = 2.5
"""After so long every server refuses new jobs."""

_LEFT = (*PENDING_PHASES, JobPhase.IN_PROGRESS)
_COUNTED_LAST = [(_LEFT[0], False), (_LEFT[1], True), (_LEFT[-1], False), (_LEFT[-1], True)]
"""With those that wait among the ready and the scheduled ones."""


@click.command(
    short_help="Refuse new jobs of a queue, and wait until it is empty.",
    help=f"""Refuse new jobs of a queue, and wait until workers have ended those that are there.

    What is left is shown on a terminal. A shard that is out is waited for, since it may hold jobs. Ctrl-C
    ends the waiting; the queue goes on draining until --undo.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater queue drain old_mail
  pinlater queue drain old_mail --partial           ends also while a shard is out, with the exit code 5
  pinlater queue drain old_mail --no-wait
  pinlater queue drain old_mail --undo""",
)
@click.argument("name", shell_complete=offer_queues)
@click.option("--undo", is_flag=True, help="Take new jobs again.")
@click.option("--no-wait", is_flag=True, help="Only set it, and end.")
@click.option("--partial", is_flag=True, help="Do not wait for shards that are out.")
@needs_password
@talks_to_server
def drain(client: Client, name: str, undo: bool, no_wait: bool, partial: bool) -> None:
    from pinlater.cli.queue_settings import switch_off, switch_on  # noqa: PLC0415

    if undo:
        switch_off(client, name, "draining")
        say(f"queue {name} takes new jobs again")
        return
    switch_on(client, name, "draining", {})
    if no_wait:
        say(f"queue {name} refuses new jobs")
        return
    refused_from_s = time.monotonic() + _EVERYWHERE_S
    left = wait_until_empty(
        lambda: _look(client, name, partial, refused_from_s),
        f"queue {name} is left draining; `pinlater queue drain {name} --undo` takes new jobs again",
    )
    if left.unknown:
        say(f"queue {name} is empty, but for shards that are out: {', '.join(left.unknown)}")
        raise SystemExit(EXIT_INCOMPLETE)
    say(f"queue {name} is drained")


def _look(client: Client, name: str, partial: bool, refused_from_s: float) -> Left:
    """As the servers counted last; only what looks empty is counted exactly, which costs more the more there is."""
    status = client.cluster_status(queues=[name])
    is_refused = time.monotonic() >= refused_from_s
    if not status.queues:
        if is_refused:
            raise QueueNotFound.of(name)
        return Left("waiting for the servers to apply it")
    levels = status.queues[0].levels
    counts = {phase.word: sum(getattr(level, phase.name.lower()) for level in levels) for phase in _LEFT}
    out = tuple(shard.id for shard in status.shards if shard.state != "in")
    if not any(counts.values()) and (partial or not out):
        for phase, future in _COUNTED_LAST:
            wanted = JobFilter(name, phase.state, future=future)
            counts[phase.word] += client.count(wanted, allow_partial=partial)
    text = ", ".join(f"{count:,} {word}" for word, count in counts.items())
    is_empty = is_refused and not any(counts.values()) and (partial or not out)
    return Left(f"{text}; waiting for shard {', '.join(out)}" if out else text, is_empty, out)


def _rate(text: str | float) -> float:
    try:
        per_second = text if isinstance(text, float) else Rate().parse(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no rate; allowed: such as 100/s, 30/m, 5/h") from None
    if not per_second:
        raise click.BadParameter("a rate of 0 would never end")
    return per_second


def _dead_letter_queue(client: Client, queue: str) -> str:
    """Where the dead letters of a queue go; "": nowhere, as those of a dead-letter queue itself, or the caller may not
    see that.
    """
    try:
        (view,) = client.get_queues([queue])
    except Forbidden:
        return ""
    setting = view.settings.get("dead_letter_queue")
    return "" if setting is None or setting.value == "none" else setting.value


@click.command(
    short_help="Send dead letters back to their queues, as new jobs.",
    epilog="""\b
Examples:
  pinlater queue replay mail_dead
  pinlater queue replay mail                         what came from mail, wherever its dead letters lie
  pinlater queue replay all_dead --from mail --dry-run
  pinlater queue replay mail_dead --newer-than 2h --match '"to": "ada@' --dry-run
  pinlater queue replay mail_dead --all --rate 100/s --attempts 3""",
)
@click.argument("queue", metavar="QUEUE", shell_complete=offer_queues)
@click.option(
    "--from",
    "origin_queue",
    metavar="QUEUE",
    default="",
    shell_complete=offer_queues,
    help="Only dead letters that came from this queue.",
)
@priority_or_all_option("all")
@click.option(
    "--state",
    type=state_choice(JobState.PENDING, JobState.FAILED),
    metavar="STATE",
    shell_complete=one_of("pending", "failed"),
    help="Only dead letters in this state: pending or failed. [default: both]",
)
@click.option(
    "--attempts", type=click.IntRange(min=1), help="How often they may be tried again. [default: as before they failed]"
)
@click.option("--rate", type=_rate, metavar="RATE", help="The highest rate: 100/s, 30/m. [default: none]")
@filter_options
@talks_to_server
def replay(
    client: Client,
    queue: str,
    origin_queue: str,
    priority: int | None,
    state: JobState | None,
    attempts: int | None,
    rate: float | None,
    wanted: Wanted,
    extent: Extent,
) -> None:
    """Send dead letters back to the queues that they came from, and print how many.

    QUEUE is where they lie. A queue that has a dead-letter queue stands for its own dead letters there.

    The age of a dead letter counts from when it came to the dead-letter queue. One that arrives while it runs is left
    alone. The job that it is the letter of is `replayed` from then on: no retry takes it.
    """
    letters = "" if origin_queue else _dead_letter_queue(client, queue)
    if letters:
        say(f"dead letters of {queue} lie in {letters}: those that came from {queue} go back")
        queue, origin_queue = letters, queue
    change = job_change(
        queue, JobAction.REPLAY, priority, wanted, state=state, attempts=attempts, origin_queue=origin_queue
    )
    run_change(client, change, replace(extent, per_second=rate))


_OF_SETTINGS = {
    name: f"pinlater.cli.queue_settings:{function}"
    for name, function in {
        "show": "show",
        "set": "set_values",
        "unset": "unset_values",
        "set-rate": "set_rate",
        "pause": "pause",
        "resume": "resume",
    }.items()
}
"""They know all settings of queues and what these may be."""


@click.group(
    cls=ServerGroup,
    elsewhere=_OF_SETTINGS,
    epilog=f"""\b
Examples:
  pinlater queue create mail
  pinlater queue set mail max_attempts=20 claim_timeout=30s
  pinlater queue pause mail --why 'the provider is down' --for 1h
  pinlater queue delete --help                      the help of one command

{EXIT_CODES}""",
)
def queue() -> None:
    """Create, show, set, pause, drain and delete queues."""


for command in (
    create,
    list_queues,
    stats,
    drain,
    replay,
    delete,
):
    queue.add_command(command)
