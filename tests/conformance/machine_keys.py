"""Rules of the state machine: what few jobs have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import multiple, rule

from pinlater.backends.extended import (
    SEND_ID_KEPT_MS,
    Barrier,
    HeartbeatRequest,
    Offer,
    OfferOutcome,
    RescheduleRequest,
)
from pinlater.model import WHILE_KEPT, ExtendedJob, KeyRef, OnDuplicate, ReplaceRunning
from tests.conformance import machine_base as base
from tests.conformance.machine_base import Held, MachineBase, Named, given
from tests.conformance.subject import key_of

CHAINS = ["", "", "k", "ü🦆"]
SHARDS = ["b2", "c3"]
dedupe_keys = st.sampled_from(["", "d", "e"])
serialize_keys = st.sampled_from(CHAINS)
key_refs = st.builds(KeyRef, dedupe_keys, serialize_keys).filter(any)

new_offers = st.builds(
    Offer,
    st.builds(
        ExtendedJob,
        base.bodies,
        base.priorities,
        base.offsets,
        base.attempts,
        base.texts,
        dedupe_key=dedupe_keys,
        serialize_key=serialize_keys,
        claim_timeout_ms=st.sampled_from([None, None, 3]),
        on_duplicate=st.sampled_from(OnDuplicate),
        dedupe_for_ms=st.sampled_from([0, 0, 5, 20, WHILE_KEPT]),
        expires_at_ms=st.one_of(st.none(), st.none(), st.integers(1, 30)),
        send_id=st.sampled_from(["", "", "", "s", "t"]),
        tags=st.sampled_from([(), (), ("t",), ("t", "ü🦆"), ("u",)]),
        replace_running=st.sampled_from(ReplaceRunning),
        replace_within_ms=st.sampled_from([None, None, 1, 6]),
    ),
    slot=st.just(0),
    only_if_known=st.sampled_from([False, False, False, True]),
    takes_no_jobs=st.booleans(),
    behind=st.sampled_from(["", "", "", "b2"]),
    schedule=st.sampled_from(["", "", "", "nightly"]),
    mark=st.sampled_from("123456789"),
    by=st.sampled_from(["ann", "ü🦆"]),
)


def slot_of(job: ExtendedJob) -> int:
    """A key is always of the same slot."""
    return sum((job.serialize_key or job.dedupe_key or job.send_id).encode()) % 4_096


class KeyRules(MachineBase):
    @rule(sure=st.integers(0, 5))
    def ten_minutes_pass(self, sure: int) -> None:
        if sure == 5:
            self.now_ms += SEND_ID_KEPT_MS

    def own(self, key: str) -> str:
        """A key of this example."""
        return key and key + self.suffix

    @rule(target=base.jobs, queue=base.queues, given=st.lists(new_offers, min_size=1, max_size=5))
    def offer(self, queue: str, given: Sequence[Offer]) -> Any:
        name, offers = queue + self.suffix, [self.made(each) for each in given]
        answers = self.on_shard(self.shard.enqueue_extended(name, offers, self.now_ms))
        if answers is None:
            assert name not in self.reference.queues
            return multiple()
        stored = []
        for offer, answer in zip(offers, answers, strict=True):
            key = key_of(answer.descriptor) if answer.descriptor else None
            is_over = self.is_over(answer.descriptor)
            expected = self.reference.offer(name, offer, key.id if key else 0, self.now_ms)
            if is_over and expected.outcome is OfferOutcome.REPLACED:
                answer = answer._replace(ready_at_ms=None)  # which is not said
            assert answer == expected
            if answer.outcome is OfferOutcome.STORED and key and key not in self.known[queue]:
                self.known[queue].append(key)
                stored.append(Named(queue, key))
        return multiple(*stored)

    def made(self, offer: Offer) -> Offer:
        """As it is now, of this example."""
        job = offer.job
        own = replace(
            job,
            run_after_ms=None if job.run_after_ms is None else self.now_ms + job.run_after_ms,
            expires_at_ms=None if job.expires_at_ms is None else self.now_ms + job.expires_at_ms,
            serialize_key=self.own(job.serialize_key),
            tags=job.tags if self.has_tags else (),
        )
        return replace(offer, job=own, slot=slot_of(own), schedule=self.own(offer.schedule))

    def is_over(self, descriptor: str) -> bool:
        if not descriptor:
            return False
        job = self.reference.find(descriptor.split(":")[0], *key_of(descriptor))
        return job is not None and job.is_over(self.now_ms)

    @rule(queue=base.queues, refs=st.lists(key_refs, min_size=1, max_size=4))
    def find_keys(self, queue: str, refs: Sequence[KeyRef]) -> None:
        name, own = queue + self.suffix, [ref._replace(serialize_key=self.own(ref.serialize_key)) for ref in refs]
        found = self.on_shard(self.shard.find_keys(name, own))
        assert found is not None
        for ref, descriptor in zip(own, found, strict=True):
            if not self.reference.is_left_over(name, ref, self.now_ms):
                expected = self.reference.find_key(name, ref)
                assert descriptor == expected, (ref, descriptor, expected)

    @given(base.jobs)
    @rule(named=st.lists(base.jobs, min_size=1, max_size=5))
    def taken_keys(self, named: Sequence[Named]) -> None:
        keys = [each.key for each in named]
        self.both(
            lambda name: self.shard.taken_keys(name, keys),
            lambda name: self.reference.taken_keys(name, keys),
            named[0].queue,
        )

    @given(base.held)
    @rule(
        held=st.lists(
            st.tuples(
                base.held, st.one_of(st.none(), st.sampled_from([0.0, 0.25, 1.0])), st.sampled_from([None, "", "ü🦆"])
            ),
            min_size=1,
        ),
        late_ms=base.late_ms,
    )
    def heartbeat(self, held: Sequence[tuple[Held, float | None, str | None]], late_ms: int) -> None:
        beats = [HeartbeatRequest(*each.key, fraction, text) for each, fraction, text in held]
        self.both(
            lambda name: self.shard.heartbeat(name, beats, self.now_ms - late_ms),
            lambda name: [self.reference.heartbeat(name, beat, self.now_ms - late_ms) for beat in beats],
            held[0][0].job.queue,
        )

    @given(base.jobs)
    @rule(
        named=st.lists(
            st.tuples(
                base.jobs,
                base.offsets,
                st.one_of(st.none(), base.bodies),
                st.one_of(st.none(), base.attempts),
                st.sampled_from([None, None, 0, 1]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def reschedule(self, named: Sequence[tuple[Named, int | None, bytes | None, int | None, int | None]]) -> None:
        """Of some the caller knows when they were updated, or believes so."""
        queue = named[0][0].queue
        changes = []
        for each, offset, body, allowed, off in named:
            job = self.reference.find(queue + self.suffix, *each.key)
            updated_at_ms = None if off is None else (job.updated_at_ms if job else self.now_ms) + off
            run_after_ms = None if offset is None else self.now_ms + offset
            changes.append(RescheduleRequest(*each.key, run_after_ms, body, allowed, updated_at_ms))
        self.both(
            lambda name: self.shard.reschedule(name, changes, self.now_ms),
            lambda name: [self.reference.reschedule(name, change, self.now_ms) for change in changes],
            queue,
        )

    @rule(limit=base.limits, default=base.end_rules, of=st.dictionaries(base.queues, base.end_rules, max_size=1))
    def expire_pending(self, limit: int, default: Any, of: dict[str, Any]) -> None:
        rules = self.per_queue(default, of)
        answers = self.drained(lambda: self.shard.expire_jobs(limit, self.now_ms, rules))
        assert all(sum(counts.values()) <= limit for counts in answers)
        by_queue = {queue: sum(each.get(queue, 0) for each in answers) for each in answers for queue in each}
        assert by_queue == self.reference.expire_jobs(self.now_ms, rules)

    @rule()
    def chains(self) -> None:
        own = [self.own(key) for key in CHAINS if key]
        assert self.on_shard(self.shard.has_chains(own)) == self.reference.has_chains(own)
        blocked = self.on_shard(self.shard.blocked_chains(100, self.now_ms))
        assert blocked is not None
        assert len(blocked) == len(set(blocked))
        assert set(blocked) == self.reference.blocked_chains()

    @rule(shard_id=st.sampled_from(SHARDS), chosen=st.lists(serialize_keys.filter(bool), unique=True))
    def lift_barriers(self, shard_id: str, chosen: Sequence[str]) -> None:
        listed = self.on_shard(self.shard.list_barriers(100))
        expected = {Barrier(key, chain.behind) for key, chain in self.reference.chains.items() if chain.behind}
        assert listed is not None
        assert set(listed) == expected
        lifted = [Barrier(self.own(key), shard_id) for key in chosen]
        freed = self.on_shard(self.shard.lift_barriers(lifted, self.now_ms))
        assert freed is not None
        told: dict[str, list[int]] = {}
        for barrier in lifted:
            if barrier in expected:
                first = self.reference.lift_barrier(barrier.serialize_key, self.now_ms)
                if first is not None:
                    queue, run_after_ms = first
                    told.setdefault(queue, []).append(run_after_ms)
        for queue, times in freed.items():
            assert set(times) <= set(told[queue])  # one whose time is over need not be told

    @rule(sure=st.integers(0, 2))
    def slots(self, sure: int) -> None:
        if sure:
            self.prune_keys()
            slots = self.on_shard(self.shard.key_slots())
            assert slots is not None
            assert set(slots) == self.reference.key_slots()

    @rule(limit=base.limits, sure=st.integers(0, 3))
    def move_windows(self, limit: int, sure: int) -> None:
        """They leave this shard, and come from another."""
        if sure != 3:
            return
        windows: list[Any] = []
        while page := self.on_shard(self.shard.list_windows(limit, windows[-1].name if windows else "", self.now_ms)):
            assert len(page) <= limit
            windows += page
        assert len({window.name for window in windows}) == len(windows)
        expected = [entry for entry in self.reference.entries.values() if entry.is_window(self.now_ms)]
        assert sorted((window.slot, window.until_ms) for window in windows) == sorted(
            (entry.slot, entry.until_ms) for entry in expected
        )
        for call in (self.shard.drop_windows(windows), self.shard.put_windows(windows, self.now_ms)):
            self.on_shard(call)
        self.reference.move_windows(self.now_ms)

    @rule(after=st.sampled_from(["nightly", "daily"]))
    def last_firings(self, after: str) -> None:
        name = self.own(after)
        assert self.on_shard(self.shard.last_firings([name])) == [self.reference.fired.get(name)]

    @rule(queue=base.queues, refs=st.lists(key_refs, min_size=1, max_size=3))
    def keys_that_are_offered_again(self, queue: str, refs: Sequence[KeyRef]) -> None:
        """Whatever happened before: a key that is taken stores nothing."""
        name = queue + self.suffix
        if name not in self.reference.queues:
            return
        for ref in refs:
            serialize_key = self.own(ref.serialize_key)
            job = ExtendedJob(b"again", dedupe_key=ref.dedupe_key, serialize_key=serialize_key)
            offer = Offer(job, slot_of(job), only_if_known=True, takes_no_jobs=True)
            answers = self.on_shard(self.shard.enqueue_extended(name, [offer], self.now_ms))
            assert answers == [self.reference.offer(name, offer, 0, self.now_ms)]
