"""Maintenance of shards after the homes of keys changed: barriers are lifted, windows go to the new homes, and a shard
that takes no new jobs is emptied of those that are for later.

Three further tasks of maintenance/runner.py; each works on a shard that this process owns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from pinlater.backends.base import Shard
from pinlater.backends.extended import Barrier, KeyWindow
from pinlater.bodies.tiered_shard import TieredShard
from pinlater.clock import Clock
from pinlater.cluster.lease import Lease, ServerName
from pinlater.homes.job_mover import PRIORITIES, JobMover
from pinlater.maintenance.tasks import Summary
from pinlater.service import ClaimTokens
from pinlater.shards.batching import BatchingShard
from pinlater.shards.keys.homes_record import HomeTable
from pinlater.shards.keys.key_router import Homes
from pinlater.shards.router import Router

MANY = 10_000
"""Barriers of one look: those that stand must not hide the others."""

DRAINED_EVERY_MS, OTHERS_EVERY_MS = 2_000, 30_000
"""How often the windows of a shard are looked through, while keys may live at their former homes."""

RECOVERED_EVERY_MS = 60_000
"""How often it is seen whether a mover died with jobs under its claims."""

MOVED_BY = "shard-mover"
_ALL = ""
"""As a queue in the log, for what is no queue's."""


@dataclass(frozen=True, slots=True)
class LiftBarriers:
    """Lets the jobs of a serialize key begin when those on the shard where it lived before have ended. `wake` is told
    the queues whose jobs became eligible.
    """

    name, event = "barriers", "barriers_lifted"

    _router: Router
    _homes: Homes
    _clock: Clock
    _wake: Callable[[str, int], None]

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        table = self._homes.table
        barriers = await shard.list_barriers(MANY) if table is not None else []
        if table is None or not barriers:
            return 0
        free: list[Barrier] = []
        for shard_id in {barrier.shard_id for barrier in barriers}:
            free += await self._free(shard_id, [each for each in barriers if each.shard_id == shard_id], table)
        if not free:
            return 0
        now_ms = self._clock.now_ms()
        for queue, run_afters in (await shard.lift_barriers(free, now_ms)).items():
            summary.add(queue, "lifted", len(run_afters))
            if ready := sum(run_after_ms <= now_ms for run_after_ms in run_afters):
                self._wake(queue, ready)
        return len(free)

    async def _free(self, shard_id: str, barriers: Sequence[Barrier], table: HomeTable) -> Sequence[Barrier]:
        """Those that no live job of their keys stands behind any more."""
        if shard_id in table.record.gone:
            return barriers
        handle = self._router.members.by_id(shard_id)
        if handle is None or not handle.is_healthy:
            return ()
        live = await handle.shard.has_chains([barrier.serialize_key for barrier in barriers])
        return [barrier for barrier, is_live in zip(barriers, live, strict=True) if not is_live]


@dataclass(slots=True)
class _Round:
    """A look through the windows of one shard: by which record, how far it is, when it ended."""

    version: str
    after: str = ""
    ended_ms: int | None = None


class MoveWindows:
    """Takes windows of keys to their homes."""

    name, event = "windows", "key_windows_moved"

    def __init__(self, router: Router, homes: Homes, clock: Clock) -> None:
        self._router = router
        self._homes = homes
        self._clock = clock
        self._rounds: dict[str, _Round] = {}

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        table, now_ms = self._homes.table, self._clock.now_ms()
        if table is None or table.record.is_opening or not self._may_have_some(shard.shard_id, table):
            return 0
        at = self._rounds.get(shard.shard_id)
        if at is None or at.version != table.version:
            at = self._rounds[shard.shard_id] = _Round(table.version)
        if at.ended_ms is not None:
            every_ms = OTHERS_EVERY_MS if table.takes_jobs(shard.shard_id) else DRAINED_EVERY_MS
            if 0 <= now_ms - at.ended_ms < every_ms:
                return 0
            at.after, at.ended_ms = "", None
        windows = await shard.list_windows(limit, at.after, now_ms)
        if moved := await self._move(shard, windows, table, now_ms):
            summary.add(_ALL, "moved", moved)
        if windows:
            at.after = windows[-1].name
        else:
            at.ended_ms = now_ms
        return len(windows)

    @staticmethod
    def _may_have_some(shard_id: str, table: HomeTable) -> bool:
        return any(shard_id in members for members in table.record.before)

    async def _move(self, shard: Shard, windows: Sequence[KeyWindow], table: HomeTable, now_ms: int) -> int:
        """Each is at both shards for a moment, never at none."""
        groups: dict[str, list[KeyWindow]] = {}
        for window in windows:
            home = table.places(window.slot).home
            if home != shard.shard_id:
                groups.setdefault(home, []).append(window)
        moved = 0
        for home, group in groups.items():
            handle = self._router.members.by_id(home)
            if handle is not None and handle.is_healthy:
                await handle.shard.put_windows(group, now_ms)
                await shard.drop_windows(group)
                moved += len(group)
        return moved


