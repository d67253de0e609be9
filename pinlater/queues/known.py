"""What one process knows of the queues: which there are, what counts for each, and how it hears of news.

Records are read from every healthy shard by `poll`, twice a second; see exchange.py for how all shards come to agree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

import structlog

from pinlater.backends.base import ConfigEntry, DeadLetterTarget, EndRules, PerQueue, Retention
from pinlater.clock import Clock
from pinlater.errors import QueueNotFound
from pinlater.model import MAX_TIME_MS, QueueView
from pinlater.queues.derived import Derived
from pinlater.queues.exchange import KEEP_MARKS_MS, Exchange
from pinlater.queues.file import QueueFile
from pinlater.queues.layers import DEFAULTS, Layers
from pinlater.queues.settings import QueueSettings
from pinlater.queues.views import queue_view
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.queues")

SHARD_PREFIX = "@shard/"
"""Before a shard's id, the name of the record of what is ordered for it."""


class Known:
    """Which queues there are, and what counts for each. `defaults` are the server's own configuration."""

    def __init__(
        self,
        members: ShardSet,
        clock: Clock,
        defaults: QueueSettings | None = None,
        file: QueueFile | None = None,
    ) -> None:
        self.members = members
        self._clock = clock
        self._file = file
        self._layers = Layers(defaults or QueueSettings())
        self._exchange = Exchange(members, clock, self._took)
        self._callbacks: list[Callable[[str], None]] = []
        self._names: set[str] = set()
        self._special: dict[str, QueueSettings] = {}
        self._for_all = self._layers.for_all()
        self._missing_graves: Counter[str] = Counter()
        """The dead-letter queues that are not there, and how many queues have each, as it was told last."""
        self._are_graves_new = True
        self._pause_ends_ms = MAX_TIME_MS
        self._settle()
        self._read_file()

    # -- what counts -------------------------------------------------------------------------------------------------

    def settings(self, queue: str) -> QueueSettings:
        """What counts for a queue now; for one not heard of, what counts for all."""
        settings = self._special.get(queue, self._for_all)
        return self._unpaused(settings) if settings.paused else settings

    def _unpaused(self, settings: QueueSettings) -> QueueSettings:
        until_ms = settings.paused_until_ms
        if until_ms is None or self._clock.now_ms() < until_ms:
            return settings
        return replace(settings, paused=False)

    def names(self) -> set[str]:
        """The queues that are there, a copy."""
        return set(self._names)

    def has(self, queue: str) -> bool:
        return queue in self._names

    def was_deleted(self, queue: str) -> bool:
        """It is known to be gone; a queue that was never heard of may have been made elsewhere a moment ago."""
        record = self._exchange.winners.get(queue)
        return record is not None and record.is_deleted

    def limited(self) -> Set[str]:
        """The queues with a maximum in progress; this and the next four are the same object until a setting changes."""
        return self._derived.limited

    def bounded(self) -> Set[str]:
        """The queues with a maximum of pending jobs."""
        return self._derived.bounded

    def end_rules(self) -> PerQueue[EndRules]:
        """What the ends of attempts mean, per queue."""
        return self._derived.end_rules

    def retention(self) -> PerQueue[Retention]:
        """How long ended jobs are kept, per queue."""
        return self._derived.retention

    def graves(self) -> Mapping[str, DeadLetterTarget]:
        """Where the dead letters of each queue go."""
        return self._derived.graves

    def view(self, name: str) -> QueueView:
        """All settings, and where each comes from. QueueNotFound; DEFAULTS is what counts for all."""
        if name != DEFAULTS and name not in self._names:
            raise QueueNotFound.of(name)
        record = self._exchange.winners.get(name)
        settings = self._unpaused(self._for_all) if name == DEFAULTS else self.settings(name)
        return queue_view(name, record.version if record else "", settings, self._layers)

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Told the name of each queue that came, went or has other settings than before; "" may mean any of them."""
        self._callbacks.append(callback)

    def tombstones_before(self, now_ms: int) -> str:
        """The version below which marks of deleted queues are no longer kept."""
        return f"{max(0, now_ms - KEEP_MARKS_MS) * 1000:016d}"

    # -- staying up to date ------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        """Hear from every healthy shard, tell those that are behind, and read a file that changed. Raises nothing."""
        if self._file is not None and self._file.read_again():
            self._read_file()
        await self._exchange.poll()
        self._order()
        if self._clock.now_ms() >= self._pause_ends_ms:
            self._settle()
        if self._are_graves_new:
            self._are_graves_new = False
            self._tell_missing_graves()

    def _tell_missing_graves(self) -> None:
        """A file names what it likes; and jobs that wait for their burial are never collected."""
        missing = Counter([grave.queue for grave in self.graves().values() if grave.queue not in self._names])
        if missing and missing != self._missing_graves:
            _log.error("dead_letter_queues_missing", of_queues=dict(missing), hint="make them: failed jobs wait there")
        self._missing_graves = missing

    async def refresh(self) -> bool:
        """Hear from every healthy shard what other servers changed a moment ago. Whether any answered."""
        return await self._exchange.ask()

    async def bring_up(self, member: ShardHandle) -> None:
        """A shard that comes (back): hear all that it knows, and tell it all that it does not, before it serves."""
        await self._exchange.ask()
        await self._exchange.read(member, all_of_it=True)
        await self._exchange.push_all()
        self._order()
        await self._exchange.push(member)  # last: from here to its first call nothing comes between

    async def close(self) -> None:
        await self._exchange.close()

    def _read_file(self) -> None:
        if self._file is not None:
            self._layers.file_defaults, self._layers.of_file = self._file.layers
            self._settle()

    def _took(self, news: set[str]) -> None:
        """Other records win now."""
        came_or_went = set()
        for name in news:
            record = self._exchange.winners[name]
            if not name.startswith("@"):
                if record.is_deleted == (name in self._names):
                    came_or_went.add(name)
                (self._names.discard if record.is_deleted else self._names.add)(name)
                self._layers.take(name, record)
            elif name == DEFAULTS:
                self._layers.take(name, record)
        self._settle(came_or_went)

    def _settle(self, also: Iterable[str] = ()) -> None:
        """Work out what counts, and tell of what is new. A pause that is over is one that is not there any more."""
        before, before_all = self._special, self._for_all
        self._for_all = self._unpaused(self._layers.for_all())
        self._special = {name: self._unpaused(each) for name, each in self._layers.special(self._names).items()}
        self._derived = Derived(self._names, self._for_all, self._special)
        self._are_graves_new = True
        paused = [each for each in (self._for_all, *self._special.values()) if each.paused]
        self._pause_ends_ms = min((each.paused_until_ms or MAX_TIME_MS for each in paused), default=MAX_TIME_MS)
        told = set(also)
        if before_all != self._for_all:
            told.add("")
        for name in before.keys() | self._special.keys():
            if before.get(name, before_all) != self._special.get(name, self._for_all):
                told.add(name)
        for name in sorted(told):
            for callback in self._callbacks:
                callback(name)

    def _order(self) -> None:
        """Which shards take no new jobs, by a command."""
        for member in self.members.all:
            record = self._exchange.winners.get(SHARD_PREFIX + member.shard.shard_id)
            member.ordered_dequeue_only = record is not None and is_ordered(record)


def is_ordered(record: ConfigEntry) -> bool:
    """An operator made this shard dequeue-only."""
    try:
        return json.loads(record.text).get("dequeue_only") is True
    except (ValueError, AttributeError):
        return False
