"""Retry policies: what they say, and what is true of all of them."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater_workers.jobs.retry import (
    CAP_S,
    DEFAULT_RETRY,
    LONGEST_S,
    Constant,
    Default,
    Delays,
    Exponential,
    Function,
    Linear,
    Never,
    Policy,
    RetryRules,
    delays,
)

ERROR = ValueError("an example")
NO_RANDOM = None

seconds = st.floats(0, LONGEST_S)
options = st.fixed_dictionaries(
    {"retries": st.integers(0, 1000), "cap_s": seconds, "jitter": st.floats(0, 1)},
)
policies = st.one_of(
    st.builds(lambda more: Default(**more), options),
    st.builds(lambda delay, more: Constant(delay, **more), seconds, options),
    st.builds(lambda step, more: Linear(step, **more), seconds, options),
    st.builds(lambda first, by, more: Exponential(first, by, **more), seconds, st.floats(1, 1_000_000), options),
    st.builds(lambda each, more: Delays(each, **more), st.lists(seconds, min_size=1), options),
    st.builds(lambda delay, more: Function(lambda *_: delay, **more), seconds, options),
)
attempts = st.integers(1, 1000) | st.integers(1, 10**400)


def test_the_default_is_ten_retries_five_of_them_linear_then_doubling() -> None:
    assert delays(Default(), 11) == [10, 20, 30, 40, 50, 100, 200, 400, 800, 1600]
    assert DEFAULT_RETRY.retries == 10
    assert Default(retries=20).delay_s(20, ERROR, NO_RANDOM) == CAP_S == 3600
    assert Default().jitter == 0.1


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Constant(7, retries=3), [7, 7, 7]),
        (Constant(7200, retries=1), [7200]),
        (Linear(5, retries=4, cap_s=12), [5, 10, 12, 12]),
        (Exponential(1, retries=4), [1, 2, 4, 8]),
        (Exponential(2, factor=3, retries=4, cap_s=20), [2, 6, 18, 20]),
        (Delays([1, 5, 60]), [1, 5, 60]),
        (Delays([1, 5], retries=4), [1, 5, 5, 5]),
        (Function(lambda attempt, _error: attempt * 2.0, retries=2), [2, 4]),
        (Function(lambda attempt, _error: timedelta(minutes=attempt), retries=2), [60, 120]),
        (Function(lambda attempt, _error: None if attempt > 1 else 3), [3]),
        (Never(), []),
    ],
)
def test_the_delays_of(policy: Policy, expected: list[float]) -> None:
    assert delays(policy, policy.retries + 1) == expected


def test_delays_are_those_between_so_many_attempts_of_a_type() -> None:
    assert delays(Constant(1), 3) == [1, 1]
    assert delays(Constant(1, retries=2), 5) == [1, 1, 1, 1]
    assert delays(Delays([1, 5]), 5) == [1, 5, 5, 5]
    assert delays(Never(), 5) == []
    assert delays(Constant(1), 1) == delays(Constant(1), 0) == []


def test_after_the_last_retry_there_is_none() -> None:
    assert Constant(1, retries=2).delay_s(2, ERROR, NO_RANDOM) == 1
    assert Constant(1, retries=2).delay_s(3, ERROR, NO_RANDOM) is None
    assert Constant(1, retries=2).delay_s(3, ERROR, NO_RANDOM, retries=3) == 1
    assert Constant(1, retries=2).delay_s(2, ERROR, NO_RANDOM, retries=1) is None
    assert Never().delay_s(1, ERROR, NO_RANDOM, retries=99) is None


@given(policies, attempts, st.integers())
def test_a_delay_is_never_negative_above_the_cap_or_outside_of_its_jitter(
    policy: Policy, attempt: int, seed: int
) -> None:
    plain_s = policy.delay_s(attempt, ERROR, None)
    drawn_s = policy.delay_s(attempt, ERROR, Random(seed))
    if attempt > policy.retries:
        assert plain_s is None
        assert drawn_s is None
        return
    assert plain_s is not None
    assert drawn_s is not None
    assert 0 <= plain_s <= policy.cap_s
    assert 0 <= drawn_s <= policy.cap_s
    assert abs(drawn_s - plain_s) <= plain_s * policy.jitter * (1 + 1e-9) + 1e-9


@given(policies, attempts)
def test_a_policy_is_pure(policy: Policy, attempt: int) -> None:
    assert policy.delay_s(attempt, ERROR, Random(1)) == policy.delay_s(attempt, ERROR, Random(1))


@given(policies, attempts)
def test_attempts_beyond_all_bounds_do_not_overflow(policy: Policy, attempt: int) -> None:
    delay_s = policy.delay_s(attempt, ERROR, Random(1), retries=attempt)
    assert delay_s is not None
    assert 0 <= delay_s <= policy.cap_s


def test_jitter_spreads_delays_at_the_cap_too() -> None:
    rng = Random(1)
    drawn = {Exponential(1, retries=99, cap_s=100).delay_s(50, ERROR, rng) for _ in range(100)}
    assert len(drawn) == 100
    assert max(filter(None, drawn)) <= 100


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Constant(-1),
        lambda: Constant(float("nan")),
        lambda: Constant(float("inf")),
        lambda: Linear(-1),
        lambda: Exponential(-1),
        lambda: Exponential(1, factor=0.5),
        lambda: Default(step=-1),
        lambda: Delays([]),
        lambda: Delays([1, -1]),
        lambda: Constant(1, retries=-1),
        lambda: Constant(1, cap_s=-1),
        lambda: Constant(1, jitter=1.5),
        lambda: Delays([1], retries=-2),
        lambda: Constant("30s"),  # type: ignore[arg-type]
        lambda: Constant(timedelta(seconds=30)),  # type: ignore[arg-type]
        lambda: Delays([1, "5m"]),  # type: ignore[list-item]
    ],
)
def test_numbers_that_mean_nothing_are_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=r"allowed|for no retry write never"):
        wrong()


@pytest.mark.parametrize("answer", [300, 300.0, "5m", "300", timedelta(minutes=5)])
def test_a_function_answers_with_seconds_a_text_or_a_timedelta(answer: float | str | timedelta) -> None:
    assert Function(lambda *_: answer).delay_s(1, ERROR, NO_RANDOM) == 300


@pytest.mark.parametrize("answer", [-1, float("nan"), float("inf"), timedelta(seconds=-1), "soon"])
def test_a_function_that_answers_with_nonsense_is_an_error(answer: float) -> None:
    with pytest.raises(ValueError, match="allowed"):
        Function(lambda *_: answer).delay_s(1, ERROR, NO_RANDOM)


class Timeout(ConnectionError):
    pass


ON = {OSError: Constant(1, jitter=0), ConnectionError: Constant(2, retries=12, jitter=0), KeyError: Never()}
RULES = RetryRules(Constant(9, retries=4, jitter=0), ON)


@pytest.mark.parametrize(
    ("error", "delay_s"),
    [(OSError(), 1), (ConnectionError(), 2), (Timeout(), 2), (FileNotFoundError(), 1), (ValueError(), 9)],
)
def test_the_most_specific_type_of_exception_counts(error: Exception, delay_s: float) -> None:
    assert RULES.delay_s(1, error, NO_RANDOM) == delay_s
    assert RetryRules(RULES.default, dict(reversed(ON.items()))).delay_s(1, error, NO_RANDOM) == delay_s


def test_rules_allow_as_many_retries_as_any_of_their_policies_and_each_its_own() -> None:
    assert RULES.retries == 12
    assert RULES.delay_s(5, ValueError(), NO_RANDOM) is None
    assert RULES.delay_s(5, Timeout(), NO_RANDOM) == 2
    assert RULES.delay_s(1, KeyError(), NO_RANDOM) is None
    assert RULES.delay_s(5, ValueError(), NO_RANDOM, retries=5) == 9
    assert RULES.delay_s(12, Timeout(), NO_RANDOM, retries=5) == 2


@given(st.lists(st.sampled_from([OSError, ConnectionError, Timeout, LookupError, KeyError]), unique=True))
def test_whatever_the_order_no_listed_type_is_nearer_than_the_chosen_one(kinds: list[type[Exception]]) -> None:
    rules = RetryRules(Never(), {kind: Constant(index) for index, kind in enumerate(kinds)})
    order = Timeout.__mro__
    listed = sorted((order.index(kind), index) for index, kind in enumerate(kinds) if kind in order)
    expected = float(listed[0][1]) if listed else None
    assert rules.delay_s(1, Timeout(), NO_RANDOM) == expected


def test_a_number_of_a_policy_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="cap of a retry policy is None; allowed: a number"):
        Exponential(1, cap_s=None)  # type: ignore[arg-type]
