"""Connections to MySQL or MariaDB: how they are set up, kept, tried after a rest, and thrown away after an error."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from sqlalchemy import create_engine, event, exc
from sqlalchemy.pool import PoolProxiedConnection

from pinlater.backends.remarks import warn_once
from pinlater.backends.sql.mysql_errors import CONFLICTS, error_number, is_disconnect, shard_error
from pinlater.errors import PinLaterError, StoreRefused
from pinlater.redaction import redact_url

RECYCLE_AFTER_S = 3_600
PING_AFTER_IDLE_S = 30
"""A connection that rested longer is tried before it is used: firewalls drop resting ones without a word."""

_DRIVERS = {"mysqldb": "mysqlclient", "pymysql": "pymysql"}
_SETTINGS = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # Strict: what does not fit is an error and never cut. The drivers escape with backslashes, so these must count.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'",
)
_FLUSHES_LATER = (
    "innodb_flush_log_at_trx_commit is {}: a power cut takes about the last second of what was answered; set it to 1"
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. A lock that is not had in time is a StoreConflict; any other time-out a lost connection."""

    connect_s: int = 5
    read_s: int = 30
    write_s: int = 30
    lock_wait_s: int = 5


class MysqlPool:
    """At most `size` connections at a time, made when they are first needed."""

    def __init__(self, url: str, size: int, timeouts: Timeouts) -> None:
        self.place = redact_url(url)
        self._timeouts = timeouts
        self._broken_at = 0.0
        try:
            self._engine = create_engine(
                url,
                pool_size=size,
                max_overflow=0,
                pool_recycle=RECYCLE_AFTER_S,
                pool_reset_on_return=None,  # a step ends its transaction itself; a reset would be one more round trip
                connect_args={
                    "charset": "utf8mb4",
                    "binary_prefix": True,  # else bodies are taken for text that is not valid
                    "connect_timeout": timeouts.connect_s,
                    "read_timeout": timeouts.read_s,
                    "write_timeout": timeouts.write_s,
                },
            )
        except ModuleNotFoundError as error:
            driver = _DRIVERS.get(error.name.lower() if error.name else "", error.name)
            raise StoreRefused(f"{self.place}: the driver is not installed: pip install {driver}") from error
        except (exc.ArgumentError, ValueError):
            # what these say has parts of the URL in it, which may be some of the password
            why = "this is no URL; what is special in user and password has to be encoded"
            raise StoreRefused(f"{self.place}: {why}") from None
        event.listen(self._engine, "connect", self._set_up)
        event.listen(self._engine, "checkout", self._check)
        event.listen(self._engine, "checkin", self._note_rest)

    def connection(self) -> PoolProxiedConnection:
        """One that works, as far as can be told. NothingStored with what to do."""
        try:
            return self._engine.raw_connection()
        except exc.DBAPIError as error:
            raise shard_error(error.orig or error, self.place, committing=False) from error
        except (TypeError, ValueError) as error:  # before any connection
            raise StoreRefused(f"{self.place}: the driver does not take these parameters with these values") from error
        except (self._driver_error(), exc.SQLAlchemyError, OSError, RuntimeError) as error:
            raise shard_error(error, self.place, committing=False) from error

    def mapped(self, error: BaseException, *, committing: bool) -> PinLaterError | None:
        """A driver's error as ours; None for any other."""
        if isinstance(error, self._driver_error()):
            return shard_error(error, self.place, committing=committing)
        return None

    def put_back(self, connection: PoolProxiedConnection) -> None:
        connection.close()

    def put_back_after(self, connection: PoolProxiedConnection, error: BaseException) -> None:
        """Roll back; after anything unexpected the connection is not used again."""
        if is_disconnect(error) and isinstance(error, self._driver_error()):
            self._broken_at = monotonic()
        elif self._rolled_back(connection) and (isinstance(error, PinLaterError) or error_number(error) in CONFLICTS):
            connection.close()
            return
        connection.invalidate()
        connection.close()

    def close(self) -> None:
        self._engine.dispose()

    def _driver_error(self) -> type[Exception]:
        found: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        return found

    def _rolled_back(self, connection: PoolProxiedConnection) -> bool:
        with suppress(self._driver_error()):
            connection.rollback()
            return True
        return False

    def _set_up(self, connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        for setting in (*_SETTINGS, f"SET SESSION innodb_lock_wait_timeout = {self._timeouts.lock_wait_s}"):
            cursor.execute(setting)
        cursor.execute("SELECT @@max_allowed_packet, @@GLOBAL.innodb_flush_log_at_trx_commit")
        max_packet, flush = cursor.fetchone()
        record.info["max_packet"] = int(max_packet)
        if int(flush) != 1:
            warn_once(self.place, _FLUSHES_LATER.format(flush))
        cursor.close()
        connection.commit()
        record.info["made_at"] = record.info["rests_since"] = monotonic()

    def _check(self, connection: Any, record: Any, proxy: Any) -> None:
        """Where one connection broke, those of its age are not trusted either: a new one is made instead."""
        if record.info["made_at"] < self._broken_at:
            raise exc.DisconnectionError
        if monotonic() - record.info["rests_since"] > PING_AFTER_IDLE_S:
            try:
                self._engine.dialect.do_ping(connection)
            except self._driver_error() as error:
                raise exc.DisconnectionError from error

    def _note_rest(self, connection: Any, record: Any) -> None:
        record.info["rests_since"] = monotonic()
