"""Which types of job are taken for quick."""

from __future__ import annotations

from pinlater_workers.worker.claims import IN_A_ROW, SHORT_S, ShortJobs


def test_a_type_is_quick_after_so_many_short_attempts_in_a_row_and_until_one_that_is_not() -> None:
    short = ShortJobs()
    assert not short.names
    for _ in range(IN_A_ROW - 1):
        short.note("thumbnail", SHORT_S / 2)
    assert "thumbnail" not in short.names
    short.note("thumbnail", 0.0)
    assert "thumbnail" in short.names
    assert "mail" not in short.names
    short.note("thumbnail", SHORT_S)
    assert "thumbnail" not in short.names


def test_attempts_that_ended_together_count_each() -> None:
    short = ShortJobs()
    short.note("thumbnail", 0.0, IN_A_ROW - 1)
    assert "thumbnail" not in short.names
    short.note("thumbnail", 0.0, 2)
    assert "thumbnail" in short.names
