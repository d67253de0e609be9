"""The queues of the cluster as one process knows them: which there are, what counts for each, and how both change.

Every queue and its settings are one entry with a version. `poll` reads the entries of every healthy shard twice a
second (replication.py). A change is made on the freshest entries, needs one shard that takes it, and counts at once in
this process.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import structlog

from pinlater.backends.base import ConfigEntry, DeadLetterTarget, EndRules, PerQueue, Retention
from pinlater.backends.group_rules import GROUP_RULES_PREFIX
from pinlater.clock import Clock
from pinlater.errors import INVALID, NoHealthyShards, Overloaded, QueueNotFound, RequestInvalid, ShardNotFound
from pinlater.model import MAX_TIME_MS, Changed, QueueView, new_version, version_ms
from pinlater.queues import changes
from pinlater.queues.breaker_record import BREAKER_PREFIX, OpenBreaker, read_open_breaker
from pinlater.queues.breaker_rule import BreakerRule
from pinlater.queues.changes import Author, Update, ValidationContext, entry_text
from pinlater.queues.file import QueueFile
from pinlater.queues.group_rules_book import GroupLimit, GroupRulesBook
from pinlater.queues.layers import DEFAULTS, DerivedSettings, Layers, queue_view, texts_of
from pinlater.queues.owned_entries import OwnedEntries, owner_of, with_owner
from pinlater.queues.replication import KEEP_TOMBSTONES_MS, ConfigReplicator
from pinlater.queues.settings import BREAKER, QueueSettings
from pinlater.shards.handle import ShardHandle, missing
from pinlater.shards.keys.homes_record import HOMES, parse_record
from pinlater.shards.shard_set import ShardSet
from pinlater.stored_json import read_stored

_log = structlog.get_logger("pinlater.queues")

SHARD_PREFIX = "@shard/"
"""Before a shard's id, the name of the entry that overrides what is configured for it."""

_TRIES = 20
"""The most tries of a change that others were faster than."""

_PAUSE_S = 0.1
"""The longest pause between them: the hosts of one deploy all come at once."""


@dataclass(slots=True)
class ChangeResult(Changed):
    """`is_new`: this very call changed something."""

    is_new: bool = False


