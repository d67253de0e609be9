"""`pinlater flow status | items | list | wait`: looks at flows, and at how they go on."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial

import click

from pinlater.cli.completion import offer_flows, offer_stages, one_of
from pinlater.cli.connection import say, talks_to_server, talks_while_waiting
from pinlater.cli.exit_codes import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_TIMED_OUT
from pinlater.cli.flow_text import (
    ITEM_COLUMNS,
    LIST_COLUMNS,
    changes,
    failed_items,
    flow_json,
    flow_row,
    item_json,
    item_table_row,
    list_row,
    picture,
)
from pinlater.cli.output import Output, counted, open_output, output_option
from pinlater.cli.progress import PATIENCE_S
from pinlater.cli.times import duration_option, time_text
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.errors import Forbidden, PinLaterError
from pinlater.model import CONTINUATION_END, CONTINUATION_START
from pinlater.model.flow_words import FlowState, FlowStatus, ItemState
from pinlater.printable import printable

_PAGE = 1_000
_PAGE_OF_FLOWS = 100
_WAIT_MS = 5_000
_PAUSE_S = 0.25
_UP, _REST_OF_LINE, _BELOW = "\033[{}A", "\033[K", "\033[J"
_STATES = {state.name.lower(): state for state in FlowState}
_NO_FLOWS = "there are no flows; `pinlater flow create` makes one"
_NO_SUCH_FLOWS = "there are no such flows; `pinlater flow list` lists all"
_ITEM_STATES = {state.name.lower(): state for state in ItemState}

flow_argument = click.argument("flow_id", metavar="FLOW", shell_complete=offer_flows)


def followed(client: Client, flow_id: str, every_ms: int, within_s: float | None = None) -> Iterator[FlowStatus]:
    """A look at a flow each so often, and one when it is over, which is the last; or when the time is over.

    Servers that restart meanwhile are waited for. PinLaterError: where they stay away.
    """
    begun_s = answered_s = time.monotonic()
    status = client.get_flow(flow_id)
    yield status
    while status.completed_ms is None:
        polled_s = time.monotonic()
        wait_ms = every_ms
        if within_s is not None:
            wait_ms = min(every_ms, int((begun_s + within_s - polled_s) * 1000))
            if wait_ms <= 0:
                return
        try:
            status = client.get_flow(flow_id, wait_ms=wait_ms)
            answered_s = time.monotonic()
            yield status
        except PinLaterError as error:
            if not error.retryable or time.monotonic() - answered_s > PATIENCE_S:
                raise
        if status.completed_ms is None:
            left_s = polled_s + wait_ms / 1000 - time.monotonic()
            time.sleep(max(0.0, min(left_s, _PAUSE_S)))


# -- status ------------------------------------------------------------------------------------------------------------


@click.command(
    short_help="Show a flow: its stages as a tree, and what keeps it from going on.",
    epilog="""\b
