"""Statistics: what is counted page by page is what is there."""

from __future__ import annotations

import pytest

from pinlater.backends.base import ENDED_STATES, LIVE_STATES, LevelCounts, StoredState
from pinlater.model import Job, JobState
from tests.conformance.stats_pages import NO_JOBS, all_pages, jobs_of, whole_stats
from tests.conformance.subject import ALL, START_MS, Subject

LIMITS = [1, 3, 7, 1_000]


async def some_jobs(subject: Subject) -> dict[int, LevelCounts]:
    """Jobs in every state at three priorities, and how many there are."""
    expected = {}
    for priority in ALL:
        for number in range(1 + priority):
            for state in (JobState.SUCCEEDED, JobState.FAILED, JobState.IN_PROGRESS):
                await subject.job_in(state, priority=priority, run_after_ms=START_MS - 50 - number)
    for priority in ALL:
        times = [START_MS - 10 * priority - number for number in range(priority + 2)]
        times += [START_MS + 1 + number for number in range(priority)]
        await subject.enqueue(*[Job(b"", priority, time) for time in times])
        ended = 1 + priority
        expected[priority] = LevelCounts(priority + 2, priority, ended, ended, ended, min(times))
    return expected


@pytest.mark.parametrize("limit", LIMITS)
async def test_the_pages_of_stats_make_together_what_is_there(subject: Subject, limit: int) -> None:
    expected = await some_jobs(subject)
    assert await whole_stats(subject.shard, subject.queue, ALL, subject.now_ms, limit) == expected


async def test_the_sum_of_the_stats_agrees_with_the_counts(subject: Subject) -> None:
    await some_jobs(subject)
    levels = await whole_stats(subject.shard, subject.queue, ALL, subject.now_ms, 4)
    for priority, level in levels.items():
        assert level.ready == await subject.count(JobState.PENDING, priorities=(priority,))
        assert level.scheduled == await subject.count(JobState.PENDING, future=True, priorities=(priority,))
        assert level.in_progress == await subject.count(JobState.IN_PROGRESS, priorities=(priority,))
        assert level.succeeded == await subject.count(JobState.SUCCEEDED, priorities=(priority,))
        assert level.failed == await subject.count(JobState.FAILED, priorities=(priority,))


@pytest.mark.parametrize("limit", [1, 5])
async def test_a_page_counts_about_as_many_as_the_limit_or_all_there_are(subject: Subject, limit: int) -> None:
    await some_jobs(subject)
    pages = await all_pages(subject.shard, subject.queue, ALL, subject.now_ms, limit)
    if len(pages) > 1:
        assert max(jobs_of(page) for page in pages) <= 2 * limit


async def test_jobs_become_ready_as_time_passes(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", run_after_ms=START_MS + ms) for ms in (10, 20, 30)])
    for passed_ms, ready in ((9, 0), (10, 1), (20, 2), (29, 2), (30, 3)):
        subject.now_ms = START_MS + passed_ms
        levels = await whole_stats(subject.shard, subject.queue, ALL, subject.now_ms, 100)
        oldest = START_MS + 10 if ready else None
        assert levels[1] == LevelCounts(ready, 3 - ready, 0, 0, 0, oldest)


async def test_only_the_priorities_asked_for_are_counted(subject: Subject) -> None:
    expected = await some_jobs(subject)
    for wanted in ((2,), (1, 3)):
        levels = await whole_stats(subject.shard, subject.queue, wanted, subject.now_ms, 3)
        assert levels == {priority: expected[priority] for priority in wanted}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("states", [LIVE_STATES, ENDED_STATES])
async def test_only_the_states_asked_for_are_counted(
    subject: Subject, states: tuple[StoredState, ...], limit: int
) -> None:
    expected = await some_jobs(subject)
    levels = await whole_stats(subject.shard, subject.queue, ALL, subject.now_ms, limit, states)
    assert levels == {priority: level.only(states) for priority, level in expected.items()}


async def test_an_empty_queue_counts_nothing_and_other_queues_do_not_count(subject: Subject) -> None:
    await some_jobs(await subject.beside("other"))
    levels = await whole_stats(subject.shard, subject.queue, ALL, subject.now_ms, 100)
    assert set(levels) <= set(ALL)
    assert all(level == NO_JOBS for level in levels.values())


@pytest.mark.parametrize("state", list(JobState))
async def test_what_is_gone_is_not_counted(subject: Subject, state: JobState) -> None:
    for each in reversed(JobState):
        await subject.job_in(each)
    await subject.delete(state)
    levels = await whole_stats(subject.shard, subject.queue, ALL, subject.now_ms, 100)
    fields = {JobState.PENDING: "ready", JobState.IN_PROGRESS: "in_progress"}
    for each in JobState:
        assert getattr(levels[1], fields.get(each, each.name.lower())) == int(each is not state)


async def test_many_jobs_of_one_moment_are_counted_page_by_page(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", run_after_ms=START_MS - 1) for _ in range(50)])
    levels = await whole_stats(subject.shard, subject.queue, (1,), subject.now_ms, 7)
    assert levels == {1: LevelCounts(50, 0, 0, 0, 0, START_MS - 1)}
