"""Pools of the HTTP process that all callers share, each with a share for every caller.

An owner is whoever a caller counts as: its identity, or its address where nobody knows it. A request cannot give way in
the middle, as calls that wait in a server do (`shared_pool`). So places are refused to an owner that would have more
than it leaves free, and whoever comes next finds room: one alone has half of them, two have a third each. What is kept
makes room at the cost of the owner that has most: who floods pushes out its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from pinlater.errors import Overloaded

V = TypeVar("V")


class FairPlaces:
    """Room for so many of something at a time. `name` is that of the pool in metrics and in docs/access.md; `of_what`:
    what takes the room, for who gets none.
    """

    def __init__(self, name: str, size: int, of_what: str, advice: str, *, retry_after_ms: int = 1_000) -> None:
        self.name = name
        self.size = size
        self.taken = 0
        self.hits = 0
        """How often somebody got none."""
        self._of_what = of_what
        self._advice = advice
        self._retry_after_ms = retry_after_ms
        self._taken_by: dict[Hashable, int] = {}

    def has_room(self, owner: Hashable, amount: int = 1) -> bool:
        """Whether the owner may take so much."""
        own, left = self._taken_by.get(owner, 0), self.size - self.taken - amount
        return left >= 0 and (not own or own + amount <= left)

    def take(self, owner: Hashable, amount: int = 1) -> None:
        """To be given back. Overloaded: the owner has its share, or there is no room."""
        own = self._taken_by.get(owner, 0)
        if not self.has_room(owner, amount):
            self.hits += 1
            whose = f"this caller has {own}" if own else f"all callers have {self.taken}"
            raise Overloaded.by(
                self.name,
                f"{whose} of {self.size} {self._of_what} already, as many as may be: {self._advice}",
                retry_after_ms=self._retry_after_ms,
            )
        self.taken += amount
        self._taken_by[owner] = own + amount

    def give_back(self, owner: Hashable, amount: int = 1) -> None:
        self.taken -= amount
        left = self._taken_by[owner] - amount
        if left:
            self._taken_by[owner] = left
        else:
            del self._taken_by[owner]


class FairEntries(Generic[V]):
    """What is kept for callers, the least lately used first. One too many takes the place of the oldest of the owner
    that has most; `is_spared` says which may not go, and `on_push` is told of each that does.
    """

    def __init__(
        self,
        name: str,
        size: int,
        *,
        is_spared: Callable[[V], bool] = lambda _: False,
        on_push: Callable[[V], object] = lambda _: None,
    ) -> None:
        self.name = name
        self.size = size
        self.hits = 0
        """How often one made room for another."""
        self._is_spared = is_spared
        self._on_push = on_push
        self._of: OrderedDict[Hashable, OrderedDict[Hashable, V]] = OrderedDict()
        self._owners: dict[Hashable, Hashable] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[V]:
        """Of one owner after the other."""
        for entries in list(self._of.values()):
            yield from list(entries.values())

    def put(self, owner: Hashable, key: Hashable, value: V) -> None:
        """In place of what has that key."""
        self.pop(key)
        while len(self._owners) >= self.size and self._push_out(owner):
            pass
        self._of.setdefault(owner, OrderedDict())[key] = value
        self._of.move_to_end(owner)
        self._owners[key] = owner

    def get(self, key: Hashable) -> V | None:
        """It counts as used."""
        owner = self._owners.get(key)
        if owner is None:
            return None
        entries = self._of[owner]
        entries.move_to_end(key)
        self._of.move_to_end(owner)
        return entries[key]

    def pop(self, key: Hashable) -> V | None:
        if key not in self._owners:
            return None
        owner = self._owners.pop(key)
        entries = self._of[owner]
        value = entries.pop(key)
        if not entries:
            del self._of[owner]
        return value

    def forget(self, owner: Hashable) -> None:
        """All of one owner."""
        for key in self._of.pop(owner, ()):
            del self._owners[key]

    def _push_out(self, newcomer: Hashable) -> bool:
        """Of owners that have equally much, one that has just come gives way to others. False: all are spared."""
        by_number = sorted(self._of.items(), key=lambda each: (-len(each[1]), each[0] != newcomer))
        for _, entries in by_number:
            for key, value in entries.items():
                if not self._is_spared(value):
                    self.pop(key)
                    self.hits += 1
                    self._on_push(value)
                    return True
        return False
