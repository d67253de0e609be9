"""Patterns over bodies."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from pinlater.errors import RequestInvalid
from pinlater.service.body_pattern import BodyPattern
from tests.speed import slower


@pytest.mark.parametrize(
    ("pattern", "body", "is_found"),
    [
        ("b", b"abc", True),
        ("^b", b"abc", False),
        ("(?i)B", b"abc", True),
        ("é", "café".encode(), True),
        (r"\xff.\x00", b"\xff\xfe\x00", True),
        ("^.$", b"\xff", True),
        ("^$", b"", True),
        ("a.b", b"a\nb", False),
        ("(?s)a.b", b"a\nb", True),
    ],
)
def test_a_pattern_is_searched_in_bytes(pattern: str, body: bytes, is_found: bool) -> None:
    assert BodyPattern(pattern).matches(body) is is_found


@pytest.mark.parametrize("pattern", ["(", "a**", r"\1", "(?=x)", "x{1001}", "x" * 4_097])
def test_a_bad_pattern_is_an_invalid_request(pattern: str) -> None:
    with pytest.raises(RequestInvalid, match="bodyRegexToMatch"):
        BodyPattern(pattern)


async def test_many_bodies_are_searched_beside_the_loop_with_the_same_answer() -> None:
    bodies = [b"x" * 10_000 + (b"y" if number % 2 else b"") for number in range(20)]
    assert await BodyPattern("y$").select(bodies) == [bool(number % 2) for number in range(20)]


def test_a_pattern_that_backtracks_elsewhere_is_linear_here() -> None:
    began = time.monotonic()
    assert not BodyPattern("(a+)+$").matches(b"a" * 50_000 + b"b")
    assert time.monotonic() - began < slower(time.monotonic) * 5


BLOWS_UP = "[ab]*a[ab]{900}c"
"""Has more states at once than fit into memory: searched a thousand times more slowly than others."""


async def test_a_costly_pattern_is_searched_beside_the_loop_however_short_the_bodies() -> None:
    body = bytes(random.Random(7).choices(b"ab", k=60_000))
    searching = asyncio.create_task(BodyPattern(BLOWS_UP).select([body]))
    await asyncio.sleep(0)
    assert not searching.done()
    assert await searching == [False]


async def test_a_search_ends_between_two_bodies_when_its_time_is_over() -> None:
    body = bytes(random.Random(7).choices(b"ab", k=60_000))
    assert await BodyPattern(BLOWS_UP).select([body] * 100, within_s=0.001) == [False]


def test_a_pattern_of_too_many_steps_is_refused() -> None:
    with pytest.raises(RequestInvalid, match="5000 steps"):
        BodyPattern("[ab]*a" + "[ab]{900}" * 6 + "c")
