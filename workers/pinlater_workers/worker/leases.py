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
    """Every claim from its dequeue until its result is through, or it is lost. Each has a number, used once."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._beaten_after_s = min(BEATEN_AFTER_S, lease_s / 6)
        self._last_number = 0
        self._held: dict[Running, Watched] = {}
        self._running: dict[int, Running] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, runnings: Iterable[Running], good_s: float) -> list[Watched]:
        """The claims of a dequeue that was answered at `good_s`."""
        number, from_s = self._last_number, good_s + self._beaten_after_s
        taken = []
        for running in runnings:
            number += 1
            job, until_s = running.job, running.until_s + MARGIN_S
            watched = Watched(number, running.queue, job.descriptor, job.claim_descriptor, good_s, from_s, until_s)
            self._held[running] = watched
            self._running[number] = running
            taken.append(watched)
        self._last_number = number
        return taken

    def end(self, running: Running) -> int | None:
        """It is not held any more. Its number, if it was."""
        watched = self._held.pop(running, None)
        if watched is None:
            return None
        del self._running[watched.number]
        return watched.number

    def find(self, number: int) -> Running | None:
        """Whose claim that is."""
        return self._running.get(number)

    def at_once(self) -> list[Watched]:
        """All of them, to be beaten at once: a connection is gone that some may have been tied to."""
        for watched in self._held.values():
            watched.from_s = 0.0
        return list(self._held.values())

    def keep(self, runnings: Iterable[Running]) -> list[Watched]:
        """Those of them that are held: to be kept alive without an end, since their results are not through yet."""
        kept = [watched for running in runnings if (watched := self._held.get(running)) is not None]
        for watched in kept:
            watched.until_s = math.inf
        return kept

    def has_expired(self, running: Running, now_s: float) -> bool:
        """Surely, by what is known of it; also one that is not held at all."""
        watched = self._held.get(running)
        return watched is None or now_s >= watched.good_s + self._lease_s + TOLERANCE_S
