"""The report of a relay to the servers, by which they miss it when it is gone, and know what waits in its outbox.

It goes by the relay's own thread: one that hangs is missed too.
"""

from __future__ import annotations

import os
import secrets
import socket
import time

from pinlater.errors import Forbidden, PinLaterError
from pinlater.log_guard import GuardedLogger
from pinlater.model import OutboxReport, WorkerReport
from pinlater_workers.app.app import App, ServerClients

REPORT_S = 10.0
REFUSED_S = 60.0
"""After one that a server refused: one of an earlier version wants a right that relays may not have."""

WITHIN_S = 2.0
"""A relay waits for no server for longer."""

MAX_NAME_CHARS = 200
NAME = "outbox relay"
_QUEUE = "outbox"
"""A checkpoint names a queue, also one of nothing; it need not be there."""

_log = GuardedLogger("pinlater_workers.outbox")


class RelayReporter:
    """For one run of a relay, in its process: it may have been made before a fork. `outbox`: what all relays of that
    outbox call it.
    """

    def __init__(self, app: App, outbox: str, goal_s: float) -> None:
        self._app = app
        self._outbox = outbox[-MAX_NAME_CHARS:]
        self._goal_ms = round(goal_s * 1000)
        self._id = secrets.token_hex(8)
        self._began_s = time.monotonic()
        self._due_s = self._began_s
        self._waiting = 0
        self._oldest_at_ms: int | None = None
        self._is_heard = False

    @property
    def is_due(self) -> bool:
        """Not where jobs go to a test: there is nobody to tell."""
        return time.monotonic() >= self._due_s and isinstance(self._app.sink, ServerClients)

    def counted(self, waiting: int, oldest_at_ms: int | None) -> None:
        """So much is in the outbox now."""
        self._waiting, self._oldest_at_ms = waiting, oldest_at_ms

    def tell(self, problem: str = "", *, has_stopped: bool = False) -> None:
        """`problem`: what keeps jobs waiting. Raises nothing."""
        now_s = time.monotonic()
        now_ms = self._app.clock.now_ms()
        oldest_ms = 0 if self._oldest_at_ms is None else max(0, now_ms - self._oldest_at_ms)
        report = WorkerReport(
            self._id,
            NAME,
            round((now_s - self._began_s) * 1000) + 1,
            socket.gethostname(),
            os.getpid(),
            has_stopped=has_stopped,
            outbox=OutboxReport(self._outbox, self._waiting, oldest_ms, self._goal_ms, problem),
        )
        self._due_s = now_s + REPORT_S
        try:
            self._app.client.checkpoint(_QUEUE, [], worker=report, timeout=WITHIN_S)
            self._is_heard = True
        except PinLaterError as error:
            if isinstance(error, Forbidden):
                self._due_s = now_s + REFUSED_S
            _log.debug("the servers did not take the report of this relay: %s", error)

    def stopped(self) -> None:
        """It ends in order, so nobody misses it."""
        if self._is_heard:
            self.tell(has_stopped=True)
