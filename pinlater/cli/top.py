"""`pinlater top`: a live picture of a cluster, on a terminal that is drawn over and gives single keys."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Iterator, Sequence

import click

from pinlater.cli.cluster import flags_text, no_queues, oldest_age_ms, state_text, totals
from pinlater.cli.connection import EXIT_CODES, ServerCommand, talks_to_server
from pinlater.cli.output import counted
from pinlater.cli.times import duration_option, time_text
from pinlater.client.client import Client
from pinlater.durations import age_text
from pinlater.errors import MethodUnknown, PinLaterError
from pinlater.model import ClusterStatus, QueueStatus, ServerView, ShardView, queue_order
from pinlater.model.alarm_views import AlarmsPage
from pinlater.text_table import Column, TextTable, cut_text

END = "\x04"
"""Ctrl-D."""

_HIDE_CURSOR, _SHOW_CURSOR = "\033[?25l", "\033[?25h"
_ALTERNATE, _BACK = "\033[?1049h", "\033[?1049l"
_HOME, _REST_OF_LINE, _BELOW = "\033[H", "\033[K", "\033[J"


def is_terminal() -> bool:
    """Both what is read and what is written."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def screen() -> Iterator[None]:
    """A page of its own, without a cursor and with keys that come at once; all is as before at the end."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        click.echo(_ALTERNATE + _HIDE_CURSOR, nl=False)
        yield
    finally:
        click.echo(_SHOW_CURSOR + _BACK, nl=False)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def draw(lines: Sequence[str]) -> None:
    """In place of what is shown; written at once, so that nothing flickers."""
    click.echo(_HOME + "\r\n".join(line + _REST_OF_LINE for line in lines) + _BELOW, nl=False)


def size() -> tuple[int, int]:
    """Columns and lines; such as usual where there is no terminal."""
    return shutil.get_terminal_size((120, 40))


def key_within(seconds: float) -> str:
    """The next key; "" if none comes, END where none can come any more."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 64)[:1].decode("ascii", "replace") or END if readable else ""


_SERVERS = (
    Column("SERVER", 9),
    Column("ADDRESS", 5),
    Column("STATE", 8),
    Column("UP", 3, True),
    Column("MAINTAINS", 4),
    Column("OUT", 6),
    Column("OVERFLOW", 2, True),
    Column("TROUBLE", 7),
)
_SHARDS = (
    Column("SHARD", 9),
    Column("STATE", 8),
    Column("JOBS", 6, True),
    Column("GOOD", 5, True),
    Column("STORE", 2),
    Column("TROUBLE", 7),
)
_RATES = ("enqueued", "dequeued", "succeeded", "failed", "retried")
_QUEUES = (
    Column("QUEUE", 9),
    Column("READY", 8, True),
    Column("SCHEDULED", 4, True),
    Column("WAITING", 5, True),
    Column("RUNNING", 8, True),
    Column("FAILED", 5, True),
    Column("CANCELLED", 3, True),
    Column("REPLAYED", 2, True),
    Column("OLDEST", 7, True),
    Column("IN/S", 6, True),
    Column("OUT/S", 6, True),
    Column("DONE/S", 3, True),
    Column("FAIL/S", 4, True),
    Column("RETRY/S", 3, True),
    Column("FLAGS"),
)


def alarm_line(page: AlarmsPage | None) -> str:
    """The worst of the alarms first, in one line; "" where all is well, or nobody judges."""
    titles = [each.title for each in page.alarms if not each.is_muted] if page is not None else []
    return f"{counted(len(titles), 'alarm')}: {'; '.join(titles)}" if titles else ""


def alarms_of(client: Client) -> AlarmsPage | None:
    """None: the server is of an earlier version."""
    try:
        return client.get_alarms()
    except MethodUnknown:
        return None


