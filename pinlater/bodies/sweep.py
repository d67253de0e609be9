"""The sweep: objects that no job refers to are found, and deleted.

The references of a shard are read first, then the objects that lie under the id of its store. What is older than
`orphan_age_ms`, by its name and by its tier, and is not among them belongs to no job: a job comes to its object within
minutes, and a reference that wanders inside its shard is found wherever it is. A shard that is out, or fails in the
middle, is left alone with all its objects.
"""

from __future__ import annotations

import json
import secrets
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog

from pinlater.backends.base import KvEntry
from pinlater.background_tasks import BackgroundTasks
from pinlater.bodies.tier import StoredObject, Tier
from pinlater.bodies.tiered_shard import TieredShard
from pinlater.bodies.tiers import Tiers, object_name
from pinlater.clock import Clock
from pinlater.errors import ContinuationInvalid, PinLaterError
from pinlater.metrics import Metrics
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet
from pinlater.stored_json import read_stored

_log = structlog.get_logger("pinlater.bodies")

NAMESPACE = "bodies"
PAGE = 1_000
EVERY_MS = 86_400_000
"""How often each shard is swept by itself."""

_KEPT_MS = 3 * EVERY_MS
_RUN_KEPT_MS = 60_000
"""How long the progress of a run stands that nobody writes any more: its process is gone."""

_PROGRESS_EVERY_MS = 500
_MOST_PROBLEMS = 20


@dataclass(slots=True)
class TierCounts:
    """The objects of one shard in one tier, as a sweep found them. `orphans` were deleted, but by a dry run."""

    bodies: int = 0
    bytes: int = 0
    orphans: int = 0


@dataclass(slots=True)
class SweepProgress:
    """How far a run is: objects looked at, orphans and their bytes, and those deleted."""

    looked_at: int = 0
    found: int = 0
    done: int = 0
    bytes: int = 0
    has_ended: bool = False
    troubles: list[str] = field(default_factory=list)

    def add_problem(self, text: str) -> None:
        if len(self.troubles) < _MOST_PROBLEMS:
            self.troubles.append(text)


