"""The spread of groups over shards: on how many each group of a queue waits, as this process has seen it lately.

Each shard keeps turns by itself (backends/group_store.py), so a group with jobs on four shards would get four shares. A
claim says on how many shards a group waits, and each turn costs it so many times as much; a shard counts for its own
part of the group's weight when shards take turns (shard_turns.py). So shares over all shards go by the weights.

Shards are asked beside the claims, at most once in REFRESHED_S for a queue and its priorities, and only where claims of
it come and its jobs have groups. What is seen is no older than that; a group that comes meanwhile counts as one with
jobs on one shard.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from heapq import nlargest

from pinlater.backends.aged_levels import Level, split_levels
from pinlater.backends.requests import GroupSpread
from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import PinLaterError
from pinlater.shards.handle import ShardHandle

REFRESHED_S = 1.0
TRUSTED_S = 5.0
"""A queue without claims for so long is seen anew."""

MOST_NAMED = 100
"""Groups of a priority that a claim names: those with the most weight on further shards."""

_MOST_QUEUES = 1_000
_LEAST_WEIGHT = 0.01

WaitingGroups = Mapping[int, Mapping[str, int]]
"""By priority, the groups that wait on a shard and their weights."""


class SeenSpread:
    """What was seen of a queue at one time."""

    __slots__ = ("_elsewhere", "seen_s", "spread")

    def __init__(self, waiting: Mapping[str, WaitingGroups] | None = None, seen_s: float = 0.0) -> None:
        """`waiting`: by shard id.

        >>> SeenSpread({"1": {1: {"a": 1, "b": 3}}, "2": {1: {"b": 3}}}).spread
        {1: {'b': 2}}
        """
        self.seen_s = seen_s
        self.spread: GroupSpread = {}
        """As a claim has it. Where all groups wait on as many shards nothing is to be said."""

        self._elsewhere: dict[tuple[str, Level], float] = {}
        found = dict(waiting or {})
        for priority in sorted({priority for groups in found.values() for priority in groups}):
            groups_at = {shard: groups[priority] for shard, groups in found.items() if groups.get(priority)}
            shards = Counter(group for groups in groups_at.values() for group in groups)
            if len(set(shards.values())) < 2:
                continue
            weights = {group: weight for groups in groups_at.values() for group, weight in groups.items()}
            several = [group for group, count in shards.items() if count > 1]
            named = nlargest(MOST_NAMED, several, key=lambda group: weights[group] * (shards[group] - 1))
            self.spread[priority] = {group: shards[group] for group in named}
            for shard, groups in groups_at.items():
                self._elsewhere[shard, priority] = sum(
                    weight * (1 - 1 / shards[group])
                    for group, weight in groups.items()
                    if group in self.spread[priority]
                )

    def weight_here(self, shard_id: str, level: Level, weight: int) -> float:
        """Of the sum of the weights of a shard's groups what counts for this shard; 1 where none is in line yet."""
        if not weight:
            return 1.0
        # other groups may wait there by now, but some do
        return max(weight - self._elsewhere.get((shard_id, level), 0.0), _LEAST_WEIGHT)


NOTHING_SEEN = SeenSpread()


class GroupSpreads:
    """Of the queues of one router."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, tuple[int, ...]], SeenSpread] = OrderedDict()
        self._asking: set[tuple[str, tuple[int, ...]]] = set()
        self.tasks = BackgroundTasks()

    def of(self, handles: Sequence[ShardHandle], queue: str, levels: Sequence[Level]) -> SeenSpread:
        """What was seen last; these shards are asked again where that is some time ago. Where jobs age nothing is."""
        priorities, last = split_levels(levels)
        if last is not None or len(handles) < 2:
            return NOTHING_SEEN
        key = queue, tuple(priorities)
        now_s = asyncio.get_running_loop().time()
        seen = self._seen.get(key, NOTHING_SEEN)
        is_old = seen is NOTHING_SEEN or now_s - seen.seen_s > REFRESHED_S
        if is_old and key not in self._asking:
            self._asking.add(key)
            self.tasks.start(self._ask(handles, *key))
        return seen if now_s - seen.seen_s <= TRUSTED_S else NOTHING_SEEN

    async def _ask(self, handles: Sequence[ShardHandle], queue: str, priorities: tuple[int, ...]) -> None:
        """Shards that do not answer have no jobs that could be claimed."""
        waiting: dict[str, WaitingGroups] = {}

        async def ask(handle: ShardHandle) -> None:
            with suppress(PinLaterError):
                waiting[handle.shard.shard_id] = await handle.shard.waiting_groups(queue, priorities)

        try:
            await asyncio.gather(*map(ask, handles))
        finally:
            self._asking.discard((queue, priorities))
        self._seen[queue, priorities] = SeenSpread(waiting, asyncio.get_running_loop().time())
        self._seen.move_to_end((queue, priorities))
        if len(self._seen) > _MOST_QUEUES:
            self._seen.popitem(last=False)
