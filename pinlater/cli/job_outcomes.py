"""The commands `pinlater job reschedule | wait`, which say what became of jobs."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import groupby

import click

from pinlater.cli.bulk_changes import yes_option
from pinlater.cli.connection import can_ask, confirm, say, talks_to_server, talks_while_waiting
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.filtered_jobs import filter_option, found_by_filter, refuse_beside_filter
from pinlater.cli.job_keys import found_by_keys, key_options, key_text, queue_of_keys_option
from pinlater.cli.job_text import COLUMNS, job_json, row_of
from pinlater.cli.job_views import named_descriptors, say_no_descriptor, write_bytes
from pinlater.cli.output import Row, counted, lower_outcome, open_output, output_option, renamed, write_all
from pinlater.cli.progress import Progress
from pinlater.cli.times import duration_option, moment_option
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.errors import ShardConnectionFailed
from pinlater.job_filters.job_filter import FilterLine
from pinlater.model import (
    JobState,
    KeyRef,
    RescheduleJob,
    RescheduleOutcome,
    is_descriptor,
)
from pinlater.model.job_selection import PENDING_PHASES, phase_of

_MOST_ATTEMPTS = 2**31 - 1


# -- reschedule --------------------------------------------------------------------------------------------------------


def _updated_at(text: str | int) -> int:
    """As `job get` shows it: the time, or its milliseconds."""
    return text if isinstance(text, int) else int(text) if text.isdecimal() else moment_option(text)


@click.command(
    short_help="Give jobs that no worker has yet another time, body or number of attempts.",
    epilog="""\b
Examples:
  pinlater job reschedule mail:s1:p1:1790000000000000 --delay 2h
  pinlater job reschedule --filter 'queue:mail state:scheduled tag:tenant:7' --delay 2h
  pinlater job reschedule --queue mail --key welcome-17 --run-at 2028-11-01T09:00:00Z
  pinlater job reschedule --queue mail --key digest-17 --body '{"to": "ada@example.org"}' --attempts 5
  pinlater job reschedule mail:s1:p1:1790000000000000 --delay 1h --if-updated-at 2026-11-23T10:00:00.123Z""",
)
@click.argument("descriptors", nargs=-1, metavar="[DESCRIPTOR]...")
@queue_of_keys_option
@key_options
@filter_option
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="With --filter: the most jobs."
)
@yes_option
@click.option("--run-at", type=moment_option, metavar="TIME", help="Not before this time: ISO, or +10m from now.")
@click.option("--delay", type=duration_option, metavar="DURATION", help="How long from now no worker gets it.")
@click.option("--body", metavar="TEXT", help="Their new body; - for standard input.")
@click.option("--attempts", type=click.IntRange(1, _MOST_ATTEMPTS), help="How often they may be tried from now on.")
@click.option(
    "--if-updated-at", type=_updated_at, metavar="TIME", help="Only where the job was last updated then, as get shows."
)
@output_option
@talks_to_server
def reschedule(
    client: Client,
    descriptors: tuple[str, ...],
    queue: str | None,
    keys: list[KeyRef],
    line: FilterLine | None,
    limit: int,
    yes: bool,
    run_at: int | None,
    delay: int | None,
    body: str | None,
    attempts: int | None,
    if_updated_at: int | None,
    format: str,
) -> None:
    """Give jobs that no worker has yet another time, body or number of attempts.

    It prints what became of each: RESCHEDULED, IN_PROGRESS (a worker has it), ENDED, NOT_FOUND, or CHANGED (it was
    updated at another time than --if-updated-at). Where any was not rescheduled, the exit code is 5. A job that waits
    for another one of its serialize key keeps its place.

    With --filter all pending jobs that it finds; on a terminal it shows how many, and asks for confirmation.
    """
    if line is not None:
        refuse_beside_filter("descriptors", "queue")
    elif not descriptors and not keys:
        raise click.UsageError("give descriptors, --queue and --key, or --filter")
    if run_at is not None and delay is not None:
        raise click.UsageError("give --run-at or --delay, not both")
    if run_at is None and delay is None and body is None and attempts is None:
        raise click.UsageError("nothing to change; give --run-at, --delay, --body or --attempts")
    if any(not key.dedupe_key for key in keys):
        raise click.UsageError("--serialize-key alone names many jobs; give --key too")
    change = RescheduleJob(
        run_after_ms=run_at if delay is None else SystemClock().now_ms() + delay,
        body=_body(body),
        attempts_allowed=attempts,
        only_if_updated_at_ms=if_updated_at,
    )
    if line is not None:
        descriptors = _found_names(client, line, limit, yes=yes)
    rows: list[tuple[str, RescheduleOutcome]] = []
    for name, some in groupby(named_descriptors(descriptors), lambda each: each.partition(":")[0]):
        named = list(some)
        real = [each for each in named if is_descriptor(each)]
        changes = [replace(change, descriptor=each) for each in real]
        outcomes = client.reschedule(name, changes, audited=True) if real else []
        by_name = dict(zip(real, outcomes, strict=True))
        for each in named:
            if each not in by_name:
                say_no_descriptor(each)
            rows.append((each, by_name.get(each, RescheduleOutcome.NOT_FOUND)))
    if keys:
        assert queue is not None
        outcomes = client.reschedule(queue, [replace(change, key=key) for key in keys], audited=True)
        rows.extend((key_text(key), outcome) for key, outcome in zip(keys, outcomes, strict=True))
    output = open_output(format, ["job", "outcome"], to_json=_reschedule_json)
    output.write([{"job": name, "outcome": outcome.name} for name, outcome in rows])
    output.close()
    if any(outcome is not RescheduleOutcome.RESCHEDULED for _, outcome in rows):
        raise SystemExit(EXIT_INCOMPLETE)


def _found_names(client: Client, line: FilterLine, limit: int, *, yes: bool) -> tuple[str, ...]:
    """The pending jobs that a filter finds. On a terminal it is asked whether they are meant, unless `yes`."""
    names: list[str] = []
    with Progress("jobs found") as progress:
        for found in found_by_filter(client, line, PENDING_PHASES, limit=limit):
            if found.missing_shards:
                raise ShardConnectionFailed(
                    f"missing shards: {', '.join(found.missing_shards)}; nothing was rescheduled"
                )
            names += [info.descriptor for info in found.jobs]
            progress.add(len(found.jobs))
    if not names:
        say(f"no pending jobs are like {line.text()}")
    elif not yes and can_ask():
        confirm(f"Reschedule {counted(len(names), 'job')} that {line.text()} finds?", "nothing was rescheduled")
    return tuple(names)


def _reschedule_json(row: Row) -> Row:
    """A job that was named by its key has that."""
    return lower_outcome(row if is_descriptor(row["job"]) else renamed(job="key")(row))


def _body(text: str | None) -> bytes | None:
    if text is None:
        return None
    return sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")


# -- wait --------------------------------------------------------------------------------------------------------------


@click.command(
    short_help="Wait until jobs have ended, and show how.",
    epilog="""\b