class Sweeper:
    """The sweeps of one process."""

    def __init__(
        self, tiers: Tiers, members: ShardSet, clock: Clock, metrics: Metrics, orphan_age_ms: int = EVERY_MS
    ) -> None:
        self._tiers = tiers
        self._members = members
        self._clock = clock
        self._metrics = metrics
        self._orphan_age_ms = orphan_age_ms
        self._tasks = BackgroundTasks()
        self._runs: dict[str, SweepProgress] = {}

    async def close(self) -> None:
        await self._tasks.cancel()

    # -- by itself ----------------------------------------------------------------------------------------------------

    async def look(self, owns: Callable[[str], bool]) -> None:
        """Sweep the shards of this process that were not swept for a day."""
        for handle in self._members.healthy():
            shard_id, now_ms = handle.shard.shard_id, self._clock.now_ms()
            if not owns(shard_id):
                continue
            try:
                swept = (await handle.shard.kv_list(NAMESPACE, now_ms)).get("swept")
                if swept is not None and now_ms - _swept_at_ms(swept) < EVERY_MS:
                    continue
                progress = SweepProgress()
                await self.sweep(handle, progress)
            except PinLaterError as error:
                _log.warning("sweep_interrupted", shard=shard_id, error=error.message)
                continue
            if progress.found:
                _log.info("bodies_swept", shard=shard_id, objects=progress.looked_at, orphans=progress.done)

    # -- by command ---------------------------------------------------------------------------------------------------

    def begin(self, *, only_tier: str = "", dry_run: bool = False, store: str = "") -> str:
        """Begin a run over all shards, beside the calls; its name."""
        run = secrets.token_hex(8)
        progress = self._runs[run] = SweepProgress()
        self._tasks.start(self._run(run, progress, only_tier, dry_run, store))
        return run

    async def progress(self, run: str) -> SweepProgress:
        """Of a run that any process of the cluster began. ContinuationInvalid: it is gone."""
        here = self._runs.get(run)
        if here is not None:
            if here.has_ended:
                del self._runs[run]
            return here
        for handle in self._members.healthy():
            entry = (await handle.shard.kv_list(NAMESPACE, self._clock.now_ms())).get(run)
            if entry is not None:
                return SweepProgress(**read_stored(entry.body))
        raise ContinuationInvalid("this sweep has ended, or its server process is gone: begin it again")

    async def _run(self, run: str, progress: SweepProgress, only_tier: str, dry_run: bool, store: str) -> None:
        try:
            if store:
                await self._remove_store(run, progress, only_tier, dry_run, store)
            for handle in () if store else self._members.all:
                if not handle.is_healthy:
                    progress.add_problem(f"shard {handle.shard.shard_id} is out: none of its objects was examined")
                    continue
                try:
                    await self.sweep(handle, progress, run=run, only_tier=only_tier, dry_run=dry_run)
                except PinLaterError as error:
                    progress.add_problem(f"shard {handle.shard.shard_id}: {error.message}")
        finally:
            progress.has_ended = True
            await self._tell(run, progress)

    async def _tell(self, run: str, progress: SweepProgress) -> None:
        now_ms = self._clock.now_ms()
        for handle in self._members.healthy()[:1]:
            try:
                await handle.shard.kv_put(
                    NAMESPACE, run, json.dumps(asdict(progress)).encode(), now_ms + _RUN_KEPT_MS, now_ms
                )
            except PinLaterError as error:
                _log.info("sweep_not_told", error=error.message)

    # -- one shard ----------------------------------------------------------------------------------------------------

    async def sweep(
        self,
        handle: ShardHandle,
        progress: SweepProgress,
        *,
        run: str = "",
        only_tier: str = "",
        dry_run: bool = False,
    ) -> None:
        """Each tier against the references of the shard. TierUnavailable, and the errors of the shard."""
        shard = handle.shard
        assert isinstance(shard, TieredShard)
        held = await _ids_of_references(shard)
        counts: dict[str, TierCounts] = {}
        for tier in self._tiers.all.values():
            if only_tier in ("", tier.name):
                counts[tier.name] = await self._sweep_tier(tier, f"{shard.store_id}/", held, progress, run, dry_run)
        if not only_tier:
            await self._keep(shard, counts, is_done=not dry_run)

    async def count(self, shard: TieredShard) -> dict[str, TierCounts]:
        """What lies in each tier for this shard now. TierUnavailable."""
        held = await _ids_of_references(shard)
        return {
            tier.name: await self._sweep_tier(tier, f"{shard.store_id}/", held, SweepProgress(), "", True)
            for tier in self._tiers.all.values()
        }

    async def _sweep_tier(
        self, tier: Tier, prefix: str, held: Sequence[int] | None, progress: SweepProgress, run: str, dry_run: bool
    ) -> TierCounts:
        """`held` None: no object is."""
        counts = TierCounts()
        reported_ms = self._clock.now_ms()
        async for page in tier.pages(prefix):
            counts.bodies += len(page)
            counts.bytes += sum(each.size for each in page)
            orphans = [each for each in page if self._is_orphan(each, held)]
            progress.looked_at += len(page)
            progress.found += len(orphans)
            progress.bytes += sum(each.size for each in orphans)
            counts.orphans += len(orphans)
            if orphans and not dry_run:
                await tier.delete([each.path for each in orphans])
                progress.done += len(orphans)
                counts.bodies -= len(orphans)
                counts.bytes -= sum(each.size for each in orphans)
                self._metrics.add(len(orphans), "bodies_deleted", tier.name)
            now_ms = self._clock.now_ms()
            if run and now_ms - reported_ms >= _PROGRESS_EVERY_MS:
                reported_ms = now_ms
                await self._tell(run, progress)
        return counts

    def _is_orphan(self, each: StoredObject, held: Sequence[int] | None) -> bool:
        name = object_name(each.path)
        if name is None or held is None:
            return name is not None
        old_ms = self._clock.now_ms() - self._orphan_age_ms
        if max(name.stored_at_ms, each.modified_ms) > old_ms:
            return False
        place = bisect_left(held, name.id)
        return place == len(held) or held[place] != name.id

    async def _keep(self, shard: TieredShard, counts: dict[str, TierCounts], *, is_done: bool) -> None:
        """For `status`, and so that the next one comes in a day."""
        now_ms = self._clock.now_ms()
        name = "swept" if is_done else "counted"
        kept: dict[str, Any] = {"at_ms": now_ms, "tiers": {tier: asdict(each) for tier, each in counts.items()}}
        await shard.kv_put(NAMESPACE, name, json.dumps(kept).encode(), now_ms + _KEPT_MS, now_ms)

    # -- objects of no shard ------------------------------------------------------------------------------------------

    async def strangers(self) -> list[str]:
        """The store ids under which objects lie, and which are no shard's of this configuration."""
        known = set(self._members.store_ids().values())
        found: set[str] = set()
        for tier in self._tiers.all.values():
            try:
                found.update(await tier.children())
            except PinLaterError:
                continue
        return sorted(found - known)

    async def _remove_store(self, run: str, progress: SweepProgress, only_tier: str, dry_run: bool, store: str) -> None:
        try:
            for tier in self._tiers.all.values():
                if only_tier in ("", tier.name):
                    await self._sweep_tier(tier, f"{store}/", None, progress, run, dry_run)
        except PinLaterError as error:
            progress.add_problem(error.message)


def _swept_at_ms(entry: KvEntry) -> int:
    """When a shard was swept; 0, long ago, where another version says it otherwise."""
    try:
        return int(read_stored(entry.body)["at_ms"])
    except (ValueError, LookupError, TypeError):
        return 0


async def _ids_of_references(shard: TieredShard) -> Sequence[int]:
    """In order. Eight bytes of memory each."""
    ids, after = array("Q"), ""
    while True:
        page = await shard.list_references(after, PAGE)
        ids.extend(int(reference.parts.id, 16) for reference in page.references)
        after = page.continuation
        if not after:
            break
    return array("Q", sorted(ids))
