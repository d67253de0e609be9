"""Rules of the state machine: what there is to see is the same."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from pinlater.backends.aged_levels import Level
from pinlater.backends.base import STORED_STATES, ScanRequest
from pinlater.model import JobState
from tests.conformance import machine_base as base
from tests.conformance.machine_base import MachineBase
from tests.conformance.reference_job import RefJob, fitting
from tests.conformance.seen import dequeued, handed_out, looked_up, stored
from tests.conformance.stats_pages import NO_JOBS, whole_stats
from tests.conformance.subject import NO_BOUND, key_of


class QueryRules(MachineBase):
    @rule(queue=base.queues, wanted=base.some_levels, limit=base.limits, max_bytes=base.byte_bounds)
    def peek(self, queue: str, wanted: Sequence[Level], limit: int, max_bytes: int) -> None:
        name = queue + self.suffix
        seen = self.on_shard(self.shard.peek(name, wanted, limit, max_bytes, self.now_ms))
        eligible = self.on_reference(lambda: self.reference.eligible(name, wanted, self.now_ms))
        expected = None if eligible is None else [handed_out(job) for job in fitting(eligible[:limit], max_bytes)]
        assert (None if seen is None else [dequeued(job)[:6] for job in seen]) == (
            None if expected is None else [each[:6] for each in expected]
        )

    @rule(queue=base.queues, wanted=base.some_levels, limit=base.limits)
    def ready(self, queue: str, wanted: Sequence[Level], limit: int) -> None:
        self.both(
            lambda name: self.shard.count_ready(name, wanted, limit, self.now_ms),
            lambda name: self.reference.count_ready(name, wanted, limit, self.now_ms),
            queue,
        )

    @rule(wanted=base.some_priorities)
    def next_due(self, wanted: Sequence[int]) -> None:
        self.expire_jobs()
        names = [queue + self.suffix for queue in self.known]
        found = self.on_shard(self.shard.next_due(names, wanted))
        assert found is not None
        assert found == {
            name: min((job.run_after_ms for job in self.reference.in_turn(name, wanted)), default=None)
            for name in names
            if name in self.reference.queues
        }

    @rule(queue=base.queues, state=base.states, wanted=base.some_priorities, future=st.booleans())
    def count_and_scan(self, queue: str, state: JobState, wanted: Sequence[int], future: bool) -> None:
        arguments = (state, wanted, future, self.now_ms)
        self.both(
            lambda name: self.shard.count(name, *arguments),
            lambda name: self.reference.count(name, *arguments),
            queue,
        )
        name = queue + self.suffix
        whole = ScanRequest(STORED_STATES[state], wanted, future, 1_000, with_body=True)
        seen = self.on_shard(self.shard.scan(name, whole, self.now_ms))
        expected = self.on_reference(lambda: self.reference.scan(name, *arguments))
        if seen is None or expected is None:
            assert seen is None
            assert expected is None
        else:
            assert [looked_up(info) for info in seen] == [self.stored(name, job) for job in expected]

    @rule(queue=base.queues, tag=st.sampled_from("tu"), state=base.states, wanted=base.some_priorities)
    def scan_by_tag(self, queue: str, tag: str, state: JobState, wanted: Sequence[int]) -> None:
        name = queue + self.suffix
        request = ScanRequest(STORED_STATES[state], wanted, False, 1_000, tag=tag)
        seen = self.on_shard(self.shard.scan(name, request, self.now_ms))
        expected = self.on_reference(lambda: self.reference.tagged(name, tag, state, wanted, self.now_ms))
        assert (None if seen is None else [key_of(info.descriptor).id for info in seen]) == expected

    @rule(queue=base.queues, wanted=base.some_priorities, limit=base.limits)
    def stats(self, queue: str, wanted: Sequence[int], limit: int) -> None:
        self.expire_jobs()
        name = queue + self.suffix
        levels = self.on_shard(whole_stats(self.shard, name, wanted, self.now_ms, limit))
        if levels is None:
            assert name not in self.reference.queues
            return
        assert set(levels) <= set(wanted)
        for priority in wanted:
            assert levels.get(priority, NO_JOBS) == self.reference.level(name, priority, self.now_ms)

    def stored(self, name: str, job: RefJob) -> dict[str, object]:
        """The job as the reference has it."""
        return stored(job, self.reference.waits_for(name, job), self.reference.successor(name, job))

    @invariant()
    def every_job_ever_made_looks_the_same(self) -> None:
        for queue, keys in self.known.items():
            name = queue + self.suffix
            found = self.on_shard(self.shard.lookup(name, keys, with_body=True, max_bytes=NO_BOUND, with_result=True))
            assert found is not None
            for key, info in zip(keys, found, strict=True):
                job = self.reference.find(name, *key)
                result = self.reference.result_of(name, key)
                assert (info and info.result) == result
                if job is None and result is not None:
                    assert info is not None
                    assert info.state is JobState.SUCCEEDED
                else:
                    expected = job and self.stored(name, job)
                    assert (info and looked_up(info)) == expected, key
