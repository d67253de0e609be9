"""The rules for groups by name: weights, and pauses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import pytest

from pinlater.backends.aged_levels import levels_of
from pinlater.backends.base import ClaimRequest, ConfigEntry
from pinlater.backends.group_rules import GROUP_RULES_PREFIX
from pinlater.backends.group_store import GroupCounts, ReadyCounts
from pinlater.errors import QueueNotFound
from pinlater.model import ClaimOutcome, DequeuedJob, JobState, new_version
from tests.conformance.bindings import BINDINGS
from tests.conformance.extended_subject import store
from tests.conformance.subject import START_MS, Subject, key_of
from tests.conformance.test_groups import GROUPS, Walk, bodies, grouped, groups_of

pytestmark = pytest.mark.parametrize("binding", [each.param() for each in BINDINGS if each.has_groups], indirect=True)

Texts = Mapping[str, str]
NONE: Mapping[str, Texts] = {}


async def version_above(subject: Subject, *names: str) -> str:
    """A version of now, above those that these entries have."""
    entries = {each.name: each.version for each in (await subject.shard.list_config(0, 1_000)).entries}
    return new_version(subject.now_ms, max(entries.get(name, "") for name in names))


async def put_rules(
    subject: Subject, groups: Mapping[str, Texts] = NONE, patterns: Mapping[str, Texts] = NONE, version: str = ""
) -> bool:
    """The rules for the groups of the subject's queue, as of now or of this version."""
    name = GROUP_RULES_PREFIX + subject.queue
    text = json.dumps({"groups": groups, "patterns": list(patterns.items())})
    entry = ConfigEntry(name, version or await version_above(subject, name, subject.queue), text)
    (is_taken,) = await subject.shard.put_config([entry], subject.now_ms)
    return is_taken


async def pause(subject: Subject, *groups: str, until: str = "none") -> None:
    subject.tick(1)
    assert await put_rules(subject, {each: {"paused": "true", "paused_until": until} for each in groups})


async def ready(subject: Subject, *priorities: int) -> list[int]:
    return list(await subject.shard.count_ready(subject.queue, priorities, 100, subject.now_ms))


async def peek(subject: Subject, limit: int) -> list[DequeuedJob]:
    return await subject.shard.peek(subject.queue, (1,), limit, 10_000, subject.now_ms)


# -- weights -----------------------------------------------------------------------------------------------------------


async def test_groups_have_turns_by_their_weights(subject: Subject) -> None:
    await put_rules(subject, {"b": {"weight": "3"}, "c": {"weight": "7"}})
    for group in "abc":
        await grouped(subject, group, 100)
    assert groups_of(await subject.claim(limit=110)) == {"a": 10, "b": 30, "c": 70}
    assert groups_of(await subject.claim(limit=11)) == {"a": 1, "b": 3, "c": 7}


async def test_shares_are_exact_over_calls_of_any_size(subject: Subject) -> None:
    await put_rules(subject, {"b": {"weight": "3"}})
    await grouped(subject, "a", 40)
    await grouped(subject, "b", 90)
    taken: Counter[str] = Counter()
    for limit in (1, 2, 5, 1, 1, 30, 4, 36):
        taken += groups_of(await subject.claim(limit=limit))
    assert taken == {"a": 20, "b": 60}


async def test_a_group_that_comes_back_keeps_the_turns_that_it_had_ahead(subject: Subject) -> None:
    await put_rules(subject, {"b": {"weight": "4"}})
    await grouped(subject, "a", 1)
    await grouped(subject, "b", 9)
    assert groups_of(await subject.claim(limit=1)) == {"a": 1}
    await grouped(subject, "a", 1)
    assert groups_of(await subject.claim(limit=4)) == {"b": 4}


async def test_where_nobody_waits_all_begin_beside_each_other(subject: Subject) -> None:
    await put_rules(subject, {"b": {"weight": "4"}})
    await grouped(subject, "a", 1)
    await grouped(subject, "b", 2)
    await subject.claim(limit=1)  # a has its next turn behind both of b
    await subject.claim(limit=2)
    await grouped(subject, "c", 2)
    await grouped(subject, "a", 2)
    assert groups_of(await subject.claim(limit=1)) == {"a": 1}


