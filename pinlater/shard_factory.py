"""The shards of a configuration, each with its chain: BatchingShard(ResilientShard(the store's own)), and outermost
TieredShard where bodies have tiers.

A supervisor looks at the stores with it, so it imports no part that only a server process has.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from pinlater.backends.base import Shard
from pinlater.beat import Beat
from pinlater.clock import Clock, SystemClock
from pinlater.config import Config, StoreConfig
from pinlater.data_folder.identity import RecordBroken, remember
from pinlater.errors import PinLaterError, install_command
from pinlater.metrics import Metrics
from pinlater.server.server_process import StartRefused
from pinlater.shards.batching import BatchingShard
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.health import HealthSettings
from pinlater.shards.resilience import ResilientShard
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.app")
DRIVERS = {
    "sqlite": ("pinlater.backends.sql.sqlite", "SqliteShard", "server"),
    "redis": ("pinlater.backends.redis.shard", "RedisShard", "redis"),
    "rediss": ("pinlater.backends.redis.shard", "RedisShard", "redis"),
    "redis+sentinel": ("pinlater.backends.redis.shard", "RedisShard", "redis"),
    "rediss+sentinel": ("pinlater.backends.redis.shard", "RedisShard", "redis"),
    "redis+cluster": ("pinlater.backends.redis.shard", "RedisShard", "redis"),
    "rediss+cluster": ("pinlater.backends.redis.shard", "RedisShard", "redis"),
    "mysql+pymysql": ("pinlater.backends.sql.mysql", "MysqlShard", "mysql"),
    "mysql+mysqldb": ("pinlater.backends.sql.mysql", "MysqlShard", "mysqldb"),
    "dynamodb": ("pinlater.backends.dynamodb", "DynamodbShard", "dynamodb"),
    "postgresql+psycopg": ("pinlater.backends.sql.postgres", "PostgresShard", "postgresql"),
}
"""By the scheme of a store's URL: where its shard lives, and which extra brings what it imports."""


def guard_settings(config: Config) -> BulkheadSettings:
    return BulkheadSettings(
        deadline_ms=config.call_timeout_ms, max_running=config.max_calls, max_waiting=config.max_waiting_calls
    )


def health_settings(config: Config) -> HealthSettings:
    return HealthSettings(window=config.health_window, min_good=config.health_min_good, pause_ms=config.health_pause_ms)


def bare_shard(store: StoreConfig, *, for_transfer: bool = False) -> Shard:
    """The bare shard of a store. StartRefused: its driver is not installed, or its URL is not one.

    `for_transfer`: it also opens a store that is no server's to open, and waits for statements over all that there is.
    """
    module, name, extra = DRIVERS[store.url.partition(":")[0]]
    try:
        kind = getattr(importlib.import_module(module), name)
        options = getattr(kind, "TRANSFER_OPTIONS", {}) if for_transfer else {}
        shard: Shard = kind(store.url, store.id, **options)
    except ModuleNotFoundError as missing:
        raise StartRefused(
            f"{store.masked()} needs the Python package {missing.name}: {install_command(extra)}"
        ) from missing
    except PinLaterError as error:
        raise StartRefused(f"{store.masked()}: {error.message}") from error
    if for_transfer:
        shard.opens_marked = True  # type: ignore[attr-defined]  # whatever has a transfer has it
    return shard


def shard_set(
    config: Config,
    known: Mapping[str, str],
    metrics: Metrics | None = None,
    clock: Clock | None = None,
    steady: Clock | None = None,
    outermost: Callable[[Shard], Shard] | None = None,
    beat: Beat | None = None,
) -> ShardSet:
    """The shards of a configuration, each with its chain, not yet opened. StartRefused. `outermost` wraps each chain;
    `beat` is that of the process.

    Claims go by `clock`; pauses, and the skews of the stores' clocks, by `steady`, which nobody sets.
    """
    clock, metrics, guard = clock or SystemClock(), metrics or Metrics(), guard_settings(config)
    steady = steady or clock
    wrap = outermost or (lambda shard: shard)
    handles = [
        ShardHandle(
            wrap(BatchingShard(ResilientShard(bare_shard(store), guard, clock, metrics))),
            steady,
            dequeue_only=store.dequeue_only,
            health=health_settings(config),
            store=store.masked(),
        )
        for store in config.stores
    ]
    return ShardSet(handles, steady, known_stores=known, beat=beat)


def data_folder(config: Config) -> Path:
    return Path(config.data).expanduser()


def note_stores(folder: Path, stores: Mapping[str, str], guarded: Sequence[str] = ()) -> None:
    """Put the shards on record; with a warning where that cannot be, since only an embedded server needs the folder."""
    try:
        remember(folder, stores, guarded)
    except (OSError, RecordBroken) as error:
        _log.warning("store_record_not_written", folder=str(folder), reason=str(error))
