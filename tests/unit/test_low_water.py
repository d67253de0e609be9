"""From where claims in PostgreSQL look for jobs, by what looks from the front took."""

from __future__ import annotations

from pinlater.backends.sql.low_water import LONGEST_S, MANY_DEAD_ROWS, MARGIN_MS, SHARE, SLOW_S, LowWaterMarks

QUEUE, NAME, NOW_MS = 7, "mail", 1_790_000_000_000


class Watch:
    at_s = 100.0

    def __call__(self) -> float:
        return self.at_s


def marked(took_s: float = 2 * SLOW_S, dead_rows: int = MANY_DEAD_ROWS) -> tuple[LowWaterMarks, Watch]:
    """After one look that took so long past so many rows, and found nothing more of two priorities."""
    watch = Watch()
    marks = LowWaterMarks(now_s=watch)
    assert marks.for_claim_ms(QUEUE, [1, 2], NOW_MS) == [0, 0]
    marks.note_look(QUEUE, took_s, lambda: dead_rows)
    marks.named(NAME, QUEUE)
    marks.passed(QUEUE, {1: NOW_MS, 2: NOW_MS - 500})
    return marks, watch


def test_a_quick_look_marks_nothing_and_asks_for_nothing() -> None:
    def refuse() -> int:
        raise AssertionError("it costs a round trip")

    marks = LowWaterMarks()
    marks.note_look(QUEUE, SLOW_S, refuse)
    assert not marks


def test_a_slow_look_past_few_dead_rows_marks_nothing() -> None:
    marks, _ = marked(dead_rows=MANY_DEAD_ROWS - 1)
    assert not marks
    assert marks.for_claim_ms(QUEUE, [1], NOW_MS) == [0]


def test_looks_begin_a_margin_before_what_was_passed() -> None:
    marks, _ = marked()
    assert marks.for_claim_ms(QUEUE, [1, 2, 3], NOW_MS) == [NOW_MS - MARGIN_MS, NOW_MS - 500 - MARGIN_MS, 0]
    assert marks.begins_of_name_ms(NAME, 1) == marks.begins_ms(QUEUE, 1) == NOW_MS - MARGIN_MS
    assert marks.begins_of_name_ms("other", 1) == marks.begins_ms(QUEUE + 1, 1) == 0
    marks.passed(QUEUE, {1: NOW_MS - 10_000})
    assert marks.begins_ms(QUEUE, 1) == NOW_MS - MARGIN_MS


def test_looks_from_the_front_take_a_share_of_the_time_and_come_each_second_at_least() -> None:
    for took_s, again_s in ((2 * SLOW_S, SHARE * 2 * SLOW_S), (3.0, LONGEST_S)):
        marks, watch = marked(took_s)
        watch.at_s += again_s - 0.001
        assert any(marks.for_claim_ms(QUEUE, [1], NOW_MS))
        watch.at_s += 0.002
        assert marks.for_claim_ms(QUEUE, [1], NOW_MS) == [0]
        assert any(marks.for_claim_ms(QUEUE, [1], NOW_MS)), "one claim looks, and others do not wait for it"


def test_a_quick_look_from_the_front_ends_it() -> None:
    marks, _ = marked()
    marks.note_look(QUEUE, SLOW_S / 2, lambda: MANY_DEAD_ROWS)
    assert not marks
    assert marks.begins_of_name_ms(NAME, 1) == 0


def test_a_job_that_is_pending_before_a_mark_is_looked_for_at_once() -> None:
    for run_after_ms, begins_ms in ((NOW_MS, NOW_MS - MARGIN_MS), (NOW_MS - MARGIN_MS - 1, 0), (0, 0)):
        marks, _ = marked()
        marks.pending_again(QUEUE, run_after_ms)
        assert marks.begins_ms(QUEUE, 1) == begins_ms


def test_a_mark_of_a_clock_that_was_set_back_is_forgotten() -> None:
    marks, _ = marked()
    assert marks.for_claim_ms(QUEUE, [1, 2], NOW_MS - 3_600_000) == [0, 0]
    marks.passed(QUEUE, {1: NOW_MS - 3_600_000})
    assert marks.begins_ms(QUEUE, 1) == NOW_MS - 3_600_000 - MARGIN_MS