async def test_a_job_waits_for_no_more_than_the_weights_of_others(subject: Subject) -> None:
    await put_rules(subject, {"heavy": {"weight": "5"}, "calm": {"weight": "2"}})
    await grouped(subject, "heavy", 100)
    await grouped(subject, "plain", 100)
    await subject.claim(limit=37)
    await grouped(subject, "calm", 1)
    most = -(-5 // 2) + 1 + 1 + 1  # ceil(5/2) of heavy, one of plain, and one more of each
    assert "calm0" in bodies(await subject.claim(limit=most + 1))


async def test_a_name_counts_before_patterns_and_the_longest_part_before_others(subject: Subject) -> None:
    patterns = {"*-paying-*": {"weight": "4"}, "x*": {"weight": "2"}}  # in the order in which the server writes them
    for group in ("x-paying-1", "x-paying-2", "x-3", "y"):
        await grouped(subject, f"{group}-", 60)
    await put_rules(subject, {"x-paying-1-": {"weight": "8"}}, patterns)
    taken = groups_of(await subject.claim(limit=60))
    assert taken == {"x-paying-1-": 32, "x-paying-2-": 16, "x-3-": 8, "y-": 4}


async def test_jobs_without_a_group_go_on_beside_rules_for_patterns(subject: Subject) -> None:
    await put_rules(subject, {}, {"x*": {"weight": "2"}})
    await grouped(subject, "x", 2)
    await grouped(subject, "", 1)
    assert groups_of(await subject.claim(limit=9)) == {"x": 2, "": 1}


async def test_a_count_adds_up_the_weights_of_groups_that_wait(subject: Subject) -> None:
    await put_rules(subject, {"b": {"weight": "3"}, "away": {"weight": "9"}}, {"c*": {"weight": "5"}})
    for group in ("a", "b", "c1-", "c2-"):
        await grouped(subject, group, 2)
    await grouped(subject, "b", 1, priority=2)
    counts = await subject.shard.count_ready(subject.queue, (1, 2), 100, subject.now_ms)
    assert isinstance(counts, ReadyCounts)
    assert (counts, counts.weights[0], counts.weights[1]) == ([8, 1], 1 + 3 + 5 + 5, 3)
    waiting = {1: {"a": 1, "b": 3, "c1-": 5, "c2-": 5}, 2: {"b": 3}, 3: {}}
    assert await subject.shard.waiting_groups(subject.queue, (1, 2, 3)) == waiting


async def test_no_group_waits_in_a_queue_without_groups(subject: Subject) -> None:
    await subject.job(b"plain")
    assert await subject.shard.waiting_groups(subject.queue, (1, 2)) == {}
    with pytest.raises(QueueNotFound):
        await subject.shard.waiting_groups("gone", (1,))


@pytest.mark.parametrize("most", [0, 100])
@pytest.mark.parametrize("limit", [1, 12])
async def test_turns_of_a_group_on_several_shards_cost_so_many_times_as_much(
    subject: Subject, limit: int, most: int
) -> None:
    await put_rules(subject, {"ü": {"weight": "2"}})
    for group in ("flood", "ü", "here"):
        await grouped(subject, group, 60)
        await grouped(subject, group, 10, priority=2)
    spread = {1: {"flood": 4, "ü": 2, "away": 3}, 2: {"here": 7}}
    taken: Counter[str] = Counter()
    for _ in range(36 // limit):
        taken += groups_of(await subject.claim(limit, spread=spread, most_of_group=most))
    assert taken == {"flood": 4, "ü": 16, "here": 16}
    assert groups_of(await subject.claim(9)) == {"flood": 3, "ü": 4, "here": 2}


async def test_a_requeue_gives_back_what_the_turn_cost(subject: Subject) -> None:
    await put_rules(subject, {"b": {"weight": "3"}})
    await grouped(subject, "a", 30)
    await grouped(subject, "b", 60)
    taken = await subject.claim(limit=20)
    assert groups_of(taken) == {"a": 5, "b": 15}
    assert await subject.requeue(*[job for job in taken if groups_of([job])["b"]]) == 15
    assert groups_of(await subject.claim(limit=19)) == {"a": 1, "b": 18}


# -- pauses ------------------------------------------------------------------------------------------------------------


async def test_no_job_of_a_paused_group_is_handed_out_and_others_go_on(subject: Subject) -> None:
    await grouped(subject, "a", 20)
    await grouped(subject, "b", 20)
    await pause(subject, "a")
    assert groups_of(await subject.claim(limit=15)) == {"b": 15}
    await grouped(subject, "a", 1)
    assert groups_of(await subject.claim(limit=15)) == {"b": 5}
    assert await subject.claim(limit=15) == []
    subject.tick(1)
    await put_rules(subject)
    await grouped(subject, "b", 20)
    assert groups_of(await subject.claim(limit=10)) == {"a": 5, "b": 5}


async def test_jobs_of_paused_groups_are_not_ready_for_a_claim(subject: Subject) -> None:
    await grouped(subject, "a", 20)
    await grouped(subject, "b", 3, priority=2)
    await pause(subject, "a")
    assert groups_of(await subject.claim(limit=15, priorities=(1, 2))) == {"b": 3}
    assert await ready(subject, 1, 2) == [0, 0]
    await grouped(subject, "b", 2)
    await grouped(subject, "a", 2)
    assert await ready(subject, 1, 2) == [2, 0]
    assert bodies(await peek(subject, 9)) == ["b0", "b1"]


async def test_jobs_of_paused_groups_are_not_ready_where_priorities_age(subject: Subject) -> None:
    levels = levels_of((1, 2), 600)
    await grouped(subject, "a", 5, priority=2)
    await grouped(subject, "b", 2, priority=2)
    await pause(subject, "a")
    assert groups_of(await subject.claim(limit=9, priorities=levels)) == {"b": 2}
    assert await subject.shard.count_ready(subject.queue, levels, 100, subject.now_ms) == [0, 0]
    await grouped(subject, "b", 1, priority=2)
    assert await subject.shard.count_ready(subject.queue, levels, 100, subject.now_ms) == [0, 1]


async def test_a_look_passes_over_paused_groups_that_no_claim_has_met(subject: Subject) -> None:
    for number in range(9):
        await grouped(subject, f"a{number}-", 2)
    await grouped(subject, "b", 2)
    await pause(subject, *[f"a{number}-" for number in range(9)])
    assert bodies(await peek(subject, 3)) == ["b0", "b1"]
    assert bodies(await subject.claim(limit=3)) == ["b0", "b1"]


async def test_a_pause_ends_by_itself(subject: Subject) -> None:
    await grouped(subject, "a", 5)
    await pause(subject, "a", until=str(START_MS + 60))
    assert await subject.claim(limit=9) == []
    subject.now_ms = START_MS + 59
    assert await subject.claim(limit=9) == []
    assert await ready(subject, 1) == [0]
    subject.tick(1)
    assert await ready(subject, 1) == [5]
    assert groups_of(await subject.claim(limit=9)) == {"a": 5}


async def test_a_group_has_no_credit_for_its_pause_and_keeps_turns_ahead(subject: Subject) -> None:
    await grouped(subject, "a", 50)
    await grouped(subject, "b", 50)
    await pause(subject, "a")
    assert groups_of(await subject.claim(limit=20)) == {"b": 20}
    subject.tick(1)
    await put_rules(subject)
    assert groups_of(await subject.claim(limit=11)) == {"a": 6, "b": 5}


async def test_what_leaves_the_line_of_a_paused_group_does_not_come_back_with_it(subject: Subject) -> None:
    (only,) = await grouped(subject, "a", 1)
    await grouped(subject, "b", 1)
    await pause(subject, "a")
    assert bodies(await subject.claim(limit=9)) == ["b0"]
    assert await subject.delete_listed(JobState.PENDING, only) == 1
    subject.tick(1)
    await put_rules(subject)
    assert await subject.claim(limit=9) == []
    await grouped(subject, "b", 2)
    counts = await subject.shard.count_ready(subject.queue, (1,), 100, subject.now_ms)
    assert isinstance(counts, ReadyCounts)
    assert counts.weights[0] == 1
    await grouped(subject, "a", 2)
    assert groups_of(await subject.claim(limit=2)) == {"a": 1, "b": 1}


async def test_jobs_that_become_due_in_a_paused_group_wait_too(subject: Subject) -> None:
    await grouped(subject, "a", 2, run_after_ms=START_MS + 10)
    await pause(subject, "a")
    subject.tick(20)
    assert await subject.claim(limit=9) == []
    assert await subject.claim(limit=9) == []
    subject.tick(1)
    await put_rules(subject)
    assert len(await subject.claim(limit=9)) == 2


async def test_a_named_job_of_a_paused_group_is_not_handed_out(subject: Subject) -> None:
    (held,) = await grouped(subject, "a", 1)
    (free,) = await grouped(subject, "b", 1)
    late = (await grouped(subject, "a", 1, run_after_ms=START_MS + 1))[0]
    await pause(subject, "a")
    request = ClaimRequest("w:1:1:1:w", 9, (1,), 1_000, 1_000)
    jobs = [key_of(each) for each in (held, free, late)]
    answers = await subject.shard.claim_listed(subject.queue, jobs, request, subject.now_ms)
    limited = ClaimOutcome.LIMITED
    assert [each.outcome for each in answers] == [limited, ClaimOutcome.CLAIMED, limited]


async def test_rules_of_a_deleted_queue_do_not_count_for_the_next_one_of_its_name(subject: Subject) -> None:
    await grouped(subject, "a", 1)
    await pause(subject, "a")
    assert await subject.claim() == []
    subject.tick(1)
    late = await version_above(subject, GROUP_RULES_PREFIX + subject.queue)
    gone = new_version(0, late)
    entries = ConfigEntry(subject.queue, gone, "{}", gone), ConfigEntry(subject.queue, new_version(0, gone), "{}", gone)
    assert await subject.shard.put_config(entries, subject.now_ms) == [True, True]
    await grouped(subject, "a", 2)
    assert bodies(await subject.claim()) == ["a0"]
    assert await put_rules(subject, {"a": {"paused": "true"}}, version=late), "as a shard that was away has it"
    assert bodies(await subject.claim()) == ["a1"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"groups": 3}', '{"groups": {"a": {"weight": "heavy"}}}', '{"groups": {"a": 1}}']
)
async def test_rules_in_a_form_of_a_later_version_count_for_nothing(subject: Subject, text: str) -> None:
    await grouped(subject, "a", 4)
    await pause(subject, "a")
    name = GROUP_RULES_PREFIX + subject.queue
    entry = ConfigEntry(name, await version_above(subject, name), text)
    assert await subject.shard.put_config([entry], subject.now_ms) == [True]
    await grouped(subject, "b", 4)
    assert groups_of(await subject.claim(limit=4)) == {"a": 2, "b": 2}


async def test_rules_older_than_those_here_are_not_taken(subject: Subject) -> None:
    await grouped(subject, "a", 2)
    await pause(subject, "a")
    assert not await put_rules(subject, version=new_version(0))
    assert await subject.claim() == []


# -- a list ------------------------------------------------------------------------------------------------------------


async def test_groups_are_listed_by_name_with_their_jobs_in_line(subject: Subject) -> None:
    for group in ("b", "a", "ü"):
        await grouped(subject, group, 3)
    await grouped(subject, "b", 2, priority=2, run_after_ms=START_MS - 7)
    await grouped(subject, "gone", 1, priority=3)
    await subject.claim(priorities=(3,))
    await store(subject, b"plain")
    listed = await subject.shard.list_groups(subject.queue, (1, 2, 3), "", 10)
    assert list(listed.items()) == [
        ("a", GroupCounts(3, START_MS)),
        ("b", GroupCounts(5, START_MS - 7)),
        ("ü", GroupCounts(3, START_MS)),
    ]
    assert list(await subject.shard.list_groups(subject.queue, (1, 2, 3), "", 2)) == ["a", "b"]
    assert list(await subject.shard.list_groups(subject.queue, (1, 2, 3), "b", 2)) == ["b", "ü"]
    await pause(subject, "a")
    await subject.claim(limit=99)
    assert list(await subject.shard.list_groups(subject.queue, (1,), "", 10)) == ["a"]


# -- calls by chance ---------------------------------------------------------------------------------------------------


class RuledWalk(Walk):
    """Calls by chance, in a queue whose groups have weights, and are paused now and then."""

    WEIGHTS = {"a": 4, "b": 2}

    async def begin(self) -> None:
        await self._put(set())
        for priority in (1, 2):
            self.turns[priority].weights = self.WEIGHTS

    async def _put(self, paused: set[str]) -> None:
        rules = {group: {"weight": str(weight)} for group, weight in self.WEIGHTS.items()}
        for group in paused:
            rules[group] = rules.get(group, {}) | {"paused": "true"}
        assert await put_rules(self.subject, rules)

    async def pause(self) -> None:
        paused = set(self.rng.sample(GROUPS[1:], self.rng.choice((0, 1, 2))))
        await self._put(paused)
        for priority in (1, 2):
            self.turns[priority].pause(paused)

    async def finish(self) -> None:
        await self._put(set())
        for turns in self.turns.values():
            turns.pause(set())
        await super().finish()


@pytest.mark.parametrize("seed", range(3))
async def test_calls_by_chance_keep_the_weights(subject: Subject, seed: int) -> None:
    walk = RuledWalk(subject, seed)
    await walk.begin()
    for _ in range(120):
        await walk.step()


@pytest.mark.parametrize("seed", range(5))
async def test_calls_by_chance_keep_the_pauses(subject: Subject, seed: int) -> None:
    walk = RuledWalk(subject, seed)
    await walk.begin()
    for number in range(160):
        await (walk.pause() if number % 8 == 0 else walk.step())
    await walk.finish()
