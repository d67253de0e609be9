"""Connections to a database server, and the shard on them: a small pool, and as many threads.

Every call is one transaction, so until its COMMIT is sent nothing is stored, whatever happens: the server rolls back
what a broken connection leaves. Only a COMMIT without an answer leaves the outcome unknown.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar, TypeVar

from sqlalchemy import Engine, create_engine, event, exc
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from pinlater.backends.sql import ready_jobs
from pinlater.backends.sql.connection_limit import ConnectionLimit
from pinlater.backends.sql.coordination import establish_identity
from pinlater.backends.sql.enqueue_in_flight import EnqueueInFlight
from pinlater.backends.sql.session import UNENCODABLE, Session
from pinlater.backends.sql.shard import SqlShard
from pinlater.backends.sql.threads import CallResult, ThreadCall, Threads
from pinlater.backends.store_warnings import warn_once
from pinlater.errors import (
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    StoreConflict,
    StoreRefused,
    ValueNotStorable,
)
from pinlater.redaction import redact_url

RECYCLE_AFTER_S = 3_600
PING_AFTER_IDLE_S = 30
"""A connection that rested longer is tried before it is used: firewalls drop resting ones without a word."""


SPARE = 3
"""So many are left free by who has one already: for processes that start, and for operators."""

_FEW = "it has few connections left"
_FEWER = (
    "it has fewer connections than the {} that each process wants, and each goes on with those that it has, more "
    "slowly: raise max_connections (or the bound of this user or database), or lower --processes"
)


class TooFewConnections(NothingStored):
    """The server takes no more connections, or but few."""


class ConnectionsLeft(TooFewConnections):
    """There are some, which are left to others: a process takes its first one in any case."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. A lock that is not had in time is a StoreConflict; any other time-out a lost connection."""

    connect_s: int = 5
    read_s: int = 30
    write_s: int = 30
    lock_wait_s: int = 5