Examples:
  pinlater job wait mail:s1:p1:1790000000000000
  pinlater job wait --queue reports --key monthly-17 --timeout 10m --result > report.json
  pinlater job enqueue reports '{"month": 11}' | pinlater job wait - -o jsonl""",
)
@click.argument("descriptors", nargs=-1, metavar="[DESCRIPTOR]...")
@queue_of_keys_option
@key_options
@click.option(
    "--timeout", type=duration_option, metavar="DURATION", help="The longest time to wait. [default: no limit]"
)
@click.option("--result", is_flag=True, help="In a table only the result, as it is, of one job.")
@click.option("--raw", is_flag=True, help="With --result, on a terminal: the bytes as they are.")
@output_option
@talks_while_waiting
def wait(
    client: Client,
    descriptors: tuple[str, ...],
    queue: str | None,
    keys: list[KeyRef],
    timeout: int | None,
    result: bool,
    raw: bool,
    format: str,
) -> None:
    """Wait until all of these jobs have ended, and show how; - reads descriptors from standard input.

    In JSON `result` is what the worker left: text where it is UTF-8, else base64; `result_encoding` says which. Where a
    job failed, is not there or has not ended in time, the exit code is 5. Servers that restart meanwhile are waited
    for.
    """
    if not descriptors and not keys:
        raise click.UsageError("give descriptors, or --queue and --key")
    names = list(named_descriptors(descriptors))
    if keys:
        assert queue is not None
        found = found_by_keys(client, queue, keys)
        names += [info.descriptor for info in found]
    lacking = max(0, len(keys) - len(found)) if keys else 0
    bare = result and format == "table"
    if bare and len(names) > 1:
        raise click.UsageError("--result in a table is for one job; take -o json or -o jsonl for more")
    for each in [name for name in names if not is_descriptor(name)]:
        say_no_descriptor(each)
        names.remove(each)
        lacking += 1
    if names:
        client.lookup(names[:1])  # where there is no server, that is said at once
    ended = client.wait(names, timeout=None if timeout is None else timeout / 1000)
    infos = []
    for name in dict.fromkeys(names):
        info = ended.get(name)
        if info is not None:
            infos.append(info)
        else:
            say(f"not found: {name}" if name in ended else f"not ended: {name}")
            lacking += 1
    if bare:
        write_bytes(b"".join(info.result or b"" for info in infos), raw)
    else:
        write_all(format, COLUMNS, infos, row_of(format), job_json)
    if lacking or any(info.state is not JobState.SUCCEEDED for info in infos):
        for info in infos:
            if bare and info.state is not JobState.SUCCEEDED:
                say(f"{phase_of(info, SystemClock().now_ms()).word}: {info.descriptor}")
        raise SystemExit(EXIT_INCOMPLETE)
