"""Rules of the state machine: operators, maintenance, and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import multiple, rule

from pinlater.backends.base import DeadLetterTarget, EndRules, JobKey, Retention
from pinlater.model import JobState
from tests.conformance import machine_base as base
from tests.conformance.machine_base import Named, given
from tests.conformance.machine_life import LifeRules
from tests.conformance.seen import total
from tests.conformance.subject import key_of

TARGETS: list[dict[str, str]] = [{"one": "two", "two": "one"}, {"one": "two"}, {"two": "one"}, {"one": "none"}, {}]


class OperatorRules(LifeRules):
    @rule(queue=base.queues, priority=base.priorities, allowed=base.attempts, offset=base.offsets, limit=base.limits)
    def retry_failed(self, queue: str, priority: int, allowed: int, offset: int | None, limit: int) -> None:
        run_after_ms = None if offset is None else self.now_ms + offset
        arguments = (priority, allowed, run_after_ms, limit, self.now_ms)
        self.both(
            lambda name: self.shard.retry_failed(name, *arguments),
            lambda name: self.reference.retry_failed(name, *arguments),
            queue,
        )

    @given(base.jobs)
    @rule(named=st.lists(base.jobs, min_size=1), allowed=st.one_of(st.none(), base.attempts), offset=base.offsets)
    def retry_listed(self, named: Sequence[Named], allowed: int | None, offset: int | None) -> None:
        run_after_ms = None if offset is None else self.now_ms + offset
        arguments = (self.one_with_keys(named), allowed, run_after_ms, self.now_ms)
        self.both(
            lambda name: self.shard.retry_listed(name, *arguments),
            lambda name: self.reference.retry_listed(name, *arguments),
            named[0].queue,
        )

    def one_with_keys(self, named: Sequence[Named]) -> list[JobKey]:
        """In which order jobs of one call take their places is not said: of those with keys only the first."""
        chosen: list[JobKey] = []
        name, any_keys = named[0].queue + self.suffix, False
        for each in named:
            job = self.reference.find(name, *each.key)
            has_keys = job is not None and bool(job.dedupe_key or job.serialize_key)
            if not (has_keys and any_keys):
                chosen.append(each.key)
            any_keys = any_keys or has_keys
        return chosen

    @rule(queue=base.queues, state=base.states, priority=base.priorities, limit=base.limits, sure=st.integers(0, 2))
    def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, sure: int) -> None:
        if sure:
            return
        name = queue + self.suffix
        deleted = self.drained(lambda: self.shard.delete_jobs(name, state, priority, limit, self.now_ms))
        assert max(deleted, default=0) <= limit
        assert sum(deleted) == (
            self.on_reference(lambda: self.reference.delete_all(name, state, priority, self.now_ms)) or 0
        )

    @given(base.jobs)
    @rule(named=st.lists(base.jobs, min_size=1), state=base.states)
    def delete_listed(self, named: Sequence[Named], state: JobState) -> None:
        keys = [each.key for each in named]
        self.both(
            lambda name: self.shard.delete_listed(name, state, keys, self.now_ms),
            lambda name: self.reference.delete_listed(name, state, keys, self.now_ms),
            named[0].queue,
        )

    @rule(
        limit=base.limits,
        default=base.end_rules,
        of=st.dictionaries(base.queues, base.own_end_rules, max_size=1),
    )
    def expire(self, limit: int, default: EndRules, of: dict[str, EndRules]) -> None:
        rules = self.per_queue(default, of)
        answers = self.drained(lambda: self.shard.expire_claims(limit, self.now_ms, rules))
        assert all(sum(map(sum, counts.values())) <= limit for counts in answers)
        by_queue = {
            queue: total([each[queue] for each in answers if queue in each]) for each in answers for queue in each
        }
        assert by_queue == self.reference.expire_all(self.now_ms, rules)

    @rule(
        limit=base.limits,
        default=base.retentions,
        of=st.dictionaries(base.queues, base.retentions, max_size=1),
    )
    def collect(self, limit: int, default: Retention, of: dict[str, Retention]) -> None:
        retention = self.per_queue(default, of)
        answers = self.drained(lambda: self.shard.prune(limit, self.now_ms, retention))
        by_queue = {queue: sum(each.get(queue, 0) for each in answers) for each in answers for queue in each}
        by_queue.pop("", None)
        assert by_queue == self.reference.collect_all(self.now_ms, retention)

    # -- dead letters ------------------------------------------------------------------------------------------------

    @rule(
        targets=(base.jobs, base.letters),
        limit=base.limits,
        chosen=st.sampled_from(TARGETS),
        allowed=base.attempts,
        dying=st.one_of(st.none(), base.queues),
    )
    def dead_letter(self, limit: int, chosen: dict[str, str], allowed: int, dying: str | None) -> Any:
        """`dying`: where some jobs fail just before."""
        if dying is not None:
            self.end_some(dying, limit, False, EndRules(dead_letters=True))
        targets = {
            queue + self.suffix: DeadLetterTarget(target + self.suffix, allowed) for queue, target in chosen.items()
        }
        due = self.reference.dead_letters_due(targets)
        answers = self.drained(lambda: self.shard.dead_letter(limit, self.now_ms, targets))
        assert all(sum(counts.values()) <= limit for counts in answers)
        by_queue = {queue: sum(each.get(queue, 0) for each in answers) for each in answers for queue in each}
        assert by_queue == {queue: sum(each == queue for each, _, _ in due) for queue, _, _ in due}
        letters = []
        for queue, job, target in due:
            info = self.find_original(queue, self.reference.descriptor(queue, job))
            assert info.moved_to is not None
            key = key_of(info.moved_to)
            self.reference.dead_letter(queue, job, target, key.id, self.now_ms)
            short = target.queue.removesuffix(self.suffix)
            assert key not in self.known[short]
            self.known[short].append(key)
            letters.append(Named(short, key))
        return multiple(*letters)

    def find_original(self, queue: str, descriptor: str) -> Any:
        found = self.on_shard(self.shard.lookup(queue, [key_of(descriptor)], with_body=False, max_bytes=1))
        assert found is not None
        assert found[0] is not None
        return found[0]

    @given(base.letters)
    @rule(
        target=base.jobs,
        named=st.lists(st.one_of(base.letters, base.jobs), min_size=1, max_size=4),
        allowed=st.one_of(st.none(), base.attempts),
    )
    def replay(self, named: Sequence[Named], allowed: int | None) -> Any:
        name = named[0].queue + self.suffix
        keys = [each.key for each in named]
        answers = self.on_shard(self.shard.replay(name, keys, self.now_ms, allowed))
        new_ids = [None if each is None else key_of(each).id for each in answers or [None] * len(keys)]
        expected = self.on_reference(lambda: self.reference.replay(name, keys, new_ids, self.now_ms, allowed))
        assert expected == (None if answers is None else [each is not None for each in answers])
        back = []
        for descriptor in answers or []:
            if descriptor is not None:
                short = descriptor.split(":")[0].removesuffix(self.suffix)
                assert key_of(descriptor) not in self.known[short]
                self.known[short].append(key_of(descriptor))
                back.append(Named(short, key_of(descriptor)))
        return multiple(*back)
