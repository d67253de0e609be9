"""The overflow shard as its owner has it: the file open, and served to other processes and servers."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import structlog

from pinlater.client.address import Address
from pinlater.errors import PinLaterError
from pinlater.overflow import notice
from pinlater.overflow.kept import Kept
from pinlater.overflow.rules import Surroundings
from pinlater.server.thrift_server import ThriftServer

_log = structlog.get_logger("pinlater.overflow")

STORE = "overflow.db"
_EVERYWHERE = ("0.0.0.0", "::", "")
_END_WITHIN_S = 1.0


class Owned:
    """Made by `own`; closed once."""

    def __init__(self, folder: Path, shard_id: str, kept: Kept, server: ThriftServer, port: int, since_ms: int) -> None:
        self.kept = kept
        self.port = port
        self.since_ms = since_ms
        self._folder = folder
        self._file = str((folder / STORE).absolute())
        self._shard_id = shard_id
        self._server = server

    async def close(self) -> None:
        """Others are served no more; says how many jobs are left."""
        notice.take_down(self._folder)
        await self._server.drain(None, _END_WITHIN_S)
        await self._say_left()
        await self.kept.close()

    async def _say_left(self) -> None:
        kept = self.kept
        try:
            await kept.count_jobs()
        except PinLaterError as error:
            _log.warning("overflow_not_counted", shard=self._shard_id, error=error.message)
        if kept.waiting or kept.in_progress:
            _log.warning(
                "overflow_left",
                jobs=kept.waiting,
                in_progress=kept.in_progress,
                file=self._file,
                server=self._shard_id[1:],
            )


async def own(folder: Path, shard_id: str, bound: int, around: Surroundings, host: str) -> Owned:
    """For who has the lock: open the file, and serve it at a free port of the host. PinLaterError, OSError."""
    kept = Kept(folder / STORE, shard_id, bound, around)
    await kept.open()
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        connections = max(16, around.limits.max_connections // 4)
        server = ThriftServer(kept, replace(around.limits, drain_linger_s=0.0, max_connections=connections))
        with socket.create_server((host, 0), family=family) as listener:
            port: int = listener.getsockname()[1]
            await server.start(listener)
        notice.put_up(folder, str(Address(_reachable(host), port)))
    except BaseException:
        await kept.close()
        raise
    _log.info("overflow_owned", shard=shard_id, jobs=kept.waiting, in_progress=kept.in_progress)
    return Owned(folder, shard_id, kept, server, port, around.clock.now_ms())


def _reachable(host: str) -> str:
    """Where this machine reaches what listens there."""
    return ("::1" if ":" in host else "127.0.0.1") if host in _EVERYWHERE else host
