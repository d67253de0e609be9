"""The maximum of a queue's jobs in progress, over all shards: each has a quota of it, and the store keeps to that.

One allocation per queue says how many claims may be alive on each shard at most; its sum is the maximum or less. The
quota of a shard is never above what the allocation says, whatever stops between any two steps: a quota is taken back
first, then the allocation is replaced, and only then another quota grows. Every step carries the allocation's next
version, and a shard refuses a version that is not above its own. So a late step of a process that has lost the race
for the allocation does nothing.

A store can lose its last changes: then quotas are of versions that the allocation has not come to, and would refuse
each step of it. It is written anew by what all shards have, which are all needed for that.

A shard that is out keeps what the allocation says of it. While the shard that keeps the allocation is out, all quotas
stand. The process that owns this shard works on the queue; two at once do no harm.

Jobs that wait on a shard without a free quota are seen by the next run: after 200 ms where something moves, after a
second where nothing did.

The allocation is one key-value entry per queue, on the shard that rendezvous hashing picks. Which shard that is depends
on the shards there are, so it can change while servers still differ about them. Then the allocation is retired where it
was, before a new one is written: a process that still writes to the old one loses the race. A retired allocation stays
readable for a day, so that a crash between the two leaves something to go on from, and says where it moved to: a server
that does not know that shard yet must not begin another one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from pinlater.backends.base import KvEntry, Quota
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.model import MAX_TIME_MS
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.rebalance import Rebalance
from pinlater.shards.handle import ShardHandle, ask_all
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.shards.shard_set import ShardSet
from pinlater.stored_json import read_stored

_log = structlog.get_logger("pinlater.queues")

_ROTATION_MS = 1_000
"""What cannot be divided among shards goes from one to the next so often."""

_READY_LIMIT = 1_000
_MAX_REST_MS = 1_000
_FIRST_REST_MS = 200
_FORGET_MS = 60_000
"""A shard that is no longer configured keeps its quota so long: servers do not read their configuration all at once."""

KIND = "share"
_KEEP_RETIRED_MS = 86_400_000


class QuotaBalancer:
    """The quotas of all queues, as one process moves them."""

    def __init__(
        self, members: ShardSet, queues: QueueDirectory, clock: Clock, priorities: tuple[int, ...] = (1, 2, 3)
    ) -> None:
        self._members = members
        self._queues = queues
        self._clock = clock
        self._priorities = priorities
        self._rests: dict[str, tuple[int, int]] = {}
        """Per queue: when it is looked at again, and the rest before that."""
        self._unknown_since: dict[tuple[str, str], int] = {}

    async def tick(self, owns: Callable[[str], bool]) -> None:
        """Balance the queues of this process's shards, but those at rest. Raises nothing."""
        if self._members.has_unknown_ids():
            return
        now_ms = self._clock.now_ms()
        due: dict[str, list[str]] = {}
        limited = self._queues.limited()
        for queue in sorted(limited):
            home = self._home(queue)
            if home is None or not home.is_healthy or self._rests.get(queue, (0, 0))[0] > now_ms:
                continue
            if owns(home.shard.shard_id):
                due.setdefault(home.shard.shard_id, []).append(queue)
        for queue in self._rests.keys() - limited:
            del self._rests[queue]
        await asyncio.gather(*[self._balance_all(shard_id, queues) for shard_id, queues in due.items()])

    async def balance(self, queue: str) -> bool:
        """One rebalancing of one queue; whether anything moved. Raises nothing: the next one does better."""
        home = self._home(queue)
        if home is None or not home.is_healthy or self._members.has_unknown_ids():
            return False
        return await self._balance_all(home.shard.shard_id, [queue])

    async def _balance_all(self, shard_id: str, queues: list[str]) -> bool:
        has_moved = False
        home = self._members.by_id(shard_id)
        if home is None:
            return False
        try:
            entries = await home.shard.kv_list(KIND, self._clock.now_ms())
        except PinLaterError as error:
            _log.debug("quotas_not_read", shard=shard_id, error=error.message)
            return False
        for queue in queues:
            moved = False
            try:
                moved = await self._balance(queue, home, entries.get(queue))
            except PinLaterError as error:
                _log.debug("quotas_not_balanced", queue=queue, error=error.message)
            has_moved |= moved
            self._rest(queue, moved)
        return has_moved

    def _rest(self, queue: str, has_moved: bool) -> None:
        """A queue where nothing moves is looked at less and less often."""
        rest_ms = 0 if has_moved else min(_MAX_REST_MS, self._rests.get(queue, (0, 0))[1] * 2 or _FIRST_REST_MS)
        self._rests[queue] = (self._clock.now_ms() + rest_ms, rest_ms)

    def _home(self, queue: str) -> ShardHandle | None:
        """The shard of the queue's allocation."""
        shard_id = rendezvous_pick(queue, [member.shard.shard_id for member in self._members.all])
        return None if shard_id is None else self._members.by_id(shard_id)

    # -- one rebalancing -----------------------------------------------------------------------------------------------

    async def _balance(self, queue: str, home: ShardHandle, entry: KvEntry | None) -> bool:
        maximum = self._queues.settings(queue).max_in_progress
        if maximum is None:
            return False
        seen = await self._read_quotas(queue)
        allocation = read_allocation(entry)
        if allocation is None or allocation.is_retired:
            if allocation is not None and self._may_be_known_soon(queue, allocation.moved_to):
                return False
            allocation = await self._begin(queue, home, seen)
            if allocation is None:
                return False
        if _is_outdated(allocation, seen):
            return await self._write_anew(queue, home, allocation, seen)
        rebalance = Rebalance(maximum, self._known_quotas(queue, allocation), seen)
        waiting = await self._waiting(queue, rebalance)
        rotation = self._clock.now_ms() // _ROTATION_MS
        rebalance.plan(waiting, rotation)
        if allocation.maximum == maximum and not rebalance.is_worth_it():
            return False
        version = allocation.version + 1
        taken = await self._set(queue, rebalance.to_shrink(), version)
        if any(state.version > version for state in taken.values()):
            return False
        rebalance.shrunk(taken)
        rebalance.grow(rotation)
        if not await _write(
            home, queue, replace(allocation, version=version, maximum=maximum, quotas=rebalance.held), self._clock
        ):
            return False
        await self._set(queue, rebalance.to_grow(), version)
        return True

    async def _begin(self, queue: str, home: ShardHandle, seen: Mapping[str, Quota]) -> QuotaAllocation | None:
        """The allocation that a first one starts from: all shards as they are. None where one does not answer: each is
        needed.
        """
        if not self._has_all(seen):
            return None
        allocation = await _retire_elsewhere(home, self._members.all, queue, self._clock)
        if allocation is None:
            return None
        return replace(allocation, version=max(allocation.version, *(state.version for state in seen.values())))

    async def _write_anew(
        self, queue: str, home: ShardHandle, allocation: QuotaAllocation, seen: Mapping[str, Quota]
    ) -> bool:
        """An allocation in place of an outdated one: each shard holds what either says. False where one does not
        answer, or another process was faster.
        """
        if not self._has_all(seen):
            return False
        held = {
            shard_id: max(allocation.quotas.get(shard_id, 0), state.quota, state.in_progress)
            for shard_id, state in seen.items()
        }
        version = max(state.version for state in seen.values())
        _log.warning("quotas_ahead_of_allocation", queue=queue, allocation=allocation.version, quotas=version)
        anew = replace(allocation, version=version, maximum=None, quotas={**allocation.quotas, **held})
        return await _write(home, queue, anew, self._clock)

    def _has_all(self, seen: Mapping[str, Quota]) -> bool:
        return all(member.shard.shard_id in seen for member in self._members.all)

    def _known_quotas(self, queue: str, allocation: QuotaAllocation) -> dict[str, int]:
        """The quotas of an allocation, without shards that were removed from the configuration a while ago."""
        return {
            shard_id: quota
            for shard_id, quota in allocation.quotas.items()
            if self._may_be_known_soon(queue, shard_id) or self._members.by_id(shard_id) is not None
        }

    def _may_be_known_soon(self, queue: str, shard_id: str) -> bool:
        """Others know a shard that is not configured here, and that has not been so for long."""
        if not shard_id or self._members.by_id(shard_id) is not None:
            self._unknown_since.pop((queue, shard_id), None)
            return False
        now_ms = self._clock.now_ms()
        return now_ms - self._unknown_since.setdefault((queue, shard_id), now_ms) <= _FORGET_MS

    # -- calls to the shards -----------------------------------------------------------------------------------------

    async def _read_quotas(self, queue: str) -> dict[str, Quota]:
        """The quotas of the shards that answer, by their ids; it changes none."""
        return await self._set(queue, dict.fromkeys([each.shard.shard_id for each in self._members.healthy()], 0), 0)

    async def _set(self, queue: str, quotas: Mapping[str, int], version: int) -> dict[str, Quota]:
        now_ms = self._clock.now_ms()

        async def one(shard_id: str, quota: int) -> Quota | None:
            member = self._members.by_id(shard_id)
            if member is None:
                return None
            try:
                return await member.shard.set_quota(queue, quota, version, now_ms)
            except PinLaterError:
                return None

        answers = await asyncio.gather(*[one(shard_id, quota) for shard_id, quota in quotas.items()])
        return {shard_id: answer for shard_id, answer in zip(quotas, answers, strict=True) if answer is not None}

    async def _waiting(self, queue: str, rebalance: Rebalance) -> dict[str, list[int]]:
        """The ready jobs, by priority, on each shard that can hand out nothing more."""
        full = [member for member in map(self._members.by_id, rebalance.full()) if member is not None]
        limit = min(_READY_LIMIT, rebalance.maximum)
        if not limit:
            return {}
        outcomes = await ask_all(
            full, lambda shard: shard.count_ready(queue, self._priorities, limit, self._clock.now_ms())
        )
        return {
            member.shard.shard_id: outcome
            for member, outcome in zip(full, outcomes, strict=True)
            if not isinstance(outcome, PinLaterError)
        }


