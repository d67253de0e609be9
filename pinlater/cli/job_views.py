"""`pinlater job get | scan | count`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pinlater.cli.connection import priority_option, talks_to_server
from pinlater.cli.failures import EXIT_INCOMPLETE, say
from pinlater.cli.job_rows import COLUMNS, job_row, match_option, named_descriptors, state_option
from pinlater.cli.output import open_output, output_option, write_one
from pinlater.cli.slices import slices
from pinlater.client.client import Client
from pinlater.model import JobFilter, JobInfo, JobState

_SLICE = 1_000
_NO_WEIGHT = 0
_FUTURE_HELP = "Jobs that may run only later, in place of those whose time has come."
_ALL_PRIORITIES = "Only jobs of this priority. [default: all]"


@click.command(
    epilog="""\b
Examples:
  pinlater job get mail:s1:p1:1790000000000000
  pinlater job get mail:s1:p1:1790000000000000 --body > letter.json
  pinlater job scan mail --state failed -o jsonl | jq -r .descriptor | pinlater job get - --body -o jsonl"""
)
@click.argument("descriptors", nargs=-1, required=True, metavar="DESCRIPTOR...")
@click.option("--body", is_flag=True, help="The body too: in a table only the body, as it is, of one job.")
@output_option
@talks_to_server
def get(client: Client, descriptors: tuple[str, ...], body: bool, format: str) -> None:
    """Show jobs by descriptor; - reads descriptors from standard input, one to a line.

    In JSON `body` is text where it is UTF-8, else base64; `body_encoding` says which. A descriptor that is not found is
    named on stderr, and the exit code is 5.
    """
    bare = body and format == "table"
    if bare and (len(descriptors) > 1 or "-" in descriptors):
        raise click.UsageError("--body in a table is for one job; take -o json or -o jsonl for more")
    output = open_output(format, COLUMNS)
    missing = 0
    for part in slices(named_descriptors(descriptors), _SLICE, _SLICE, lambda _: _NO_WEIGHT):
        found = list(_lookup(client, part, body))
        missing += _report_missing(part, found)
        if bare:
            click.echo(b"".join(info.body or b"" for info in found), nl=False)
        else:
            output.write([job_row(info) for info in found])
    if not bare:
        output.close()
    if missing:
        raise SystemExit(EXIT_INCOMPLETE)


def _lookup(client: Client, descriptors: list[str], with_body: bool) -> Iterator[JobInfo]:
    """The jobs found, in order. Bodies that did not fit into one answer are asked for again."""
    found = client.lookup(descriptors, include_body=with_body)
    bare = [descriptor for descriptor, info in found.items() if info.body is None] if with_body else []
    while bare:
        found.update(client.lookup(bare, include_body=True))
        still_bare = [descriptor for descriptor in bare if found[descriptor].body is None]
        if len(still_bare) == len(bare):
            break
        bare = still_bare
    return (found[descriptor] for descriptor in descriptors if descriptor in found)


def _report_missing(asked: list[str], found: list[JobInfo]) -> int:
    there = {info.descriptor for info in found}
    missing = [descriptor for descriptor in asked if descriptor not in there]
    for descriptor in missing:
        say(f"not found: {descriptor}")
    return len(missing)


@click.command(
    epilog="""\b
Examples:
  pinlater job scan mail --state failed
  pinlater job scan mail --state pending --future --limit 20
  pinlater job scan mail --state failed --match 'timed? ?out' --all -o jsonl"""
)
@click.argument("queue")
@state_option
@priority_option(_ALL_PRIORITIES)
@click.option("--future", is_flag=True, help=_FUTURE_HELP)
@match_option
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many jobs.")
@click.option("--all", "everything", is_flag=True, help="All jobs, however many.")
@output_option
@talks_to_server
def scan(
    client: Client,
    queue: str,
    state: JobState,
    priority: int | None,
    future: bool,
    match: str,
    limit: int,
    everything: bool,
    format: str,
) -> None:
    """List jobs of QUEUE in one state, the newest run-after first. Rows are printed as they come.

    Where a shard cannot be read, the others are listed, it is named on stderr, and the exit code is 5.
    """
    left = None if everything else limit
    output = open_output(format, COLUMNS)
    missing_shards: set[str] = set()
    wanted = JobFilter(queue, state, priority, future, match)
    for page in client.scan_pages(wanted, limit=_SLICE if left is None else min(_SLICE, left)):
        missing_shards.update(page.missing_shards)
        output.write([job_row(info) for info in page.jobs[:left]])
        if left is not None:
            left -= len(page.jobs)
            if left <= 0:
                break
    output.close()
    if missing_shards:
        say(f"not all was read; missing shards: {', '.join(sorted(missing_shards))}")
        raise SystemExit(EXIT_INCOMPLETE)


@click.command(
    epilog="""\b
Examples:
  pinlater job count mail --state pending
  pinlater job count mail --state failed --priority 1 --match '"to": "ada@' -o json"""
)
@click.argument("queue")
@state_option
@priority_option(_ALL_PRIORITIES)
@click.option("--future", is_flag=True, help=_FUTURE_HELP)
@match_option
@click.option("--partial", is_flag=True, help="Count what is there although a shard cannot be read.")
@output_option
@talks_to_server
def count(
    client: Client,
    queue: str,
    state: JobState,
    priority: int | None,
    future: bool,
    match: str,
    partial: bool,
    format: str,
) -> None:
    """Count the jobs of QUEUE in one state."""
    wanted = JobFilter(queue, state, priority, future, match)
    write_one(format, "count", client.count(wanted, allow_partial=partial))