class QueueDirectory:
    """The queues of one process. `server` is the server's own configuration.

    All calls that change something need a shard that takes it, else NoHealthyShards.
    """

    def __init__(
        self,
        members: ShardSet,
        clock: Clock,
        server: QueueSettings | None = None,
        file: QueueFile | None = None,
    ) -> None:
        self.members = members
        self._clock = clock
        self._file = file
        self._layers = Layers(server or QueueSettings())
        self.entries = ConfigReplicator(members, clock, self._on_merge)
        """The entries of queues and of what else all shards agree on."""
        self.owned = OwnedEntries(self.entries.latest)
        self.group_rules = GroupRulesBook(self.entries.latest, clock)
        self._callbacks: list[Callable[[str], None]] = []
        self._record_callbacks: dict[str, Callable[[Sequence[ConfigEntry]], None]] = {}
        self._names: set[str] = set()
        self._overrides: dict[str, QueueSettings] = {}
        self._defaults = self._layers.defaults()
        self._missing_targets: Counter[str] = Counter()
        """The dead-letter queues that are not there, and how many queues have each, as it was logged last."""
        self.flow_queues: Set[str] = frozenset()
        """The queues into which items of flows come."""
        self.group_limited: Set[str] = frozenset()
        """The queues whose groups have limits."""
        self._items_since_ms: dict[str, int] = {}
        self.open_breakers: Mapping[str, OpenBreaker] = {}
        """The queues that are paused since their circuit breakers are open."""
        self.acks_watched: Set[str] = frozenset()
        """The queues of both kinds. Each ack asks for its queue."""
        self._breakers: dict[str, OpenBreaker] = {}
        """All that are open, also those of queues that are paused by hand, or that are no more."""
        self._targets_changed = True
        self._pause_ends_ms = MAX_TIME_MS
        self._recompute()
        self._read_file()

    # -- what counts -------------------------------------------------------------------------------------------------

    def settings(self, queue: str) -> QueueSettings:
        """The settings that count for a queue now; for one that is not known, the defaults."""
        settings = self._overrides.get(queue, self._defaults)
        return self._in_effect(queue, settings) if settings.paused else settings

    def _in_effect(self, queue: str, settings: QueueSettings) -> QueueSettings:
        """Without a pause that is over; paused where its breaker is open, and nobody else has paused it."""
        settings = self._unpaused(settings)
        opened = self._breakers.get(queue)
        if opened is None or settings.paused or settings.pause_on_failures is None or self._is_outlived(queue, opened):
            return settings
        return opened.pause(settings)

    def _is_outlived(self, queue: str, opened: OpenBreaker) -> bool:
        """Whether the queue was deleted since its breaker opened."""
        entry = self.entries.latest.get(queue)
        return entry is None or entry.deleted_version > opened.version

    def _unpaused(self, settings: QueueSettings) -> QueueSettings:
        until_ms = settings.paused_until_ms
        if until_ms is None or self._clock.now_ms() < until_ms:
            return settings
        return replace(settings, paused=False)

    def names(self) -> set[str]:
        """The queues that are there, a copy."""
        return set(self._names)

    def is_empty(self) -> bool:
        """Whether there is no queue."""
        return not self._names

    def has(self, queue: str) -> bool:
        return queue in self._names

    def items_since_ms(self, queue: str) -> int:
        """When it came to be one of `flow_queues`, or later, by the clock of who marked it; 0: it is none, or a file
        made it one.
        """
        return self._items_since_ms.get(queue, 0)

    def was_deleted(self, queue: str) -> bool:
        """It is known to be gone; a queue that is not known here may have been made elsewhere a moment ago."""
        entry = self.entries.latest.get(queue)
        return entry is not None and entry.is_deleted

    def limited(self) -> Set[str]:
        """The queues with a maximum in progress; this and the next five are the same object until a setting changes."""
        return self._derived.limited

    def bounded(self) -> Set[str]:
        """The queues with a maximum of pending jobs."""
        return self._derived.bounded

    def group_bounded(self) -> Set[str]:
        """The queues whose groups have a maximum of jobs that wait."""
        return self._derived.group_bounded

    def breaker_rules(self) -> Mapping[str, BreakerRule]:
        """The rules of circuit breakers, by queue."""
        return self._derived.breaker_rules

    def breaker_records(self) -> Mapping[str, OpenBreaker]:
        """All breakers that are open, by queue: also those of queues that are paused by hand, or have none any more."""
        return self._breakers

    def breaker_closed_ms(self, queue: str) -> int:
        """When its breaker was closed last, or the queue was deleted: what was counted before does not count."""
        entry, record = self.entries.latest.get(queue), self.entries.latest.get(BREAKER_PREFIX + queue)
        versions = ("" if entry is None else entry.deleted_version, "" if record is None else record.deleted_version)
        return max(version_ms(version) if version else 0 for version in versions)

    def limit_of_groups(self, queue: str) -> GroupLimit:
        """What counts for each group of a queue of which nothing else is said."""
        settings = self.settings(queue)
        return GroupLimit(settings.group_concurrency, settings.group_rate)

    def any_group_paused(self, queue: str) -> bool:
        return self.group_rules.any_paused(queue)

    def end_rules(self) -> PerQueue[EndRules]:
        """The rules for ends of attempts, per queue."""
        return self._derived.end_rules

    def retention(self) -> PerQueue[Retention]:
        """The times to live of ended jobs, per queue."""
        return self._derived.retention

    def dead_letter_targets(self) -> Mapping[str, DeadLetterTarget]:
        """The targets of dead letters, by queue; a queue without one is left out."""
        return self._derived.dead_letter_targets

    def view(self, name: str) -> QueueView:
        """All settings, and where each comes from. QueueNotFound; DEFAULTS is what counts for all."""
        if name != DEFAULTS and name not in self._names:
            raise QueueNotFound.of(name)
        entry = self.entries.latest.get(name)
        settings = self._unpaused(self._defaults) if name == DEFAULTS else self.settings(name)
        holds = name in self._derived.dead_letter_queues
        version = entry.version if entry else ""
        return queue_view(name, version, settings, self._layers, holds_dead_letters=holds)

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call it with the name of each queue that came, went or has other settings; "" may mean any of them."""
        self._callbacks.append(callback)

    def on_records(self, prefix: str, callback: Callable[[Sequence[ConfigEntry]], None]) -> None:
        """Call it, alone, with the entries whose names begin so ("@KIND/") when they are read, and whenever they
        change.
        """
        assert prefix not in self._record_callbacks, prefix
        self._record_callbacks[prefix] = callback

    def tombstones_before(self, now_ms: int) -> str:
        """The version below which tombstones of deleted queues are no longer kept."""
        return f"{max(0, now_ms - KEEP_TOMBSTONES_MS) * 1000:016d}"

    # -- changing it -------------------------------------------------------------------------------------------------

    async def create(self, name: str, who: str, owner: str = "") -> ChangeResult:
        """Make a queue; one that is there is put on the shards that lack it. LimitReached, NoHealthyShards."""
        return await self._apply(name, lambda before: "{}" if before is None or before.is_deleted else None, who, owner)

    async def delete(self, name: str, who: str) -> ChangeResult:
        """Delete a queue with its jobs; one that is not there is no error.

        RequestInvalid for one that other queues have as their dead-letter queue; NoHealthyShards; ShardConnectionFailed
        where it cannot be told whether it is there.
        """

        def update(before: ConfigEntry | None) -> str | None:
            if before is None or before.is_deleted:
                return None
            sources = sorted(each for each, target in self._target_names().items() if target == name and each != name)
            if sources:
                allowed = f"a queue that is not the dead-letter queue of others; {changes.some(sources)} have it"
                raise RequestInvalid.of("queue", name, allowed)
            return ""

        return await self._apply(name, update, who)

    async def change(
        self, name: str, set: Mapping[str, str], unset: Iterable[str], create: bool, who: str, owner: str = ""
    ) -> ChangeResult:
        """Change settings of a queue, or of DEFAULTS: all of it or nothing. RequestInvalid, QueueNotFound,
        LimitReached, NoHealthyShards.
        """
        unset = list(unset)

        def update(before: ConfigEntry | None) -> str | None:
            is_there = before is not None and not before.is_deleted
            if not is_there and not create and name != DEFAULTS:
                raise QueueNotFound.of(name)
            had = texts_of(before)
            has = changes.changed(had, set, unset, Author(who, self._clock.now_ms()))
            changes.check(name, {key: has[key] for key in set}, self._validation_context())
            return None if is_there and had == has else entry_text(has)

        return await self._apply(name, update, who, owner)

    async def change_group(
        self, name: str, group: str, set: Mapping[str, str], unset: Sequence[str], who: str
    ) -> ChangeResult:
        """Change settings of a group of a queue, or of a pattern: all of it or nothing. RequestInvalid, QueueNotFound,
        LimitReached, NoHealthyShards.
        """
        return await self._apply(GROUP_RULES_PREFIX + name, self.group_rules.update(name, group, set, unset, who), who)

    async def clear_group_rules(self, name: str, who: str) -> ChangeResult:
        """Take back the settings of all groups of a queue. QueueNotFound, NoHealthyShards."""
        return await self._apply(GROUP_RULES_PREFIX + name, self.group_rules.clear(name), who)

    async def move_permits(self, name: str, before_id: str, shard_id: str) -> ChangeResult:
        """From now on the permits of a queue's groups are on that shard. QueueNotFound, NoHealthyShards."""
        update = self.group_rules.move_home(name, before_id, shard_id)
        return await self._apply(GROUP_RULES_PREFIX + name, update, "")

    async def take_items(self, name: str, who: str, owner: str = "") -> ChangeResult:
        """From now on items of flows may come into a queue; one that is not there is made, and keeps no jobs that
        succeeded. LimitReached, NoHealthyShards.
        """

        def update(before: ConfigEntry | None) -> str | None:
            is_there = before is not None and not before.is_deleted
            had = texts_of(before) if is_there else {"succeeded_ttl": "0s"}
            has = {**had, "flow_items": "true"}
            return None if had == has else entry_text(has)

        return await self._apply(name, update, who, owner)

    async def override_shard(
        self, shard_id: str, dequeue_only: bool, who: str, *, give_up: bool = False
    ) -> ChangeResult:
        """Whether a shard takes no new jobs, beside what the configuration says; with `give_up`, which means that too,
        what lives there is taken for lost: also that of a shard that is configured no more. ShardNotFound,
        NoHealthyShards.
        """
        if self.members.by_id(shard_id) is None and not (give_up and shard_id in self._homes()):
            ids = ", ".join(sorted(member.shard.shard_id for member in self.members.all))
            raise ShardNotFound(f"there is no shard {shard_id[:100]!r}; the shards of this server: {ids}")
        override = {"dequeue_only": dequeue_only or give_up, "by": who} | ({"given_up": True} if give_up else {})

        def update(before: ConfigEntry | None) -> str | None:
            had = before is not None and is_dequeue_only(before), before is not None and is_given_up(before)
            return None if had == (override["dequeue_only"], give_up) else json.dumps(override)

        result = await self._apply(SHARD_PREFIX + shard_id, update, who)
        self._override_shards()
        return result

    async def change_record(self, name: str, update: Update, who: str, owner: str = "") -> ChangeResult:
        """Change an entry that is no queue's. LimitReached, NoHealthyShards, and what `update` raises."""
        return await self._apply(name, update, who, owner)

    def _homes(self) -> set[str]:
        """The shards where keys live, or lived before."""
        entry = self.entries.latest.get(HOMES)
        try:
            record = None if entry is None else parse_record(entry.text)
        except ValueError:  # a newer version of this program wrote it
            record = None
        return set() if record is None else set(record.members).union(*record.before)

    def is_given_up(self, shard_id: str) -> bool:
        """Whether an operator has given this shard up."""
        entry = self.entries.latest.get(SHARD_PREFIX + shard_id)
        return entry is not None and is_given_up(entry)

    def given_up_shards(self) -> set[str]:
        """The ids of the shards that an operator has given up."""
        prefix = len(SHARD_PREFIX)
        return {
            name[prefix:]
            for name, entry in self.entries.latest.items()
            if name.startswith(SHARD_PREFIX) and is_given_up(entry)
        }

    def _target_names(self) -> dict[str, str]:
        """The name of each queue's dead-letter queue, by queue; "": it has none."""
        return {name: self.settings(name).dead_letter_queue for name in self._names}

    def _validation_context(self) -> ValidationContext:
        return ValidationContext(self._names, self._target_names(), self._layers.named_targets(), self._layers.server)

    async def _apply(self, name: str, update: Update, who: str, owner: str = "") -> ChangeResult:
        """A new version of an entry, on what is freshest; again on top of another change that was made meanwhile. What
        comes by it, or comes back, is its owner's.
        """
        is_new = False
        for _ in range(_TRIES):
            self.members.require_any()
            unread = await self.entries.unread()
            before = self.entries.latest.get(name)
            try:
                text = update(before)
            except QueueNotFound:
                _require_read(before, unread)
                raise
            if text is None:
                if not is_new:
                    _require_read(before, unread)
                return await self._unchanged(name, is_new)
            version = new_version(self._clock.now_ms(), before.version if before else "")
            deleted = version if text == "" else before.deleted_version if before else ""
            is_made = text != "" and (before is None or before.is_deleted)
            text = with_owner(text or "{}", owner if is_made else owner_of(before))
            with self.owned.making(name, owner if is_made else ""):
                put = await self.entries.put(ConfigEntry(name, version, text, deleted))
            is_new = is_new or put.taken > 0
            if put.was_beaten:
                await asyncio.sleep(random.uniform(0, _PAUSE_S))
                continue
            if not put.taken:
                refused = next((error for error in put.errors if isinstance(error, INVALID)), None)
                if refused is not None:  # what one store cannot keep is no entry of the cluster's
                    raise refused
                reasons = "; ".join(error.message for error in put.errors)
                raise NoHealthyShards(f"no shard took the change: {reasons}", retry_after_ms=1_000)
            _log.debug("config_entry_changed", entry=name, who=who, version=version, is_deleted=version == deleted)
            await self.entries.read_all()
            if self.entries.latest[name].version == version:
                return self._result(name, is_new)
        raise Overloaded(f"others change {name} all the time", retry_after_ms=100)

    async def _unchanged(self, name: str, is_new: bool) -> ChangeResult:
        if name not in self.entries.latest:
            return ChangeResult("", [])
        await self.entries.push_all()
        return self._result(name, is_new)

    def _result(self, name: str, is_new: bool) -> ChangeResult:
        missed = self.entries.missed(name)
        if missed and is_new:
            _log.warning("config_entry_missed", entry=name, shards=missed)
        return ChangeResult(self.entries.latest[name].version, missed, is_new)

    # -- staying up to date ------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        """Read from every healthy shard, update those that are behind, and read a file that changed. Raises nothing."""
        if self._file is not None and self._file.read_again():
            self._read_file()
        await self.entries.poll()
        for name in self.entries.forget_tombstones():
            self.owned.take(name)
        self._override_shards()
        if self._clock.now_ms() >= self._pause_ends_ms:
            self._recompute()
        if self._targets_changed:
            self._targets_changed = False
            self._log_missing_targets()

    def _log_missing_targets(self) -> None:
        """A file names what it likes; and jobs that wait to be copied there are never pruned."""
        targets = self.dead_letter_targets().values()
        missing = Counter([target.queue for target in targets if target.queue not in self._names])
        if missing and missing != self._missing_targets:
            _log.error("dead_letter_queues_missing", of_queues=dict(missing), hint="make them: failed jobs wait there")
        self._missing_targets = missing

    async def refresh(self) -> bool:
        """Read from every healthy shard what other servers changed a moment ago. Whether any answered."""
        return await self.entries.read_all()

    async def sync(self, member: ShardHandle) -> None:
        """A shard that comes (back): read all that it has, and put there all that it lacks, before it serves."""
        await self.entries.read_all()
        await self.entries.read(member, from_start=True)
        await self.entries.push_all()
        self._override_shards()
        await self.entries.push(member)  # last: from here to its first call nothing comes between

    async def close(self) -> None:
        await self.entries.close()

    def _read_file(self) -> None:
        if self._file is not None:
            self._layers.file_defaults, self._layers.file_queues = self._file.layers
            self._recompute()

    def _on_merge(self, names: set[str]) -> None:
        """The latest entries of these names changed."""
        came_or_went = set()
        is_of_queues = False
        records: dict[str, list[ConfigEntry]] = {}
        for name in names:
            self.owned.take(name)
            entry = self.entries.latest[name]
            if not name.startswith("@"):
                is_of_queues = True
                if entry.is_deleted == (name in self._names):
                    came_or_went.add(name)
                (self._names.discard if entry.is_deleted else self._names.add)(name)
                self._layers.take(name, entry)
            elif name == DEFAULTS:
                is_of_queues = True
                self._layers.take(name, entry)
            elif name.startswith(BREAKER_PREFIX):
                is_of_queues = True
                came_or_went.add(self._take_breaker(entry))
            elif name.startswith(GROUP_RULES_PREFIX):
                is_of_queues = True
                came_or_went.add(self.group_rules.take(entry))
            else:
                kind, slash, _ = name.partition("/")
                records.setdefault(kind + slash, []).append(entry)
        if is_of_queues:
            self._recompute(came_or_went)
        for prefix, entries in records.items():
            if prefix in self._record_callbacks:
                self._record_callbacks[prefix](entries)

    def _take_breaker(self, entry: ConfigEntry) -> str:
        """The queue whose breaker was opened or closed."""
        queue, opened = entry.name.removeprefix(BREAKER_PREFIX), read_open_breaker(entry)
        if opened is None:
            self._breakers.pop(queue, None)
        else:
            self._breakers[queue] = opened
        return queue

    def _recompute(self, also: Iterable[str] = ()) -> None:
        """Derive what counts, and publish what is new. A pause that is over is removed."""
        before, default_before = self._overrides, self._defaults
        self._defaults = self._unpaused(self._layers.defaults())
        found = dict.fromkeys(self._breakers, self._defaults) | self._layers.overrides(self._names)
        with_limits = self.group_rules.with_limits() & self._names
        found |= dict.fromkeys(with_limits - found.keys(), self._defaults)
        self._overrides = {
            name: self._in_effect(name, _limits_groups(each, name in with_limits)) for name, each in found.items()
        }
        self._defaults = _limits_groups(self._defaults, any_named=False)
        self.open_breakers = {
            name: opened
            for name, opened in self._breakers.items()
            if name in self._names and self._overrides[name].paused and self._overrides[name].paused_by == BREAKER
        }
        self._derived = DerivedSettings(self._names, self._defaults, self._overrides)
        for name in self._derived.flow_queues - self.flow_queues:
            entry = self.entries.latest.get(name)
            self._items_since_ms[name] = version_ms(entry.version) if entry is not None else 0
        self.flow_queues = self._derived.flow_queues
        self.group_limited = self._derived.group_limited
        self.acks_watched = self.group_limited | self.open_breakers.keys()
        self._targets_changed = True
        paused = [each for each in (self._defaults, *self._overrides.values()) if each.paused]
        self._pause_ends_ms = min((each.paused_until_ms or MAX_TIME_MS for each in paused), default=MAX_TIME_MS)
        changed = set(also)
        if default_before != self._defaults:
            changed.add("")
        for name in before.keys() | self._overrides.keys():
            if before.get(name, default_before) != self._overrides.get(name, self._defaults):
                changed.add(name)
        for name in sorted(changed):
            for callback in self._callbacks:
                callback(name)

    def _override_shards(self) -> None:
        """Note on each shard whether an operator's command keeps new jobs away."""
        for member in self.members.all:
            entry = self.entries.latest.get(SHARD_PREFIX + member.shard.shard_id)
            member.ordered_dequeue_only = entry is not None and is_dequeue_only(entry)


def _limits_groups(settings: QueueSettings, any_named: bool) -> QueueSettings:
    """The settings, with the word whether some group has a limit."""
    limits = any_named or settings.group_concurrency is not None or settings.group_rate is not None
    return settings if settings.limits_groups == limits else replace(settings, limits_groups=limits)


def _require_read(before: ConfigEntry | None, unread: Sequence[ShardHandle]) -> None:
    """ShardConnectionFailed where an entry is taken for absent that may be on a shard which did not answer: to delete
    it would seem to be done.
    """
    if unread and (before is None or before.is_deleted):
        raise missing(unread)


def is_dequeue_only(entry: ConfigEntry) -> bool:
    """An operator made this shard dequeue-only."""
    return _is_set(entry, "dequeue_only")


def is_given_up(entry: ConfigEntry) -> bool:
    """An operator takes what lives on this shard for lost."""
    return _is_set(entry, "given_up")


def _is_set(entry: ConfigEntry, word: str) -> bool:
    try:
        return read_stored(entry.text).get(word) is True
    except (ValueError, AttributeError):
        return False
