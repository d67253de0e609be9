"""The queues of the cluster as this process knows them: which there are, and what is set for each.

Records are read from every healthy shard by `poll`, twice a second; a change is made on the freshest records, needs
one shard that takes it, and counts at once in this process. See exchange.py for how all shards come to agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from pinlater.backends.base import EndRules, Grave, PerQueue, Record, Retention
from pinlater.clock import Clock
from pinlater.errors import NoHealthyShards, Overloaded, QueueNotFound, RequestInvalid
from pinlater.model import MAX_TIME_MS, Changed, Job, QueueView, new_version
from pinlater.queues import changes
from pinlater.queues.changes import Around, Author, record_text
from pinlater.queues.exchange import KEEP_MARKS_MS, Exchange
from pinlater.queues.file import QueueFile
from pinlater.queues.layers import DEFAULTS, Layers, texts_of
from pinlater.queues.settings import QueueSettings
from pinlater.queues.views import queue_view
from pinlater.shards.member import Member
from pinlater.shards.members import Members

_log = structlog.get_logger("pinlater.queues")

_TRIES = 5
"""Of a change that others were faster than."""

_ATTEMPTS = Job(b"").attempts_allowed
"""Of a dead letter, where its queue says nothing."""

SHARD_PREFIX = "@shard/"

Remake = Callable[[Record | None], "str | None"]
"""From the record that is there to the text of the next one; None: it is right as it is."""


@dataclass(slots=True)
class Made(Changed):
    """`is_new`: this very call changed something."""

    is_new: bool = False


class Queues:
    """Which queues there are, and what counts for each. `defaults` are the server's own configuration."""

    def __init__(
        self,
        members: Members,
        clock: Clock,
        defaults: QueueSettings | None = None,
        file: QueueFile | None = None,
    ) -> None:
        self._members = members
        self._clock = clock
        self._file = file
        self._layers = Layers(defaults or QueueSettings())
        self._exchange = Exchange(members, clock, self._took)
        self._callbacks: list[Callable[[str], None]] = []
        self._names: set[str] = set()
        self._rules: PerQueue[EndRules] | None = None
        self._retention: PerQueue[Retention] | None = None
        self._special: dict[str, QueueSettings] = {}
        self._for_all = self._layers.for_all()
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

    def limited(self) -> set[str]:
        """The queues with a maximum in progress."""
        return {name for name in self._names if self.settings(name).max_in_progress is not None}

    def end_rules(self) -> PerQueue[EndRules]:
        """What the ends of attempts mean, per queue; the same object until a setting changes."""
        if self._rules is None:
            rules = {name: _rules_of(settings) for name, settings in self._special.items()}
            default = _rules_of(self._for_all)
            self._rules = PerQueue(default, {name: each for name, each in rules.items() if each != default})
        return self._rules

    def retention(self) -> PerQueue[Retention]:
        """How long ended jobs are kept, per queue; the same object until a setting changes."""
        if self._retention is None:
            kept = {name: _retention_of(settings) for name, settings in self._special.items()}
            default = _retention_of(self._for_all)
            self._retention = PerQueue(default, {name: each for name, each in kept.items() if each != default})
        return self._retention

    def graves(self) -> dict[str, Grave]:
        """Where the dead letters of each queue go. A dead-letter queue's own `max_attempts` says how many attempts."""
        found = {}
        for name in self._names:
            target = self.settings(name).dead_letter_queue
            if target:
                attempts = self.settings(target).max_attempts
                found[name] = Grave(target, _ATTEMPTS if attempts is None else attempts)
        return found

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

    def marks_before(self, now_ms: int) -> str:
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

    async def refresh(self) -> bool:
        """Hear from every healthy shard what other servers changed a moment ago. Whether any answered."""
        return await self._exchange.ask()

    async def bring_up(self, member: Member) -> None:
        """A shard that comes (back): hear all that it knows, and tell it all that it does not, before it serves."""
        await self._exchange.ask()
        await self._exchange.read(member, all_of_it=True)
        await self._exchange.push(member)
        await self._exchange.push_all()
        self._order()

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
        self._rules = self._retention = None
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
        for member in self._members.all:
            record = self._exchange.winners.get(SHARD_PREFIX + member.shard.shard_id)
            member.ordered_dequeue_only = record is not None and is_ordered(record)

    # -- changes -----------------------------------------------------------------------------------------------------

    async def create(self, name: str, who: str) -> Made:
        """Make a queue; one that is there is put on the shards that lack it. NoHealthyShards."""
        return await self._apply(name, lambda before: "{}" if before is None or before.is_deleted else None, who)

    async def delete(self, name: str, who: str) -> Made:
        """Delete a queue with its jobs; one that is not there is no error.

        RequestInvalid for one that other queues have as their dead-letter queue; NoHealthyShards.
        """

        def remake(before: Record | None) -> str | None:
            if before is None or before.is_deleted:
                return None
            sources = sorted(each for each, grave in self._set_graves().items() if grave == name and each != name)
            if sources:
                allowed = f"a queue that is not the dead-letter queue of others; {changes.some(sources)} have it"
                raise RequestInvalid.of("queue", name, allowed)
            return ""

        return await self._apply(name, remake, who)

    async def change(self, name: str, set: Mapping[str, str], unset: Iterable[str], create: bool, who: str) -> Made:
        """Change settings of a queue, or of DEFAULTS: all of it or nothing. RequestInvalid, QueueNotFound,
        NoHealthyShards.
        """
        unset = list(unset)

        def remake(before: Record | None) -> str | None:
            is_there = before is not None and not before.is_deleted
            if not is_there and not create and name != DEFAULTS:
                raise QueueNotFound.of(name)
            had = texts_of(before)
            has = changes.changed(had, set, unset, Author(who, self._clock.now_ms()))
            changes.check(name, {key: has[key] for key in set}, self._around())
            return None if is_there and had == has else record_text(has)

        return await self._apply(name, remake, who)

    async def order_shard(self, shard_id: str, dequeue_only: bool, who: str) -> Made:
        """Whether a shard takes no new jobs, beside what the configuration says. RequestInvalid, NoHealthyShards."""
        if self._members.by_id(shard_id) is None:
            ids = ", ".join(sorted(member.shard.shard_id for member in self._members.all))
            raise RequestInvalid.of("shard", shard_id, f"a shard of this server: {ids}")

        def remake(before: Record | None) -> str | None:
            if dequeue_only == (before is not None and is_ordered(before)):
                return None
            return json.dumps({"dequeue_only": dequeue_only, "by": who})

        made = await self._apply(SHARD_PREFIX + shard_id, remake, who)
        self._order()
        return made

    def _set_graves(self) -> dict[str, str]:
        """Each queue's dead-letter queue."""
        return {name: self.settings(name).dead_letter_queue for name in self._names}

    def _around(self) -> Around:
        return Around(self._names, self._set_graves(), self._layers.own_graves(), self._layers.server)

    async def _apply(self, name: str, remake: Remake, who: str) -> Made:
        """A new version of a record, on what is freshest; again on top of another change that was made meanwhile."""
        is_new = False
        for _ in range(_TRIES):
            self._members.require_any()
            await self._exchange.ask()
            before = self._exchange.winners.get(name)
            text = remake(before)
            if text is None:
                return await self._as_it_is(name, is_new)
            version = new_version(self._clock.now_ms(), before.version if before else "")
            deleted = version if text == "" else before.deleted_version if before else ""
            put = await self._exchange.put(Record(name, version, text or "{}", deleted))
            is_new = is_new or put.took > 0
            if put.was_beaten:
                continue
            if not put.took:
                reasons = "; ".join(error.message for error in put.errors)
                raise NoHealthyShards(f"no shard took the change: {reasons}", retry_after_ms=1_000)
            _log.debug("record_changed", record=name, who=who, version=version, is_deleted=version == deleted)
            await self._exchange.ask()
            if self._exchange.winners[name].version == version:
                return self._made(name, is_new)
        raise Overloaded(f"others change {name} all the time", retry_after_ms=100)

    async def _as_it_is(self, name: str, is_new: bool) -> Made:
        if name not in self._exchange.winners:
            return Made("", [])
        await self._exchange.push_all()
        return self._made(name, is_new)

    def _made(self, name: str, is_new: bool) -> Made:
        missed = self._exchange.missed(name)
        if missed and is_new:
            _log.warning("record_missed", record=name, shards=missed)
        return Made(self._exchange.winners[name].version, missed, is_new)


def _rules_of(settings: QueueSettings) -> EndRules:
    return EndRules(
        crash_budget=settings.crash_budget,
        keep_succeeded=settings.succeeded_ttl_ms > 0,
        keep_failed=settings.failed_ttl_ms > 0,
        dead_letters=settings.dead_letter_queue != "",
    )


def _retention_of(settings: QueueSettings) -> Retention:
    return Retention(settings.succeeded_ttl_ms, settings.failed_ttl_ms)


def is_ordered(record: Record) -> bool:
    """An operator made this shard dequeue-only."""
    try:
        return json.loads(record.text).get("dequeue_only") is True
    except (ValueError, AttributeError):
        return False
