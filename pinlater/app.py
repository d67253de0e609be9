"""The composition root: from a configuration to objects, the only file that imports every part.

    Coalescing(Guarded(backend)) per shard -> Members -> Router -> Service -> ThriftServer, and Maintenance

`python -m pinlater.app FD` is a worker process of `pinlater serve`.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from pinlater.backends.base import Shard
from pinlater.clock import SystemClock
from pinlater.config import Config, StoreConfig, from_plain
from pinlater.errors import PinLaterError
from pinlater.identity import RecordBroken, remember
from pinlater.logs import configure
from pinlater.maintenance import Maintenance, MaintenanceSettings
from pinlater.server import process
from pinlater.server.limits import ServerLimits
from pinlater.server.process import HandOver, StartRefused
from pinlater.server.thrift_server import ThriftServer
from pinlater.service import ClaimNames, Service, ServiceSettings
from pinlater.shards.calls import GuardSettings
from pinlater.shards.coalesce import Coalescing
from pinlater.shards.guard import Guarded
from pinlater.shards.member import Member
from pinlater.shards.members import Members
from pinlater.shards.router import Router

log = structlog.get_logger("pinlater.app")
ANSWER_MARGIN_BYTES = 64 * 1024
"""What an answer may have around its bodies: the service counts less than the frame's bound."""

DRIVERS = {
    "sqlite": ("pinlater.backends.sql.sqlite", "SqliteShard", "server"),
    "redis": ("pinlater.backends.redis.shard", "RedisShard", "redis"),
    "rediss": ("pinlater.backends.redis.shard", "RedisShard", "redis"),
    "mysql+pymysql": ("pinlater.backends.sql.mysql", "MysqlShard", "mysql"),
    "mysql+mysqldb": ("pinlater.backends.sql.mysql", "MysqlShard", "mysqldb"),
}
"""By the scheme of a store's URL: where its shard lives, and which extra brings what it imports."""


def backend(store: StoreConfig) -> Shard:
    """The bare shard of a store. StartRefused: its driver is not installed, or its URL is not one."""
    module, name, extra = DRIVERS[store.url.partition(":")[0]]
    try:
        shard: Shard = getattr(importlib.import_module(module), name)(store.url, store.id)
    except ModuleNotFoundError as missing:
        raise StartRefused(
            f"{store.masked()} needs the Python package {missing.name}: pip install 'pinlater[{extra}]'"
        ) from missing
    except PinLaterError as error:
        raise StartRefused(f"{store.masked()}: {error.message}") from error
    return shard


def members(config: Config, known: Mapping[str, str]) -> Members:
    """The shards of a configuration, each with its chain, not yet opened. StartRefused."""
    clock = SystemClock()
    guard = GuardSettings(
        deadline_ms=config.call_timeout_ms, max_running=config.max_calls, max_waiting=config.max_waiting_calls
    )
    chains = [
        Member(Coalescing(Guarded(backend(store), guard)), clock, dequeue_only=store.dequeue_only)
        for store in config.stores
    ]
    return Members(chains, clock, known_stores=known)


def service_settings(config: Config) -> ServiceSettings:
    return ServiceSettings(
        num_priority_levels=config.priorities,
        max_jobs=config.max_jobs,
        max_body_bytes=config.max_body_bytes,
        max_answer_bytes=max(config.max_frame_bytes - ANSWER_MARGIN_BYTES, config.max_frame_bytes // 2),
        claim_timeout_ms=config.claim_timeout_ms,
        max_claim_timeout_ms=config.max_claim_timeout_ms,
        succeeded_ttl_ms=config.succeeded_ttl_ms,
        failed_ttl_ms=config.failed_ttl_ms,
        admin_password_hash=config.admin_password_hash,
        max_wait_ms=config.max_wait_ms,
        max_waiters=config.max_waiters,
        long_call_ms=config.long_call_timeout_ms,
    )


def maintenance_settings(config: Config) -> MaintenanceSettings:
    return MaintenanceSettings(
        interval_ms=config.maintenance_interval_ms,
        succeeded_ttl_ms=config.succeeded_ttl_ms,
        failed_ttl_ms=config.failed_ttl_ms,
        crash_budget=config.crash_budget,
        clock_tolerance_ms=config.clock_tolerance_ms,
    )


def server_limits(config: Config) -> ServerLimits:
    return ServerLimits(
        max_frame_bytes=config.max_frame_bytes,
        max_unframed_bytes=config.max_unframed_bytes,
        max_connections=config.max_connections,
        max_frames_in_flight=config.max_frames_in_flight,
        max_buffered_bytes=config.max_buffered_bytes,
        idle_timeout_s=config.idle_timeout_ms / 1000,
        half_sent_timeout_s=config.half_sent_timeout_ms / 1000,
        write_timeout_s=config.write_timeout_ms / 1000,
        drain_linger_s=config.drain_linger_ms / 1000,
        max_container=config.max_container,
        max_steps=config.max_steps,
    )


class App:
    """A server with everything behind it: built, opened, and stopped in order."""

    def __init__(self, config: Config, known: Mapping[str, str]) -> None:
        clock = SystemClock()
        self._folder = data_folder(config)
        self._shards = shards = members(config, known)
        claims = ClaimNames(socket.gethostname(), os.getpid(), clock.now_ms())
        self._service = Service(Router(shards), clock, claims, service_settings(config))
        self._maintenance = Maintenance(shards, clock, maintenance_settings(config), self._service.wake)
        self._server = ThriftServer(self._service, server_limits(config))

    async def open(self) -> None:
        """Open what can be opened of the shards, and begin. StartRefused."""
        try:
            await self._service.open()
        except PinLaterError as refused:
            raise StartRefused(refused.message) from refused
        await self._server.start()
        self._maintenance.start()

    def adopt(self, connection: socket.socket) -> None:
        self._server.adopt(connection)

    async def drain(self, hand_over: HandOver | None, timeout_s: float) -> None:
        await self._server.drain(hand_over, timeout_s)

    async def close(self) -> None:
        await self._maintenance.close()
        note_stores(self._folder, self._shards.store_ids())
        await self._service.close()


def data_folder(config: Config) -> Path:
    return Path(config.data).expanduser()


def note_stores(folder: Path, stores: Mapping[str, str]) -> None:
    """Put the shards on record; with a warning where that cannot be, since only an embedded server needs the folder."""
    try:
        remember(folder, stores)
    except (OSError, RecordBroken) as error:
        log.warning("store_record_not_written", folder=str(folder), reason=str(error))


async def build(payload: dict[str, Any]) -> App:
    """What a worker process serves. StartRefused."""
    config = from_plain(payload["config"])
    configure(config.log_level, config.log_format, worker=os.getpid())
    app = App(config, payload["known"])
    await app.open()
    return app


if __name__ == "__main__":
    process.main(int(sys.argv[1]), build)
