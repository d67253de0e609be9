"""Which types of job are taken for quick."""

from __future__ import annotations

from pinlater_workers.worker.claims import IN_A_ROW, QUICK_S, Quick


def test_a_type_is_quick_after_so_many_short_attempts_in_a_row_and_until_one_that_is_not() -> None:
    quick = Quick()
    assert not quick.names
    for _ in range(IN_A_ROW - 1):
        quick.note("thumbnail", QUICK_S / 2)
    assert "thumbnail" not in quick.names
    quick.note("thumbnail", 0.0)
    assert "thumbnail" in quick.names
    assert "mail" not in quick.names
    quick.note("thumbnail", QUICK_S)
    assert "thumbnail" not in quick.names


def test_attempts_that_ended_together_count_each() -> None:
    quick = Quick()
    quick.note("thumbnail", 0.0, IN_A_ROW - 1)
    assert "thumbnail" not in quick.names
    quick.note("thumbnail", 0.0, 2)
    assert "thumbnail" in quick.names
