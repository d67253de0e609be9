"""`pinlater bodies status | sweep | verify | move`: bodies outside the shards (docs/bodies.md)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import click

from pinlater.cli.completion import offer_queues
from pinlater.cli.connection import EXIT_CODES, ServerGroup, confirm, say, talks_to_server
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.output import counted, has_new_keys, json_object, open_output, output_option, renamed
from pinlater.cli.progress import StatusLine
from pinlater.cli.times import time_text
from pinlater.client.client import Client
from pinlater.errors import MethodUnknown
from pinlater.model import CONTINUATION_END
from pinlater.model.body_words import BodiesAction, BodiesChange, BodiesStep, BodyTier
from pinlater.printable import json_text
from pinlater.sizes import size_text

COLUMNS = ("tier", "url", "bodies", "bytes", "orphans", "put", "get", "fallbacks", "read_failures", "trouble")
TOO_OLD = "this server is of an earlier version, which keeps all bodies in its shards"
_STEP = 500
_FOUND = {
    BodiesAction.SWEEP: "that no job refers to",
    BodiesAction.VERIFY: "that cannot be read",
    BodiesAction.MOVE: "that belong elsewhere",
}
_DONE = {BodiesAction.SWEEP: "deleted", BodiesAction.VERIFY: "", BodiesAction.MOVE: "moved"}
_LOOKED_AT = {BodiesAction.SWEEP: "object", BodiesAction.VERIFY: "reference", BodiesAction.MOVE: "job"}


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater bodies status
  pinlater bodies sweep --dry-run
  pinlater bodies move --queue images --rate 200

{EXIT_CODES}""",
)
def bodies() -> None:
    """Show, sweep, verify and move bodies in tiers, the object stores beside the shards."""


def _tier_json(tier: BodyTier) -> dict[str, Any]:
    row = renamed(name="tier", counted_at_ms="counted_ms")(asdict(tier))
    return {**row, "trouble": tier.trouble or None, "counted": time_text(tier.counted_at_ms)}


def _tier_row(tier: BodyTier) -> dict[str, Any]:
    return _tier_json(tier) | {
        "bytes": None if tier.bytes is None else rough_size(tier.bytes),
        "put": _latency(tier.put_p50_ms, tier.put_p99_ms),
        "get": _latency(tier.get_p50_ms, tier.get_p99_ms),
    }


def _latency(p50_ms: float | None, p99_ms: float | None) -> str | None:
    return None if p50_ms is None or p99_ms is None else f"{p50_ms:g}/{p99_ms:g} ms"


def rough_size(size: int) -> str:
    """
    >>> rough_size(0), rough_size(1536), rough_size(5 * 2**30 + 1)
    ('0B', '1.5KiB', '5.0GiB')
    """
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return size_text(size) if unit == "B" else f"{amount:.1f}{unit}"
        amount /= 1024
    return f"{amount:.1f}TiB"


@bodies.command(
    "status",
    short_help="Show each tier: its bodies, latencies and problems.",
    epilog="""\b
Examples:
  pinlater bodies status
  pinlater bodies status -o json | jq '.tiers[].bytes'""",
)
@output_option
@talks_to_server
def bodies_status(client: Client, format: str) -> None:
    """Show each tier: what lies in it, how fast it is, what is wrong with it; and the rules.

    Bodies, bytes and orphans (objects older than a day that no job refers to) are counted now where that takes less
    than a second, else they are those of the last sweep. Latencies (half of the calls, and 99 of 100, were faster),
    fall-backs (bodies that stayed in a shard since their tier could not take them) and failed reads are those of the
    server process that answers, since it began.
    """
    try:
        found = client.get_body_tiers()
    except MethodUnknown as unknown:
        raise MethodUnknown(TOO_OLD) from unknown
    if format != "table":
        if has_new_keys(format):
            click.echo(json_text(json_object(found)))
            return
        shown = {"tiers": [_tier_json(tier) for tier in found.tiers], "rules": found.rules, "lacking": found.lacking}
        click.echo(json_text(shown | {"to_delete": found.to_delete, "strangers": found.strangers}))
        return
    if not found.tiers:
        say("this server has no tiers: all bodies are in their shards; `pinlater serve --bodies URL` begins with one")
        return
    output = open_output("table", COLUMNS)
    output.write([_tier_row(tier) for tier in found.tiers])
    output.close()
    for rule in found.rules:
        say(f"rule  {rule}")
    if found.to_delete:
        say(f"{counted(found.to_delete, 'object')} of jobs that are gone, to be deleted")
    if found.lacking:
        say(f"no body goes to a tier that these do not have: {', '.join(found.lacking)}; start them with --bodies")
    for store in found.strangers:
        say(f"objects of store {store}, which is no shard here: `pinlater bodies sweep --store {store}` deletes them")


tier_option = click.option("--tier", metavar="NAME", default="", help="Only this tier.")
queue_option = click.option(
    "--queue", metavar="NAME", default="", shell_complete=offer_queues, help="Bodies of this queue alone."
)


