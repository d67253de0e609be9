"""The knowledge of one poller about the jobs of its queue, from events, polls and claims; it asks nothing itself.

What it knows is wrong in one direction only. Jobs that it expects may not be there, which costs a poll or a claim; but
a queue is empty to it, and a shard no candidate, only where each later job would be notified
(tests/unit/test_known_queue.py).

Where stores notify of jobs, a poller that found all shards empty need not ask all of them whenever one gets a job: the
one that notified, or that this process gave the job to, is enough. Else every process that waits for the queue would
ask every shard for every job. This holds as long as everybody who waits was waiting at the moment when all were empty,
or has asked all shards itself (decision 3 in docs/semantics.md: order over shards).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pinlater.service.queue_limits import Throttle

SOME_JOBS = 1_000
"""How many jobs are expected where nobody said how many there are."""

_MAX_THROTTLE_MS = 1_000
"""A queue with a slow rate is polled this often all the same: others may have given tokens back."""


class KnownQueue:
    """`time_s` is the event loop's clock."""

    __slots__ = (
        "_candidates",
        "_empty_at",
        "_time_s",
        "_trusted_until_s",
        "changes",
        "due_passed",
        "events",
        "is_full",
        "is_stale",
        "pause_ms",
        "ready_estimate",
        "throttle",
        "throttled_until_s",
    )

    def __init__(self, pause_ms: int, time_s: Callable[[], float]) -> None:
        self.pause_ms = pause_ms
        """The pause between two polls."""
        self.ready_estimate = 0
        """How many jobs are expected. Negative: jobs handed out before their enqueue was announced."""
        self.events = 0
        """How many events came that may have brought jobs."""
        self.is_stale = False
        """An event came since the poll that is under way, or the last one, began."""
        self.is_full = False
        """There were more jobs than the last caller could take, as far as it is known."""
        self.due_passed = False
        """A delayed job's time has come: when the next one's will, is not known."""
        self.throttle: Throttle | None = None
        """What kept the last round from handing out what was eligible."""
        self.throttled_until_s = 0.0
        """In the loop's time; 0: it is not throttled."""
        self._empty_at = (
            -1
        )  # so many events there had been at the last poll, which found nothing; -1: there may be jobs
        self._trusted_until_s = 0.0
        self._candidates: set[str] | None = None  # ids of those that got jobs since all were empty; None: any may have
        self.changes = 0
        """How often `_candidates` may have got more: for `found_all_empty`, as it was before all shards were asked."""
        self._time_s = time_s

    # -- events ------------------------------------------------------------------------------------------------------

    def expect(self, jobs: int, shard_id: str = "") -> bool:
        """So many jobs became eligible on this shard, or ("") on one that is not known. Whether that is of use to
        waiters: not while the queue is throttled.
        """
        self.events += 1
        self.changes += 1
        if not shard_id:
            self._candidates = None
        elif self._candidates is not None:
            self._candidates.add(shard_id)
        if self.throttled_until_s and self.throttled_for() > 0:
            return False
        self.ready_estimate += jobs
        return True

    def distrust(self) -> bool:
        """Something may have happened that no store reports: the next poll comes at once. Whether it may."""
        self.events += 1
        self.forget_shards()
        if self.throttled_for() > 0:
            return False
        self.pause_ms = 0
        self.is_stale = True
        return True

    def unthrottle(self) -> None:
        """What kept jobs back may be over: the next poll comes at once."""
        self.events += 1
        self.forget_shards()
        self.throttled_until_s = 0.0
        self.pause_ms = 0

    def fail(self) -> None:
        """The queue cannot be served now."""
        self.events += 1
        self.is_full = False
        self.forget_shards()

    def forget_shards(self) -> None:
        """There may be jobs on any shard, or somebody waits from now on who has asked none."""
        self.changes += 1
        self._candidates = None

    def expect_any(self) -> None:
        """There may be jobs, on any shard."""
        self._empty_at = -1
        self.forget_shards()

    # -- polls -------------------------------------------------------------------------------------------------------

    def found_due(self) -> None:
        """There are eligible jobs; nobody knows how many, or where."""
        self.ready_estimate = max(self.ready_estimate, SOME_JOBS)
        self.expect_any()

    def found_empty(self, events: int, pause_ms: int) -> None:
        """A poll found nothing eligible that began after so many events; the next one comes after this pause."""
        self.pause_ms = pause_ms
        self._empty_at, self.is_full = events, False
        self._trusted_until_s = self._time_s() + pause_ms / 1000

    def found_all_empty(self, changes: int) -> None:
        """All shards were asked and had nothing, and all notify of what comes; it counts where nothing came since."""
        if changes == self.changes:
            self._candidates = set()

    def begin_empty(self) -> None:
        """A claim that ended right before this was made asked all shards, and they had nothing."""
        self.found_all_empty(self.changes)

    def is_empty(self, now_s: float) -> bool:
        """Whether the last poll found nothing, and no event came since; for as long as such a poll is trusted."""
        return self.was_empty() and now_s < self._trusted_until_s

    def was_empty(self) -> bool:
        """The same, however long ago that poll was."""
        return self._empty_at == self.events

    # -- claims ------------------------------------------------------------------------------------------------------

    def begin_claim(self) -> None:
        """The claim takes what was expected."""
        self.ready_estimate, self._empty_at = 0, -1

    def take_candidates(self) -> set[str]:
        """The ids of the shards to ask now; none: all. They count as empty from then on, until `give_back` returns
        them.
        """
        candidates = self._candidates
        if not candidates:
            self._candidates = None
            return set()
        self._candidates = set()
        return candidates

    def give_back(self, candidates: Iterable[str]) -> None:
        """These had jobs, and may have more."""
        if self._candidates is not None:
            self._candidates.update(candidates)

    # -- limits ------------------------------------------------------------------------------------------------------

    def throttle_by(self, throttle: Throttle | None, poll_min_ms: int) -> None:
        """Nothing can be handed out, whatever becomes eligible: until the rate allows a job, or until the next poll
        where too many are in progress, unless some end meanwhile. None: all can be.
        """
        pause_ms = self.pause_ms
        if throttle is not None and throttle.reason == "rate":
            pause_ms = min(max(throttle.retry_after_ms, poll_min_ms), _MAX_THROTTLE_MS)
        self.throttle = throttle
        self.throttled_until_s = 0.0 if throttle is None else self._time_s() + pause_ms / 1000

    def throttled_for(self) -> float:
        """The seconds for which nothing can be handed out yet; 0: all can be."""
        return max(0.0, self.throttled_until_s - self._time_s()) if self.throttled_until_s else 0.0