Examples:
  pinlater flow status 4f1c0b…
  pinlater flow status 4f1c0b… --watch
  pinlater flow status 4f1c0b… -o json | jq '.[0].stages[] | {name, pending}'""",
)
@flow_argument
@click.option(
    "--watch", is_flag=True, help="Follow it until it is over: redrawn on a terminal, else a line per change."
)
@click.option(
    "--interval",
    "interval_ms",
    type=duration_option,
    metavar="DURATION",
    default=1_000,
    help="With --watch, how often. [default: 1s]",
)
@output_option
@talks_to_server
def status(client: Client, flow_id: str, watch: bool, interval_ms: int, format: str) -> None:
    """Show a flow: each stage below its parent, how many of its items wait in the database, are in their queue or with
    a worker, have succeeded and failed; the callback; and what keeps it from going on, with what to do about it.

    A stage is open while items may be added to it, sealed when no more come, complete when none is pending.
    """
    looks = followed(client, flow_id, interval_ms) if watch else iter([client.get_flow(flow_id)])
    if format != "table":
        _write_new(format, looks)
    elif not watch:
        width = shutil.get_terminal_size((120, 40)).columns if sys.stdout.isatty() else 120
        click.echo("\n".join(picture(next(looks), SystemClock().now_ms(), width)))
    else:
        show_looks(looks)


def show_looks(looks: Iterator[FlowStatus]) -> None:
    """A drawing in place of the one before on a terminal, else lines that say what is new."""
    if sys.stdout.isatty():
        _redraw(looks)
        return
    before: FlowStatus | None = None
    for each in looks:
        now = time_text(SystemClock().now_ms())
        for text in changes(before, each):
            click.echo(printable(f"{now} {text}"))
        before = each


def _output(format: str, empty: str = "") -> Output:
    return open_output(format, LIST_COLUMNS, list_row if format == "table" else flow_row, flow_json, empty)


def _write_new(format: str, looks: Iterator[FlowStatus]) -> None:
    """Those that differ from the one before."""
    output = _output(format)
    before: FlowStatus | None = None
    for each in looks:
        if each != before:
            output.write([each])
        before = each
    output.close()


def _redraw(looks: Iterator[FlowStatus]) -> None:
    """In place of what was drawn before. What is too high for the terminal is left out, but for the last drawing."""
    drawn = 0
    for each in looks:
        width, height = shutil.get_terminal_size((120, 40))
        lines = picture(each, SystemClock().now_ms(), width)
        if each.completed_ms is None and len(lines) >= height > 2:
            lines = [*lines[: height - 2], f"... {len(lines) - height + 2} more lines"]
        up = _UP.format(drawn) if drawn else ""
        click.echo(up + "".join(f"{line}{_REST_OF_LINE}\n" for line in lines) + _BELOW, nl=False)
        drawn = len(lines)


# -- wait --------------------------------------------------------------------------------------------------------------


@click.command(
    short_help="Wait until a flow is over; the exit code tells its end.",
    epilog="""\b
Examples:
  pinlater flow wait 4f1c0b…
  pinlater flow wait 4f1c0b… --timeout 1h && echo 'all paid'

\b
Exit codes: 0 complete, and no item failed; 5 complete, and items failed or have no children; 1 cancelled;
124 not over in time; others as of all commands.""",
)
@flow_argument
@click.option(
    "--timeout", type=duration_option, metavar="DURATION", help="The longest time to wait. [default: no limit]"
)
@output_option
@talks_while_waiting
def wait(client: Client, flow_id: str, timeout: int | None, format: str) -> None:
    """Wait until a flow is over, and show it in one line.

    What keeps it from going on is said on stderr meanwhile. Servers that restart are waited for.
    """
    shown: set[str] = set()
    for status in followed(client, flow_id, _WAIT_MS, None if timeout is None else timeout / 1000):
        for problem in status.troubles:
            if problem not in shown:
                shown.add(problem)
                say(problem)
    output = _output(format)
    output.write([status])
    output.close()
    failed = failed_items(status)
    if status.completed_ms is None:
        say(f"not over: {counted(sum(each.pending for each in status.stages), 'item')} pending")
        raise SystemExit(EXIT_TIMED_OUT)
    if status.state is FlowState.CANCELLED:
        say("it was cancelled")
        raise SystemExit(EXIT_FAILED)
    if failed:
        say(
            f"{counted(failed, 'item')} failed: `pinlater flow items {flow_id} --state failed` says why, and "
            f"`pinlater flow retry {flow_id} --failed` tries again"
        )
    if any(each.applet_errors for each in status.stages):
        say(f"items have no children: `pinlater flow status {flow_id}` says why")
    elif not failed:
        return
    raise SystemExit(EXIT_INCOMPLETE)


# -- items -------------------------------------------------------------------------------------------------------------


@click.command(
    short_help="List the items of a flow, and why they failed.",
    epilog="""\b