@dataclass(frozen=True, slots=True)
class QuotaAllocation:
    """As of `version`, no more than `quotas` claims are alive on each shard. `maximum` is what they were split by;
    `entry_version` that of the entry it was read from (0: there is none); `moved_to` the shard of the
    allocation after a retired one.
    """

    version: int
    maximum: int | None = None
    quotas: dict[str, int] = field(default_factory=dict)
    is_retired: bool = False
    entry_version: int = 0
    moved_to: str = ""

    def body(self) -> bytes:
        words = {
            "version": self.version,
            "maximum": self.maximum,
            "shares": self.quotas,
            "retired": self.is_retired,
            "to": self.moved_to,
        }
        return json.dumps(words).encode()


def _is_outdated(allocation: QuotaAllocation, seen: Mapping[str, Quota]) -> bool:
    """Whether a store lost later ones. Before the next allocation is written, quotas of its version only shrink."""
    return any(
        state.version > allocation.version + 1
        or (state.version > allocation.version and state.quota > allocation.quotas.get(shard_id, 0))
        for shard_id, state in seen.items()
    )


def read_allocation(entry: KvEntry | None) -> QuotaAllocation | None:
    """The allocation that an entry holds; None where there is none, or none that can be understood."""
    if entry is None:
        return None
    try:
        words = read_stored(entry.body)
        quotas = {str(shard): int(quota) for shard, quota in words["shares"].items()}
        is_retired, moved_to = bool(words["retired"]), str(words.get("to", ""))
        return QuotaAllocation(int(words["version"]), words["maximum"], quotas, is_retired, entry.version, moved_to)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


