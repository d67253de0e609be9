"""How large the steps of maintenance are."""

from __future__ import annotations

from pinlater.maintenance.runner import MIN_BATCH, STEP_S, AdaptiveBatchSize


def after(batch: AdaptiveBatchSize, us_per_job: float, steps: int) -> int:
    """The size of the next step, after so many full ones."""
    for _ in range(steps):
        batch.record(batch.limit * us_per_job / 1e6, batch.limit)
    return batch.limit


def test_steps_grow_to_what_the_store_does_in_the_time_of_one() -> None:
    assert after(AdaptiveBatchSize(1_000), 8, 20) in range(450, 501)


def test_steps_are_never_larger_than_allowed_nor_smaller_than_is_worth_it() -> None:
    assert after(AdaptiveBatchSize(1_000), 0.1, 20) == 1_000
    assert after(AdaptiveBatchSize(1_000), 10_000, 20) == MIN_BATCH
    assert after(AdaptiveBatchSize(3), 10_000, 20) == after(AdaptiveBatchSize(3), 0, 20) == 3


def test_one_step_that_is_held_up_halves_the_next_one_at_worst() -> None:
    batch = AdaptiveBatchSize(1_000)
    before = after(batch, 8, 20)
    batch.record(5.0, before)
    assert batch.limit >= before // 2


def test_the_rest_is_as_long_as_the_step_but_not_longer_than_steps_are_to_be() -> None:
    batch = AdaptiveBatchSize(1_000)
    assert batch.record(STEP_S / 2, 100) == STEP_S / 2
    assert batch.record(5.0, 100) == STEP_S
