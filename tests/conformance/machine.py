"""A Hypothesis state machine that does the same to a shard and to the reference, and compares all there is to see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from pinlater.backends.base import (
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    JobKey,
    ScanRequest,
    Shard,
)
from pinlater.errors import QueueNotFound
from pinlater.model import Job, JobState
from tests.conformance.reference import Reference, fitting
from tests.conformance.seen import dequeued, handed_out, looked_up, stored, total
from tests.conformance.subject import ALL, NO_BOUND, START_MS, key_of, new_claim

R = TypeVar("R")
_examples = count(1)

SOURCES = ["worker", "a:b", ""]
queues = st.sampled_from(["one", "two"])
states = st.sampled_from(list(JobState))
priorities = st.sampled_from(ALL)
some_priorities = st.sampled_from([(1,), (2,), (1, 2), (1, 3), ALL])
limits = st.integers(1, 5)
steps_ms = st.sampled_from([0, 1, 2, 5, 10, 20])
texts = st.sampled_from(["", "x", "ü🦆", "a\0b", "s" * 4_990])
bodies = st.sampled_from([b"", b"\0\xff", b"body", b"b" * 10])
attempts = st.integers(1, 4)
offsets = st.one_of(st.none(), st.integers(-10, 20))
byte_bounds = st.sampled_from([1, 10, 15, NO_BOUND])


@dataclass(frozen=True)
class Named:
    """A job as the machine knows it, by the short name of its queue."""

    queue: str
    key: JobKey


@dataclass(frozen=True)
class Held:
    """A job and a claim that it was handed out with, once."""

    job: Named
    claim: str

    @property
    def key(self) -> ClaimKey:
        return ClaimKey(*self.job.key, self.claim)


class ShardMachine(RuleBasedStateMachine):
    jobs = Bundle("jobs")
    held = Bundle("held")

    def __init__(self, runner: asyncio.Runner, shard: Shard) -> None:
        super().__init__()
        self.runner = runner
        self.shard = shard
        self.reference = Reference()
        self.now_ms = START_MS + next(_examples) * 1_000_000
        self.suffix = f"_{self.now_ms}"
        self.known: dict[str, list[JobKey]] = {"one": [], "two": []}
        for queue in self.known:
            self.create_queue(queue)

    def teardown(self) -> None:
        for queue in self.known:
            self.both(lambda name: self.shard.delete_queue(name, self.now_ms), self.reference.delete_queue, queue)

    # -- both sides --------------------------------------------------------------------------------------------------

    def on_shard(self, call: Awaitable[R]) -> R | None:
        """The answer; None for an unknown queue."""

        async def answer() -> R | None:
            try:
                return await call
            except QueueNotFound:
                return None

        return self.runner.run(answer())

    def on_reference(self, call: Callable[[], R]) -> R | None:
        try:
            return call()
        except QueueNotFound:
            return None

    def both(self, on_shard: Callable[[str], Awaitable[R]], on_reference: Callable[[str], R], queue: str) -> R | None:
        """The same on both sides, with the same answer."""
        name = queue + self.suffix
        got = self.on_shard(on_shard(name))
        expected = self.on_reference(lambda: on_reference(name))
        assert got == expected, f"the shard says {got!r}, the reference {expected!r}"
        return got

    def drained(self, step: Callable[[], Awaitable[Any]]) -> list[Any]:
        """The answers of bounded steps, until one finds nothing more."""
        answers = []
        while answer := self.on_shard(step()):
            answers.append(answer)
            assert len(answers) < 1_000
        return answers

    # -- rules: queues and the life of a job -------------------------------------------------------------------------

    @rule(queue=queues)
    def create_queue(self, queue: str) -> None:
        self.both(lambda name: self.shard.create_queue(name, self.now_ms), self.reference.create_queue, queue)

    @rule(queue=queues, sure=st.integers(0, 3))
    def delete_queue(self, queue: str, sure: int) -> None:
        if sure == 0:
            self.both(lambda name: self.shard.delete_queue(name, self.now_ms), self.reference.delete_queue, queue)

    @rule(ms=steps_ms)
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(
        target=jobs,
        queue=queues,
        given=st.lists(st.builds(Job, bodies, priorities, offsets, attempts, texts), min_size=1, max_size=4),
    )
    def enqueue(self, queue: str, given: Sequence[Job]) -> Any:
        new = [
            replace(job, run_after_ms=None if job.run_after_ms is None else self.now_ms + job.run_after_ms)
            for job in given
        ]
        descriptors = self.on_shard(self.shard.enqueue(queue + self.suffix, new, self.now_ms))
        if descriptors is None:
            assert queue + self.suffix not in self.reference.queues
            return multiple()
        keys = [key_of(descriptor) for descriptor in descriptors]
        assert [key.priority for key in keys] == [job.priority for job in new]
        self.reference.enqueue(queue + self.suffix, new, [key.id for key in keys], self.now_ms)
        self.known[queue] += keys
        return multiple(*[Named(queue, key) for key in keys])

    @rule(
        target=held,
        queue=queues,
        wanted=st.lists(
            st.tuples(st.sampled_from(SOURCES), limits, some_priorities, st.sampled_from([1, 5, 20]), byte_bounds),
            min_size=1,
            max_size=3,
        ),
    )
    def claim(self, queue: str, wanted: Sequence[Any]) -> Any:
        requests = [ClaimRequest(new_claim(source), *rest) for source, *rest in wanted]
        name = queue + self.suffix
        answers = self.on_shard(self.shard.claim(name, requests, self.now_ms))
        expected = self.on_reference(lambda: [self.reference.claim(name, each, self.now_ms) for each in requests])
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
        held=st.lists(st.tuples(held, st.booleans(), st.booleans(), texts, steps_ms, st.booleans()), min_size=1),
        keep=st.tuples(st.booleans(), st.booleans()),
    )
    def ack(self, held: Sequence[tuple[Held, bool, bool, str, int, bool]], keep: tuple[bool, bool]) -> None:
        queue = held[0][0].job.queue
        acks = [
            AckRequest(*job.job.key, succeeded, text, delay, job.claim if fenced else "", permanent)
            for job, succeeded, fenced, text, delay, permanent in held
        ]
        kept = {"keep_succeeded": keep[0] or keep[1], "keep_failed": keep[1] or not keep[0]}
        self.both(
            lambda name: self.shard.ack(name, acks, self.now_ms, **kept),
            lambda name: [self.reference.ack(name, ack, self.now_ms, **kept) for ack in acks],
            queue,
        )

    @rule(
        held=st.lists(
            st.tuples(
                held,
                st.sampled_from(SOURCES),
                st.booleans(),
                st.one_of(st.none(), bodies),
                st.booleans(),
                offsets,
                st.one_of(st.none(), attempts),
                texts,
            ),
            min_size=1,
        )
    )
    def checkpoint(self, held: Sequence[Any]) -> None:
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
            )
            for job, source, fenced, body, to_pending, offset, attempts, text in held
        ]
        self.both(
            lambda name: self.shard.checkpoint(name, beats, self.now_ms),
            lambda name: [self.reference.checkpoint(name, beat, self.now_ms) for beat in beats],
            held[0][0].job.queue,
        )

    @rule(held=st.lists(held, min_size=1))
    def give_back(self, held: Sequence[Held]) -> None:
        keys = [each.key for each in held]
        self.both(
            lambda name: self.shard.give_back(name, keys, self.now_ms),
            lambda name: sum(self.reference.give_back(name, key, self.now_ms) for key in keys),
            held[0].job.queue,
        )

    @rule(held=st.lists(held, min_size=1), budget=st.integers(0, 2))
    def release(self, held: Sequence[Held], budget: int) -> None:
        keys = [each.key for each in held]
        self.both(
            lambda name: self.shard.release(name, keys, self.now_ms, crash_budget=budget),
            lambda name: total([self.reference.release(name, key, self.now_ms, crash_budget=budget) for key in keys]),
            held[0].job.queue,
        )

    @rule(named=st.lists(jobs, min_size=1))
    def cancel(self, named: Sequence[Named]) -> None:
        keys = [each.key for each in named]
        self.both(
            lambda name: self.shard.cancel(name, keys, self.now_ms),
            lambda name: [self.reference.cancel(name, key) for key in keys],
            named[0].queue,
        )

    # -- rules: operators and maintenance ----------------------------------------------------------------------------

    @rule(queue=queues, priority=priorities, allowed=attempts, offset=offsets, limit=limits)
    def retry_failed(self, queue: str, priority: int, allowed: int, offset: int | None, limit: int) -> None:
        run_after_ms = None if offset is None else self.now_ms + offset
        arguments = (priority, allowed, run_after_ms, limit, self.now_ms)
        self.both(
            lambda name: self.shard.retry_failed(name, *arguments),
            lambda name: self.reference.retry_failed(name, *arguments),
            queue,
        )

    @rule(queue=queues, state=states, priority=priorities, limit=limits, sure=st.integers(0, 2))
    def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, sure: int) -> None:
        if sure:
            return
        name = queue + self.suffix
        deleted = self.drained(lambda: self.shard.delete_jobs(name, state, priority, limit, self.now_ms))
        assert max(deleted, default=0) <= limit
        assert sum(deleted) == (self.on_reference(lambda: self.reference.delete_all(name, state, priority)) or 0)

    @rule(named=st.lists(jobs, min_size=1), state=states)
    def delete_listed(self, named: Sequence[Named], state: JobState) -> None:
        keys = [each.key for each in named]
        self.both(
            lambda name: self.shard.delete_listed(name, state, keys, self.now_ms),
            lambda name: self.reference.delete_listed(name, state, keys),
            named[0].queue,
        )

    @rule(limit=limits, budget=st.integers(0, 3))
    def expire(self, limit: int, budget: int) -> None:
        answers = self.drained(lambda: self.shard.expire_claims(limit, self.now_ms, crash_budget=budget))
        assert all(sum(map(sum, counts.values())) <= limit for counts in answers)
        by_queue = {
            queue: total([each[queue] for each in answers if queue in each]) for each in answers for queue in each
        }
        assert by_queue == self.reference.expire_all(self.now_ms, crash_budget=budget)

    @rule(limit=limits, succeeded_ttl_ms=steps_ms, failed_ttl_ms=steps_ms)
    def collect(self, limit: int, succeeded_ttl_ms: int, failed_ttl_ms: int) -> None:
        ttl = {"succeeded_ttl_ms": succeeded_ttl_ms, "failed_ttl_ms": failed_ttl_ms}
        answers = self.drained(lambda: self.shard.collect(limit, self.now_ms, **ttl))
        by_queue = {queue: sum(each.get(queue, 0) for each in answers) for each in answers for queue in each}
        by_queue.pop("", None)
        assert by_queue == self.reference.collect_all(self.now_ms, **ttl)

    # -- what there is to see ----------------------------------------------------------------------------------------

    @rule(queue=queues, wanted=some_priorities, limit=limits, max_bytes=byte_bounds)
    def peek(self, queue: str, wanted: Sequence[int], limit: int, max_bytes: int) -> None:
        name = queue + self.suffix
        seen = self.on_shard(self.shard.peek(name, wanted, limit, max_bytes, self.now_ms))
        eligible = self.on_reference(lambda: self.reference.eligible(name, wanted, self.now_ms))
        expected = None if eligible is None else [handed_out(job) for job in fitting(eligible[:limit], max_bytes)]
        assert (None if seen is None else [dequeued(job)[:6] for job in seen]) == (
            None if expected is None else [each[:6] for each in expected]
        )

    @rule(queue=queues, wanted=some_priorities, limit=limits)
    def ready(self, queue: str, wanted: Sequence[int], limit: int) -> None:
        self.both(
            lambda name: self.shard.ready(name, wanted, limit, self.now_ms),
            lambda name: [
                min(limit, len(self.reference.eligible(name, (priority,), self.now_ms))) for priority in wanted
            ],
            queue,
        )

    @rule(queue=queues, state=states, wanted=some_priorities, future=st.booleans())
    def count_and_scan(self, queue: str, state: JobState, wanted: Sequence[int], future: bool) -> None:
        arguments = (state, wanted, future, self.now_ms)
        self.both(
            lambda name: self.shard.count(name, *arguments),
            lambda name: self.reference.count(name, *arguments),
            queue,
        )
        name = queue + self.suffix
        whole = ScanRequest(state, wanted, future, 1_000, with_body=True)
        seen = self.on_shard(self.shard.scan(name, whole, self.now_ms))
        expected = self.on_reference(lambda: self.reference.scan(name, *arguments))
        if seen is None or expected is None:
            assert seen is None
            assert expected is None
        else:
            assert [looked_up(info) for info in seen] == [stored(job) for job in expected]

    @invariant()
    def every_job_ever_made_looks_the_same(self) -> None:
        for queue, keys in self.known.items():
            name = queue + self.suffix
            found = self.on_shard(self.shard.lookup(name, keys, with_body=True, max_bytes=NO_BOUND))
            assert found is not None
            for key, info in zip(keys, found, strict=True):
                job = self.reference.find(name, *key)
                assert (info and looked_up(info)) == (job and stored(job)), key
