"""What is read of the runs of somebody else's harness: the ledger, the verdicts, and the words of its command."""

from __future__ import annotations

import random
from argparse import Namespace
from pathlib import Path

import pytest

from tests.bench.harness.__main__ import came_of
from tests.bench.harness.ledger import Account, Ledger, account
from tests.bench.harness.runs import Run
from tests.bench.harness.samples import Waits
from tests.bench.harness.scenarios import CELLS
from tests.bench.harness.verdicts import Verdict, judged, keep, kept, table

BY_NAME = {cell.name: cell for cell in CELLS}


def a_run(ended: int | None = 0, **rates: float) -> Run:
    phases = {
        label: {"metrics": {"completion_rate": {"median": rate}, "claim_p99_ms": {"median": 7.0}}, "peak_dead_tup": 3.0}
        for label, rate in rates.items()
    }
    row = {"phase_label": "recovery", "subject": "t", "metric": "total_relation_size_mb"}
    return Run(
        ended, phases, [row | {"value": "1.5"}, row | {"value": "2.5"}, row | {"metric": "other", "value": "9"}], ""
    )


def test_the_authors_suite_is_five_scenarios_of_chaos_and_four_of_pressure() -> None:
    assert [cell.kind for cell in CELLS] == ["chaos"] * 5 + ["pressure"] * 4
    assert sum(cell.seconds(1) for cell in CELLS) == 1170 + 2040


def test_phases_are_shortened_and_faults_are_not() -> None:
    words = BY_NAME["repeated_kills"].words("pinlater", 0.1)
    assert words[words.index("--replicas") + 1] == "2"
    assert words[-4:] == [
        "--phase",
        "repeated=repeated-kill(instance=0,period=20s):12s",
        "--phase",
        "recovery=clean:6s",
    ]


def test_a_job_that_was_stored_and_never_ran_is_lost(tmp_path: Path) -> None:
    first, second = Ledger(str(tmp_path)), Ledger(str(tmp_path))
    first.stored(first.job(number) for number in range(5))
    for job in (first.job(0), first.job(1), second.job(7)):
        second.ran(job)
    first.ran(first.job(0))
    assert account(tmp_path) == Account(stored=5, not_run=3, repeated=1, unanswered=1)


def test_without_a_folder_nothing_is_written_down(tmp_path: Path) -> None:
    ledger = Ledger(None)
    ledger.stored([1])
    ledger.ran(1)
    assert account(tmp_path) == Account(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "run", "lost", "wrong"),
    [
        ("backend_kill", a_run(baseline=600, kills=10, recovery=600), 0, ""),
        ("backend_kill", a_run(baseline=600, kills=600, recovery=500), 0, "83% of the rate before"),
        ("backend_kill", a_run(baseline=600, kills=600, recovery=600), 2, "2 jobs were lost"),
        ("backend_kill", a_run(1, baseline=600, kills=600, recovery=600), 0, "its process ended"),
        ("backend_kill", a_run(None), 0, "it did not end in time"),
        ("backend_kill", a_run(), 0, "0% of the rate before"),
        ("burst", a_run(clean_1=1200, pressure_1=1800, recovery_1=0), 0, ""),
        ("burst", a_run(clean_1=1200, pressure_1=600, recovery_1=1200), 0, "50% of the rate before"),
    ],
)
def test_a_verdict(name: str, run: Run, lost: int, wrong: str) -> None:
    assert judged(run, BY_NAME[name], "pinlater", Account(100, lost, 0, 0)).wrong == wrong


def test_a_verdict_is_kept_and_shown(tmp_path: Path) -> None:
    run = a_run(baseline=600, kills=300, recovery=630)
    verdicts: list[Verdict] = []
    for system, found in (("pinlater", Account(1000, 0, 4, 1)), ("river", None)):
        verdicts.append(judged(run, BY_NAME["backend_kill"], system, found))
        keep(verdicts[-1], tmp_path / "kept")
    assert kept(tmp_path / "kept") == verdicts
    assert verdicts[0].megabytes == [0, 0, 2.5]
    *_, own, other = table(verdicts)
    assert own.startswith("| backend_kill | pinlater | 600 | 300 | 630 | 7 |")
    assert own.endswith("| 0 of 1,000 | 4 | 105% |\n")
    assert other.endswith("|  |  | 105% |\n")


def test_what_is_recorded_is_right_where_this_system_came_through() -> None:
    options = Namespace(scale=0.5, systems="pinlater,river", load="")
    fine, slow = a_run(baseline=600, kills=300, recovery=630), a_run(baseline=600, kills=300, recovery=60)
    own = judged(fine, BY_NAME["backend_kill"], "pinlater", Account(1000, 0, 4, 1))
    verdicts = [own, judged(slow, BY_NAME["backend_kill"], "river", None)]
    result = came_of(verdicts, "chaos", options, "abc")
    assert (result.is_right, result.amounts["lost"], result.amounts["ran again"]) == (True, 0, 4)
    assert result.amounts["backend_kill, river"] == "10% of the rate before"
    assert result.seconds == 30 / 2 + 3 * 60 / 2
    lost = judged(fine, BY_NAME["pool_exhaustion"], "pinlater", Account(1000, 3, 0, 0))
    assert not came_of([own, lost], "chaos", options, "abc").is_right
    assert "pool_exhaustion: 3 jobs were lost" in came_of([own, lost], "chaos", options, "abc").outcome
    assert not came_of(verdicts, "pressure", options, "abc").is_right


def test_quantiles_of_many_waits_have_three_figures() -> None:
    waits, drawn = Waits(), sorted(random.Random(1).expovariate(0.1) for _ in range(10_000))
    for number, ms in enumerate(drawn):
        waits.add(ms, 100 + number % 20)
    for share, found in zip((0.5, 0.95, 0.99), waits.quantiles([0.5, 0.95, 0.99], 120), strict=True):
        assert found == pytest.approx(drawn[int(share * len(drawn)) - 1], rel=0.002)
    assert waits.quantiles([0.5], 200) == [0.0]
