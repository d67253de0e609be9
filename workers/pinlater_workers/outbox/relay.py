"""The relay: reads what has been committed to an outbox, hands it over, and removes what the servers have.

Each turn reads the first rows that can be seen, whatever was read before: a transaction with low ids that commits late
is found like any other. Relays take turns by a lock, so that any number of them keeps the order of one. A row is
removed after a server has answered: a relay that is killed between the two leaves rows that come again.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import random
from typing import Self

from pinlater.durations import seconds_text
from pinlater.log_guard import GuardedLogger
from pinlater.printable import printable
from pinlater_workers.app.app import App
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.outbox.database import Database, DatabaseSession, RelayLock
from pinlater_workers.outbox.handover import BatchOutcome, Handover, backoff_s
from pinlater_workers.outbox.outage import Outage
from pinlater_workers.outbox.relay_report import RelayReporter
from pinlater_workers.outbox.statements import OutboxRow, OutboxStatements, RowHead

DEFAULT_POLL_S = 0.2
DEFAULT_GOAL_S = 300.0
"""A job that waits for longer in an outbox is an alarm."""

DEFAULT_BATCH = 500
MAX_BATCH = 10_000
MAX_GOAL_S = 30 * 86_400.0
BATCH_BYTES = 8 * 1024 * 1024
"""The bodies that are in memory at a time, but for one that alone is larger."""

SOON_S = 0.005
"""The pause after a hint; each one after it is twice as long, up to the poll. Nobody can tell when a commit comes."""

DATABASE_SHARE = 0.1
"""A look at an empty outbox takes no more than this part of the time, however slow the database is."""

NOTE_S = 10.0
"""How often a relay that has nothing to do notes that it lives."""

MAX_ERROR_CHARS = 2000
_log = GuardedLogger("pinlater_workers.outbox")


@dataclass(slots=True)
class RelayStats:
    """Since the relay began. `refused`: jobs that were set aside. `is_away`: servers or database, at the moment; or the
    relay itself, which has ended by an error.
    """

    handed_over: int = 0
    refused: int = 0
    server_failures: int = 0
    database_failures: int = 0
    is_away: bool = False


class OutboxRelay:
    """One relay. `run` goes on until `stop`; `start` does that in a thread of its own, and so does a `with` block.

    Its calls may come from any thread. `stats`: what it has done.
    """

    def __init__(
        self,
        app: App,
        database: Database,
        table: str,
        *,
        poll_s: float = DEFAULT_POLL_S,
        batch: int = DEFAULT_BATCH,
        name: str | None = None,
        goal_s: float = DEFAULT_GOAL_S,
    ) -> None:
        """`goal_s`: a job that waits for longer is an alarm. ConfigurationError: what cannot be."""
        if not 0.001 <= poll_s <= 3600:
            raise ConfigurationError(f"poll is {poll_s!r}; allowed: 1ms to 1h")
        if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MAX_BATCH:
            raise ConfigurationError(f"batch is {batch!r}; allowed: 1 to {MAX_BATCH:,}")
        if not 1 <= goal_s <= MAX_GOAL_S:
            raise ConfigurationError(f"goal is {goal_s!r}; allowed: 1s to {seconds_text(MAX_GOAL_S)}")
        self.app = app
        self.database = database
        self.table = table
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.stats = RelayStats()
        self._poll_s = poll_s
        self._batch = batch
        self._handover = Handover(
            lambda queue, jobs, timeout_s: app.sink.send(queue, jobs, timeout_s=timeout_s), time.monotonic
        )
        self._wakeup = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._link: _Link | None = None
        self._unsure: list[OutboxRow] = []
        self._pause_s = SOON_S
        self._look_s = 0.0
        self._is_busy = True
        self._noted_s = -NOTE_S
        self._queues: dict[str, Outage] = {}
        self._servers = Outage(_log, "the servers take no jobs")
        self._keys = Outage(_log, "keys of jobs are not taken, so jobs with keys wait, and others go without send ids")
        self._storage = Outage(_log, f"the outbox in {database.shown} cannot be used")
        self._goal_s = goal_s

    # -- its life --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `stop`, whatever is away meanwhile."""
        _log.info("relay %s: from table %s in %s", self.name, self.table, self.database.shown)
        reporter = RelayReporter(self.app, f"{self.database.shown}/{self.table}", self._goal_s)
        try:
            while not self._stopping.is_set():
                pause_s = self._step()
                self._report(reporter)
                self._wakeup.wait(pause_s)
                if self._wakeup.is_set():
                    self._wakeup.clear()
                    self._pause_s = SOON_S
            reporter.stopped()
        finally:
            self._disconnect()
            _log.info("relay %s: ended; %d jobs handed over", self.name, self.stats.handed_over)

    def run_once(self) -> int:
        """Hand over what is there now; how many jobs. The first error of servers or database is raised.

        What other relays hand over, or a queue that takes nothing keeps back, is left.
        """
        before = self.stats.handed_over
        try:
            self._is_busy = True
            while self._is_busy and not self._stopping.is_set():
                error = self._turn()
                if error is not None:
                    raise error
        finally:
            self._disconnect()
        return self.stats.handed_over - before

    def start(self) -> Self:
        """Run in a thread, which ends with the process. Once; a process that forks afterwards starts its own."""
        if self._thread is not None:
            raise RuntimeError("this relay was started before; make another one")
        self._thread = threading.Thread(target=self._run_in_thread, name="pinlater-outbox", daemon=True)
        self._thread.start()
        return self

    def _run_in_thread(self) -> None:
        """The program that began it goes on, so what ends it is said here."""
        try:
            self.run()
        except BaseException as error:
            self.stats.is_away = True
            text = "relay %s: it ends, and jobs stay in the outbox until another one is started: %s"
            _log.critical(text, self.name, printable(str(error) or repr(error)), exc_info=error)

    def stop(self, timeout: float | None = None) -> bool:
        """The batch under way is finished, and no other begun. Waits so long for a relay that was started; whether it
        has ended.
        """
        self._stopping.set()
        self._wakeup.set()
        if self._thread is None or self._thread is threading.current_thread():
            return self._thread is None
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wake(self) -> None:
        """Look now, and some times again soon."""
        self._wakeup.set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # -- its turns -------------------------------------------------------------------------------------------------

    def _step(self) -> float:
        """One turn, and the pause after it."""
        self._look_s = 0.0
        try:
            error = self._turn()
        except ConfigurationError:
            raise
        except Exception as failure:
            self._disconnect()
            self.stats.database_failures += 1
            self._storage.begin(failure_text(failure, self.table))
            self.stats.is_away = True
            return self._away_s(self._storage.failures)
        self._storage.end()
        if error is not None:
            self.stats.server_failures += 1
            self._servers.begin(str(error) or type(error).__name__)
            self.stats.is_away = True
            return self._away_s(self._servers.failures)
        self._servers.end()
        self.stats.is_away = False
        if self._is_busy:
            self._pause_s = SOON_S
            return 0.0
        pause_s, self._pause_s = self._pause_s, min(self._poll_s, self._pause_s * 2)
        return max(pause_s, self._look_s / DATABASE_SHARE)

    def _report(self, reporter: RelayReporter) -> None:
        """Tell the servers how it stands, where that is due and they can be reached."""
        if self._servers.failures or not reporter.is_due:
            return
        if self._link is not None:
            try:
                with self._link.session.transaction():
                    reporter.counted(*self._link.session.execute(self._link.statements.backlog())[0])
            except Exception as failure:
                self._disconnect()
                self._storage.begin(failure_text(failure, self.table))
        reporter.tell(self._storage.why or self._held_text())

    def _held_text(self) -> str:
        return "; ".join(f"queue {queue} takes no jobs: {hold.why}" for queue, hold in self._handover.held.items())

    def _away_s(self, failures: int) -> float:
        self._is_busy = True
        return backoff_s(failures) * (0.75 + random() / 2)

    def _turn(self) -> Exception | None:
        """One batch. Why no server takes jobs; what is raised is the database's."""
        if self._link is None:
            self._link = _Link.open(self.database, self.table)
        link = self._link
        is_to_note = time.monotonic() - self._noted_s >= NOTE_S
        if not self._is_busy and not is_to_note:
            started_s = time.monotonic()
            with link.session.transaction():
                self._is_busy = bool(self._heads(link, 1))
            if not self._is_busy:
                self._look_s = time.monotonic() - started_s
                return None
        try:
            with link.session.transaction():
                self._is_busy = False
                if not link.lock.take(link.session, link.statements, self.app.clock.now_ms()):
                    return None
                outcome, self._is_busy = self._hand_over(link)
                self._settle(link, outcome)
        finally:
            link.lock.release()
        self._settled(outcome)
        return outcome.away

    def _hand_over(self, link: _Link) -> tuple[BatchOutcome, bool]:
        """And whether there may be more."""
        session, statements = link.session, link.statements
        if self._unsure:
            ids, keys = [row.id for row in self._unsure], [row.key for row in self._unsure]
            session.execute(*statements.delete_again(ids, keys))
        heads = self._heads(link, self._batch)
        chosen = _within_bytes(heads)
        rows = session.execute(statements.rows(chosen)) if chosen else []
        if session.dialect == "sqlite":
            session.commit()  # nobody who writes waits for a server
        outcome = self._handover.send(map(OutboxRow._make, rows))
        self._unsure = [*self._unsure, *outcome.handed_over]  # until the commit
        is_full = len(heads) == self._batch or len(chosen) < len(heads)
        return outcome, is_full and bool(outcome.handed_over or outcome.refused)

    def _heads(self, link: _Link, limit: int) -> list[RowHead]:
        """The first jobs that can be sent now."""
        waiting = self._handover.waiting_ids()
        heads = link.session.execute(*link.statements.heads(limit + len(waiting), self._handover.waiting_queues()))
        return [RowHead(*head) for head in heads if head[0] not in waiting][:limit]

    def _settle(self, link: _Link, outcome: BatchOutcome) -> None:
        """In the transaction: remove what was handed over, set aside what was refused, and note it."""
        session, statements = link.session, link.statements
        now_ms = self.app.clock.now_ms()
        gone = [row.id for row in outcome.handed_over]
        for rows, why in outcome.refused:
            ids = [row.id for row in rows]
            session.execute(statements.set_aside(ids, now_ms), [_error_text(why)])
            gone += ids
        if gone:
            session.execute(statements.delete(gone))
        handed_over, problem = len(outcome.handed_over), self._problem(outcome)
        if problem:
            session.execute(statements.note_error(), [self.name, now_ms, handed_over, _error_text(problem), now_ms])
        else:
            session.execute(statements.note(), [self.name, now_ms, handed_over])

    def _problem(self, outcome: BatchOutcome) -> str:
        """What keeps jobs waiting, for the status."""
        if outcome.away is not None:
            return f"no server takes jobs: {outcome.away}"
        problems = [self._held_text()] if self._handover.held else []
        if self._handover.keys_why:
            waiting = len(self._handover.waiting)
            problems.append(f"{waiting} jobs wait as the servers do not take their keys: {self._handover.keys_why}")
        return "; ".join(problems)

    def _settled(self, outcome: BatchOutcome) -> None:
        """It is committed."""
        self._unsure = []
        self._noted_s = time.monotonic()
        self.stats.handed_over += len(outcome.handed_over)
        if outcome.handed_over:
            _log.debug("handed over %d jobs", len(outcome.handed_over))
        if self._handover.keys_why:
            self._keys.begin(self._handover.keys_why)
        else:
            self._keys.end()
        held = self._handover.held
        for queue in [queue for queue in self._queues if queue not in held]:
            self._queues.pop(queue).end()
        for queue, hold in held.items():
            outage = self._queues.setdefault(queue, Outage(_log, f"queue {queue} takes no jobs"))
            if outage.failures < hold.failures:
                outage.begin(hold.why)
        for rows, why in outcome.refused:
            self.stats.refused += len(rows)
            _log.warning(
                "refused: %d jobs of queue %s, set aside (pinlater-worker outbox refused): %s",
                len(rows),
                rows[0].queue,
                printable(why),
            )

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


