"""An outbox: jobs are written in the application's own transaction, and a relay hands them over after the commit.

A job is there if and only if the transaction is: one that is rolled back leaves none, and one that is committed loses
none, whatever dies. The order in which jobs are handed over is that of the rows' ids, within each queue: jobs of one
transaction keep their order, and so do those of transactions of which one began after the other had been committed.
Transactions that overlap have no order. docs/workers-outbox.md is the page about it.

connections   how a statement runs on a connection of the application, whichever library it is of
statements    the SQL of an outbox
schema        its tables                           alchemy_tables   the same for SQLAlchemy and Alembic
relay         OutboxRelay: what hands jobs over, and goes on until it is stopped
handover      one batch, and what becomes of jobs that a server does not take
database      the connection of a relay, and the lock that relays take in turns
outage        the log of a trouble that goes on   relay_report   what a relay tells the servers
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ParamSpec

from pinlater.model import Job, is_queue_name
from pinlater_workers.app.app import App
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError
from pinlater_workers.jobs.enqueue_options import Call, EnqueueOptions
from pinlater_workers.jobs.job_type import JobFunction, JobType
from pinlater_workers.jobs.settings import QUEUE_NAME
from pinlater_workers.outbox.connections import async_executor, executor
from pinlater_workers.outbox.database import Database
from pinlater_workers.outbox.relay import DEFAULT_BATCH, DEFAULT_GOAL_S, DEFAULT_POLL_S, OutboxRelay, RelayStats
from pinlater_workers.outbox.schema import DEFAULT_TABLE, DialectName, TableNames, creation, removal
from pinlater_workers.outbox.statements import (
    ROWS_PER_INSERT,
    OutboxRow,
    OutboxStatements,
    by_queue,
    insert_values,
)

if TYPE_CHECKING:
    import sqlalchemy

__all__ = ["Outbox", "OutboxRelay", "RelayStats"]

P = ParamSpec("P")

ROWS_PER_READ = 500


class Outbox:
    """An outbox in a table of the application's database. May be used by any thread; a connection is the caller's.

    Each job has a key, random and its own for good, which `enqueue` returns: what the servers will know it by.
    """

    def __init__(self, app: App, *, table: str = DEFAULT_TABLE) -> None:
        """ConfigurationError: no name of a table."""
        if not isinstance(app, App):
            raise ConfigurationError(f"an outbox of {app!r:.100}; allowed: the App whose jobs it takes")
        self.app = app
        self.table = TableNames.of(table).jobs
        self._relays: tuple[weakref.ref[OutboxRelay], ...] = ()

    # -- producers -------------------------------------------------------------------------------------------------

    def enqueue(
        self, connection: Any, job: JobFunction[P, Any] | EnqueueOptions[P], /, *args: P.args, **kwargs: P.kwargs
    ) -> str:
        """Write a job for these arguments in the connection's transaction; its key. Nothing is committed here.

        `job`: a function with @app.job above it, or its `.options(delay="5m", ...)`. ArgumentsInvalid: nothing was
        written. TypeError: a connection that is not known. Else the errors of the connection's own library.
        """
        options = self._options(job)
        return self._write(connection, options.queue, [options.job(*args, **kwargs)])[0]

    def enqueue_many(self, connection: Any, job: JobType | EnqueueOptions[...], calls: Iterable[Call], /) -> list[str]:
        """Write a job for each call, a tuple (or list) of arguments or a dict of them by name; the keys in order."""
        options = self._options(job)
        return self._write(connection, options.queue, options.jobs(calls))

    def enqueue_jobs(self, connection: Any, queue: str, jobs: Job | Iterable[Job], /) -> list[str]:
        """Write jobs with bodies of your own, for workers that are not this framework's; the keys in order."""
        return self._write(connection, queue, _checked(queue, jobs))

    async def enqueue_async(
        self, connection: Any, job: JobFunction[P, Any] | EnqueueOptions[P], /, *args: P.args, **kwargs: P.kwargs
    ) -> str:
        """`enqueue` on a connection of asyncio."""
        options = self._options(job)
        return (await self._write_async(connection, options.queue, [options.job(*args, **kwargs)]))[0]

    async def enqueue_many_async(
        self, connection: Any, job: JobType | EnqueueOptions[...], calls: Iterable[Call], /
    ) -> list[str]:
        """`enqueue_many` on a connection of asyncio."""
        options = self._options(job)
        return await self._write_async(connection, options.queue, options.jobs(calls))

    async def enqueue_jobs_async(self, connection: Any, queue: str, jobs: Job | Iterable[Job], /) -> list[str]:
        """`enqueue_jobs` on a connection of asyncio."""
        return await self._write_async(connection, queue, _checked(queue, jobs))

    def _options(self, job: JobType | EnqueueOptions[Any]) -> EnqueueOptions[Any]:
        if isinstance(job, JobType):
            return job.options()
        if not isinstance(job, EnqueueOptions):
            raise ArgumentsInvalid(
                f"{job!r:.100} is no job; allowed: a function with @app.job(queue=...) above it, or its .options(...)"
            )
        return job

    def _write(self, connection: Any, queue: str, jobs: Sequence[Job]) -> list[str]:
        on = executor(connection)
        keys, inserts = self._inserts(on.dialect, queue, jobs)
        for statement, values in inserts:
            on.execute(statement, values)
        self.wake_relays()
        return keys

    async def _write_async(self, connection: Any, queue: str, jobs: Sequence[Job]) -> list[str]:
        on = await async_executor(connection)
        keys, inserts = self._inserts(on.dialect, queue, jobs)
        for statement, values in inserts:
            await on.execute(statement, values)
        self.wake_relays()
        return keys

    def _inserts(
        self, dialect: DialectName, queue: str, jobs: Sequence[Job]
    ) -> tuple[list[str], Iterator[tuple[str, list[Any]]]]:
        now_ms = self.app.clock.now_ms()
        keys = [secrets.token_hex(16) for _ in jobs]
        rows = [insert_values(queue, job, key, now_ms) for job, key in zip(jobs, keys, strict=True)]
        statements = _statements(self.table, dialect)
        parts = (rows[start : start + ROWS_PER_INSERT] for start in range(0, len(rows), ROWS_PER_INSERT))
        return keys, (statements.insert(part) for part in parts)

    # -- the tables ------------------------------------------------------------------------------------------------

    def create_table(self, connection: Any) -> None:
        """Make the tables, where they are not there. The commit is the caller's, where the database wants one."""
        on = executor(connection)
        for statement in creation(self.table, on.dialect):
            on.execute(statement)

    def drop_table(self, connection: Any) -> None:
        """Drop the tables, with the jobs in them."""
        for statement in removal(self.table):
            executor(connection).execute(statement)

    def add_to(self, metadata: sqlalchemy.MetaData) -> list[sqlalchemy.Table]:
        """The tables in this metadata of SQLAlchemy: `create_all` makes them, and Alembic finds them."""
        from pinlater_workers.outbox.alchemy_tables import add_tables  # noqa: PLC0415  # SQLAlchemy is an extra

        return add_tables(metadata, self.table)

    # -- relays ----------------------------------------------------------------------------------------------------

    def relay(
        self,
        database: Any,
        *,
        poll: float = DEFAULT_POLL_S,
        batch: int = DEFAULT_BATCH,
        goal: float = DEFAULT_GOAL_S,
    ) -> OutboxRelay:
        """A relay from this database to the app's servers, which does not run yet: `run()`, `start()` or `with`.

        `database`: a URL as SQLAlchemy writes them, an Engine, "django:ALIAS", or a function that opens a connection.
        `poll`: seconds between two looks at an empty outbox. `goal`: a job that waits for so many is an alarm.
        ConfigurationError: what cannot be.
        """
        relay = OutboxRelay(self.app, Database.of(database), self.table, poll_s=poll, batch=batch, goal_s=goal)
        self._relays = (*(each for each in self._relays if each() is not None), weakref.ref(relay))
        return relay

    def wake_relays(self) -> None:
        """The relays of this process look soon, and some times again: a commit is near, or has just been."""
        for each in self._relays:
            relay = each()
            if relay is not None:
                relay.wake()

    def hand_over(self, connection: Any) -> int:
        """Hand over all that this connection sees, in its transaction; how many. For tests, and for scripts.

        The commit is the caller's. The first error of a server is raised, and what was handed over until then is
        removed from the table.
        """
        on = executor(connection)
        statements = _statements(self.table, on.dialect)
        handed_over = 0
        while heads := on.execute(*statements.heads(ROWS_PER_READ)):
            rows = on.execute(statements.rows(head[0] for head in heads))
            for queue, some in by_queue(map(OutboxRow._make, rows)):
                self.app.sink.send(queue, [row.job(with_id=row.is_keyed) for row in some])
                on.execute(statements.delete(row.id for row in some))
                handed_over += len(some)
        return handed_over

    async def hand_over_async(self, connection: Any) -> int:
        """`hand_over` on a connection of asyncio."""
        on = await async_executor(connection)
        statements = _statements(self.table, on.dialect)
        handed_over = 0
        while heads := await on.execute(*statements.heads(ROWS_PER_READ)):
            rows = await on.execute(statements.rows(head[0] for head in heads))
            for queue, some in by_queue(map(OutboxRow._make, rows)):
                await self.app.sink.send_async(queue, [row.job(with_id=row.is_keyed) for row in some])
                await on.execute(statements.delete(row.id for row in some))
                handed_over += len(some)
        return handed_over


@lru_cache(maxsize=64)
def _statements(table: str, dialect: DialectName) -> OutboxStatements:
    return OutboxStatements(table, dialect)


def _checked(queue: str, jobs: Job | Iterable[Job]) -> list[Job]:
    """ValueError or TypeError: no name of a queue, or no jobs."""
    if not is_queue_name(queue):
        raise ValueError(f"queue is {queue!r:.100}; allowed: {QUEUE_NAME}")
    listed = [jobs] if isinstance(jobs, Job) else list(jobs)
    for job in listed:
        if not isinstance(job, Job) or not isinstance(job.body, bytes):
            raise TypeError(f"{job!r:.100} is no job; allowed: a pinlater.Job with a body of bytes")
    return listed
