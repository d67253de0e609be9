"""Retry policies as text, and the page that lists them."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs import retry_text
from pinlater_workers.jobs.retry import Constant, Default, Delays, Exponential, Function, Linear, Never, Policy, delays
from pinlater_workers.jobs.retry_text import parse_policy, policy_text
from pinlater_workers.retry_table import table

PAGE = Path(__file__).parents[2] / "docs" / "workers-retries.md"


def by_provider(attempt: int, error: BaseException) -> float:
    return 5.0 * attempt


PATIENT = Constant(60, retries=99)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("default", Default()),
        (" default  step=1s cap=30s ", Default(step=1, cap_s=30)),
        ("constant delay=30s", Constant(30)),
        ("linear step=1m30s retries=4", Linear(90, retries=4)),
        ("exponential first=250ms factor=1.5 cap=1h jitter=0", Exponential(0.25, 1.5, cap_s=3600, jitter=0)),
        ("delays 1s 5s 1m", Delays([1, 5, 60])),
        ("delays 1s 5s retries=9", Delays([1, 5], retries=9)),
        ("never", Never()),
        ("tests.workers.test_retry_text:by_provider", Function(by_provider)),
        ("tests.workers.test_retry_text:by_provider retries=3 cap=1m", Function(by_provider, retries=3, cap_s=60)),
        ("tests.workers.test_retry_text:PATIENT retries=3", Constant(60, retries=3)),
    ],
)
def test_reads(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "allowed: default, constant, linear, exponential, delays, never, or MODULE:FUNCTION"),
        ("sometimes", "allowed: default"),
        ("linear", "needs step=..."),
        ("linear step=soon", "'step=soon' in a retry policy: 'soon' is no duration"),
        ("linear 10s", "allowed: step=..., retries=..., cap=..., jitter=..."),
        ("constant step=10s", "allowed: delay=..."),
        ("exponential first=1s factor=0.5", "factor of a retry policy is 0.5; allowed: 1 to 1,000,000"),
        ("never retries=few", "'retries=few'"),
        ("delays", "no delays"),
        ("tests.workers.test_retry_text:PAGE", "no function of"),
        ("tests.workers.test_retry_text:Path", "no function of"),
    ],
)
def test_refuses(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_policy(text)


def test_a_function_that_is_not_there_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigurationError, match="has no nothing"):
        parse_policy("tests.workers.test_retry_text:nothing")


seconds = st.integers(0, 10_000_000).map(lambda ms: ms / 1000)
more = st.fixed_dictionaries(
    {"retries": st.integers(0, 1000), "cap_s": seconds, "jitter": st.sampled_from([0, 0.1, 0.25, 1])}
)
policies = st.one_of(
    st.builds(lambda more: Default(**more), more),
    st.builds(lambda delay, more: Constant(delay, **more), seconds, more),
    st.builds(lambda step, more: Linear(step, **more), seconds, more),
    st.builds(lambda first, by, more: Exponential(first, by, **more), seconds, st.sampled_from([1, 1.5, 2, 3]), more),
    st.builds(lambda each, more: Delays(each, **more), st.lists(seconds, min_size=1), more),
    st.builds(Delays, st.lists(seconds, min_size=1)),
)


@given(policies)
def test_what_is_written_reads_as_the_same_policy(policy: Policy) -> None:
    again = parse_policy(policy_text(policy))
    assert policy_text(again) == policy_text(policy)
    assert (type(again), again.retries, again.jitter) == (type(policy), policy.retries, policy.jitter)
    assert delays(again, 20) == pytest.approx(delays(policy, 20))


def test_a_function_is_written_by_its_name() -> None:
    written = policy_text(Function(by_provider, retries=3))
    assert written == "tests.workers.test_retry_text:by_provider retries=3"
    assert parse_policy(written) == Function(by_provider, retries=3)


def test_the_examples_in_the_docstrings_are_true() -> None:
    assert doctest.testmod(retry_text, raise_on_error=True).attempted == 2


def test_the_page_has_the_table_of_delays() -> None:
    assert table() in PAGE.read_text(), "put what `python -m pinlater_workers.retry_table` prints into the page"
