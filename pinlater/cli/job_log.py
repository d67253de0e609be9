"""`pinlater job log`: what the worker of a job has logged, and goes on logging."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from pinlater.cli.connection import say, talks_to_server
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.job_views import say_no_descriptor
from pinlater.cli.output import open_output, output_option
from pinlater.cli.times import time_text
from pinlater.client.client import Client
from pinlater.model import JobState, LogLine, is_descriptor
from pinlater.printable import printable

FOLLOWED_EVERY_S = 1.0
"""So often a worker sends what a job has logged."""

_LIVE = (JobState.PENDING, JobState.IN_PROGRESS)


@click.command(
    short_help="Show what a job has logged.",
    epilog="""\b
Examples:
  pinlater job log mail:s1:p1:1790000000000000
  pinlater job log mail:s1:p1:1790000000000000 --follow
  pinlater job log mail:s1:p1:1790000000000000 -o jsonl | jq -r .text""",
)
@click.argument("descriptor")
@click.option("--follow", is_flag=True, help="Go on with what the job logs, until it has ended.")
@output_option
@talks_to_server
def log(client: Client, descriptor: str, follow: bool, format: str) -> None:
    """Show the last lines that a job has logged, at most 100 or 16 KiB: when, in which attempt, and what.

    The exit code is 5 where the job is not there, or may not be seen.
    """
    if not is_descriptor(descriptor):
        say_no_descriptor(descriptor)
        raise SystemExit(EXIT_INCOMPLETE)
    output = None if format == "table" else open_output(format, (), LogLine._asdict, LogLine._asdict)
    is_there = False
    for lines in _news(client, descriptor, follow):
        is_there = True
        if output is not None:
            output.write(lines)
            continue
        for line in lines:
            click.echo(f"{time_text(line.at_ms)}  {line.attempt:>2}  {printable(line.text)}")
    if output is not None:
        output.close()
    if not is_there:
        say(f"not found: {descriptor}")
        raise SystemExit(EXIT_INCOMPLETE)


def _news(client: Client, descriptor: str, follow: bool) -> Iterator[list[LogLine]]:
    """What the job has logged that was not shown yet, again and again until it has ended; nothing where it is not there
    at first.
    """
    shown: set[LogLine] = set()
    while (info := client.lookup([descriptor], include_trail=True).get(descriptor)) is not None:
        if info.log_lines is None:
            say("the log of this job is hidden from you, or its server keeps none")
        lines = [line for line in info.log_lines or () if line not in shown]
        shown = set(info.log_lines or ())
        yield lines
        if not follow or info.state not in _LIVE or info.log_lines is None:
            if info.log_lines is not None and not shown:
                say("it has logged nothing: a job of the framework does by current().log(TEXT)")
            return
        time.sleep(FOLLOWED_EVERY_S)
