"""The claims of this worker: from when on and how long each is to be kept alive, and when it has surely expired.

Pure: it is told the time, which is that of time.monotonic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pinlater_workers.heartbeat.messages import Watched
from pinlater_workers.running import Running

BEATEN_AFTER_S = 1.0
"""Most jobs have ended by then, and cost no heartbeat."""

MARGIN_S = 30.0
"""A job's claim is kept alive for so long beyond its time limit: until the pool has ended it."""

TOLERANCE_S = 5.0
"""How much later than the end of its lease a claim has surely expired, as the server has it."""


class Leases:
    """Every claim from its dequeue until its result is through, or it is lost.

    A claim gets a number, used once, when the heartbeat process is to hear of it. Those that are `quick` stay here
    until they are old enough: most have ended by then.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._beaten_after_s = min(BEATEN_AFTER_S, lease_s / 6)
        self._last_number = 0
        self._quick: dict[Running, float] = {}
        self._held: dict[Running, Watched] = {}
        self._running: dict[int, Running] = {}

    def __len__(self) -> int:
        return len(self._held) + len(self._quick)

    def take(self, runnings: Iterable[Running], good_s: float) -> list[Watched]:
        """The claims of a dequeue that was answered at `good_s`."""
        return [self._watched(running, good_s) for running in runnings]

    def take_quick(self, runnings: Iterable[Running], good_s: float) -> None:
        """Such that nothing is said of for now."""
        self._quick.update(dict.fromkeys(runnings, good_s))

    def no_more_quick(self, until_s: float) -> list[Watched]:
        """Those of them that were taken by then: they are like all others from now on."""
        old = []
        for running, good_s in self._quick.items():
            if good_s > until_s:
                break  # they stand in the order in which they were taken
            old.append(running)
        return [self._watched(running, self._quick.pop(running)) for running in old]

    def end(self, runnings: Iterable[Running]) -> list[int]:
        """They are not held any more. The numbers of those that have one."""
        numbers = []
        for running in runnings:
            if self._quick.pop(running, None) is None:
                watched = self._held.pop(running, None)
                if watched is not None:
                    del self._running[watched.number]
                    numbers.append(watched.number)
        return numbers

    def find(self, number: int) -> Running | None:
        """Whose claim that is."""
        return self._running.get(number)

    def of(self, watched: Watched) -> Running:
        """Whose claim is held so."""
        return self._running[watched.number]

    def at_once(self) -> list[Watched]:
        """All of them, to be beaten at once: a connection is gone that some may have been tied to."""
        self.no_more_quick(math.inf)
        for watched in self._held.values():
            watched.from_s = 0.0
        return list(self._held.values())

    def keep(self, runnings: Iterable[Running]) -> list[Watched]:
        """Those of them that are held: to be kept alive without an end, since their results are not through yet."""
        kept = []
        for running in runnings:
            good_s = self._quick.pop(running, None)
            watched = self._held.get(running) if good_s is None else self._watched(running, good_s)
            if watched is not None:
                watched.until_s = math.inf
                kept.append(watched)
        return kept

    def has_expired(self, running: Running, now_s: float) -> bool:
        """Surely, by what is known of it; also one that is not held at all."""
        watched = self._held.get(running)
        good_s = self._quick.get(running, -math.inf) if watched is None else watched.good_s
        return now_s >= good_s + self._lease_s + TOLERANCE_S

    def _watched(self, running: Running, good_s: float) -> Watched:
        self._last_number = number = self._last_number + 1
        job, from_s, until_s = running.job, good_s + self._beaten_after_s, running.until_s + MARGIN_S
        watched = Watched(number, running.queue, job.descriptor, job.claim_descriptor, good_s, from_s, until_s)
        self._held[running] = watched
        self._running[number] = running
        return watched
