"""The state of each queue of a worker, by its last answer; and incidents, logged when they begin and end."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping

from pinlater.errors import (
    DequeueRateLimited,
    Forbidden,
    OutcomeUnknown,
    PinLaterError,
    QueueNotFound,
    ServerUnreachable,
)
from pinlater.log_guard import GuardedLogger
from pinlater_workers.observability.metrics import QueueSummary

UNANSWERED = (ServerUnreachable, OutcomeUnknown)
"""No server said anything."""

LOOK_AGAIN_S = 2.0
"""How often it is seen whether a queue that is paused, or not there, has changed."""

SHORTEST_HOLD_S = 0.02
QUEUE_PAUSED = "QUEUE_PAUSED"

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""Short, so that a worker takes jobs within seconds of its servers' return."""
log = GuardedLogger("pinlater_workers.worker")


class QueueState:
    """The state of one queue, by its last answers. `error` "": none."""

    __slots__ = ("error", "failures", "state")

    def __init__(self) -> None:
        self.failures = 0
        self.error = ""
        self.state = "polling"


class QueueStates:
    """The states of all queues. `weights`: of every queue."""

    def __init__(self, weights: Mapping[str, int], incidents: IncidentLog, rng: random.Random) -> None:
        self._weights = weights
        self._incidents = incidents
        self._rng = rng
        self._queues = {queue: QueueState() for queue in weights}
        self.troubled: set[str] = set()
        """The queues whose last dequeue failed."""

    def answered(self, names: Iterable[str]) -> None:
        """A dequeue from these went well."""
        for name in self.troubled.intersection(names) if self.troubled else ():
            self.troubled.remove(name)
            queue = self._queues[name]
            self._enter(name, queue, "polling", "")
            queue.failures = 0

    def failed(self, name: str, error: PinLaterError) -> float:
        """The seconds to leave it alone."""
        queue = self._queues[name]
        queue.failures += 1
        self.troubled.add(name)
        if isinstance(error, DequeueRateLimited):
            self._enter(name, queue, "paused" if error.reason == QUEUE_PAUSED else "rate limited", error.message)
            return self._held_s(error)
        if isinstance(error, QueueNotFound):
            self._enter(name, queue, "not found", error.message)
            return LOOK_AGAIN_S
        self._enter(name, queue, "no server" if isinstance(error, UNANSWERED) else "refused", str(error))
        return LOOK_AGAIN_S if isinstance(error, Forbidden) else pause_s(queue.failures, self._rng)

    def view(self) -> dict[str, QueueSummary]:
        return {
            name: QueueSummary(self._weights[name], queue.state, trouble=queue.error)
            for name, queue in self._queues.items()
        }

    def _held_s(self, error: DequeueRateLimited) -> float:
        """A pause can end at any time, and the rate can be raised: so it is never waited for long."""
        wanted_s = LOOK_AGAIN_S if error.retry_after_ms is None else error.retry_after_ms / 1000
        return min(max(wanted_s, SHORTEST_HOLD_S), LOOK_AGAIN_S) * self._rng.uniform(1.0, 1.1)

    def _enter(self, name: str, queue: QueueState, state: str, reason: str) -> None:
        if state != queue.state:
            queue.failures = min(queue.failures, 1)
            self._leave(name, state)
            queue.state = state
            self._say(name, state, reason)
        queue.error = reason

    def _say(self, name: str, state: str, reason: str) -> None:
        """Servers that do not answer, or refuse, are one trouble for all queues; a rate is no trouble."""
        if state == "not found":
            self._incidents.begin(f"missing {name}", f"no jobs from queue {name}: {reason}; it is tried again")
        elif state == "paused":
            self._incidents.begin(f"paused {name}", f"no jobs from queue {name} while it is paused: {reason}")
        elif state in ("no server", "refused"):
            self._incidents.begin("servers", f"no jobs come, and the worker keeps trying: {reason}", name)

    def _leave(self, name: str, state: str) -> None:
        """What this new state shows to be over. Without a server nobody knows whether a pause has ended."""
        if state in ("no server", "refused"):
            return
        self._incidents.over("servers", "servers answer again", name)
        if state != "not found":
            self._incidents.over(f"missing {name}", f"queue {name} is there")
        if state != "paused":
            self._incidents.over(f"paused {name}", f"queue {name} is not paused any more")


def pause_s(failures: int, rng: random.Random) -> float:
    """After so many failures in a row: doubling to the bound, jittered by half."""
    bound: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16))
    return bound * rng.uniform(0.5, 1.0)


class IncidentLog:
    """Each incident has a name, and the sources that it is seen from: it is over when none sees it any more."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        self._sources: dict[str, set[str]] = {}

    def begin(self, name: str, text: str, source: str = "") -> None:
        """Says `text`, where this incident is new."""
        sources = self._sources.setdefault(name, set())
        if not sources:
            self._since_s[name] = time.monotonic()
            log.warning(text)
        sources.add(source)

    def over(self, name: str, text: str, source: str = "") -> None:
        """Says `text` and how long it took, where this was the last source that saw it."""
        sources = self._sources.get(name)
        if sources and source in sources:
            sources.discard(source)
            if not sources:
                log.info("%s (after %.1f s)", text, time.monotonic() - self._since_s[name])