def frame(
    status: ClusterStatus, servers: str, width: int, height: int | None = None, alarms: AlarmsPage | None = None
) -> list[str]:
    """Servers, shards, and the queues with the busiest first, in at most `height` lines (None: all of it).

    `servers` are the addresses that were asked.
    """
    ready = sum(each.is_ready for each in status.servers)
    out = sum(each.state != "in" for each in status.shards)
    head = f"pinlater {servers}  {time_text(status.now_ms)[:19]}Z  {ready}/{len(status.servers)} processes ready"
    full = sum(each.is_full for each in status.shards)
    head += f"  {len(status.shards) - out}/{len(status.shards)} shards in" + (f", {full} full" if full else "")
    head += f"  {counted(len(status.queues), 'queue')}"
    lines = [head, *filter(None, [alarm_line(alarms)]), ""]
    lines += TextTable(_SERVERS).lines([_server(each, status.now_ms) for each in status.servers], width)
    lines += ["", *TextTable(_SHARDS).lines([_shard(each) for each in status.shards], width)]
    queues = sorted(status.queues, key=_busiest_first)
    rows = [_queue(each, status.now_ms) for each in queues]
    lines += ["", *(TextTable(_QUEUES).lines(rows, width) if rows else [no_queues(status)])]
    lines = [cut_text(line, width) for line in lines]
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        word = "more queues" if hidden <= len(queues) else "more lines"
        lines = [*lines[: height - 1], cut_text(f"... {hidden} {word}", width)]
    return lines


def _busiest_first(queue: QueueStatus) -> tuple[float, int, tuple[list[tuple[str, int]], str]]:
    counts = totals(queue)
    moving = sum(queue.rates.get(word, 0.0) for word in ("enqueued", "dequeued"))
    return -round(moving, 1), -(counts["ready"] + counts["in_progress"]), queue_order(queue.name)


def _server(view: ServerView, now_ms: int) -> list[str]:
    return [
        f"{view.server}/{view.process}",
        view.address,
        "ready" if view.is_ready else "NOT READY",
        age_text(now_ms - view.started_ms),
        ",".join(view.maintains),
        ",".join(view.shards_out),
        "" if view.overflow_jobs is None else f"{view.overflow_jobs:,}",
        view.trouble,
    ]


def _shard(view: ShardView) -> list[str]:
    word = state_text(view)
    state = word if word == "in" else word.upper()
    return [
        view.id,
        f"{state}, dequeue only" if view.dequeue_only else state,
        "?" if view.jobs is None else f"{view.jobs:,}",
        f"{view.good}/{view.samples}",
        view.store,
        view.trouble,
    ]


def _queue(queue: QueueStatus, now_ms: int) -> list[str]:
    counts = totals(queue)
    oldest_ms = oldest_age_ms(queue, now_ms)
    return [
        queue.name,
        f"{counts['ready']:,}",
        f"{counts['scheduled']:,}",
        f"{counts['waiting']:,}" if counts["waiting"] else "",
        f"{counts['in_progress']:,}",
        f"{counts['failed']:,}",
        f"{counts['cancelled']:,}" if counts["cancelled"] else "",
        f"{counts['replayed']:,}" if counts["replayed"] else "",
        "" if oldest_ms is None else age_text(oldest_ms),
        *(_per_second(queue.rates.get(word, 0.0)) for word in _RATES),
        flags_text(queue, now_ms),
    ]


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}".replace("0.0", "0")


@click.command(
    cls=ServerCommand,
    epilog=f"""\b
Examples:
  pinlater top
  pinlater top --interval 500ms --cluster mail
  pinlater top --once > now.txt

{EXIT_CODES}""",
)
@click.option(
    "--interval",
    "interval_ms",
    type=duration_option,
    metavar="DURATION",
    default=2_000,
    help="How often it is drawn. [default: 2s]",
)
@click.option("--once", is_flag=True, help="One picture, and end; so too where it is not on a terminal.")
@talks_to_server
def top(client: Client, interval_ms: int, once: bool) -> None:
    """Watch a cluster: its servers and shards, and its queues with the busiest first.

    Rates are per second over the whole cluster. What does not fit into the width is left out, the least important
    first. q or Ctrl-C ends it; while no server answers, it goes on trying.
    """
    servers = ", ".join(map(str, client.servers))
    if once or not is_terminal():
        width, _ = size()
        click.echo("\n".join(frame(client.cluster_status(), servers, width, alarms=alarms_of(client))))
        return
    try:
        with screen():
            _watch(client, servers, interval_ms / 1000)
    except KeyboardInterrupt:
        return


def _watch(client: Client, servers: str, interval_s: float) -> None:
    """Until q."""
    problem = ""
    while True:
        try:
            status, alarms = client.cluster_status(), alarms_of(client)
            problem = ""
        except PinLaterError as error:
            problem = error.message
        width, height = size()
        if problem:
            lines = [cut_text(line, width) for line in (f"pinlater {servers}", "", problem)]
        else:
            lines = frame(status, servers, width, height, alarms)
        draw(lines)
        if key_within(interval_s) in ("q", "Q", END):
            return
