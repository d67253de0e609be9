"""Hand-outs of the last minute by group, over all live server processes.

Each process counts its own hand-outs in steps of time, of queues whose jobs have groups, and publishes their sums on
one shard while there are any: the first by rendezvous of those that are in. Whoever asks for shares adds these up. A
process that has ended counts for no longer than its entry, and one that knows no such counts does not count.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest

import structlog

from pinlater.backends.base import KvEntry
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.metrics import Metrics
from pinlater.model import DequeuedJob
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.group_rules_book import OTHER
from pinlater.shards.handle import ShardHandle
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.shards.shard_set import ShardSet
from pinlater.stored_json import read_packed

_log = structlog.get_logger("pinlater.queues")

WINDOW_MS, STEP_MS = 60_000, 5_000
PUBLISH_MS = 8_000
"""How often a process publishes its counts."""

KEPT_MS = 24_000
"""An entry counts for so long, whatever becomes of its process: with REFRESH_MS shares are at most 30 s old."""

REFRESH_MS = 5_000
"""Entries of others are read again after so long, where somebody asks for shares."""

MOST_IN_STEP = 10_000
"""Groups of all queues that one step counts by name. Jobs of others count among those of their queue alone."""

MOST_PUBLISHED = 5_000
"""Groups of all queues that an entry names: those with the most hand-outs."""

KIND = "group-hand-outs"
FAMILY = "group_jobs_dequeued"


class HandOuts:
    """The hand-outs of one queue: of all its jobs, and of its groups by name; "": jobs without one."""

    __slots__ = ("groups", "jobs")

    def __init__(self) -> None:
        self.jobs = 0
        self.groups: dict[str, int] = {}

    def add(self, group: str, jobs: int) -> None:
        self.groups[group] = self.groups.get(group, 0) + jobs


class _Step:
    """What was handed out in one step of time, by queue."""

    def __init__(self, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.queues: dict[str, HandOuts] = {}
        self._named = 0

    def count(self, queue: str, counts: Mapping[str, int]) -> None:
        hand_outs = self.queues.setdefault(queue, HandOuts())
        for group, jobs in counts.items():
            hand_outs.jobs += jobs
            is_new = group not in hand_outs.groups
            if is_new and self._named >= MOST_IN_STEP:
                continue
            self._named += is_new
            hand_outs.add(group, jobs)


class GroupHandOuts:
    """The hand-outs of this process, and the shares over all of them."""

    def __init__(self, members: ShardSet, queues: QueueDirectory, clock: Clock, metrics: Metrics, process: str) -> None:
        """`process`: a name that no other process has."""
        self._members = members
        self._book = queues.group_rules
        self._clock = clock
        self._metrics = metrics
        self._process = process
        self._steps: deque[_Step] = deque()
        self._labels: set[tuple[str, str]] = set()
        """The queues and groups that the metrics of this process name."""

        self.queues: set[str] = set()
        """The queues of which jobs with groups were handed out here in the last minute. It is one set for ever, so that
        a dequeue may keep it: each asks for its queue.
        """

        self._all: dict[str, HandOuts] = {}
        self._read_at_ms: int | None = None
        self._reading = asyncio.Lock()

    # -- of this process -----------------------------------------------------------------------------------------------

    def count(self, queue: str, jobs: Sequence[DequeuedJob]) -> None:
        """These jobs of a queue with groups were handed out."""
        now_ms = self._clock.now_ms()
        if not self._steps or not 0 <= now_ms - self._steps[-1].begun_ms < STEP_MS:
            self._drop_old(now_ms)
            self._steps.append(_Step(now_ms))
        counts = Counter([job.group for job in jobs])
        self._steps[-1].count(queue, counts)
        self.queues.add(queue)
        labelled = self._book.labelled(queue)
        for group, amount in counts.items():
            if group in labelled:
                self._labels.add((queue, group))
            self._metrics.add(amount, FAMILY, queue, group if group in labelled else OTHER)

    def _drop_old(self, now_ms: int) -> None:
        steps = self._steps
        while steps and not 0 <= now_ms - steps[0].begun_ms < WINDOW_MS:
            steps.popleft()
        self.queues &= {queue for step in steps for queue in step.queues}

    def _own(self, now_ms: int) -> dict[str, HandOuts]:
        """Those of the last minute, by queue."""
        self._drop_old(now_ms)
        return _summed((queue, each) for step in self._steps for queue, each in step.queues.items())

    # -- over all processes --------------------------------------------------------------------------------------------

    async def publish(self) -> None:
        """Tell others what this process handed out, if anything. Raises nothing: the next time does better."""
        for queue, group in [each for each in self._labels if each[1] not in self._book.labelled(each[0])]:
            self._labels.discard((queue, group))
            self._metrics.counters.pop((FAMILY, queue, group), None)
        now_ms = self._clock.now_ms()
        own, place = self._own(now_ms), self.place()
        if not own or place is None:
            return
        try:
            await place.shard.kv_put(KIND, self._process, _encode(own), now_ms + KEPT_MS, now_ms)
        except PinLaterError as error:
            _log.debug("group_hand_outs_not_published", shard=place.shard.shard_id, error=error.message)

    async def of_all(self, queue: str) -> HandOuts | None:
        """The hand-outs of the last minute over all processes, of the groups that got the most; None: there were none,
        or they cannot be read.
        """
        async with self._reading:
            now_ms = self._clock.now_ms()
            if self._read_at_ms is None or not 0 <= now_ms - self._read_at_ms < REFRESH_MS:
                self._all = await self._read(now_ms)
                self._read_at_ms = now_ms
        found = self._all.get(queue)
        return found if found and found.jobs else None

    async def _read(self, now_ms: int) -> dict[str, HandOuts]:
        place = self.place()
        if place is None:
            return {}
        try:
            entries = await place.shard.kv_list(KIND, now_ms)
        except PinLaterError as error:
            _log.debug("group_hand_outs_not_read", shard=place.shard.shard_id, error=error.message)
            return {}
        of_others = [each for name, entry in entries.items() if name != self._process for each in _decode(entry)]
        return _summed([*of_others, *self._own(now_ms).items()])

    def place(self) -> ShardHandle | None:
        """The shard where the counts are; None: none that has groups is in."""
        able = [member.shard.shard_id for member in self._members.healthy() if member.shard.has_groups]
        shard_id = rendezvous_pick(KIND, able)
        return None if shard_id is None else self._members.by_id(shard_id)


def _summed(hand_outs: Iterable[tuple[str, HandOuts]]) -> dict[str, HandOuts]:
    found: dict[str, HandOuts] = {}
    for queue, each in hand_outs:
        total = found.setdefault(queue, HandOuts())
        total.jobs += each.jobs
        for group, jobs in each.groups.items():
            total.add(group, jobs)
    return found


def _encode(own: Mapping[str, HandOuts]) -> bytes:
    """The body of an entry: by queue how many jobs were handed out, and of which groups."""
    named = ((jobs, queue, group) for queue, each in own.items() for group, jobs in each.groups.items())
    groups: dict[str, dict[str, int]] = {queue: {} for queue in own}
    for jobs, queue, group in nlargest(MOST_PUBLISHED, named):
        groups[queue][group] = jobs
    plain = {queue: [each.jobs, groups[queue]] for queue, each in own.items()}
    return zlib.compress(json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode(), 1)


def _decode(entry: KvEntry) -> Iterator[tuple[str, HandOuts]]:
    """Nothing of what another version writes in another form."""
    try:
        plain = read_packed(entry.body)
        read: list[tuple[str, HandOuts]] = []
        for queue, (jobs, groups) in plain.items():
            hand_outs = HandOuts()
            hand_outs.jobs = int(jobs)
            hand_outs.groups = {str(group): int(count) for group, count in groups.items()}
            read.append((queue, hand_outs))
    except (ValueError, TypeError, AttributeError):
        return
    yield from read
