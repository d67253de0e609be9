"""The queues of the cluster: what is known of them (known.py), and how they are made, changed and deleted.

A change is made on the freshest records, needs one shard that takes it, and counts at once in this process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from pinlater.backends.base import ConfigEntry
from pinlater.errors import NoHealthyShards, Overloaded, QueueNotFound, RequestInvalid
from pinlater.model import Changed, new_version
from pinlater.queues import changes
from pinlater.queues.changes import Around, Author, record_text
from pinlater.queues.known import SHARD_PREFIX, Known, is_ordered
from pinlater.queues.layers import DEFAULTS, texts_of

__all__ = ["SHARD_PREFIX", "Made", "Queues", "is_ordered"]

_log = structlog.get_logger("pinlater.queues")

_TRIES = 5
"""Of a change that others were faster than."""

Remake = Callable[[ConfigEntry | None], "str | None"]
"""From the record that is there to the text of the next one, "" for its end; None: it is right as it is."""


@dataclass(slots=True)
class Made(Changed):
    """`is_new`: this very call changed something."""

    is_new: bool = False


class Queues(Known):
    """The registry of one process; all calls that change something need a shard that takes it, else NoHealthyShards."""

    async def create(self, name: str, who: str) -> Made:
        """Make a queue; one that is there is put on the shards that lack it. NoHealthyShards."""
        return await self._apply(name, lambda before: "{}" if before is None or before.is_deleted else None, who)

    async def delete(self, name: str, who: str) -> Made:
        """Delete a queue with its jobs; one that is not there is no error.

        RequestInvalid for one that other queues have as their dead-letter queue; NoHealthyShards.
        """

        def remake(before: ConfigEntry | None) -> str | None:
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

        def remake(before: ConfigEntry | None) -> str | None:
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
        if self.members.by_id(shard_id) is None:
            ids = ", ".join(sorted(member.shard.shard_id for member in self.members.all))
            raise RequestInvalid.of("shard", shard_id, f"a shard of this server: {ids}")

        def remake(before: ConfigEntry | None) -> str | None:
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
            self.members.require_any()
            await self._exchange.ask()
            before = self._exchange.winners.get(name)
            text = remake(before)
            if text is None:
                return await self._as_it_is(name, is_new)
            version = new_version(self._clock.now_ms(), before.version if before else "")
            deleted = version if text == "" else before.deleted_version if before else ""
            put = await self._exchange.put(ConfigEntry(name, version, text or "{}", deleted))
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