@dataclass(slots=True)
class _Link:
    """A session with all that goes with it."""

    session: DatabaseSession
    statements: OutboxStatements
    lock: RelayLock

    @classmethod
    def open(cls, database: Database, table: str) -> _Link:
        session = database.connect()
        try:
            return cls(session, OutboxStatements(table, session.dialect), RelayLock(session))
        except BaseException:
            session.close()
            raise

    def close(self) -> None:
        self.session.close()
        self.lock.close()


def _within_bytes(heads: Sequence[RowHead]) -> list[int]:
    """The first ids whose bodies fit into memory, and one at least."""
    chosen: list[int] = []
    size = 0
    for head in heads:
        size += head.size
        if chosen and size > BATCH_BYTES:
            break
        chosen.append(head.id)
    return chosen


def _error_text(error: str) -> str:
    return printable(error)[:MAX_ERROR_CHARS]


def failure_text(error: Exception, table: str) -> str:
    """What went wrong, without the statement and its values; where a table is missing, what makes it."""
    text = str(error).partition("\n")[0] or type(error).__name__
    missing = ("no such table", "does not exist", "doesn't exist")
    if table in text and any(part in text for part in missing):
        return f"{text}; `pinlater-worker outbox schema` prints the tables, Outbox.create_table makes them"
    return text
