"""The claims of this worker, and how long each is held: which are kept alive by heartbeats, and which are too young.

Pure: it is told the time, which is that of time.monotonic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pinlater_workers.heartbeat.messages import ClaimKey, Watched
from pinlater_workers.running import Running

HANDED_AFTER_S = 1.0
"""Most jobs have ended by then, and cost no heartbeat."""

MARGIN_S = 30.0
"""A job's claim is kept alive for so long beyond its time limit: until the pool has ended it."""

TOLERANCE_S = 5.0
"""How much later than the end of its lease a claim has surely expired, as the server has it."""


class Lease:
    """`good_s`: the claim surely held then, and its lease ran from then or later."""

    __slots__ = ("good_s", "key", "running", "until_s")

    def __init__(self, running: Running, good_s: float) -> None:
        self.running = running
        self.key = ClaimKey(running.job.descriptor, running.job.claim_descriptor)
        self.good_s = good_s
        self.until_s = running.until_s + MARGIN_S

    def watched(self) -> Watched:
        return Watched(self.running.queue, *self.key, self.good_s, self.until_s)


class Leases:
    """Every claim from its dequeue until its result is through, or it is lost."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._young: dict[Running, float] = {}  # in the order of their coming
        self._old: dict[Running, Lease] = {}
        self._by_key: dict[ClaimKey, Lease] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def take(self, running: Running, good_s: float) -> None:
        """A claim of the dequeue that was answered at `good_s`."""
        self._young[running] = good_s

    def end(self, running: Running) -> ClaimKey | None:
        """It is not held any more. Returns the key of one that the heartbeat process is to forget."""
        if self._young.pop(running, None) is not None:
            return None
        lease = self._old.pop(running, None)
        if lease is None:
            return None
        del self._by_key[lease.key]
        return lease.key

    def find(self, key: ClaimKey) -> Running | None:
        """Whose claim that is, for those handed over."""
        lease = self._by_key.get(key)
        return None if lease is None else lease.running

    def holds(self, running: Running) -> bool:
        return running in self._young or running in self._old

    # -- the heartbeat process -------------------------------------------------------------------------------------

    def next_s(self) -> float:
        """When the next claim is old enough to be handed over; infinite: there is none."""
        return next(iter(self._young.values()), math.inf) + HANDED_AFTER_S

    def old_enough(self, now_s: float) -> list[Watched]:
        """Those that are to be watched from now on."""
        until_s = now_s - HANDED_AFTER_S
        ripe = []
        for running, good_s in self._young.items():
            if good_s > until_s:
                break
            ripe.append(running)
        return [self._hand_over(running).watched() for running in ripe]

    def all(self) -> list[Watched]:
        """Every claim: a connection is gone that some may have been tied to."""
        for running in list(self._young):
            self._hand_over(running)
        return [lease.watched() for lease in self._old.values()]

    def keep(self, runnings: Iterable[Running]) -> list[Watched]:
        """Those of them that are held: to be watched without an end, since their results are not through yet."""
        kept = []
        for running in runnings:
            lease = self._hand_over(running) if running in self._young else self._old.get(running)
            if lease is not None:
                lease.until_s = math.inf
                kept.append(lease.watched())
        return kept

    def beaten(self, keys: Iterable[ClaimKey], good_s: float) -> None:
        for key in keys:
            lease = self._by_key.get(key)
            if lease is not None:
                lease.good_s = max(lease.good_s, good_s)

    def has_expired(self, running: Running, now_s: float) -> bool:
        """Surely, by what is known of it; also one that is not held at all."""
        lease = self._old.get(running)
        good_s = self._young.get(running, -math.inf) if lease is None else lease.good_s
        return now_s >= good_s + self._lease_s + TOLERANCE_S

    def _hand_over(self, running: Running) -> Lease:
        lease = Lease(running, self._young.pop(running))
        self._old[running] = lease
        self._by_key[lease.key] = lease
        return lease
