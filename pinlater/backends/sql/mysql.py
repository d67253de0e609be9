"""A shard on MySQL 8 or MariaDB, through PyMySQL or mysqlclient: a small pool of connections and as many threads.

How much a power cut may take is the server's own setting: with innodb_flush_log_at_trx_commit = 1, nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pinlater.backends.sql.identity import establish_identity
from pinlater.backends.sql.mysql_pool import MysqlPool, Timeouts
from pinlater.backends.sql.mysql_session import MysqlSession
from pinlater.backends.sql.shard import SqlShard
from pinlater.backends.sql.statements import load_statements
from pinlater.backends.sql.threads import Threads

Result = TypeVar("Result")

THREADS = 4
_STATEMENTS = load_statements("mysql.sql")


class MysqlShard(SqlShard):
    """`url` is mysql+pymysql://USER:PASSWORD@HOST:PORT/DATABASE, or mysql+mysqldb://... for mysqlclient."""

    def __init__(
        self, url: str, shard_id: str = "", *, threads: int = THREADS, timeouts: Timeouts | None = None
    ) -> None:
        super().__init__(shard_id)
        self._count = threads
        self._pool = MysqlPool(url, threads, timeouts or Timeouts())
        self._threads: Threads | None = None

    async def open(self) -> str:
        self._threads = Threads(self._count, "pinlater-mysql")
        try:
            self._identity = await self.write(establish_identity, self.shard_id)
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

    def write(self, step: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        assert self._threads is not None, "the shard is not open"
        return self._threads.call(self._transact, True, step, arguments)

    def read(self, step: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        assert self._threads is not None, "the shard is not open"
        return self._threads.call(self._transact, False, step, arguments)

    def _transact(self, writes: bool, step: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
        """The drivers begin a transaction with the first statement."""
        connection = self._pool.connection()
        committing = False
        try:
            packet = connection.info["max_packet"]
            session = MysqlSession(connection.cursor(), _STATEMENTS, self.shard_id, locking=writes, max_packet=packet)
            result = step(session, *arguments)
            committing = writes
            connection.commit()
        except BaseException as error:
            self._pool.put_back_after(connection, error)
            ours = self._pool.mapped(error, committing=committing)
            if ours is None:
                raise
            raise ours from error
        self._pool.put_back(connection)
        return result