def rate_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="The highest number a second."
    )(command)


@bodies.command(
    "sweep",
    short_help="Delete objects that no job refers to.",
    epilog="""\b
Examples:
  pinlater bodies sweep --dry-run
  pinlater bodies sweep --tier s3
  pinlater bodies sweep --store 5f0c...         the objects of a shard that was wiped or taken away""",
)
@tier_option
@click.option("--store", metavar="ID", default="", help="All objects of this store, which is no shard here any more.")
@click.option("--dry-run", is_flag=True, help="Delete nothing: count.")
@click.option("--yes", is_flag=True, help="With --store: do not ask.")
@output_option
@talks_to_server
def bodies_sweep(client: Client, tier: str, store: str, dry_run: bool, yes: bool, format: str) -> None:
    """Delete objects older than a day that no job refers to. Servers do so once a day by themselves.

    The references of each shard are read first, then what lies in the tiers for it. A shard that is out is left alone
    with all its objects. The sweep runs on the server: an interrupted command leaves it to end there.
    """
    if store and not (yes or dry_run):
        confirm(f"Delete all objects of store {store}?", "nothing was deleted")
    run(client, BodiesChange(BodiesAction.SWEEP, tier=tier, store=store, dry_run=dry_run), None, format)


@bodies.command(
    "verify",
    short_help="Read every body, and check it.",
    epilog="""\b
Examples:
  pinlater bodies verify
  pinlater bodies verify --queue images --rate 100""",
)
@queue_option
@tier_option
@rate_option
@output_option
@talks_to_server
def bodies_verify(client: Client, queue: str, tier: str, rate: float | None, format: str) -> None:
    """Read every body that a job refers to, and check its length and hash. Exits with 5 where one cannot be read."""
    run(client, BodiesChange(BodiesAction.VERIFY, queue, tier), rate, format)


@bodies.command(
    "move",
    short_help="Move the bodies of pending jobs to where the rules put them now.",
    epilog="""\b
Examples:
  pinlater bodies move --dry-run
  pinlater bodies move --queue images --rate 200
  pinlater bodies move --all                    after --body-rules shard:..., before a way back""",
)
@queue_option
@click.option("--all", "everything", is_flag=True, help="Of all queues.")
@tier_option
@rate_option
@click.option("--dry-run", is_flag=True, help="Move nothing: count.")
@output_option
@talks_to_server
def bodies_move(
    client: Client, queue: str, everything: bool, tier: str, rate: float | None, dry_run: bool, format: str
) -> None:
    """Put the bodies of pending jobs where the rules of now put them: from shards into tiers, to another tier, back.

    A job that a worker takes meanwhile is left as it is. With --tier only bodies that leave or enter it. Jobs in
    progress and those that ended keep theirs.
    """
    if bool(queue) == everything:
        raise click.UsageError("name a --queue, or give --all")
    run(client, BodiesChange(BodiesAction.MOVE, queue, tier, dry_run), rate, format)


def run(client: Client, change: BodiesChange, rate: float | None, format: str) -> None:
    """Step by step to the end, with the progress on a terminal; then what it came to."""
    line, total = StatusLine(), BodiesStep(change.continuation)
    limit = _STEP if rate is None else max(1, min(_STEP, int(rate / 2)))
    begun_s = time.monotonic()
    try:
        while True:
            step = client.change_bodies(replace(change, continuation=total.continuation, limit=limit))
            total.continuation = step.continuation
            total.looked_at += step.looked_at
            total.found += step.found
            total.done += step.done
            total.bytes += step.bytes
            total.troubles += step.troubles
            if step.continuation == CONTINUATION_END:
                break
            per_second = total.looked_at / max(0.001, time.monotonic() - begun_s)
            line.show(f"{_summary(change, total)}; {per_second:,.0f} a second")
            if rate is not None:
                time.sleep(max(0.0, begun_s + total.looked_at / rate - time.monotonic()))
    except MethodUnknown as unknown:
        raise MethodUnknown(TOO_OLD) from unknown
    except BaseException:
        line.clear()
        if total.looked_at:
            say(f"{_summary(change, total)} before that")
        raise
    line.clear()
    if format == "table":
        say(_summary(change, total))
    else:
        names = ("looked_at", "found", "done", "bytes", "troubles")
        click.echo(json_text({name: getattr(total, name) for name in names}))
    for problem in total.troubles:
        say(problem)
    if total.troubles or (change.action is BodiesAction.VERIFY and total.found):
        raise SystemExit(EXIT_INCOMPLETE)


def _summary(change: BodiesChange, total: BodiesStep) -> str:
    examined = counted(total.looked_at, _LOOKED_AT[change.action])
    text = f"{examined} examined, {total.found:,} {_FOUND[change.action]} ({rough_size(total.bytes)})"
    if _DONE[change.action]:
        text += ", none changed: a dry run" if change.dry_run else f", {total.done:,} {_DONE[change.action]}"
    return text
