"""Which claims are kept alive: when each is due, which fail, which are lost. Pure: it is told the time."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pinlater_workers.heartbeat.messages import Watched

LONGEST_INTERVAL_S = 10.0
LONGEST_MARGIN_S = 2.0
LONGEST_SILENCE_S = 2.5
LONGEST_RETRY_S = 1.0
FAILURES_TOLD = 2


def usual_interval_s(lease_s: float) -> float:
    """The time between two beats of a claim, where nothing fails."""
    return min(lease_s / 3, LONGEST_INTERVAL_S)


def silence_s(lease_s: float) -> float:
    """A worker that has said nothing for so long may have claims that it cannot read of."""
    return min(LONGEST_SILENCE_S, lease_s / 4)


def surely_held_s(lease_s: float) -> float:
    """How long after a good beat a claim is taken for held: a little less than its lease."""
    return lease_s - min(LONGEST_MARGIN_S, lease_s / 8)


class _Claim:
    __slots__ = ("counted_s", "due_s", "failures", "good_s", "watched")

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.good_s = watched.good_s
        self.due_s = watched.from_s
        self.failures = 0
        self.counted_s = -math.inf


class Table:
    """All claims of one worker, by number. Times are seconds of one monotonic clock."""

    def __init__(self, lease_s: float, interval_s: float) -> None:
        self._interval_s = interval_s
        self._retry_s = min(LONGEST_RETRY_S, interval_s / 4)
        self._held_s = surely_held_s(lease_s)
        self._lease_s = lease_s
        self._claims: dict[int, _Claim] = {}
        self._lost: dict[tuple[str, str], float] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def watch(self, claims: Iterable[Watched]) -> None:
        """Due from their `from_s` on, also where they are watched already; what is known of those stays."""
        known = self._claims
        for watched in claims:
            claim = known.get(watched.number)
            if claim is None:
                known[watched.number] = _Claim(watched)
            else:
                claim.watched = watched
                claim.due_s = watched.from_s

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._claims.pop(number, None)

    def lose(self, numbers: Iterable[int], now_s: float) -> None:
        """These are gone, or are to expire: forgotten, but still known for two leases, in which they surely have."""
        self._lost = {key: lost_s for key, lost_s in self._lost.items() if lost_s > now_s - 2 * self._lease_s}
        for number in numbers:
            claim = self._claims.pop(number, None)
            if claim is not None:
                self._lost[claim.watched.descriptor, claim.watched.claim] = now_s

    def known(self) -> set[tuple[str, str]]:
        """Descriptor and claim descriptor of all that are watched, or were lost of late."""
        return {(claim.watched.descriptor, claim.watched.claim) for claim in self._claims.values()} | self._lost.keys()

    def all_due(self, now_s: float) -> None:
        """A connection is gone that claims which were beaten may be tied to."""
        for claim in self._claims.values():
            claim.due_s = min(claim.due_s, max(claim.watched.from_s, now_s))

    def take_due(self, now_s: float) -> list[Watched]:
        """Those to be beaten now; where there are any, also those due soon. They are due again an interval later.

        None before its `from_s`, or after its `until_s`.
        """
        alive = [each for each in self._claims.values() if each.watched.from_s <= now_s < each.watched.until_s]
        if not any(claim.due_s <= now_s for claim in alive):
            return []
        taken = []
        for claim in alive:
            if claim.due_s <= now_s + self._interval_s / 2:
                claim.due_s = now_s + self._interval_s
                taken.append(claim.watched)
        return taken

    def beaten(self, numbers: Iterable[int], began_s: float) -> None:
        """A beat that began then was good for these."""
        for number in numbers:
            claim = self._claims.get(number)
            if claim is not None:
                claim.good_s = max(claim.good_s, began_s)
                claim.failures = 0
                claim.counted_s = -math.inf

    def failed(self, numbers: Iterable[int], began_s: float, now_s: float) -> list[int]:
        """A beat that began then failed for these; it is tried again soon. Those that failed twice in a row.

        Tries within one interval count as one failed beat.
        """
        twice = []
        for number in numbers:
            claim = self._claims.get(number)
            if claim is None or claim.good_s > began_s:
                continue
            claim.due_s = min(claim.due_s, now_s + self._retry_s)
            if now_s - claim.counted_s >= self._interval_s:
                claim.counted_s = now_s
                claim.failures += 1
                if claim.failures == FAILURES_TOLD:
                    twice.append(number)
        return twice

    def take_lost(self, now_s: float) -> list[int]:
        """Those without a good beat for so long that they may have expired; they are forgotten."""
        lost = [number for number, claim in self._claims.items() if now_s >= claim.good_s + self._held_s]
        if lost:
            self.lose(lost, now_s)
        return lost

    def next_s(self) -> float:
        """When there is something to do again; infinite: not before there is news."""
        return min(
            (min(claim.good_s + self._held_s, self._next_beat_s(claim)) for claim in self._claims.values()),
            default=math.inf,
        )

    def _next_beat_s(self, claim: _Claim) -> float:
        return claim.due_s if claim.due_s < claim.watched.until_s else math.inf
