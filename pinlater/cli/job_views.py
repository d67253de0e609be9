"""`pinlater job get | scan | count`, and the texts that name jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import click

from pinlater.cli.completion import offer_queues
from pinlater.cli.connection import priority_option, readable_jobs, say, talks_to_server
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.filtered_jobs import filter_option, found_by_filter, refuse_beside_filter
from pinlater.cli.job_keys import found_by_keys, key_options, queue_of_keys_option
from pinlater.cli.job_states import WantedState, count_jobs, found_pages, selection_of, wanted_options
from pinlater.cli.job_text import BODY_COLUMNS, COLUMNS, WHOLE_BODY_COLUMNS, job_json, page, row_of
from pinlater.cli.output import Output, counted, open_output, output_option, write_one
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.errors import NoHealthyShards, PinLaterError, ShardConnectionFailed
from pinlater.job_filters.job_filter import FilterLine
from pinlater.model import (
    JobFilter,
    JobInfo,
    JobState,
    KeyRef,
    ScanPage,
    is_descriptor,
    parse_descriptor,
)
from pinlater.model.job_selection import FoundJobs, JobPhase, phase_of
from pinlater.printable import printable_lines

ItemT = TypeVar("ItemT")
FoundT = TypeVar("FoundT")


def named_descriptors(given: Sequence[str]) -> Iterator[str]:
    """The descriptors of the command line; `-` stands for standard input, one to a line, read as they are needed."""
    for text in given:
        if text != "-":
            yield text
            continue
        for line in sys.stdin:
            if line.strip():
                yield line.strip()


def slices(
    items: Iterable[ItemT], limit: int, max_weight: int, weight: Callable[[ItemT], int]
) -> Iterator[list[ItemT]]:
    """Parts of up to `limit` items that together weigh no more than `max_weight`, or of one item; read as needed.

    >>> list(slices("abcde", 2, 100, len))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    part: list[ItemT] = []
    weighs = 0
    for item in items:
        more = weight(item)
        if part and (len(part) >= limit or weighs + more > max_weight):
            yield part
            part, weighs = [], 0
        part.append(item)
        weighs += more
    if part:
        yield part


def _pattern(_: click.Context, parameter: click.Parameter, text: str | None) -> str:
    """A script whose variable is empty does not mean all jobs."""
    if text == "":
        raise click.BadParameter(f"it is empty, and so found in all jobs; to mean all, leave {parameter.opts[0]} out")
    return text or ""


match_option = click.option(
    "--match", callback=_pattern, metavar="REGEX", help="Only jobs whose body holds a match of this RE2 pattern."
)
status_match_option = click.option(
    "--status-match",
    callback=_pattern,
    metavar="REGEX",
    help="Only jobs whose status holds a match of this RE2 pattern.",
)


tag_option = click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="Only jobs that have this tag; several: all of them."
)


_SLICE = 1_000
_RESULTS_SLICE = 50
_NO_WEIGHT = 0


class MoreOfJobs(NamedTuple):
    """What of jobs is read beside what all have."""

    body: bool = False
    result: bool = False
    trail: bool = False
    has_to_show: bool = False
    """Bodies: a caller that may not see them is refused, and gets no jobs without them."""


NOTHING_MORE = MoreOfJobs()
_SHARDS_AWAY = (ShardConnectionFailed, NoHealthyShards)