async def _write(member: ShardHandle, queue: str, allocation: QuotaAllocation, clock: Clock) -> bool:
    """Put it in the place of what it was made from; False where another one is there by now."""
    now_ms = clock.now_ms()
    expires_at_ms = now_ms + _KEEP_RETIRED_MS if allocation.is_retired else MAX_TIME_MS
    body, expected = allocation.body(), allocation.entry_version
    return await member.shard.kv_put(KIND, queue, body, expires_at_ms, now_ms, expected_version=expected) > 0


async def _retire_elsewhere(
    home: ShardHandle, members: list[ShardHandle], queue: str, clock: Clock
) -> QuotaAllocation | None:
    """The newest allocation on any shard, with version 0 where there is none; from now on all other shards say that
    it is at home.

    None: another process is faster. Errors are those of the shards, all of which are needed.
    """
    newest = QuotaAllocation(0)
    at_home = 0
    for member in members:
        entries = await member.shard.kv_list(KIND, clock.now_ms())
        entry = entries.get(queue)
        found = read_allocation(entry) or QuotaAllocation(0, entry_version=entry.version if entry else 0)
        if member is home:
            at_home = found.entry_version
        elif not found.is_retired or found.moved_to != home.shard.shard_id:
            retired = replace(found, is_retired=True, moved_to=home.shard.shard_id)
            if not await _write(member, queue, retired, clock):
                return None
        if found.version > newest.version:
            newest = found
    return replace(newest, maximum=None, is_retired=False, entry_version=at_home, moved_to="")
