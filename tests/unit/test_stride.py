"""How large the steps of maintenance are."""

from __future__ import annotations

from pinlater.maintenance.stride import LEAST, STEP_S, Stride


def after(stride: Stride, us_per_job: float, steps: int) -> int:
    """The size of the next step, after so many full ones."""
    for _ in range(steps):
        stride.took(stride.limit * us_per_job / 1e6, stride.limit)
    return stride.limit


def test_steps_grow_to_what_the_store_does_in_the_time_of_one() -> None:
    assert after(Stride(1_000), 8, 20) in range(450, 501)


def test_steps_are_never_larger_than_allowed_nor_smaller_than_is_worth_it() -> None:
    assert after(Stride(1_000), 0.1, 20) == 1_000
    assert after(Stride(1_000), 10_000, 20) == LEAST
    assert after(Stride(3), 10_000, 20) == after(Stride(3), 0, 20) == 3


def test_one_step_that_is_held_up_halves_the_next_one_at_worst() -> None:
    stride = Stride(1_000)
    before = after(stride, 8, 20)
    stride.took(5.0, before)
    assert stride.limit >= before // 2


def test_the_rest_is_as_long_as_the_step_but_not_longer_than_steps_are_to_be() -> None:
    stride = Stride(1_000)
    assert stride.took(STEP_S / 2, 100) == STEP_S / 2
    assert stride.took(5.0, 100) == STEP_S
