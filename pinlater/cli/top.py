"""`pinlater top`: a live picture of a cluster, with keys that mark, open, sort, pause and resume queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import click

from pinlater.cli.admin import needs_password
from pinlater.cli.connection import EXIT_CODES, ServerCommand, error_text, readable_status, talks_to_server
from pinlater.cli.job_states import selection_of
from pinlater.cli.key_screen import END, TypedKeys, aside, draw, is_terminal, screen, size
from pinlater.cli.queue_settings import switch_off, switch_on
from pinlater.cli.times import duration_option
from pinlater.cli.top_frame import ORDERS, TopView, frame, looks_in_order, queue_frame
from pinlater.client.client import Client
from pinlater.errors import MethodUnknown, PinLaterError
from pinlater.model import ClusterStatus
from pinlater.model.alarm_views import AlarmsPage
from pinlater.model.job_selection import JobPhase
from pinlater.text_table import cut_text

_FAILURES = 10
_BY_KEYS = {"up": -1, "down": 1, "page up": -10, "page down": 10, "home": -(10**6), "end": 10**6}


def alarms_of(client: Client) -> AlarmsPage | None:
    """None: the server is of an earlier version."""
    try:
        return client.get_alarms()
    except MethodUnknown:
        return None


@click.command(
    cls=ServerCommand,
    epilog=f"""\b
Examples:
  pinlater top
  pinlater top --interval 500ms --cluster mail
  pinlater top --sort failed
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
@click.option(
    "--sort", "order", type=click.Choice(list(ORDERS)), default="worst", show_default=True, help="Which first."
)
@needs_password
@talks_to_server
def top(client: Client, interval_ms: int, once: bool, order: str) -> None:
    """Watch a cluster: its servers and shards, and its queues with the worst first.

    Rates are per second over the whole cluster. The counts at the top are without dead letters. What does not fit into
    the width is cut, texts first, then left out, the least important first. While no server answers, it goes on trying.

    Keys: arrows, PgUp and PgDn mark a queue, Enter opens it and q goes back; s sorts by something else; p pauses the
    queue that is marked, or resumes it, when that is confirmed, with the admin password where it is needed. q or Ctrl-C
    ends it.
    """
    servers = ", ".join(map(str, client.servers))
    if once or not is_terminal():
        width, _ = size()
        click.echo("\n".join(frame(readable_status(client), servers, width, None, alarms_of(client), order)))
        return
    try:
        with screen():
            _Picture(client, servers, TopView(order)).watch(interval_ms / 1000)
    except KeyboardInterrupt:
        return


class _Picture:
    """What is shown, and what keys do to it."""

    def __init__(self, client: Client, servers: str, view: TopView) -> None:
        self._client = client
        self._servers = servers
        self._view = view
        self._status: ClusterStatus | None = None
        self._problem = ""
        self._alarms: AlarmsPage | None = None
        self._confirmed: Callable[[], None] | None = None

    def watch(self, interval_s: float) -> None:
        """Until q."""
        keys = TypedKeys()
        look_at_s = 0.0
        while True:
            if time.monotonic() >= look_at_s:
                self._look()
                look_at_s = time.monotonic() + interval_s
            draw(self._lines())
            key = keys.within(look_at_s - time.monotonic())
            if key == END or (key in ("q", "Q") and not self._view.opened):
                return
            if key and self._press(key):
                look_at_s = 0.0

    def _look(self) -> None:
        try:
            self._status, self._alarms = readable_status(self._client), alarms_of(self._client)
            self._problem = ""
        except PinLaterError as error:
            self._problem = error.message

    def _lines(self) -> list[str]:
        width, height = size()
        if self._problem or self._status is None:
            return [cut_text(line, width) for line in (f"pinlater {self._servers}", "", self._problem)]
        if not self._view.opened:
            return frame(self._status, self._servers, width, height, self._alarms, self._view.order, self._view)
        name = self._view.opened
        queue = next((each for each in self._status.queues if each.name == name), None)
        try:
            workers = self._client.get_workers(queue=name, limit=1)
            selection = selection_of(name, [JobPhase.FAILED], None, "", "")
            failed = self._client.search_jobs(selection, limit=_FAILURES).jobs if queue is not None else []
        except PinLaterError as error:
            return [cut_text(line, width) for line in (f"queue {name}", "", error_text(error))]
        return queue_frame(queue, workers, failed, self._status.now_ms, (width, height), self._view)

    def _press(self, key: str) -> bool:
        """Whether there is something new to look at."""
        view, confirmed = self._view, self._confirmed
        view.asks = view.tells = ""
        self._confirmed = None
        if confirmed is not None:
            if key in ("y", "Y"):
                confirmed()
            return True
        if key in _BY_KEYS:
            view.move(self._names(), _BY_KEYS[key])
        elif key == "s":
            view.next_order()
        elif key == "enter":
            view.opened = view.marked
        elif key in ("back", "q", "Q"):
            view.opened = ""
        elif key == "p":
            self._ask_for_pause()
        return False

    def _names(self) -> Sequence[str]:
        if self._status is None:
            return ()
        return [look.queue.name for look in looks_in_order(self._status, self._alarms, self._view.order)]

    def _ask_for_pause(self) -> None:
        name = self._view.opened or self._view.marked
        queue = next((each for each in self._status.queues if each.name == name), None) if self._status else None
        if queue is None:
            return
        is_paused = "paused" in queue.flags
        self._view.asks = f"{'Resume' if is_paused else 'Pause'} queue {name}? [y/N]"
        self._confirmed = lambda: self._set_paused(name, paused=not is_paused)

    def _set_paused(self, name: str, *, paused: bool) -> None:
        try:
            with aside():
                if paused:
                    switch_on(self._client, name, "paused", {})
                else:
                    switch_off(self._client, name, "paused")
        except PinLaterError as error:
            self._view.tells = error_text(error)
        except (click.UsageError, click.Abort) as error:
            self._view.tells = f"queue {name} stays as it is: {getattr(error, 'message', 'no password')}"
        else:
            self._view.tells = f"queue {name} is {'paused; p resumes it' if paused else 'resumed'}"
