"""The composition root: from a configuration to objects, the only file that imports every part.

    Coalescing(Guarded(backend)) per shard -> Members -> Router -> Service -> ThriftServer, and Maintenance

`python -m pinlater.app FD` is a worker process of `pinlater serve`.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from pinlater.backends.base import Shard
from pinlater.clock import SystemClock
from pinlater.config import Config, StoreConfig, from_plain, to_plain
from pinlater.errors import PinLaterError, StoreRefused
from pinlater.identity import RecordBroken, forget, known_stores, remember
from pinlater.logs import configure
from pinlater.maintenance import Maintenance, MaintenanceSettings
from pinlater.server import process
from pinlater.server.generation import Plan
from pinlater.server.limits import ServerLimits
from pinlater.server.process import HandOver, StartRefused
from pinlater.server.supervisor import ServeRefused
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
    "mysql+mysqldb": ("pinlater.backends.sql.mysql", "MysqlShard", "mysql"),
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


# -- before the processes start ----------------------------------------------------------------------------------------


async def make_plan(config: Config, accept_new_stores: Sequence[str]) -> Plan:
    """Look at the stores, compare them with the record in the data folder, and say what to run. ServeRefused."""
    folder = data_folder(config)
    known = _known(folder, accept_new_stores)
    resolved, stores = await _looked_at(config, known)
    _remember(folder, stores)
    return Plan(
        host=config.host,
        port=config.port,
        processes=config.processes or 1,
        command=[sys.executable, "-P", "-m", "pinlater.app"],
        payload={
            "config": to_plain(resolved),
            "known": {**known, **stores},
            "drain_timeout_ms": config.drain_timeout_ms,
        },
        drain_timeout_ms=config.drain_timeout_ms,
        facts={"shards": {store.id: store.masked() for store in resolved.stores}, "processes": config.processes},
    )


def data_folder(config: Config) -> Path:
    return Path(config.data).expanduser()


async def _looked_at(config: Config, known: Mapping[str, str]) -> tuple[Config, dict[str, str]]:
    """The configuration with the ids that the stores say, and the store behind each id that answers. ServeRefused."""
    try:
        shards = members(config, known)
        await shards.open()
    except (StartRefused, PinLaterError) as refused:
        raise ServeRefused(_refusal(refused)) from refused
    try:
        ids = [member.shard.shard_id for member in shards.all]
        stores = shards.store_ids()
    finally:
        await shards.close()
    if not stores:
        raise ServeRefused(await _why_unreachable(config.stores[0]))
    return replace(config, stores=_named(config, ids)), stores


async def _why_unreachable(store: StoreConfig) -> str:
    """The reason, when no store can be reached."""
    shard = backend(store)
    try:
        await shard.open()
    except PinLaterError as error:
        return f"no store can be reached; {store.masked()}: {error.message}"
    finally:
        await shard.close()
    return f"no store could be reached, but {store.masked()} can now: try again"


def _named(config: Config, ids: Sequence[str]) -> tuple[StoreConfig, ...]:
    """The stores with the ids that they turned out to have."""
    return tuple(
        replace(store, id=shard_id, dequeue_only=store.dequeue_only or shard_id in config.dequeue_only)
        for store, shard_id in zip(config.stores, ids, strict=True)
    )


def _refusal(error: Exception) -> str:
    if isinstance(error, StoreRefused):
        return f"{error.message}; where a store was replaced on purpose, start once with --accept-new-store SHARD"
    return str(error)


def _known(folder: Path, accept_new_stores: Sequence[str]) -> dict[str, str]:
    """What the record says. ServeRefused: it is broken."""
    try:
        if accept_new_stores:
            forget(folder, accept_new_stores)
        return known_stores(folder)
    except RecordBroken as broken:
        raise ServeRefused(str(broken)) from broken
    except OSError as error:
        log.warning("store_record_not_read", folder=str(folder), reason=error.strerror)
        return {}


def _remember(folder: Path, stores: Mapping[str, str]) -> None:
    """Only a warning where it cannot be: a server on Redis or MySQL may run in a folder that it cannot write."""
    try:
        remember(folder, stores)
    except OSError as error:
        log.warning("store_record_not_written", folder=str(folder), reason=error.strerror)


# -- a worker process --------------------------------------------------------------------------------------------------


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
        _remember(self._folder, self._shards.store_ids())
        await self._service.close()


async def build(payload: dict[str, Any]) -> App:
    """What a worker process serves. StartRefused."""
    config = from_plain(payload["config"])
    configure(config.log_level, config.log_format, worker=os.getpid())
    app = App(config, payload["known"])
    await app.open()
    return app


if __name__ == "__main__":
    process.main(int(sys.argv[1]), build)