class ServerPool(ABC):
    """A pool of at most `size` connections, made when they are first needed; a subclass per kind of server."""

    DRIVERS: ClassVar[Mapping[str, str]] = {}
    """The packages that bring drivers, by their modules, where the names differ."""

    def __init__(self, url: str, size: int, timeouts: Timeouts) -> None:
        self.place = redact_url(url)
        self.timeouts = timeouts
        self._broken_at = 0.0
        self._limit = ConnectionLimit(size)
        try:
            self.engine: Engine = create_engine(
                url,
                pool_size=size,
                max_overflow=0,
                pool_recycle=RECYCLE_AFTER_S,
                pool_reset_on_return=None,  # a call ends its transaction itself; a reset would be one more round trip
                connect_args=self.connect_args(timeouts),
            )
        except ModuleNotFoundError as error:
            driver = self.DRIVERS.get(error.name.lower() if error.name else "", error.name)
            raise StoreRefused(f"{self.place}: the driver is not installed: pip install {driver}") from error
        except (exc.ArgumentError, ValueError):
            # what these say has parts of the URL in it, which may be some of the password
            why = "this is no URL; what is special in user and password has to be encoded"
            raise StoreRefused(f"{self.place}: {why}") from None
        event.listen(self.engine, "connect", self._made)
        event.listen(self.engine, "checkout", self._check)
        event.listen(self.engine, "checkin", self._note_rest)

    @abstractmethod
    def connect_args(self, timeouts: Timeouts) -> dict[str, Any]:
        """What the driver is told for each connection."""

    @abstractmethod
    def set_up(self, connection: Any, info: dict[str, Any]) -> None:
        """Settings of a new connection; what sessions have to know of it goes into `info`."""

    @abstractmethod
    def check(self) -> None:
        """StoreRefused where the server is set up in a way in which it cannot be a shard."""

    @abstractmethod
    def free_connections(self, connection: Any) -> int:
        """How many more the server would take for the same user and database."""

    @abstractmethod
    def lacks_connections(self, error: BaseException) -> bool:
        """Whether it takes no more."""

    @abstractmethod
    def shard_error(self, error: BaseException, *, committing: bool) -> PinLaterError:
        """An error of the driver as ours."""

    @abstractmethod
    def is_disconnect(self, error: BaseException) -> bool:
        """Whether other connections of the same age are likely to be broken too."""

    def connection(self) -> PoolProxiedConnection:
        """One that works, as far as can be told. NothingStored with what to do. Where the server has no more for this
        process, it waits for one of those that there are.
        """
        while True:
            self._limit.enter()
            try:
                return self._taken()
            except TooFewConnections as error:
                if not self._limit.shrink(self._resting()) and not isinstance(error, ConnectionsLeft):
                    raise
                warn_once(self.place, _FEWER.format(self._limit.wanted))
            except BaseException:
                self._limit.leave()
                raise

    def _taken(self) -> PoolProxiedConnection:
        try:
            return self.engine.raw_connection()
        except exc.DBAPIError as error:
            raise self._unconnected(error.orig or error) from error
        except (TypeError, ValueError) as error:  # before any connection
            raise StoreRefused(f"{self.place}: the driver does not take these parameters with these values") from error
        except (self.driver_error, exc.SQLAlchemyError, OSError, RuntimeError) as error:
            raise self._unconnected(error) from error

    def _unconnected(self, error: BaseException) -> PinLaterError:
        mapped = self.shard_error(error, committing=False)
        return TooFewConnections(mapped.message) if self.lacks_connections(error) else mapped

    def _resting(self) -> int:
        pool = self.engine.pool
        return pool.checkedin() if isinstance(pool, QueuePool) else 0

    @contextmanager
    def lent(self) -> Iterator[Any]:
        """The driver's connection, for what is no transaction of a shard. Errors are ours."""
        connection = self.connection()
        try:
            yield connection.driver_connection
        except BaseException as error:
            self.put_back_after(connection, error)
            ours = self.mapped(error, committing=False)
            if ours is None:
                raise
            raise ours from error
        self.put_back(connection)

    def mapped(self, error: BaseException, *, committing: bool) -> PinLaterError | None:
        """A driver's error as ours; None for any other."""
        if isinstance(error, self.driver_error):
            return self.shard_error(error, committing=committing)
        return ValueNotStorable.at(self.place, error) if isinstance(error, UNENCODABLE) else None

    def put_back(self, connection: PoolProxiedConnection) -> None:
        connection.close()
        self._limit.leave()

    def put_back_after(self, connection: PoolProxiedConnection, error: BaseException) -> None:
        """Roll back; after anything unexpected the connection is not used again."""
        try:
            self._put_back_after(connection, error)
        finally:
            self._limit.leave()

    def _put_back_after(self, connection: PoolProxiedConnection, error: BaseException) -> None:
        ours = self.mapped(error, committing=False)
        expected = PinLaterError if ours is None else (StoreConflict, ValueNotStorable)
        if isinstance(error, self.driver_error) and self.is_disconnect(error):
            self._broken_at = monotonic()
        elif self._rolled_back(connection) and isinstance(ours or error, expected):
            connection.close()
            return
        connection.invalidate()
        connection.close()

    def close(self) -> None:
        self.engine.dispose()

    @property
    def driver_error(self) -> type[Exception]:
        found: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        return found

    def _rolled_back(self, connection: PoolProxiedConnection) -> bool:
        with suppress(self.driver_error):
            connection.rollback()
            return True
        return False

    def _made(self, connection: Any, record: Any) -> None:
        self.set_up(connection, record.info)
        if not self._limit.is_first:
            self.leave_some(connection)
        record.info["made_at"] = record.info["rests_since"] = monotonic()

    def leave_some(self, connection: Any) -> None:
        """What a process wants beside its first connection it takes only where others find one. TooFewConnections:
        then whoever made the connection closes it.
        """
        try:
            free = self.free_connections(connection)
        except self.driver_error:  # it does not say
            connection.rollback()
            return
        if free < SPARE:
            raise ConnectionsLeft(f"{self.place}: {_FEW}")

    def _check(self, connection: Any, record: Any, proxy: Any) -> None:
        """Raise where the connection is not to be used: a new one is made instead. Where one broke, those of its age
        are not trusted either; one that has rested is pinged.
        """
        if record.info["made_at"] < self._broken_at:
            raise exc.DisconnectionError
        if monotonic() - record.info["rests_since"] > PING_AFTER_IDLE_S:
            try:
                self.engine.dialect.do_ping(connection)
            except self.driver_error as error:
                raise exc.DisconnectionError from error

    def _note_rest(self, connection: Any, record: Any) -> None:
        record.info["rests_since"] = monotonic()


Result = TypeVar("Result")

THREADS = 4