Examples:
  pinlater flow items 4f1c0b… --state failed
  pinlater flow items 4f1c0b… --stage pay --dedupe-key user-17 --payloads
  pinlater flow items 4f1c0b… --stage pay --state succeeded --payloads --all -o jsonl | jq .result""",
)
@flow_argument
@click.option("--stage", default="", metavar="NAME", shell_complete=offer_stages, help="Only those of this stage.")
@click.option("--state", type=click.Choice(list(_ITEM_STATES)), help="Only those in this state.")
@click.option("--dedupe-key", default="", metavar="KEY", help="Only those of this dedupe key.")
@click.option(
    "--number", "numbers", type=click.IntRange(1), multiple=True, help="Only the item of this number; repeatable."
)
@click.option("--payloads", is_flag=True, help="Payloads and results too; in a table the beginning of each.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The most items to list.")
@click.option("--all", "everything", is_flag=True, help="All items, however many.")
@output_option
@talks_to_server
def items(
    client: Client,
    flow_id: str,
    stage: str,
    state: str | None,
    dedupe_key: str,
    numbers: Sequence[int],
    payloads: bool,
    limit: int,
    everything: bool,
    format: str,
) -> None:
    """List the items of a flow by number, which is the order in which they were added. Rows are printed as they come.

    A table shows the last failure of each; JSON all that are kept, each with attempt, time, worker and reason. Who may
    not see payloads sees no reasons either, which is said on stderr; --payloads is refused then.
    """
    to_json = partial(item_json, with_payload=payloads)
    columns = (*ITEM_COLUMNS, "payload", "result") if payloads else ITEM_COLUMNS
    empty = f"there are no such items; `pinlater flow status {flow_id}` says how many there are of each stage and state"
    output = open_output(format, columns, item_table_row if format == "table" else to_json, to_json, empty)
    left = None if everything else limit
    position = CONTINUATION_START
    shows_reasons = True
    while position != CONTINUATION_END and left != 0:
        try:
            page = client.get_flow_items(
                flow_id,
                stage=stage,
                state=None if state is None else _ITEM_STATES[state],
                dedupe_key=dedupe_key,
                numbers=numbers,
                include_body=shows_reasons,
                continuation=position,
                limit=_PAGE if left is None else min(_PAGE, left),
            )
        except Forbidden:
            if payloads or not shows_reasons:
                raise
            shows_reasons = False
            continue
        output.write(page.items)
        left = None if left is None else left - len(page.items)
        position = page.continuation
    output.close()
    if not shows_reasons:
        say("reasons of failures are left out: this caller may not see payloads")


# -- list --------------------------------------------------------------------------------------------------------------


@click.command(
    "list",
    short_help="List flows, the newest first.",
    epilog="""\b
Examples:
  pinlater flow list
  pinlater flow list --name payroll --state running
  pinlater flow list --metadata month=2026-11 -o jsonl | jq -r .id""",
)
@click.option("--name", default="", help="Only those of this name.")
@click.option("--dedupe-key", default="", metavar="KEY", help="Only those of this dedupe key.")
@click.option("--state", type=click.Choice(list(_STATES)), shell_complete=one_of(*_STATES), help="Only in this state.")
@click.option("--metadata", "wanted", multiple=True, metavar="KEY=VALUE", help="Only with this metadata; repeatable.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The most flows to list.")
@click.option("--all", "everything", is_flag=True, help="All flows, however many.")
@output_option
@talks_to_server
def list_flows(
    client: Client,
    name: str,
    dedupe_key: str,
    state: str | None,
    wanted: Sequence[str],
    limit: int,
    everything: bool,
    format: str,
) -> None:
    """List flows, the newest first, with the numbers of their items over all stages. Rows are printed as they come.

    Only flows whose queues this caller may read are there.
    """
    has = metadata_of(wanted).items()
    is_filtered = name or dedupe_key or state or has
    output = _output(format, _NO_SUCH_FLOWS if is_filtered else _NO_FLOWS)
    left = None if everything else limit
    position = CONTINUATION_START
    while position != CONTINUATION_END and left != 0:
        page = client.get_flows(
            name=name,
            dedupe_key=dedupe_key,
            state=None if state is None else _STATES[state],
            continuation=position,
            limit=_PAGE_OF_FLOWS,
        )
        found = [each for each in page.flows if has <= each.metadata.items()][:left]
        output.write(found)
        left = None if left is None else left - len(found)
        position = page.continuation
    output.close()


def metadata_of(pairs: Sequence[str]) -> dict[str, str]:
    """Of KEY=VALUE. UsageError."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--metadata {pair!r} is not KEY=VALUE")
        found[key] = value
    return found