@click.command(
    short_help="Show jobs by descriptor.",
    epilog="""\b
Examples:
  pinlater job get mail:s1:p1:1790000000000000
  pinlater job get mail:s1:p1:1790000000000000 --body > letter.json
  pinlater job get mail:s1:p1:1790000000000000 --trail -o json | jq '.[0].attempts'
  pinlater job get --queue mail --key welcome-17
  pinlater job get --filter 'queue:mail-* state:failed error:*Timeout* ended:<1h'
  pinlater job scan mail --state failed -o jsonl | jq -r .descriptor | pinlater job get - --body -o jsonl""",
)
@click.argument("descriptors", nargs=-1, metavar="[DESCRIPTOR]...")
@queue_of_keys_option
@key_options
@filter_option
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="With --filter: the most jobs."
)
@click.option("--body", is_flag=True, help="The body too: in a table only the body, as it is, of one job.")
@click.option("--raw", is_flag=True, help="With --body, on a terminal: the bytes as they are, whatever they do to it.")
@click.option("--trail", is_flag=True, help="Attempts and log lines too; one job in a table has them anyway.")
@output_option
@talks_to_server
def get(
    client: Client,
    descriptors: tuple[str, ...],
    queue: str | None,
    keys: list[KeyRef],
    line: FilterLine | None,
    limit: int,
    body: bool,
    raw: bool,
    trail: bool,
    format: str,
) -> None:
    """Show jobs by descriptor, or by key; - reads descriptors from standard input, one to a line.

    --serialize-key without --key means the job that is the first of that key now, in whichever queue.

    With --filter the jobs that it finds, as a table, those queues first that come first by name.

    One job is shown with all that is known of it, and why it does not run if it waits; several are shown as a table. A
    body of the worker framework is shown as its type and arguments, without those that are marked as secret.

    In JSON `result` and `body` are text where they are UTF-8, else base64; `result_encoding` and `body_encoding` say
    which; `type`, `args` and `kwargs` are those of the framework. A descriptor or key that is not found, or whose shard
    cannot be read, is named on stderr, and the exit code is 5.

    On a terminal, what could move its cursor or hide text in a body is shown escaped, unless --raw is given. In a file
    or a pipe a body is its bytes.
    """
    if line is not None:
        refuse_beside_filter("descriptors", "queue", "raw")
        _print_filtered(client, line, limit, format, with_bodies=body)
        return
    if not descriptors and not keys:
        raise click.UsageError("give descriptors, --queue and --key, or --filter")
    is_one = len(descriptors) + len(keys) == 1 and "-" not in descriptors
    bare = body and format == "table"
    if raw and not bare:
        raise click.UsageError("--raw is for --body in a table")
    if bare and not is_one:
        raise click.UsageError("--body in a table is for one job; take -o json or -o jsonl for more")
    output = open_output(format, COLUMNS, row_of(format), job_json)
    is_page = is_one and format == "table"
    if trail and format == "table" and not is_page:
        raise click.UsageError("--trail in a table is for one job; take -o json or -o jsonl for more")
    more = MoreOfJobs(body or is_page, format != "table" or is_one, trail or (is_page and not bare), body)
    lacking = 0
    named = _named(client, descriptors, queue, keys, more)
    for infos, lacks in named if not is_one else _with_reason(client, descriptors, named):
        lacking += lacks
        if bare:
            write_bytes(b"".join(info.body or b"" for info in infos), raw)
        elif is_page:
            for info in infos:
                why = _hold_text(client, info.descriptor) if info.state is JobState.PENDING else ""
                click.echo("\n".join(page(info, SystemClock().now_ms(), why)))
        else:
            output.write(infos)
    if not bare:
        output.close()
    if lacking:
        raise SystemExit(EXIT_INCOMPLETE)


def _print_filtered(client: Client, line: FilterLine, limit: int, format: str, *, with_bodies: bool) -> None:
    empty = f"no jobs are like {line.text()}; `pinlater queue stats` counts those of each queue"
    columns = WHOLE_BODY_COLUMNS if with_bodies else BODY_COLUMNS
    output = open_output(format, columns, row_of(format, whole_body=with_bodies), job_json, empty)
    shown, missing_shards = 0, set[str]()
    for found in found_by_filter(client, line, limit=limit):
        missing_shards.update(found.missing_shards)
        if with_bodies or format == "table":
            _add_bodies(client, found.jobs, has_to_show=with_bodies)
        output.write(found.jobs)
        shown += len(found.jobs)
    _close(output, format, missing_shards)
    if shown == limit:
        say(f"more may match than these {counted(limit, 'job')}; --limit shows more")


def _hold_text(client: Client, descriptor: str) -> str:
    """Why a job does not run, in the server's words; "" where it does not say, as one of an earlier version."""
    try:
        return "".join(hold.text for hold in client.explain_jobs([descriptor]))
    except PinLaterError:
        return ""


def _with_reason(client: Client, descriptors: Sequence[str], found: Iterator[FoundT]) -> Iterator[FoundT]:
    """The same; where the shard of the one job cannot be read, what that means for the job is said first."""
    try:
        yield from found
    except _SHARDS_AWAY:
        if descriptors and (why := _hold_text(client, descriptors[0])):
            say(why)
        raise