class EmptyShard:
    """Takes jobs that are not due soon from a shard that takes no new ones."""

    name, event = "empty", "shard_emptied"

    def __init__(
        self,
        router: Router,
        homes: Homes,
        clock: Clock,
        me: ServerName,
        queues: Callable[[], Collection[str]],
        alive: Callable[[], Iterable[Lease]],
    ) -> None:
        """`queues`: those that there are; `alive`: the processes."""
        self._router = router
        self._homes = homes
        self._clock = clock
        self._tokens = ClaimTokens(f"{MOVED_BY}-{me.server}", me.process, me.started_ms)
        self._me = me
        self._queues = queues
        self._alive = alive
        self._movers: dict[str, JobMover] = {}
        self._checked_ms: dict[str, int] = {}
        self._recovered_ms: dict[str, int] = {}

    async def step(self, shard: Shard, limit: int, summary: Summary) -> int:
        now_ms = self._clock.now_ms()
        shard_id = shard.shard_id
        mover = self._movers.get(shard_id)
        if not self._is_to_be_emptied(shard_id):
            if mover is not None:
                await mover.settle()
                if mover.is_settled:
                    del self._movers[shard_id]
            return 0
        if 0 <= now_ms - self._checked_ms.get(shard_id, 0) < DRAINED_EVERY_MS:
            return 0
        self._checked_ms[shard_id] = now_ms
        if mover is None:
            mover = JobMover(_unjoined(shard), self._router, self._clock, self._tokens, leaving=shard_id)
            await mover.recover(sorted(self._queues()), lambda claim: self._is_orphan(claim, is_first=True))
            self._movers[shard_id], self._recovered_ms[shard_id] = mover, now_ms
        elif not 0 <= now_ms - self._recovered_ms[shard_id] < RECOVERED_EVERY_MS:
            await mover.recover(sorted(self._queues()), self._is_orphan)
            self._recovered_ms[shard_id] = now_ms
        due = await shard.next_due(sorted(self._queues()), PRIORITIES)
        mover.holding = {queue: 1 for queue, due_ms in due.items() if due_ms is not None}
        if mover.can_move() and (moved := await mover.move()):
            summary.add(_ALL, "moved", moved)
        return 0  # it has gone on for as long as there was something

    def _is_to_be_emptied(self, shard_id: str) -> bool:
        """Not before keys have their homes elsewhere."""
        handle, table = self._router.members.by_id(shard_id), self._homes.table
        if handle is None or not handle.dequeue_only:
            return False
        return table is None or not (table.takes_jobs(shard_id) or table.record.is_opening)

    def _is_orphan(self, claim: str, *, is_first: bool = False) -> bool:
        """A claim of a mover whose process is gone; `is_first`: or of this process, which moves nothing there yet."""
        if not claim.startswith(f"{MOVED_BY}-"):
            return False
        server, process, started_ms, *_ = claim.removeprefix(f"{MOVED_BY}-").split(":")
        if is_first and (server, process) == (self._me.server, self._me.process):
            return True
        return all(
            (lease.server, lease.process, str(lease.started_ms)) != (server, process, started_ms)
            for lease in self._alive()
        )


def _unjoined(shard: Shard) -> Shard:
    """The same shard, but for that its claims are joined with no others."""
    if isinstance(shard, TieredShard):
        return shard.over(_unjoined(shard.inner))
    return shard.inner if isinstance(shard, BatchingShard) else shard
