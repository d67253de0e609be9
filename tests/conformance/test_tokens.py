"""Token buckets: every store keeps them as pinlater/backends/token_bucket.py says, to the last token."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinlater.backends.base import Shard, Tokens
from pinlater.backends.token_bucket import BucketLevel, capacity_of, take
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.subject import START_MS, new_name

NOW = START_MS
rates = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 7.0, 10.0, 100.0, 1_234.5])
calls = st.lists(st.tuples(st.integers(-50, 3_000), st.integers(-5, 60), rates, st.booleans()), min_size=1, max_size=25)


@pytest.fixture
def queue() -> str:
    """A bucket that is new; the queue need not be there."""
    return new_name("bucket")


def test_a_bucket_gives_what_the_rate_limit_says(shard: Shard, runner: asyncio.Runner) -> None:
    async def check(steps: Sequence[tuple[int, int, float, bool]]) -> None:
        queue, now_ms, rate = new_name("bucket"), NOW, 10.0
        level: BucketLevel | None = None
        for passed_ms, wanted, new_rate, changes in steps:
            now_ms += passed_ms
            rate = new_rate if changes else rate
            expected = take(level, wanted, rate, capacity_of(rate), now_ms)
            level = expected.level
            tokens = await shard.take_tokens(queue, wanted, rate, capacity_of(rate), now_ms)
            assert tokens == Tokens(expected.granted, expected.retry_after_ms)

    @settings(max_examples=60, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(steps=calls)
    def compare(steps: Sequence[tuple[int, int, float, bool]]) -> None:
        runner.run(check(steps))

    compare()


async def test_a_bucket_begins_with_one_token(shard: Shard, queue: str) -> None:
    assert await shard.take_tokens(queue, 10, 4.0, 5.0, NOW) == Tokens(1, 250)
    assert await shard.take_tokens(queue, 10, 4.0, 5.0, NOW) == Tokens(0, 250)


async def test_a_bucket_fills_by_its_rate_up_to_its_capacity(shard: Shard, queue: str) -> None:
    await shard.take_tokens(queue, 1, 10.0, 5.0, NOW)
    assert await shard.take_tokens(queue, 10, 10.0, 5.0, NOW + 300) == Tokens(3, 100)
    assert await shard.take_tokens(queue, 10, 10.0, 5.0, NOW + 60_000) == Tokens(5, 100)


async def test_no_more_is_given_than_is_wanted(shard: Shard, queue: str) -> None:
    await shard.take_tokens(queue, 1, 10.0, 5.0, NOW)
    assert await shard.take_tokens(queue, 2, 10.0, 5.0, NOW + 60_000) == Tokens(2, 0)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW + 60_000) == Tokens(3, 100)


async def test_a_clock_that_is_behind_takes_from_the_same_bucket_and_fills_nothing(shard: Shard, queue: str) -> None:
    await shard.take_tokens(queue, 1, 10.0, 5.0, NOW)
    assert await shard.take_tokens(queue, 2, 10.0, 5.0, NOW + 300) == Tokens(2, 0)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW - 700) == Tokens(1, 100)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW + 300) == Tokens(0, 100)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW - 600) == Tokens(0, 100)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW + 400) == Tokens(1, 100)


async def test_a_clock_that_was_far_ahead_for_a_moment_does_not_stop_the_bucket(shard: Shard, queue: str) -> None:
    await shard.take_tokens(queue, 1, 10.0, 5.0, NOW)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW + 3_600_000) == Tokens(5, 100)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW + 100) == Tokens(0, 100)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW + 400) == Tokens(3, 100)


async def test_tokens_that_are_refunded_are_there_again_up_to_the_capacity(shard: Shard, queue: str) -> None:
    await shard.take_tokens(queue, 1, 10.0, 5.0, NOW)
    assert await shard.take_tokens(queue, -3, 10.0, 5.0, NOW) == Tokens(0, 0)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW) == Tokens(3, 100)
    assert await shard.take_tokens(queue, -100, 10.0, 5.0, NOW) == Tokens(0, 0)
    assert await shard.take_tokens(queue, 9, 10.0, 5.0, NOW) == Tokens(5, 100)


async def test_a_rate_of_nothing_fills_nothing(shard: Shard, queue: str) -> None:
    await shard.take_tokens(queue, 1, 0.0, 1.0, NOW)
    assert await shard.take_tokens(queue, 1, 0.0, 1.0, NOW + 10**9) == Tokens(0, 0)


async def test_each_queue_has_a_bucket_of_its_own(shard: Shard, queue: str) -> None:
    await shard.take_tokens(queue, 1, 1.0, 1.0, NOW)
    assert await shard.take_tokens(new_name("bucket"), 1, 1.0, 1.0, NOW) == Tokens(1, 1_000)
    assert await shard.take_tokens(queue.upper(), 1, 1.0, 1.0, NOW) == Tokens(1, 1_000)


async def test_takers_at_once_get_together_exactly_what_was_filled(crowd: Crowd, queue: str) -> None:
    await crowd[0].shard.take_tokens(queue, 1, 100.0, 50.0, NOW)
    for step in range(1, 6):
        now_ms = NOW + 200 * step
        takers = [
            partial(subject.shard.take_tokens, queue, 3, 100.0, 50.0, now_ms - 5 * (place % 2))
            for place, subject in enumerate([*crowd] * 3)
        ]
        answers = await at_once(*takers, partial(crowd[0].shard.take_tokens, queue, 3, 100.0, 50.0, now_ms))
        assert sum(answer.granted for answer in answers) == 20
