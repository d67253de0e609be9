"""What a poller knows of its queue is never less than what is there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pinlater.service.longpoll.known_queue import SOME_JOBS, TRUSTED_S, KnownQueue
from pinlater.service.queue_limits import Throttle

SHARDS = ("a", "b", "c")
shards = st.sampled_from(SHARDS)
a_few = st.integers(1, 3)
notified = st.tuples(st.just("notified"), shards, a_few)
events = st.one_of(
    notified,
    st.tuples(st.just("announced"), shards, a_few),
    st.tuples(st.just("unreported"), shards, a_few),
    st.tuples(st.just("taken_elsewhere"), shards),
    st.tuples(st.just("waiter_joined")),
    st.tuples(st.just("failed")),
    st.tuples(st.just("time_passed")),
    st.tuples(st.just("sent_ahead"), shards, a_few),
    st.tuples(st.just("announced_after")),
)
meanwhile = st.lists(events, max_size=2)
poll = st.tuples(st.just("poll"), meanwhile)
come_again = st.tuples(st.just("came_again"), meanwhile)
claim = st.tuples(st.just("claim"), a_few, st.just([]) | meanwhile)
anything = st.one_of(
    notified, notified, claim, claim, poll, come_again, events
)  # most, where the shards with jobs are known
Event = tuple[Any, ...]
TAKEN_BEFORE_IT_IS_ANNOUNCED: list[Event] = [
    ("notified", "b", 1),
    ("sent_ahead", "a", 1),
    ("taken_elsewhere", "a"),
    ("came_again", []),
    ("notified", "a", 1),
]


class Queue:
    """Jobs on three shards, and what a poller knows of them. A question is answered as of when it was asked, and read
    after what happened meanwhile: no answer can lag longer.
    """

    def __init__(self) -> None:
        self.time_s = 100.0
        self.jobs = dict.fromkeys(SHARDS, 0)
        self.known = KnownQueue(5, lambda: self.time_s)
        self.to_announce: list[tuple[int, str]] = []
        self.was_empty = True
        """Everybody who waits was waiting at a moment when no shard had a job."""

    def happen(self, event: Event) -> None:
        name, *values = event
        getattr(self, name)(*values)
        self.was_empty = self.was_empty or not any(self.jobs.values())

    def notified(self, shard: str, jobs: int) -> None:
        self.jobs[shard] += jobs
        self.known.expect(jobs, shard)

    def announced(self, shard: str, jobs: int) -> None:
        """By a change of this server that does not name the shard."""
        self.jobs[shard] += jobs
        self.known.expect(jobs)

    def sent_ahead(self, shard: str, jobs: int) -> None:
        """By an enqueue of this server, behind which a claim is sent: it is announced later."""
        self.jobs[shard] += jobs
        self.known.expect_ahead(jobs, shard)
        self.to_announce.append((jobs, shard))

    def announced_after(self) -> None:
        if self.to_announce:
            self.known.expect(*self.to_announce.pop(0))

    def unreported(self, shard: str, jobs: int) -> None:
        """While a subscription broke."""
        self.jobs[shard] += jobs
        self.known.distrust()

    def taken_elsewhere(self, shard: str) -> None:
        self.jobs[shard] = 0

    def waiter_joined(self) -> None:
        self.known.joined_unseen()
        self.was_empty = False

    def time_passed(self) -> None:
        self.time_s += 1.1

    def failed(self) -> None:
        self.known.fail()

    def poll(self, meanwhile: list[Event]) -> None:
        known = self.known
        events, changes = known.events, known.changes
        known.due_passed = known.is_stale = False
        is_due = any(self.jobs.values())
        for event in meanwhile:
            self.happen(event)
        if is_due:
            known.found_due()
        elif not known.is_stale:
            known.found_empty(events, 1_500)
            known.found_at((), changes)

    def claim(self, limit: int, meanwhile: list[Event]) -> None:
        known = self.known
        known.begin_claim()
        candidates, in_order, _ = known.take_candidates()
        assert self.was_empty or not (candidates and in_order)
        changes = known.changes
        with_jobs = [shard for shard in candidates or SHARDS if self.jobs[shard]]
        for shard in with_jobs:
            taken = min(self.jobs[shard], limit)
            self.jobs[shard] -= taken
            limit -= taken
        self.was_empty = self.was_empty or not any(self.jobs.values())
        for event in meanwhile:
            self.happen(event)
        if not candidates:
            known.found_at(with_jobs, changes)
        elif with_jobs:
            known.give_back(candidates)

    def came_again(self, meanwhile: list[Event]) -> None:
        """A dequeue that asks only the shards that may have jobs, and joins."""
        known = self.known
        shard_ids, events, changes = known.worth_asking(), known.events, known.changes
        empty = [shard for shard in shard_ids or () if not self.jobs[shard]]
        is_empty = shard_ids is not None and len(empty) == len(shard_ids)
        for event in meanwhile:
            self.happen(event)
        known.found_none_at(empty, changes)
        if is_empty and known.events == events:
            known.found_empty(events, 1_500)
        self.waiter_joined()


@settings(max_examples=2000)
@given(st.lists(anything, max_size=10), shards)
@example(TAKEN_BEFORE_IT_IS_ANNOUNCED, "a")
def test_no_job_is_where_nobody_would_look(happened: list[Event], last: str) -> None:
    queue = Queue()
    queue.poll([])
    for event in happened:
        queue.happen(event)
    with_jobs = {shard for shard in SHARDS if queue.jobs[shard]}
    if with_jobs:
        assert not queue.known.was_empty()
        assert not queue.known.is_empty(queue.time_s)
    queue.known.expect(0, last)  # with no candidate at all, every shard is asked
    candidates = queue.known.take_candidates()
    assert not candidates.shard_ids or with_jobs <= candidates.shard_ids
    assert queue.was_empty or not (candidates.shard_ids and candidates.in_order)


@given(st.lists(a_few, min_size=1), st.integers(-3, 0))
def test_what_is_announced_is_expected_until_a_claim_begins(announced: list[int], before: int) -> None:
    queue = Queue()
    queue.known.ready_estimate = before
    for jobs in announced:
        assert queue.known.expect(jobs)
    assert queue.known.ready_estimate == before + sum(announced)
    queue.known.begin_claim()
    assert queue.known.ready_estimate == 0


def test_an_empty_queue_is_trusted_until_its_next_poll_or_an_event() -> None:
    queue = Queue()
    queue.poll([])
    assert queue.known.is_empty(queue.time_s)
    assert not queue.known.is_empty(queue.time_s + 1.6)
    assert queue.known.was_empty()
    queue.known.expect(1, SHARDS[0])
    assert not queue.known.was_empty()
    assert queue.known.take_candidates() == ({SHARDS[0]}, True, True)


def test_what_came_to_a_shard_while_it_was_asked_is_not_forgotten() -> None:
    known = Queue().known
    known.found_at(("a", "b"), known.changes)
    changes = known.changes
    known.expect(1, "a")
    known.found_none_at(("a",), changes)
    assert known.worth_asking() == {"a", "b"}
    known.found_none_at(("a",), known.changes)
    assert known.worth_asking() == {"b"}


def test_jobs_that_were_claimed_ahead_are_expected_once() -> None:
    known = Queue().known
    known.found_at((), known.changes)
    known.expect_ahead(1, "a")
    known.begin_claim()
    assert known.take_candidates().shard_ids == {"a"}
    known.ready_estimate -= 1
    known.expect(1, "a")
    assert (known.ready_estimate, known.worth_asking()) == (0, set())
    known.expect(1, "a")
    assert (known.ready_estimate, known.worth_asking()) == (1, {"a"})


def test_what_all_shards_said_is_trusted_for_a_while() -> None:
    queue = Queue()
    queue.poll([])
    assert queue.known.worth_asking() == set()
    queue.known.expect(1, SHARDS[0])
    queue.time_s += TRUSTED_S - 0.01
    assert queue.known.worth_asking() == {SHARDS[0]}
    queue.time_s += 0.1
    assert queue.known.worth_asking() is None
    assert queue.known.take_candidates() == (set(), True, False)


def test_a_throttled_queue_expects_nothing_until_the_rate_allows_a_job() -> None:
    queue = Queue()
    known = queue.known
    known.throttle_by(Throttle("mail", 2.0, 400), 5)
    assert known.throttled_for() == pytest.approx(0.4)
    assert not known.expect(1)
    assert not known.distrust()
    assert (known.ready_estimate, known.pause_ms) == (0, 5)
    queue.time_s += 0.5
    assert known.throttled_for() == 0
    assert known.expect(1)
    known.throttle_by(Throttle("mail", 0.001, 3_600_000), 5)
    assert known.throttled_for() == pytest.approx(1), "others may give tokens back"
    known.unthrottle()
    assert (known.throttled_for(), known.pause_ms) == (0, 0)


def test_jobs_that_are_due_are_expected_whatever_was_handed_out_ahead() -> None:
    queue = Queue()
    queue.known.ready_estimate = -7
    queue.known.found_due()
    assert queue.known.ready_estimate == SOME_JOBS
