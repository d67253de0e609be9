"""`pinlater job get`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from pinlater.cli.connection import talks_to_server
from pinlater.cli.failures import EXIT_INCOMPLETE, say
from pinlater.cli.job_rows import COLUMNS, job_row, named_descriptors
from pinlater.cli.output import open_output, output_option
from pinlater.cli.slices import slices
from pinlater.client.client import Client
from pinlater.errors import NoHealthyShards, ShardConnectionFailed
from pinlater.model import JobInfo, parse_descriptor
from pinlater.printable import printable_lines

_SLICE = 1_000
_NO_WEIGHT = 0
_SHARDS_AWAY = (ShardConnectionFailed, NoHealthyShards)


@click.command(
    short_help="Show jobs by descriptor.",
    epilog="""\b
Examples:
  pinlater job get mail:s1:p1:1790000000000000
  pinlater job get mail:s1:p1:1790000000000000 --body > letter.json
  pinlater job scan mail --state failed -o jsonl | jq -r .descriptor | pinlater job get - --body -o jsonl""",
)
@click.argument("descriptors", nargs=-1, required=True, metavar="DESCRIPTOR...")
@click.option("--body", is_flag=True, help="The body too: in a table only the body, as it is, of one job.")
@click.option("--raw", is_flag=True, help="With --body, on a terminal: the bytes as they are, whatever they do to it.")
@output_option
@talks_to_server
def get(client: Client, descriptors: tuple[str, ...], body: bool, raw: bool, format: str) -> None:
    """Show jobs by descriptor; - reads descriptors from standard input, one to a line.

    In JSON `body` is text where it is UTF-8, else base64; `body_encoding` says which. A descriptor that is not found,
    or whose shard cannot be read, is named on stderr, and the exit code is 5.

    On a terminal, what could move its cursor or hide text in a body is shown escaped, unless --raw is given. In a file
    or a pipe a body is its bytes.
    """
    bare = body and format == "table"
    if raw and not bare:
        raise click.UsageError("--raw is for --body in a table")
    if bare and (len(descriptors) > 1 or "-" in descriptors):
        raise click.UsageError("--body in a table is for one job; take -o json or -o jsonl for more")
    output = open_output(format, COLUMNS)
    lacking = 0
    for part in slices(named_descriptors(descriptors), _SLICE, _SLICE, lambda _: _NO_WEIGHT):
        found = _read(client, part, body)
        lacking += len(set(part) - found.keys())
        infos = [found[descriptor] for descriptor in part if descriptor in found]
        if bare:
            _write_body(b"".join(info.body or b"" for info in infos), raw)
        else:
            output.write([job_row(info) for info in infos])
    if not bare:
        output.close()
    if lacking:
        raise SystemExit(EXIT_INCOMPLETE)


def _write_body(body: bytes, raw: bool) -> None:
    """To a terminal as a text that does nothing to it, and stderr says so."""
    if raw or not sys.stdout.isatty():
        click.echo(body, nl=False)
        return
    text = body.decode(errors="backslashreplace")
    shown = printable_lines(text)
    click.echo(shown, nl=False)
    if shown.encode() != body:
        click.echo()
        say("not all of the body can be shown on a terminal, and is escaped; --raw prints it as it is")


def _read(client: Client, asked: Sequence[str], with_body: bool) -> dict[str, JobInfo]:
    """The jobs found; names on stderr those that are not, or that are on shards which cannot be read.

    The error of these, where nothing can be read.
    """
    try:
        found = _lookup(client, asked, with_body)
        unread: set[str] = set()
    except _SHARDS_AWAY:
        found, unread = _read_by_shard(client, asked, with_body)
        if len(unread) == len(set(asked)):
            raise
    for descriptor in asked:
        if descriptor not in found:
            say(f"{'not read' if descriptor in unread else 'not found'}: {descriptor}")
    return found


def _read_by_shard(client: Client, asked: Sequence[str], with_body: bool) -> tuple[dict[str, JobInfo], set[str]]:
    """The jobs found, and the descriptors of shards that cannot be read."""
    groups: dict[str, list[str]] = {}
    for descriptor in asked:
        ref = parse_descriptor(descriptor)
        groups.setdefault(ref.shard if ref else "", []).append(descriptor)
    if len(groups) == 1:
        return {}, set(asked)
    found: dict[str, JobInfo] = {}
    unread: set[str] = set()
    for group in groups.values():
        try:
            found |= _lookup(client, group, with_body)
        except _SHARDS_AWAY as error:
            say(error.message)
            unread.update(group)
    return found, unread


def _lookup(client: Client, descriptors: Sequence[str], with_body: bool) -> dict[str, JobInfo]:
    """The jobs found. Bodies that did not fit into one answer are asked for again."""
    found = client.lookup(descriptors, include_body=with_body)
    bare = [descriptor for descriptor, info in found.items() if info.body is None] if with_body else []
    while bare:
        found.update(client.lookup(bare, include_body=True))
        still_bare = [descriptor for descriptor in bare if found[descriptor].body is None]
        if len(still_bare) == len(bare):
            break
        bare = still_bare
    return found