def _named(
    client: Client,
    descriptors: Sequence[str],
    queue: str | None,
    keys: Sequence[KeyRef],
    more: MoreOfJobs,
) -> Iterator[tuple[list[JobInfo], int]]:
    """Slice by slice the jobs that are found, and how many of the slice are not."""
    if keys:
        assert queue is not None
        infos = found_by_keys(
            client, queue, keys, has_to_show=more.has_to_show, include_body=more.body, include_trail=more.trail
        )
        yield infos, max(0, len(keys) - len(infos))
    most = _RESULTS_SLICE if more.result or more.trail else _SLICE
    for part in slices(named_descriptors(descriptors), most, most, lambda _: _NO_WEIGHT):
        found = read_jobs(client, part, more)
        yield [found[each] for each in part if each in found], len(set(part) - found.keys())


def write_bytes(body: bytes, raw: bool = False) -> None:
    """To a terminal as a text that does nothing to it, and stderr says so."""
    if raw or not sys.stdout.isatty():
        click.echo(body, nl=False)
        return
    text = body.decode(errors="backslashreplace")
    shown = printable_lines(text)
    click.echo(shown, nl=False)
    if shown.encode() != body:
        click.echo()
        say("not all of it can be shown on a terminal, and is escaped; --raw prints it as it is")


def read_jobs(client: Client, descriptors: Sequence[str], more: MoreOfJobs = NOTHING_MORE) -> dict[str, JobInfo]:
    """The jobs found; names on stderr those that are not, or that are on shards which cannot be read.

    The error of these, where nothing can be read.
    """
    named = [descriptor for descriptor in descriptors if is_descriptor(descriptor)]
    try:
        found = _lookup(client, named, more)
        unread: set[str] = set()
    except _SHARDS_AWAY:
        found, unread = _read_by_shard(client, named, more)
        if len(unread) == len(set(descriptors)):
            raise
    for descriptor in descriptors:
        if not is_descriptor(descriptor):
            say_no_descriptor(descriptor)
        elif descriptor not in found:
            say(f"{'not read' if descriptor in unread else 'not found'}: {descriptor}")
    return found


def say_no_descriptor(text: str) -> None:
    """No job has that name; the others that were named are looked at."""
    say(f"not found: {text}, which is no descriptor; they are such as mail:s1:p1:1790000000000000")


def _lookup(client: Client, named: Sequence[str], more: MoreOfJobs) -> dict[str, JobInfo]:
    return readable_jobs(
        client,
        named,
        has_to_show=more.has_to_show,
        include_body=more.body,
        include_result=more.result,
        include_trail=more.trail,
    )


def _read_by_shard(client: Client, descriptors: Sequence[str], more: MoreOfJobs) -> tuple[dict[str, JobInfo], set[str]]:
    """The jobs found, and the descriptors of shards that cannot be read."""
    groups: dict[str, list[str]] = {}
    for descriptor in descriptors:
        ref = parse_descriptor(descriptor)
        groups.setdefault(ref.shard if ref else "", []).append(descriptor)
    if len(groups) == 1:
        return {}, set(descriptors)
    found: dict[str, JobInfo] = {}
    unread: set[str] = set()
    for group in groups.values():
        try:
            found |= _lookup(client, group, more)
        except _SHARDS_AWAY as error:
            say(error.message)
            unread.update(group)
    return found, unread


def _add_bodies(client: Client, infos: Sequence[JobInfo], *, has_to_show: bool) -> None:
    """Where a job is still there and can be read. Forbidden: the caller may not see bodies, and `has_to_show` them."""
    named = [info.descriptor for info in infos]
    try:
        found = readable_jobs(client, named, has_to_show=has_to_show, include_body=True) if infos else {}
    except _SHARDS_AWAY:
        return
    for info in infos:
        if info.descriptor in found:
            info.body, info.body_left_out = found[info.descriptor].body, found[info.descriptor].body_left_out


_ALL_PRIORITIES = "Only jobs of this priority. [default: all]"