class ServerShard(SqlShard):
    """A shard on a database server; a subclass per server makes the pool and the sessions."""

    POOL: ClassVar[type[ServerPool]]
    NAME: ClassVar[str]
    TRANSFER_OPTIONS: ClassVar[Mapping[str, Any]] = {"timeouts": Timeouts(read_s=3_600, write_s=3_600)}
    """A transfer counts and removes all that there is by one statement, and a reader of an export may stand still."""

    keeps_order = True

    def __init__(
        self, url: str, shard_id: str = "", *, threads: int = THREADS, timeouts: Timeouts | None = None
    ) -> None:
        super().__init__(shard_id)
        self._count = threads
        self._pool = self.POOL(url, threads, timeouts or Timeouts())
        self._threads: Threads | None = None
        self._enqueue: EnqueueInFlight | None = None
        """That of this turn of the loop; a claim that is begun in it too is put behind it."""

    @abstractmethod
    def session(self, connection: PoolProxiedConnection, *, writes: bool) -> Session:
        """A session on a connection of the pool."""

    def on_commit(self, session: Session) -> None:
        """Behind the commit of a session that wrote, in its thread."""

    async def open(self) -> str:
        self._threads = Threads(self._count, f"pinlater-{self.NAME}")
        try:
            await self._threads.call(self._pool.check)
            self._identity = await self.write(establish_identity, self.shard_id, self.opens_marked)
        except BaseException:
            await self.close()
            raise
        self.shard_id = self._identity.shard_id
        return self._identity.store_id

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            await threads.close()
            self._pool.close()

    def write(self, transaction: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        threads, enqueue = self._open_threads(), self._enqueue
        if transaction is ready_jobs.enqueue:
            self._enqueue = enqueue = EnqueueInFlight(arguments[0])
            asyncio.get_running_loop().call_soon(self._turn_is_over)
            storing = threads.call(self._enqueue_and_claim, enqueue, transaction, arguments)
            storing.add_done_callback(enqueue.answered)
            return storing
        if enqueue is not None and transaction is ready_jobs.claim and enqueue.may_have_behind(*arguments):
            loop = asyncio.get_running_loop()
            claim = ThreadCall(loop, loop.create_future(), transaction, arguments)
            if enqueue.put_behind(claim):
                return claim.future
        return threads.call(self._transact, True, transaction, arguments)

    def _turn_is_over(self) -> None:
        self._enqueue = None

    def read(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        return self._open_threads().call(self._transact, False, transaction, arguments)

    def _open_threads(self) -> Threads:
        if self._threads is None:
            raise NothingStored(f"{self._pool.place}: the shard is closed")
        return self._threads

    def _enqueue_and_claim(
        self, enqueue: EnqueueInFlight, transaction: Callable[..., Result], arguments: tuple[Any, ...]
    ) -> Result:
        """The enqueue, and the claims that were begun behind it: those that come before its commit in its transaction,
        if all goes well, and the others behind it. A claim that fails fails no enqueue, and none the other way round;
        of a commit without an answer the outcome of both is unknown.
        """
        joined: list[ThreadCall] = []
        claimed: list[CallResult] = []

        def together(session: Session, *values: Any) -> Result:
            result = transaction(session, *values)
            joined.extend(enqueue.claims())
            claimed.extend(CallResult(each.function(session, *each.arguments)) for each in joined)
            return result

        try:
            try:
                result = self._transact(True, together, arguments)
            except OutcomeUnknown as error:
                claimed = [CallResult(error=error)] * len(joined)
                raise
            except Exception:
                claimed = []
                if not joined:
                    raise
                result = self._transact(True, transaction, arguments)
        finally:
            if not claimed:
                claimed = [self._claim_alone(each) for each in joined]
            while claims := enqueue.claims(ends=True):
                joined += claims
                claimed += [self._claim_alone(each) for each in claims]
            enqueue.ended(list(zip(joined, claimed, strict=True)))
        return result

    def _claim_alone(self, claim: ThreadCall) -> CallResult:
        return claim._replace(function=self._transact, arguments=(True, claim.function, claim.arguments)).carry_out()

    def _transact(self, writes: bool, transaction: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
        """The drivers begin a transaction with the first statement."""
        connection = self._pool.connection()
        committing = False
        try:
            session = self.session(connection, writes=writes)
            result = transaction(session, *arguments)
            committing = writes
            connection.commit()
        except BaseException as error:
            self._pool.put_back_after(connection, error)
            ours = self._pool.mapped(error, committing=committing)
            if ours is None:
                raise
            raise ours from error
        self._pool.put_back(connection)
        if writes:
            self.on_commit(session)
        return result
