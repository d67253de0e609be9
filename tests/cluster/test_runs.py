"""The judge of the proofs of order: what it must find, and what it must let pass."""

from __future__ import annotations

import pytest

from tests.cluster.runs import Run, judge, most_at_once

MS = 1_000_000


def run(number: int, began_ms: int, ended_ms: int | None, *, expires_at_ms: int = 1_000) -> Run:
    return Run("key", number, expires_at_ms, began_ms * MS, None if ended_ms is None else ended_ms * MS)


IN_ORDER = {
    "one behind the other": [run(0, 0, 5), run(1, 10, 15), run(2, 20, 25)],
    "again after an expiry": [run(0, 0, None, expires_at_ms=50), run(0, 51, 60), run(1, 70, 80)],
    "again after a failure": [run(0, 0, 5), run(0, 6, 9), run(1, 10, 15)],
    "the log is not in the order of the world": [run(1, 10, 15), run(0, 0, 5)],
    "begun late, behind later ones": [
        *(run(0, 0, 5), run(1, 10, None, expires_at_ms=60), run(1, 70, 80), run(2, 90, 95)),
        run(0, 99, 100, expires_at_ms=50),
    ],
    "begun late, beside a later one": [
        *(run(0, 0, None, expires_at_ms=50), run(0, 60, 70), run(1, 80, 100)),
        run(0, 90, 95, expires_at_ms=50),
    ],
    "ended late, beside the next attempt": [run(0, 40, 75, expires_at_ms=50), run(0, 60, 70), run(1, 80, 90)],
}
OUT_OF_ORDER = {
    "begun before the end of the one ahead": ([run(0, 0, 15), run(1, 10, 20)], {"before the end", "beside"}),
    "begun although the one ahead never ended": ([run(0, 0, None), run(1, 10, 20)], {"before the end", "beside"}),
    "begun although the one ahead never began": ([run(1, 10, 20)], {"before the end"}),
    "the one ahead, begun late": ([run(1, 90, 95, expires_at_ms=50)], {"before the end"}),
    "twice within a claim": ([run(0, 0, 30), run(0, 10, 20)], {"beside"}),
    "twice within a claim, whose worker is gone": ([run(0, 0, None), run(0, 10, 20)], {"beside"}),
    "an earlier one within its claim": ([run(0, 0, 5), run(1, 10, 15), run(0, 20, 25)], {"behind"}),
    "an earlier one within its claim, behind one begun late": (
        [run(0, 0, 5), run(1, 60, 65, expires_at_ms=50), run(0, 70, 75)],
        {"behind"},
    ),
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_what_was_promised_passes(name: str) -> None:
    assert judge(IN_ORDER[name]).faults == []


@pytest.mark.parametrize("name", OUT_OF_ORDER)
def test_a_breach_is_found(name: str) -> None:
    runs, words = OUT_OF_ORDER[name]
    found = " ".join(judge(runs).faults)
    assert {word for word in ("before the end", "beside", "behind") if f"began {word}" in found} == words


def test_runs_of_other_keys_do_not_matter() -> None:
    assert judge([run(0, 0, 15), Run("other", 0, 1_000, 10 * MS, 20 * MS)]).faults == []


def test_a_proof_says_little_where_most_claims_had_expired() -> None:
    late = run(0, 60, None, expires_at_ms=50)
    verdict = judge([run(0, 0, 5), late, late])
    assert (verdict.held, verdict.expired) == (1, 2)
    with pytest.raises(AssertionError, match="1 runs began within their claims, 2 after them"):
        verdict.passes()


@pytest.mark.parametrize(
    ("runs", "most"),
    [
        ([run(0, 0, 5), run(1, 5, 10), run(2, 10, 15)], 1),
        ([run(0, 0, 20), run(1, 5, 10), run(2, 10, 15)], 2),
        ([run(0, 0, 20), run(1, 5, 15), run(2, 10, 12)], 3),
        ([run(0, 0, None), run(1, 900, 910)], 2),
        ([run(0, 0, None, expires_at_ms=50), run(1, 50, 60)], 1),
        ([run(0, 0, 90, expires_at_ms=50), run(1, 60, 70)], 1),
        ([run(0, 0, 20), run(1, 60, 70, expires_at_ms=50)], 1),
    ],
)
def test_the_most_runs_of_a_key_at_once_are_counted(runs: list[Run], most: int) -> None:
    assert most_at_once([*reversed(runs), Run("other", 0, 1_000, 0, 1_000 * MS)]) == {"key": most, "other": 1}