@click.command(
    short_help="List jobs of QUEUE in one state, the newest run-after first.",
    epilog="""\b
Examples:
  pinlater job scan mail --state failed
  pinlater job scan mail --state scheduled --limit 20
  pinlater job scan mail --state failed --tag tenant:7
  pinlater job scan mail --state failed --status-match 'timed? ?out' --all -o jsonl
  pinlater job scan mail --state failed --body -o jsonl | jq -r .type | sort | uniq -c""",
)
@click.argument("queue", shell_complete=offer_queues)
@wanted_options
@priority_option(_ALL_PRIORITIES)
@match_option
@status_match_option
@tag_option
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The most jobs to list.")
@click.option("--all", "everything", is_flag=True, help="All jobs, however many.")
@click.option("--body", is_flag=True, help="The bodies too: `body` in JSON, and the whole of each in a table.")
@output_option
@talks_to_server
def scan(
    client: Client,
    queue: str,
    wanted: WantedState,
    priority: int | None,
    match: str,
    status_match: str,
    tags: tuple[str, ...],
    limit: int,
    everything: bool,
    body: bool,
    format: str,
) -> None:
    """List jobs of QUEUE in one state, the newest run-after first, with --tag the last that came. Rows are printed as
    they come.

    A table shows what each job does: the type and arguments of a body of the worker framework, without those that are
    marked as secret, or the beginning of any other text. JSON has that with --body, as of `job get`.

    Where a shard cannot be read, the others are listed, it is named on stderr, and the exit code is 5.
    """
    left = None if everything else limit
    columns = WHOLE_BODY_COLUMNS if body else BODY_COLUMNS
    more = " and match" if match or status_match or tags or priority is not None else ""
    empty = f"no jobs of queue {queue} are in that state{more}; `pinlater queue stats {queue}` counts those of each"
    output = open_output(format, columns, row_of(format, whole_body=body), job_json, empty)
    missing_shards: set[str] = set()
    slice_jobs = _SLICE if left is None else min(_SLICE, left)
    for found in _pages(client, queue, wanted, priority, match, status_match, tags, slice_jobs):
        missing_shards.update(found.missing_shards)
        infos = found.jobs[:left]
        if body or format == "table":
            _add_bodies(client, infos, has_to_show=body)
        output.write(infos)
        if left is not None:
            left -= len(found.jobs)
            if left <= 0:
                break
    _close(output, format, missing_shards)


def _close(output: Output, format: str, missing_shards: set[str]) -> None:
    """The end of a list; SystemExit where shards are missing, which is said."""
    if format != "table" or not missing_shards:
        output.close()
    if missing_shards:
        say(f"not all was read; missing shards: {', '.join(sorted(missing_shards))}")
        raise SystemExit(EXIT_INCOMPLETE)


def _pages(
    client: Client,
    queue: str,
    wanted: WantedState,
    priority: int | None,
    match: str,
    status_match: str,
    tags: Sequence[str],
    limit: int,
) -> Iterator[ScanPage | FoundJobs]:
    if wanted.future is None or status_match or tags:
        phases: Sequence[JobPhase] = wanted.phases
        if wanted.state is JobState.PENDING and wanted.future:
            phases = (JobPhase.SCHEDULED,)
        yield from found_pages(client, selection_of(queue, phases, priority, match, status_match, tags), limit)
        return
    for found in client.scan_pages(JobFilter(queue, wanted.state, priority, wanted.future, match), limit=limit):
        if wanted.state is JobState.FAILED:
            found.jobs = [job for job in found.jobs if phase_of(job, 0) in wanted.phases]
        yield found


@click.command(
    epilog="""\b
Examples:
  pinlater job count mail --state ready
  pinlater job count mail --state failed --tag tenant:7
  pinlater job count mail --state failed --priority 1 --match '"to": "ada@' -o json"""
)
@click.argument("queue", shell_complete=offer_queues)
@wanted_options
@priority_option(_ALL_PRIORITIES)
@match_option
@tag_option
@click.option("--partial", is_flag=True, help="Count what is there although a shard cannot be read.")
@output_option
@talks_to_server
def count(
    client: Client,
    queue: str,
    wanted: WantedState,
    priority: int | None,
    match: str,
    tags: tuple[str, ...],
    partial: bool,
    format: str,
) -> None:
    """Count the jobs of QUEUE in one state."""
    write_one(format, "count", count_jobs(client, queue, wanted, priority, match, tags, partial=partial))
