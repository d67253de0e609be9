"""The database of an outbox as a relay and the commands reach it: by a URL, an Engine, a name of Django, or a function.

A relay has a connection of its own, and ends each of its transactions. URLs are SQLAlchemy's, and need it; so does
an Engine. The other two need nothing more than the application has.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pinlater.errors import install_command
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.outbox.connections import Executor, Row, executor
from pinlater_workers.outbox.statements import OutboxStatements

DJANGO = "django:"

_ISOLATION = {"postgresql": "READ COMMITTED", "mysql": "REPEATABLE READ", "mariadb": "REPEATABLE READ"}
"""Whatever is the database's default, or the engine's: each statement, or each transaction, sees what is committed."""


class Database:
    """A way to open connections. `shown` names it without its password."""

    def __init__(self, open_connection: Callable[[], Any], shown: str) -> None:
        self._open = open_connection
        self.shown = shown

    @classmethod
    def of(cls, database: Any) -> Database:
        """ConfigurationError: what cannot be, or what is not installed."""
        if isinstance(database, Database):
            return database
        if isinstance(database, str) and database.startswith(DJANGO):
            return cls._of_django(database.removeprefix(DJANGO) or "default")
        if isinstance(database, str) or hasattr(database, "render_as_string"):
            return cls._of_url(database)
        if hasattr(database, "sync_engine"):
            raise ConfigurationError(
                "an engine of asyncio; a relay blocks in a thread of its own: give it a URL with a driver that does so "
                "(postgresql+psycopg://, mysql+pymysql://, sqlite://)"
            )
        if hasattr(database, "raw_connection"):
            return cls._of_engine(database)
        if callable(database):
            return cls(database, f"what {getattr(database, '__qualname__', database)} opens")
        raise ConfigurationError(
            f"an outbox's database is {database!r:.100}; allowed: a URL as in postgresql+psycopg://USER@HOST/NAME, an "
            f"Engine of SQLAlchemy, {DJANGO}ALIAS, or a function that opens a connection"
        )

    @classmethod
    def _of_url(cls, url: Any) -> Database:
        try:
            alchemy = importlib.import_module("sqlalchemy")
        except ModuleNotFoundError:
            raise ConfigurationError(
                f"a database named by a URL needs the Python package sqlalchemy: {install_command('outbox')}"
            ) from None
        try:
            parsed = alchemy.engine.make_url(url)
            engine = alchemy.create_engine(parsed, poolclass=alchemy.pool.NullPool)
        except (alchemy.exc.ArgumentError, alchemy.exc.NoSuchModuleError, ValueError) as error:
            raise ConfigurationError(
                f"an outbox's database is no URL that SQLAlchemy knows: {error}; allowed: as in "
                "postgresql+psycopg://USER:PASSWORD@HOST/NAME, mysql+pymysql://..., sqlite:///PATH"
            ) from None
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"the database's driver needs the Python package {missing.name}: pip install {missing.name}, or name "
                "another driver in the URL, as in postgresql+psycopg://"
            ) from None
        return cls._of_engine(engine)

    @classmethod
    def _of_engine(cls, engine: Any) -> Database:
        isolation = _ISOLATION.get(engine.dialect.name)
        if isolation is not None:
            engine = engine.execution_options(isolation_level=isolation)
        return cls(engine.connect, engine.url.render_as_string(hide_password=True))

    @classmethod
    def _of_django(cls, alias: str) -> Database:
        """A connection belongs to the thread there that opens it."""
        try:
            django = importlib.import_module("django")
            connections = importlib.import_module("django.db").connections
            unusable = importlib.import_module("django.core.exceptions").ImproperlyConfigured
        except ModuleNotFoundError:
            raise ConfigurationError(f"{DJANGO}{alias} needs Django, which is not installed here") from None
        try:
            if not importlib.import_module("django.apps").apps.ready:
                django.setup()
        except unusable as error:
            raise ConfigurationError(f"{DJANGO}{alias}: {error}") from None
        if alias not in connections:
            raise ConfigurationError(f"{DJANGO}{alias}: settings.DATABASES has {', '.join(connections)}")

        def open_connection() -> Any:
            connection = connections.create_connection(alias)  # beside the one of the thread's own transactions
            connection.ensure_connection()
            connection.set_autocommit(False)
            return connection

        return cls(open_connection, f"{DJANGO}{alias}")

    def connect(self) -> DatabaseSession:
        """A connection. Errors: those of its library."""
        return DatabaseSession(self._open())


class DatabaseSession:
    """A connection that is a relay's, or a command's, alone."""

    def __init__(self, connection: Any) -> None:
        """ConfigurationError: a connection that commits each statement by itself, or one that is not known."""
        self._connection = connection
        try:
            self._executor: Executor = executor(connection)
        except TypeError as error:
            raise ConfigurationError(str(error)) from error
        self.dialect = self._executor.dialect
        if self.dialect != "sqlite" and getattr(connection, "autocommit", False) is True:
            raise ConfigurationError("the function opens a connection with autocommit; a relay wants one without it")

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self._executor.execute(statement, parameters)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Committed at the end of the block, rolled back when it raises."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                self._connection.rollback()
            raise
        self.commit()

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()


class RelayLock:
    """The lock that relays take in turns.

    In PostgreSQL and MySQL it is a row, locked until the transaction ends: it goes with the connection that has it. In
    SQLite that would keep every writer waiting for a server: there it is a lock on a file beside the database, which
    goes with its process.
    """

    def __init__(self, session: DatabaseSession) -> None:
        self._file = -1
        if session.dialect == "sqlite":
            path = next((row[2] for row in session.execute("PRAGMA database_list") if row[1] == "main"), "")
            if path:
                self._locks = importlib.import_module("fcntl")
                self._file = os.open(f"{path}-relay", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, session: DatabaseSession, statements: OutboxStatements, now_ms: int) -> bool:
        """Within a transaction. False: another relay has it."""
        if session.dialect == "sqlite":
            if self._file >= 0 and not self._take_file():
                return False
            if not session.execute(statements.is_seeded()):
                session.execute(statements.seed(), [now_ms])
            return True
        # First of all in the transaction: under REPEATABLE READ the first plain SELECT decides what all others see.
        if session.execute(statements.lock()):
            return True
        if session.execute(statements.is_seeded()):
            return False
        session.execute(statements.seed(), [now_ms])
        session.commit()
        return bool(session.execute(statements.lock()))

    def release(self) -> None:
        """After the transaction."""
        if self._file >= 0:
            self._locks.flock(self._file, self._locks.LOCK_UN)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _take_file(self) -> bool:
        try:
            self._locks.flock(self._file, self._locks.LOCK_EX | self._locks.LOCK_NB)
        except BlockingIOError:
            return False
        return True
