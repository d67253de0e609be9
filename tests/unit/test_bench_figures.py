"""What a figure of the benchmark says of itself: ratios, scaling by the yardstick, and if its goals are reached."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bench.figures import REFERENCE_SETS_PER_S, AtLeast, AtMost, Figure, Goal, OfFloor, table
from tests.bench.run import Sizes


def figure(*rounds: float, **more: Any) -> Figure:
    return Figure("some", "jobs/s", rounds, **more)


def test_a_ratio_is_of_the_floor_of_the_same_round() -> None:
    slow_then_fast = figure(50, 100, 400, floors=(100, 100, 400))
    assert slow_then_fast.value == 100
    assert slow_then_fast.floor == 100
    assert slow_then_fast.ratio == 1.0


def test_without_a_floor_there_is_no_ratio_and_no_share_of_it_is_reached() -> None:
    alone = figure(5, goals=[OfFloor(0.1)])
    assert (alone.floor, alone.ratio, alone.is_reached) == (None, None, False)


@pytest.mark.parametrize(("yardstick", "reached"), [(REFERENCE_SETS_PER_S, False), (REFERENCE_SETS_PER_S / 2, True)])
def test_an_amount_counts_as_on_the_machine_of_reference(yardstick: float, reached: bool) -> None:
    on_a_machine = figure(600, goals=[AtLeast(1000)], yardstick=yardstick)
    assert on_a_machine.scaled == 600 * REFERENCE_SETS_PER_S / yardstick
    assert on_a_machine.is_reached is reached


@pytest.mark.parametrize(
    ("goal", "reached", "said"),
    [
        (OfFloor(0.8), True, ">= 0.8 of the floor"),
        (OfFloor(0.81), False, ">= 0.81 of the floor"),
        (AtLeast(80), True, ">= 80 scaled"),
        (AtLeast(80.1), False, ">= 80 scaled"),
        (AtMost(80), True, "<= 80"),
        (AtMost(79.5), False, "<= 79.5"),
    ],
)
def test_goals_include_their_bound(goal: Goal, reached: bool, said: str) -> None:
    assert goal.reached(figure(80, floors=(100,))) is reached
    assert str(goal) == said


def test_all_goals_count() -> None:
    assert figure(80, goals=[AtLeast(50), AtMost(90)]).is_reached
    assert not figure(80, goals=[AtLeast(50), AtMost(70)]).is_reached


def test_a_table_has_a_line_per_figure_and_what_is_behind_it() -> None:
    good = Figure("a", "x", [1.5], [AtMost(2)], cpu_us={"server 1": 12.34}, notes="of something")
    bad = figure(1234.5, goals=[OfFloor(0.8)], floors=(10_000,), floor_is="the store alone")
    lines = table([good, bad]).splitlines()
    assert lines[1].split() == ["a", "1.5", "x", "<=", "2", "reached"]
    assert lines[2].split()[:6] == ["some", "1,234", "jobs/s", "10,000", "0.12", "1,234"]
    assert lines[2].endswith(">= 0.8 of the floor  NOT REACHED")
    assert lines[4] == "a: rounds 1.5; cpu us: server 1 12.3; of something; yardstick 1,300,000 SET/s"
    assert "floor: the store alone" in lines[5]


def test_json_holds_all_that_the_table_says() -> None:
    said = json.loads(json.dumps(figure(4, 5, goals=[OfFloor(0.5)], floors=(8, 8)).as_json()))
    assert (said["rounds"], said["floors"], said["ratio"], said["reached"]) == ([4, 5], [8, 8], 0.5625, True)
    assert figure(1).as_json()["reached"] is None


@pytest.mark.parametrize(("scale", "jobs"), [(1, 2000), (0.3, 600), (0.01, 100), (2.51, 5000)])
def test_a_scaled_run_has_whole_batches(scale: float, jobs: int) -> None:
    assert Sizes(scale=scale).jobs(2000) == jobs
