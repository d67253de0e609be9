"""Jobs at hand: those that are claimed and wait here for a slot; and how many of each queue to ask for. Pure.

A worker wants as many at hand as its slots begin within half of the longest wait, by what the jobs of each queue took
so far. It asks again when half of these have begun. A queue begins with none, and may have as many as have ended here
since; one whose jobs had to be handed back begins anew.

The longest wait is counted in turns of the event loop's timer: while a job keeps the whole process from going on,
nothing could be handed back, and nothing is late afterwards.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge

from pinlater.model import DequeuedJob
from pinlater_workers.jobs.running_job import RunningJob

MOST = 1_000
"""The most jobs at hand, of all queues together."""
RECENT = 4
"""A queue that has brought nothing in so many dequeues leaves its share to the others."""
OF_LAST = 128
"""About how many of the last jobs of a queue its mean is made of."""
TURNS = 4
"""So many turns make the longest wait."""
MOST_LEAD = 64
"""The most jobs that threads take by themselves."""


class QueueTimes:
    """How long the jobs of one queue took a slot, by the mean of the last. `ended`: how many, since it began anew."""

    __slots__ = ("ended", "mean_s", "took")

    def __init__(self) -> None:
        self.ended = 0
        self.mean_s = 0.0
        self.took = 0
        """Which dequeue last brought a job of it."""

    def note(self, run_s: float, times: int) -> None:
        known = min(self.ended, OF_LAST)
        self.mean_s += (run_s - self.mean_s) * times / (known + times)
        self.ended += times


class PrefetchPlan:
    """How many jobs of each queue to ask for beyond the free slots. `wait_s`: the longest that one may wait here; 0:
    none are asked for.
    """

    def __init__(self, weights: Mapping[str, int], slots: int, wait_s: float) -> None:
        self._weights = weights
        self._slots = slots
        self._slots_s = slots * wait_s / 2
        """The time of slots that the jobs at hand are to take up."""
        self._times = {queue: QueueTimes() for queue in weights}
        self._without: set[str] = set() if wait_s else set(weights)
        self._refill_at = 0
        self._dequeues = 0
        self.lead = 0
        """So many jobs at hand may be with their pool before there is a slot for them: as many as begin in a turn."""

    def took(self, queue: str, jobs: Sequence[DequeuedJob]) -> None:
        """Jobs have come. One that has a single attempt would lose it with this worker, without having begun."""
        self._times[queue].took = self._dequeues
        if queue not in self._without and any(job.attempts_allowed <= 1 for job in jobs):
            self._without.add(queue)

    def ended(self, queue: str, run_s: float, times: int) -> None:
        """So many jobs have ended, each after that time in its slot."""
        self._times[queue].note(run_s, times)

    def handed_back(self, queue: str) -> None:
        """Jobs of it found no slot in time."""
        self._times[queue].ended = 0
        self.lead = 0

    def wants_more(self, at_hand: int) -> bool:
        """Whether it is time to ask, with so many jobs here that have no slot yet."""
        return at_hand <= self._refill_at

    def next(self, at_hand: Counter[str]) -> dict[str, int]:
        """What to ask for now, of the queues of which there is something to ask for: of each as if it were alone, since
        the server gives of it what the queue's part of the limit is. No queue is to bring more than have ended.
        """
        self._dequeues += 1
        self.lead = 0
        wanted: dict[str, int] = {}
        left_s = self._slots_s - sum(self._times[queue].mean_s * count for queue, count in at_hand.items())
        most = float(MOST - at_hand.total())
        active = [
            (queue, self._weights[queue], times)
            for queue, times in self._times.items()
            if times.ended and self._dequeues - times.took <= RECENT and queue not in self._without
        ]
        if active and most > 0 and left_s > 0:
            weight = sum(share for _, share, _ in active)
            mean_s = sum(share * times.mean_s for _, share, times in active) / weight
            self.lead = self._lead(mean_s)
            most = min(most, *(times.ended * weight / share for _, share, times in active))
            if mean_s:
                most = min(most, left_s / mean_s)
            for queue, _, times in active:
                amount = int(min(most, left_s / times.mean_s) if times.mean_s else most)
                if amount > 0:
                    wanted[queue] = amount
        self._refill_at = (at_hand.total() + int(most)) // 2 if wanted else 0
        return wanted

    def _lead(self, mean_s: float) -> int:
        """None where it would be few: the event loop has time enough to begin each job in its slot."""
        lead = self._slots_s / 2 / mean_s if mean_s else MOST_LEAD  # infinite for the least numbers
        return int(min(lead, MOST_LEAD)) if lead >= 2 * self._slots else 0

    def ran_dry(self) -> None:
        """The servers had fewer than were asked for: they are asked again when nothing is at hand."""
        self._refill_at = 0


Place = tuple[int, int, int, int, RunningJob]
"""The turn of arrival, priority, run_after, the order of arrival, and the job.

The turn counts first: else the jobs of a queue that came late would stand behind all those of an older queue, turn
after turn, whatever the weights are.
"""


class JobsAtHand:
    """Jobs that wait for a slot, in the order in which they are to begin."""

    def __init__(self) -> None:
        self._places: deque[Place] = deque()
        self._arrived = 0
        self._turn = 0
        self._begun = 0
        self._begun_before: deque[int] = deque(maxlen=TURNS)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, running: RunningJob) -> bool:
        return any(place[-1] is running for place in self._places)

    def __iter__(self) -> Iterator[RunningJob]:
        return (place[-1] for place in self._places)

    def add(self, jobs: Sequence[RunningJob]) -> None:
        """Those of one dequeue."""
        for running in jobs:
            running.turn = self._turn
        self._insert(jobs)

    def put_back(self, jobs: Sequence[RunningJob]) -> None:
        """These were taken, and have not begun after all."""
        self._begun -= len(jobs)
        self._insert(jobs)

    def _insert(self, jobs: Sequence[RunningJob]) -> None:
        places = self._places
        new: list[Place] = []
        for running in jobs:
            self._arrived += 1
            new.append((running.turn, running.job.priority, running.job.run_after_ms, self._arrived, running))
        new.sort()
        if places and new and new[0] < places[-1]:
            self._places = deque(merge(places, new))
        else:
            places.extend(new)

    def take(self, slots: int) -> list[RunningJob]:
        """The next that begin."""
        places = self._places
        count = min(slots, len(places))
        self._begun += count
        return [places.popleft()[-1] for _ in range(count)]

    def discard(self, running: RunningJob) -> bool:
        """Takes it out; whether it was there."""
        kept = deque(place for place in self._places if place[-1] is not running)
        found = len(kept) < len(self._places)
        self._places = kept
        return found

    def take_all(self) -> list[RunningJob]:
        left = list(self)
        self._places.clear()
        return left

    def turn(self) -> list[RunningJob]:
        """A further turn has passed: takes out the jobs that have waited for the longest wait, but for as many as began
        in that time, which begin in a moment; these go when they have waited twice as long.
        """
        self._turn += 1
        self._begun_before.append(self._begun)
        self._begun = 0
        soon = sum(self._begun_before)
        late, latest = self._turn - TURNS, self._turn - 2 * TURNS + 1
        overdue = [
            place
            for number, place in enumerate(self._places)
            if place[-1].turn < latest or (number >= soon and place[-1].turn < late)
        ]
        if overdue:
            gone = set(overdue)
            self._places = deque(place for place in self._places if place not in gone)
        return [place[-1] for place in overdue]

    def of(self) -> Counter[str]:
        """How many there are, by queue."""
        return Counter(running.queue for running in self)
