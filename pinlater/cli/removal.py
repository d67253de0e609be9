"""May a shard be taken out of the configuration of a server that runs? Only one that is drained."""

from __future__ import annotations

from pinlater.backends.base import ConfigEntry, Shard
from pinlater.chains import backend
from pinlater.clock import SystemClock
from pinlater.config import Config, StoreConfig
from pinlater.errors import PinLaterError
from pinlater.model import JobState
from pinlater.queues.directory import SHARD_PREFIX, is_dequeue_only
from pinlater.server.process import StartRefused
from pinlater.server.supervisor import ServeRefused
from pinlater.settings_map import guard_settings
from pinlater.shards.resilience import ResilientShard

_PAGE = 1_000


async def refuse_undrained(store: StoreConfig, config: Config) -> None:
    """Look at the store of a shard that is to go. ServeRefused, with what to do."""
    try:
        shard = ResilientShard(backend(store), guard_settings(config))
        try:
            await shard.open()
            records = await _records(shard)
            jobs = await _jobs(shard, records, range(1, config.priorities + 1))
        finally:
            await shard.close()
    except (StartRefused, PinLaterError) as error:
        raise ServeRefused(
            f"shard {store.id} cannot be removed now: what it holds is not known: {error}; if it is lost, stop the "
            f"server and start it once with --forget-shard {store.id}"
        ) from error
    if jobs or _takes_jobs(store, records):
        what = f"holds {jobs} jobs that are pending or in progress" if jobs else "still takes new jobs"
        raise ServeRefused(
            f"shard {store.id} cannot be removed now: it {what}; first let workers empty it (`pinlater shard drain "
            f"{store.id}`, or dequeue-only = true in its table), then remove it, or send SIGHUP to try again"
        )


async def _records(shard: Shard) -> list[ConfigEntry]:
    found: list[ConfigEntry] = []
    revision = 0
    while (page := await shard.list_config(revision, _PAGE)).entries:
        found += page.entries
        revision = page.revision
    return found


async def _jobs(shard: Shard, records: list[ConfigEntry], priorities: range) -> int:
    """PENDING and IN_PROGRESS ones, in all queues."""
    now_ms = SystemClock().now_ms()
    total = 0
    for record in records:
        if record.is_deleted or "@" in record.name:
            continue
        for state in (JobState.PENDING, JobState.IN_PROGRESS):
            for is_future in (False, True):
                total += await shard.count(record.name, state, priorities, is_future, now_ms)
    return total


def _takes_jobs(store: StoreConfig, records: list[ConfigEntry]) -> bool:
    """Neither the configuration nor an operator's command made it dequeue-only."""
    ordered = any(each.name == SHARD_PREFIX + store.id and is_dequeue_only(each) for each in records)
    return not (store.dequeue_only or ordered)
