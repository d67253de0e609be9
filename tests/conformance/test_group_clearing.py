"""Groups are taken off the jobs of a queue, step by step, while it goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from pinlater.backends.aged_levels import Level
from pinlater.backends.base import DeadLetterTarget
from pinlater.backends.group_store import ClearedGroups
from pinlater.errors import QueueNotFound
from pinlater.model import JobState
from tests.conformance.bindings import BINDINGS
from tests.conformance.extended_subject import store
from tests.conformance.subject import ALL, START_MS, Subject
from tests.conformance.test_groups import bodies, grouped, groups_of
from tests.conformance.test_priority_aging import LEVELS

pytestmark = pytest.mark.parametrize("binding", [each.param() for each in BINDINGS if each.has_groups], indirect=True)

MOST_STEPS = 500
MANY = 600
"""More than Redis keeps of a hash as a list, which comes in one step whatever the limit is."""


async def clear(subject: Subject, limit: int = 100, *, position: str = "", dry_run: bool = False) -> int:
    """All steps from there on; how many jobs had a group."""
    jobs = 0
    for _ in range(MOST_STEPS):
        step = await subject.shard.clear_groups(subject.queue, position, limit, dry_run)
        jobs += step.jobs
        position = step.position
        if not position:
            return jobs
    raise AssertionError(f"not done in {MOST_STEPS} steps")


async def of_every_kind(subject: Subject) -> list[str]:
    """Jobs of a group: ready, delayed, behind another one of their key, running, and ended in each way."""
    running, succeeded, failed = await grouped(subject, "a", 3)
    for _ in range(3):
        await subject.claim()
    await subject.succeed(succeeded)
    await subject.fail(failed, permanent=True)
    chained = [await store(subject, b"k", group="b", serialize_key="s", dedupe_key=key) for key in "12"]
    late = await store(subject, b"late", group="b", run_after_ms=START_MS + 5)
    full = await store(subject, b"f", group="c", tags=["t"], send_id="i", expires_at_ms=START_MS + 50, dedupe_key="3")
    return [running, succeeded, failed, *chained, late, full]


async def test_no_job_has_a_group_any_more_in_whatever_state(subject: Subject) -> None:
    jobs = await of_every_kind(subject)
    before = [await subject.info(each) for each in jobs]
    assert await clear(subject) == len(jobs)
    for descriptor, had in zip(jobs, before, strict=True):
        info = await subject.info(descriptor)
        assert (had.group, info.group) != (None, had.group)
        had.group = None
        assert info == had
    subject.tick(5)
    assert Counter(bodies(await subject.claim(limit=10))) == {"k": 1, "late": 1, "f": 1}
    assert await clear(subject) == 0


async def test_a_cleared_queue_is_as_one_that_never_had_groups(subject: Subject) -> None:
    await grouped(subject, "a", 4)
    await grouped(subject, "b", 4)
    assert await clear(subject) == 8
    assert await subject.shard.list_groups(subject.queue, (1, 2, 3), "", 10) == {}
    ready = await subject.shard.count_ready(subject.queue, (1,), 10, subject.now_ms)
    assert type(ready) is list
    assert bodies(await subject.claim(limit=8)) == [f"{group}{n}" for group in "ab" for n in range(4)]
    await grouped(subject, "a", 4)
    await grouped(subject, "b", 1)
    assert groups_of(await subject.claim(limit=2)) == {"a": 1, "b": 1}


@pytest.mark.parametrize("levels", [ALL, LEVELS])
@pytest.mark.parametrize("limit", [3, 500])
async def test_claims_between_the_steps_hand_each_job_out_once(
    subject: Subject, limit: int, levels: Sequence[Level]
) -> None:
    jobs = await grouped(subject, "a", 40)
    jobs += [await subject.job(b"plain") for _ in range(20)]
    jobs += await grouped(subject, "b", 40)
    taken, position = [], ""
    for _ in range(MOST_STEPS):
        position = (await subject.shard.clear_groups(subject.queue, position, limit, False)).position
        taken += [job.descriptor for job in await subject.claim(limit=2, priorities=levels)]
        if not position:
            break
    assert not position
    while found := await subject.claim(limit=50, priorities=levels):
        taken += [job.descriptor for job in found]
    assert sorted(taken) == sorted(jobs)


async def test_jobs_come_and_go_at_once_with_the_steps(subject: Subject) -> None:
    taken: list[str] = []

    async def bring() -> None:
        for number in range(20):
            await grouped(subject, f"g{number}-", 5, run_after_ms=START_MS + number % 2)

    async def take() -> None:
        for _ in range(20):
            taken.extend([job.descriptor for job in await subject.claim(limit=3)])

    async def take_off() -> None:
        position = ""
        for _ in range(30):
            position = (await subject.shard.clear_groups(subject.queue, position, 7, False)).position

    await grouped(subject, "first", 5)
    await asyncio.gather(bring(), take(), take_off(), take())
    await clear(subject, 50)
    left = await subject.scan(limit=500) + await subject.scan(limit=500, future=True)
    assert {each.group for each in left} <= {None}
    subject.tick(1)
    while found := await subject.claim(limit=50):
        taken += [job.descriptor for job in found]
    assert len(taken) == 105
    assert len(set(taken)) == 105


async def test_no_job_comes_into_line_meanwhile(subject: Subject) -> None:
    """Else steps would never be done where claims bring as many into line as a step puts back."""
    await grouped(subject, "a", MANY)
    first = await subject.shard.clear_groups(subject.queue, "", 2, False)
    assert first.position
    for _ in range(30):
        await subject.job(b"plain")
    assert groups_of(await subject.claim(limit=MANY + 5)) == {"a": MANY, "plain": 5}
    assert await subject.shard.list_groups(subject.queue, (1, 2, 3), "", 10) == {}
    assert len(await subject.claim(limit=30)) == 25


async def test_jobs_with_groups_that_come_meanwhile_have_turns_and_are_cleared_too(subject: Subject) -> None:
    await grouped(subject, "a", MANY)
    cleared, position = await subject.shard.clear_groups(subject.queue, "", 20, False)
    assert position
    await grouped(subject, "late", MANY, run_after_ms=START_MS + 5)
    await grouped(subject, "b", MANY)
    assert groups_of(await subject.claim(limit=4)) == {"a": 3, "b": 1}  # of those without a group too
    cleared += await clear(subject, 20, position=position)
    assert cleared == 3 * MANY
    assert await clear(subject, dry_run=True) == 0
    subject.tick(5)
    assert len(await subject.claim(limit=3 * MANY)) == 3 * MANY - 4


async def test_what_is_in_line_goes_back_before_it_is_done(subject: Subject) -> None:
    for _ in range(40):
        await subject.job(b"plain")
    await grouped(subject, "a", 1)
    _, position = await subject.shard.clear_groups(subject.queue, "", 50, False)
    await grouped(subject, "b", 1)
    assert len(await subject.claim()) == 1
    assert await clear(subject, 3, position=position) == 1
    assert len(await subject.claim(limit=50)) == 41


async def test_a_clear_that_was_broken_off_is_done_by_the_next_one(subject: Subject) -> None:
    await grouped(subject, "a", MANY)
    first = await subject.shard.clear_groups(subject.queue, "", 20, False)
    assert first.position
    assert first.jobs + await clear(subject, limit=50) == MANY
    assert len(await subject.claim(limit=2 * MANY)) == MANY


async def test_a_count_changes_nothing(subject: Subject) -> None:
    await grouped(subject, "a", MANY)
    await grouped(subject, "b", 1)
    assert await clear(subject, limit=50, dry_run=True) == MANY + 1
    assert groups_of(await subject.claim(limit=2)) == {"a": 1, "b": 1}


async def test_other_queues_keep_their_groups(subject: Subject) -> None:
    other = await subject.beside("other")
    (job,) = await grouped(other, "a", 1)
    await grouped(subject, "a", 5)
    assert await clear(subject) == 5
    assert (await other.info(job)).group == "a"


async def test_dead_letters_lose_their_group_too(subject: Subject) -> None:
    letters = await subject.beside("letters")
    (job,) = await grouped(subject, "a", 1)
    await subject.claimed()
    await subject.ack_with(job, False, permanent=True, dead_letters=True)
    await subject.dead_letter({subject.queue: DeadLetterTarget("letters", 3)})
    (letter,) = await letters.scan(JobState.PENDING)
    assert letter.group == "a"
    assert await clear(letters) == 1
    assert (await letters.info(letter.descriptor)).group is None


async def test_where_there_are_no_groups_nothing_is_cleared(subject: Subject) -> None:
    await subject.job(b"plain")
    assert await subject.shard.clear_groups(subject.queue, "", 10, False) == ClearedGroups(0, "")
    with pytest.raises(QueueNotFound):
        await subject.shard.clear_groups("nowhere", "", 10, False)
