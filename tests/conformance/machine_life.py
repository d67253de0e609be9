"""Rules of the state machine: queues, and the life of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, multiple, rule

from pinlater.backends.base import AckRequest, CheckpointRequest, ClaimRequest, EndRules, SilentClaim, UnrenewedClaim
from pinlater.model import AckOutcome, Job
from tests.conformance import machine_base as base
from tests.conformance.machine_base import Held, MachineBase, Named, given
from tests.conformance.seen import dequeued, handed_out, total
from tests.conformance.subject import ALL, NO_BOUND, key_of, new_claim

new_jobs = st.lists(
    st.builds(Job, base.bodies, base.priorities, base.offsets, base.attempts, base.texts), min_size=1, max_size=4
)


class LifeRules(MachineBase):
    @initialize(target=base.jobs, one=new_jobs, two=new_jobs)
    def some_jobs(self, one: Sequence[Job], two: Sequence[Job]) -> Any:
        return multiple(*self.enqueued("one", one), *self.enqueued("two", two))

    @rule(ms=base.steps_ms)
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(target=base.jobs, queue=base.queues, given=new_jobs)
    def enqueue(self, queue: str, given: Sequence[Job]) -> Any:
        return multiple(*self.enqueued(queue, given))

    def enqueued(self, queue: str, given: Sequence[Job]) -> list[Named]:
        """The jobs on both sides, run_after from now on; none where the queue is not there."""
        new = [
            replace(job, run_after_ms=None if job.run_after_ms is None else self.now_ms + job.run_after_ms)
            for job in given
        ]
        descriptors = self.on_shard(self.shard.enqueue(queue + self.suffix, new, self.now_ms))
        if descriptors is None:
            assert queue + self.suffix not in self.reference.queues
            return []
        keys = [key_of(descriptor) for descriptor in descriptors]
        assert [key.priority for key in keys] == [job.priority for job in new]
        self.reference.enqueue(queue + self.suffix, new, [key.id for key in keys], self.now_ms)
        self.known[queue] += keys
        return [Named(queue, key) for key in keys]

    @rule(
        target=base.held,
        queue=base.queues,
        wanted=st.lists(
            st.tuples(
                st.sampled_from(base.SOURCES),
                base.limits,
                base.some_levels,
                st.sampled_from([1, 5, 20]),
                base.byte_bounds,
                st.just(0),
                st.booleans(),
            ),
            min_size=1,
            max_size=3,
        ),
        enforce_quota=st.booleans(),
    )
    def claim(self, queue: str, wanted: Sequence[Any], enforce_quota: bool) -> Any:
        requests = [ClaimRequest(new_claim(source), *rest) for source, *rest in wanted]
        name = queue + self.suffix
        answers = self.on_shard(self.shard.claim(name, requests, self.now_ms, enforce_quota=enforce_quota))
        expected = self.on_reference(
            lambda: [self.reference.claim(name, each, self.now_ms, enforce_quota=enforce_quota) for each in requests]
        )
        if answers is None or expected is None:
            assert answers is None
            assert expected is None
            return multiple()
        found = []
        for request, jobs, reference in zip(requests, answers, expected, strict=True):
            assert [dequeued(job) for job in jobs] == [handed_out(job) for job in reference]
            found += [Held(Named(queue, key_of(job.descriptor)), request.claim_descriptor) for job in jobs]
        return multiple(*found)

    @rule(
        queue=base.queues,
        limit=base.limits,
        succeeded=st.booleans(),
        rules=st.one_of(base.end_rules, st.just(EndRules(dead_letters=True))),
    )
    def work(self, queue: str, limit: int, succeeded: bool, rules: EndRules) -> None:
        """Few jobs would come to their end without it."""
        self.end_some(queue, limit, succeeded, rules)

    def end_some(self, queue: str, limit: int, succeeded: bool, rules: EndRules) -> None:
        """Hand out some jobs and end them for good, as workers do."""
        request, name = ClaimRequest(new_claim(), limit, ALL, 20, NO_BOUND), queue + self.suffix
        answers = self.on_shard(self.shard.claim(name, [request], self.now_ms))
        expected = self.on_reference(lambda: self.reference.claim(name, request, self.now_ms, enforce_quota=False))
        if answers is None or expected is None:
            assert answers is expected is None
            return
        assert [dequeued(job) for job in answers[0]] == [handed_out(job) for job in expected]
        acks = [AckRequest(*key_of(job.descriptor), succeeded, "x", permanent=True) for job in answers[0]]
        self.both(
            lambda name: self.shard.ack(name, acks, self.now_ms, rules),
            lambda name: [self.reference.ack(name, ack, self.now_ms, rules) for ack in acks],
            queue,
        )

    @rule(queue=base.queues, share=st.integers(0, 4), version=st.integers(0, 6))
    def set_quota(self, queue: str, share: int, version: int) -> None:
        self.both(
            lambda name: self.shard.set_quota(name, share, version, self.now_ms),
            lambda name: self.reference.set_quota(name, share, version),
            queue,
        )

    @given(base.held)
    @rule(
        held=st.lists(
            st.tuples(
                base.held,
                st.booleans(),
                st.booleans(),
                base.texts,
                base.steps_ms,
                st.booleans(),
                st.one_of(st.none(), base.bodies),
            ),
            min_size=1,
        ),
        rules=base.end_rules,
    )
    def ack(self, held: Sequence[tuple[Held, bool, bool, str, int, bool, bytes | None]], rules: EndRules) -> None:
        queue = held[0][0].job.queue
        acks = [
            AckRequest(
                *job.job.key,
                succeeded,
                text,
                delay,
                job.claim if fenced else "",
                permanent,
                result if succeeded else None,
            )
            for job, succeeded, fenced, text, delay, permanent, result in held
        ]
        self.both(
            lambda name: self.shard.ack(name, acks, self.now_ms, rules),
            lambda name: [self.reference.ack(name, ack, self.now_ms, rules) for ack in acks],
            queue,
        )

    @given(base.held)
    @rule(
        target=base.held,
        held=st.lists(st.tuples(base.held, st.booleans(), base.texts, base.steps_ms, st.booleans()), min_size=1),
        limits=st.lists(base.limits, max_size=3),
        rules=base.end_rules,
        enforce_quota=st.booleans(),
    )
    def ack_and_claim(
        self,
        held: Sequence[tuple[Held, bool, str, int, bool]],
        limits: Sequence[int],
        rules: EndRules,
        enforce_quota: bool,
    ) -> Any:
        queue = held[0][0].job.queue
        name = queue + self.suffix
        acks = [
            AckRequest(*job.job.key, succeeded, text, delay, job.claim, permanent)
            for job, succeeded, text, delay, permanent in held
        ]
        requests = [ClaimRequest(new_claim(), limit, ALL, 20, NO_BOUND) for limit in limits]
        answer = self.on_shard(
            self.shard.ack_and_claim(name, acks, requests, self.now_ms, rules, enforce_quota=enforce_quota)
        )
        if name not in self.reference.queues:
            # Without requests a batch may go as acks alone, which ignores acks of a queue that is not there.
            assert answer is None or (not requests and set(answer[0]) == {AckOutcome.IGNORED})
            return multiple()
        outcomes = [self.reference.ack(name, ack, self.now_ms, rules) for ack in acks]
        expected = [self.reference.claim(name, each, self.now_ms, enforce_quota=enforce_quota) for each in requests]
        assert answer is not None
        assert answer[0] == outcomes
        found = []
        for request, jobs, reference in zip(requests, answer[1], expected, strict=True):
            assert [dequeued(job) for job in jobs] == [handed_out(job) for job in reference]
            found += [Held(Named(queue, key_of(job.descriptor)), request.claim_descriptor) for job in jobs]
        return multiple(*found)

    @given(base.held)
    @rule(
        held=st.lists(
            st.tuples(
                base.held,
                st.sampled_from(base.SOURCES),
                st.booleans(),
                st.one_of(st.none(), base.bodies),
                st.booleans(),
                base.offsets,
                st.one_of(st.none(), base.attempts),
                base.texts,
                base.steps_ms,
            ),
            min_size=1,
        ),
        late_ms=base.late_ms,
    )
    def checkpoint(self, held: Sequence[Any], late_ms: int) -> None:
        beats = [
            CheckpointRequest(
                *job.job.key,
                source,
                job.claim if fenced else "",
                body,
                to_pending,
                None if offset is None else self.now_ms + offset,
                attempts,
                text,
                self.now_ms + most_ms,
            )
            for job, source, fenced, body, to_pending, offset, attempts, text, most_ms in held
        ]
        self.both(
            lambda name: self.shard.checkpoint(name, beats, self.now_ms - late_ms),
            lambda name: [self.reference.checkpoint(name, beat, self.now_ms - late_ms) for beat in beats],
            held[0][0].job.queue,
        )

    @given(base.held)
    @rule(held=st.lists(base.held, min_size=1))
    def requeue(self, held: Sequence[Held]) -> None:
        keys = [each.key for each in held]
        self.both(
            lambda name: self.shard.requeue(name, keys, self.now_ms),
            lambda name: sum(self.reference.requeue(name, key, self.now_ms) for key in keys),
            held[0].job.queue,
        )

    @given(base.held)
    @rule(held=st.lists(st.tuples(base.held, st.sampled_from((0, 0, 0, 1))), min_size=1))
    def requeue_undelivered(self, held: Sequence[tuple[Held, int]]) -> None:
        """Of most claims the caller knows when they expire; of some it was told before they were renewed."""
        queue = held[0][0].job.queue
        claims = [
            UnrenewedClaim(*each.key, self.reference.expires_at_ms(queue + self.suffix, each.key) - off)
            for each, off in held
        ]
        self.both(
            lambda name: self.shard.requeue_undelivered(name, claims, self.now_ms),
            lambda name: sum(self.reference.requeue_undelivered(name, claim, self.now_ms) for claim in claims),
            queue,
        )

    @given(base.held)
    @rule(held=st.lists(st.tuples(base.held, st.sampled_from((0, 0, 0, -1, 1))), min_size=1), rules=base.end_rules)
    def release(self, held: Sequence[tuple[Held, int]], rules: EndRules) -> None:
        """Most were not renewed since what the caller knows of; some were."""
        queue = held[0][0].job.queue
        keys = [
            SilentClaim(*each.key, self.reference.last_seen_ms(queue + self.suffix, each.key) + off)
            for each, off in held
        ]
        self.both(
            lambda name: self.shard.expire_disconnected(name, keys, self.now_ms, rules),
            lambda name: total([self.reference.expire_disconnected(name, key, self.now_ms, rules) for key in keys]),
            queue,
        )

    @given(base.held)
    @rule(held=st.lists(base.held, min_size=1, max_size=3))
    def mark_moved(self, held: Sequence[Held]) -> None:
        moved = [(each.key, f"elsewhere:s9:p1:{1_790_000_000_000_000 + place}") for place, each in enumerate(held)]
        self.both(
            lambda name: self.shard.mark_moved(name, moved, self.now_ms),
            lambda name: [self.reference.mark_moved(name, *each, self.now_ms) for each in moved],
            held[0].job.queue,
        )

    @given(base.jobs)
    @rule(named=st.lists(base.jobs, min_size=1), by=st.sampled_from(["", "ann", "bob"]))
    def cancel(self, named: Sequence[Named], by: str) -> None:
        keys = [each.key for each in named]
        self.both(
            lambda name: self.shard.cancel(name, keys, self.now_ms, by),
            lambda name: [self.reference.cancel(name, key, self.now_ms, by) for key in keys],
            named[0].queue,
        )
