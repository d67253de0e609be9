"""The keys of the jobs of a test: which names are taken, and which jobs wait for another one of their serialize key."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.model import WHILE_KEPT, EnqueueOutcome, KeyRef
from pinlater_workers.testing.memory import Run, VirtualClock

SEND_ID_KEPT_MS = 600_000

_Sent = tuple[Run, EnqueueOutcome, int | None]
"""The first answer to a send id, and until when it is remembered; None: until so long after the job's end."""

_Name = tuple[str, str, str]
"""The queue, the serialize key and the dedupe key: a name counts for jobs of one serialize key alone."""


class MemoryKeys:
    """What a store keeps of keys. A dedupe key answers with its live job, else with its last one while that counts."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._named: dict[_Name, Run] = {}
        self._sent: dict[tuple[str, str], _Sent] = {}
        self._chains: dict[str, list[Run]] = {}

    def standing(self, queue: str, dedupe_key: str, serialize_key: str) -> Run | None:
        """The job for which no second one of that name comes into being now."""
        run = self._named.get((queue, serialize_key, dedupe_key)) if dedupe_key else None
        if run is None or run.is_gone or run.is_live:
            return None if run is None or run.is_gone else run
        if run.dedupe_for_ms == WHILE_KEPT:
            return run if run.is_kept(self._clock.now_ms()) else None
        return run if self._clock.now_ms() < run.finished_at_ms + run.dedupe_for_ms else None

    def sent(self, queue: str, send_id: str) -> tuple[Run, EnqueueOutcome] | None:
        """The answer to it before."""
        found = self._sent.get((queue, send_id)) if send_id else None
        if found is None:
            return None
        run, outcome, until_ms = found
        if until_ms is None and not run.is_live:
            until_ms = run.finished_at_ms + SEND_ID_KEPT_MS
        return (run, outcome) if until_ms is None or self._clock.now_ms() < until_ms else None

    def answer(self, queue: str, send_id: str, run: Run, outcome: EnqueueOutcome) -> None:
        """What it is answered with again."""
        until_ms = None if outcome is EnqueueOutcome.STORED else self._clock.now_ms() + SEND_ID_KEPT_MS
        if send_id:
            self._sent[queue, send_id] = run, outcome, until_ms

    def enter(self, run: Run) -> None:
        """A job that is stored. It waits (`Run.waits_for`) where its serialize key has another live one."""
        if run.dedupe_key:
            self._named[run.queue, run.serialize_key, run.dedupe_key] = run
        if run.serialize_key:
            chain = self._chains.setdefault(run.serialize_key, [])
            chain.append(run)
            run.waits_for = chain[0] if len(chain) > 1 else None

    def leave(self, run: Run) -> Run | None:
        """A job that has ended, or is gone; the one that is the first of its serialize key instead, if there is one."""
        chain = self._chains.get(run.serialize_key, []) if run.serialize_key else []
        if run not in chain:
            return None
        was_first = chain[0] is run
        chain.remove(run)
        run.waits_for = None
        for other in chain:
            other.waits_for = None if other is chain[0] else chain[0]
        return chain[0] if chain and was_first else None

    def find(self, queue: str, keys: Sequence[KeyRef]) -> list[Run | None]:
        """As a lookup by keys does: the last job of a dedupe key, the first live one of a serialize key."""
        return [self._find(queue, *key) for key in keys]

    def _find(self, queue: str, dedupe_key: str, serialize_key: str) -> Run | None:
        if not dedupe_key:
            return next(iter(self._chains.get(serialize_key, ())), None)
        run = self._named.get((queue, serialize_key, dedupe_key))
        return None if run is None or not run.is_kept(self._clock.now_ms()) else run
