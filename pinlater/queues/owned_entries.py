"""Owners of queues, schedules and tokens: whose entries they are, and how many each owner has.

An entry names its owner, so all processes count the same. What was deleted is kept for a while as well
(replication.py), so its maker may have a multiple of the bound of that.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from pinlater.backends.base import ConfigEntry
from pinlater.errors import LimitReached
from pinlater.model.owner_bounds import NO_BOUNDS, OwnedKind, OwnerBounds
from pinlater.stored_json import read_stored

DELETED_SHARE = 10
"""Entries with those of what was deleted, for each that an owner may have."""

_OWNER = "owner"
_KINDS = {"@schedule": OwnedKind.SCHEDULES, "@token": OwnedKind.TOKENS}
_WAYS = {
    OwnedKind.QUEUES: "delete queues that nobody needs",
    OwnedKind.SCHEDULES: "delete schedules that nobody needs",
    OwnedKind.TOKENS: "revoke tokens that nobody needs",
    OwnedKind.FLOWS: "delete flows, or give them a shorter time to live",
    OwnedKind.FLOW_ITEMS: "delete flows, or give them a shorter time to live",
}


def limit_reached(kind: OwnedKind, owner: str, has: int, bound: int) -> LimitReached:
    return LimitReached.by(kind.limit, f"{owner} has {has} {kind.words}, and may have {bound}: {ways_out(kind)}")


def ways_out(kind: OwnedKind) -> str:
    return f"{_WAYS[kind]}, or ask for a role with a higher max-{kind} (`pinlater access show` says what stands)"


def owner_of(entry: ConfigEntry | None) -> str:
    """The owner who made an entry; "" where none is known."""
    if entry is None or f'"{_OWNER}"' not in entry.text:
        return ""
    try:
        owner = read_stored(entry.text).get(_OWNER, "")
    except (ValueError, AttributeError):
        return ""
    return owner if isinstance(owner, str) else ""


def with_owner(text: str, owner: str) -> str:
    """The text of an entry, which an object of JSON is. A server that knows no owners leaves it out with its change."""
    return json.dumps({**read_stored(text), _OWNER: owner}, separators=(",", ":")) if owner else text


class _Owned(NamedTuple):
    kind: OwnedKind
    owner: str
    is_deleted: bool


class OwnedEntries:
    """What owners have made, as one process knows it. `bounds` says how much an owner may have."""

    def __init__(self, latest: Mapping[str, ConfigEntry]) -> None:
        """`latest`: all entries."""
        self.bounds: Callable[[str], OwnerBounds] = lambda owner: NO_BOUNDS
        self._latest = latest
        self._entries: dict[str, _Owned] = {}
        self._counts: Counter[_Owned] = Counter()
        self._making: dict[_Owned, Counter[str]] = defaultdict(Counter)
        """The names that this process makes at this moment."""

    def take(self, name: str) -> None:
        """The entry of this name has changed, or is forgotten."""
        self._drop(name)
        entry, kind = self._latest.get(name), _kind_of(name)
        if entry is None or kind is None:
            return
        owner = owner_of(entry)
        if owner:
            owned = self._entries[name] = _Owned(kind, owner, entry.is_deleted)
            self._counts[owned] += 1

    def _drop(self, name: str) -> None:
        before = self._entries.pop(name, None)
        if before is not None:
            self._counts[before] -= 1
            if not self._counts[before]:
                del self._counts[before]

    def count(self, kind: OwnedKind, owner: str) -> int:
        """How many entries of this kind there are that this owner has made."""
        return self._counts[_Owned(kind, owner, False)]

    def owners(self) -> Iterator[tuple[OwnedKind, str, int]]:
        for owned, count in self._counts.items():
            if not owned.is_deleted:
                yield owned.kind, owned.owner, count

    @contextmanager
    def making(self, name: str, owner: str) -> Iterator[None]:
        """An owner makes what has this name, and it counts from now on. LimitReached."""
        kind = _kind_of(name)
        if not owner or kind is None:
            yield
            return
        owned = _Owned(kind, owner, False)
        self._require_room(name, owned)
        names = self._making[owned]
        names[name] += 1
        try:
            yield
        finally:
            names[name] -= 1
            if not names[name]:
                del names[name]
            if not names:
                self._making.pop(owned, None)

    def _require_room(self, name: str, owned: _Owned) -> None:
        kind, owner, _ = owned
        bound = self.bounds(owner).of(kind)
        if not bound:
            return
        coming = self._making.get(owned, {}).keys() - {name}
        has = self._counts[owned] + sum(self._entries.get(each) != owned for each in coming)
        if has >= bound:
            raise limit_reached(kind, owner, has, bound)
        deleted = self._counts[owned._replace(is_deleted=True)]
        if has + deleted < DELETED_SHARE * bound or name in self._latest:  # a name that was used has its entry already
            return
        raise LimitReached.by(
            kind.limit,
            f"{owner} has {has} {kind.words}, and has had {deleted} more that were deleted within 30 days, which "
            f"servers still have to know: use names again, or wait, or ask for a role with a higher max-{kind}, of "
            f"which there may be {DELETED_SHARE} times as many with those",
        )


def _kind_of(name: str) -> OwnedKind | None:
    """The kind of the entry of this name; None: it is none of what owners make."""
    return _KINDS.get(name.partition("/")[0]) if name.startswith("@") else OwnedKind.QUEUES
