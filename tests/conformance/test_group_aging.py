"""Aging between priorities where jobs have groups: these take turns, and no job waits for ever."""

from __future__ import annotations

import pytest

from pinlater.backends.group_store import ReadyCounts
from tests.conformance.bindings import BINDINGS
from tests.conformance.extended_subject import offer_all, offer_of
from tests.conformance.subject import Subject
from tests.conformance.test_priority_aging import LEVELS, aged, bodies, claim

pytestmark = pytest.mark.parametrize("binding", [each.param() for each in BINDINGS if each.has_groups], indirect=True)


async def test_with_groups_too_no_job_waits_for_ever(subject: Subject) -> None:
    await aged(subject, (3, 0), (3, 0), group="a")
    await aged(subject, (3, 0), group="b")
    taken: list[str] = []
    for _ in range(8):
        subject.tick(30)
        await offer_all(subject, *[offer_of(b"high", priority=1, group=group) for group in "abc"])
        taken += await claim(subject, 1)
    assert taken == ["high"] * 6 + ["3:0"] * 2


async def test_a_priority_is_as_high_as_the_oldest_of_its_jobs(subject: Subject) -> None:
    """Whose turn it is goes first, though its own job is young."""
    await aged(subject, (3, 1), (3, 1), group="a")
    await aged(subject, (1, 50), (1, 40), group="a")
    await claim(subject, 1, (3,))  # from now on it is the turn of others
    await aged(subject, (3, 250), (3, 210), group="a")
    await aged(subject, (3, 2), (3, 1), group="b")
    counts = await subject.shard.count_ready(subject.queue, LEVELS, 10, subject.now_ms)
    assert isinstance(counts, ReadyCounts)
    assert (counts, [counts.weights[level] for level in range(3)]) == ([4, 0, 3], [3, 0, 2])
    first, *others = await claim(subject, 10, LEVELS[:1])
    assert (first, sorted(others[:3]), others[3:]) == ("3:2", ["3:1", "3:210", "3:250"], ["1:50", "1:40"])
    assert await claim(subject, 10) == ["3:1"]


async def test_a_look_at_groups_shows_what_a_claim_would_hand_out(subject: Subject) -> None:
    await aged(subject, (3, 250), (1, 50), (2, 120), group="a")
    await aged(subject, (3, 2), (2, 2), (3, 1), group="b")
    await aged(subject, (3, -20), group="c")
    seen = bodies(await subject.shard.peek(subject.queue, LEVELS, 10, 1_000, subject.now_ms))
    assert seen == await claim(subject, 10)
    subject.tick(20)
    seen = bodies(await subject.shard.peek(subject.queue, LEVELS, 10, 1_000, subject.now_ms))
    assert seen == ["3:-20"] == await claim(subject, 10)


async def test_a_look_at_levels_counts_jobs_that_are_not_in_line_yet(subject: Subject) -> None:
    await aged(subject, (3, -20), group="c")
    await aged(subject, (1, -210), group="b")
    subject.tick(220)
    seen = bodies(await subject.shard.peek(subject.queue, LEVELS, 10, 1_000, subject.now_ms))
    assert seen == ["3:-20", "1:-210"] == await claim(subject, 10)


async def test_ready_jobs_outside_and_in_line_are_counted(subject: Subject) -> None:
    await aged(subject, (3, -20), (2, -120), group="a")
    subject.tick(220)
    await aged(subject, (3, 0), (1, -220), group="b")
    counts = await subject.shard.count_ready(subject.queue, LEVELS, 10, subject.now_ms)
    assert isinstance(counts, ReadyCounts)
    assert list(counts) == [4, 0, 0]
