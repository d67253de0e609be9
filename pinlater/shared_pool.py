"""A pool of places that all callers share, in which the one with most gives way.

While there is room anybody may take it, one caller all of it. In a full pool a newcomer gets the place that the caller
with most has held for longest, as long as the newcomer holds less; so a caller that takes all hinders nobody but
itself, and nothing has to be divided beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pinlater.errors import Overloaded
from pinlater.metrics import Metrics


def nothing() -> None:
    """What ends by itself needs not be told to give way."""


class PoolPlace:
    """What one call holds of a pool. `give_way` is called when the place is another's: the call is to end soon."""

    __slots__ = ("_holder", "_pool", "amount", "give_way")

    def __init__(self, pool: SharedPool, holder: PoolHolder, amount: int) -> None:
        self._pool = pool
        self._holder: PoolHolder | None = holder
        self.amount = amount
        self.give_way: Callable[[], None] = nothing

    def leave(self) -> None:
        """The call holds nothing any more. Once more is nothing."""
        if self._holder is not None:
            holder, self._holder = self._holder, None
            self._pool.left(holder, self)


class PoolHolder:
    """One caller, and its places, the oldest first."""

    __slots__ = ("amount", "name", "places")

    def __init__(self, name: str) -> None:
        self.name = name
        self.amount = 0
        self.places: dict[PoolPlace, None] = {}


class SharedPool:
    """The pool of one process. `limit` is its name in metrics: refusals are counted by who answers them, places that
    were given up as `LIMIT_gave_way`. `of_what` is what its places hold, for people.
    """

    def __init__(self, size: int, limit: str, of_what: str, metrics: Metrics) -> None:
        self._size = size
        self._limit = limit
        self._of_what = of_what
        self._metrics = metrics
        self._holders: dict[str, PoolHolder] = {}
        self.used = 0

    def enter(self, name: str, amount: int = 1) -> PoolPlace:
        """Places for a caller of this name. Overloaded: it is the one with most, or would be."""
        holder = self._holders.get(name) or PoolHolder(name)
        missing = self.used + amount - self._size
        if missing > 0:
            for place in self._dispensable(holder, amount, missing):
                place.leave()
                self._metrics.add(1, "limits_hit", f"{self._limit}_gave_way")
                place.give_way()
        self._holders[name] = holder
        place = PoolPlace(self, holder, amount)
        holder.places[place] = None
        holder.amount += amount
        self.used += amount
        return place

    def _dispensable(self, holder: PoolHolder, amount: int, missing: int) -> list[PoolPlace]:
        """The places that make up for what is missing. Overloaded: even all that may be taken would not do."""
        left = {each: each.amount for each in self._holders.values()}
        oldest: dict[PoolHolder, Iterator[PoolPlace]] = {}
        found = []
        while missing > 0:
            most = max(left, key=left.__getitem__, default=holder)
            if most is holder or left[most] <= holder.amount + amount:
                raise self._full(holder)
            place = next(oldest.setdefault(most, iter(most.places)))
            left[most] -= place.amount
            missing -= place.amount
            found.append(place)
        return found

    def left(self, holder: PoolHolder, place: PoolPlace) -> None:
        """By `PoolPlace.leave`."""
        del holder.places[place]
        holder.amount -= place.amount
        self.used -= place.amount
        if not holder.places:
            del self._holders[holder.name]

    def _full(self, holder: PoolHolder) -> Overloaded:
        text = (
            f"{self.used} {self._of_what} already, {holder.amount} of them for {holder.name}; try again when some end"
        )
        return Overloaded.by(self._limit, text, retry_after_ms=1_000)


def equal_share(amounts: Iterable[int], size: int) -> int:
    """What each of those may keep who have these amounts, so that all fit: who has less keeps all of it.

    >>> equal_share([10, 3, 90], 50), equal_share([90, 90], 50), equal_share([1, 2], 50)
    (37, 25, 2)
    """
    ascending = sorted(amounts)
    for number, amount in enumerate(ascending):
        others = len(ascending) - number
        if amount * others > size:
            return size // others
        size -= amount
    return ascending[-1] if ascending else 0
