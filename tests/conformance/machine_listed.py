"""Rules of the state machine: claims of jobs that are named, and claims that expire by a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import multiple, rule

from pinlater.backends.base import ClaimRequest, EndRules, ExpiryRequest
from pinlater.model import ClaimOutcome
from tests.conformance import machine_base as base
from tests.conformance.machine_base import QUEUES, Held, MachineBase, Named, given
from tests.conformance.seen import dequeued, handed_out
from tests.conformance.subject import new_claim


class ListedRules(MachineBase):
    @given(base.jobs)
    @rule(
        target=base.held,
        named=st.lists(base.jobs, min_size=1, max_size=5),
        timeout_ms=st.sampled_from([1, 5, 20]),
        max_bytes=base.byte_bounds,
        is_default_timeout=st.booleans(),
        enforce_quota=st.booleans(),
    )
    def claim_listed(
        self,
        named: Sequence[Named],
        timeout_ms: int,
        max_bytes: int,
        is_default_timeout: bool,
        enforce_quota: bool,
    ) -> Any:
        queue = named[0].queue
        name, keys = queue + self.suffix, [each.key for each in named]
        request = ClaimRequest(new_claim(), 0, (), timeout_ms, max_bytes, 0, is_default_timeout)
        answers = self.on_shard(self.shard.claim_listed(name, keys, request, self.now_ms, enforce_quota=enforce_quota))
        expected = self.on_reference(
            lambda: self.reference.claim_listed(name, keys, request, self.now_ms, enforce_quota=enforce_quota)
        )
        if answers is None or expected is None:
            assert answers is expected is None
            return multiple()
        assert [(each.outcome, each.job and dequeued(each.job)) for each in answers] == [
            (outcome, job and handed_out(job)) for outcome, job in expected
        ]
        claimed = [key for key, each in zip(keys, answers, strict=False) if each.outcome is ClaimOutcome.CLAIMED]
        return multiple(*[Held(Named(queue, key), request.claim_descriptor) for key in claimed])

    @rule(queues=st.lists(base.queues, unique=True), limit=base.limits)
    def expired_claims(self, queues: Sequence[str], limit: int) -> None:
        names = [queue + self.suffix for queue in queues]
        expected = self.reference.expired_claims(names, self.now_ms)
        everything = self.on_shard(self.shard.expired_claims(names, 1_000, self.now_ms))
        some = self.on_shard(self.shard.expired_claims(names, limit, self.now_ms))
        assert everything is not None
        assert some is not None
        assert {queue: sorted(claims) for queue, claims in everything.items()} == {
            queue: sorted(claims) for queue, claims in expected.items()
        }
        assert sum(map(len, some.values())) == min(limit, sum(map(len, expected.values())))
        for queue, claims in [*some.items(), *everything.items()]:
            times = [claim.expires_at_ms for claim in claims]
            assert times == sorted(claim.expires_at_ms for claim in expected[queue])[: len(times)]

    @given(base.held)
    @rule(
        held=st.lists(st.tuples(base.held, st.sampled_from((0, 0, 0, -1, 1)), base.steps_ms), min_size=1),
        rules=base.end_rules,
    )
    def expire_listed(self, held: Sequence[tuple[Held, int, int]], rules: EndRules) -> None:
        """Of most claims the caller knows when they expire; some were renewed since."""
        queue = held[0][0].job.queue
        claims = [
            ExpiryRequest(*each.key, self.reference.expires_at_ms(queue + self.suffix, each.key) + off, delay_ms)
            for each, off, delay_ms in held
        ]
        self.both(
            lambda name: self.shard.expire_listed(name, claims, self.now_ms, rules),
            lambda name: [self.reference.expire_listed(name, claim, self.now_ms, rules) for claim in claims],
            queue,
        )

    @rule(limit=base.limits, rules=base.end_rules)
    def expire_by_the_list(self, limit: int, rules: EndRules) -> None:
        """Every claim whose time is over, as maintenance does."""
        names = [queue + self.suffix for queue in QUEUES]
        while listed := self.on_shard(self.shard.expired_claims(names, limit, self.now_ms)):
            for name, claims in listed.items():
                requests = [ExpiryRequest(*claim[:4], retry_delay_ms=3) for claim in claims]
                outcomes = self.on_shard(self.shard.expire_listed(name, requests, self.now_ms, rules))
                assert outcomes == [self.reference.expire_listed(name, each, self.now_ms, rules) for each in requests]
        assert not self.reference.expired_claims(names, self.now_ms)
