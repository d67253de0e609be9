"""The payroll: its jobs and its flow in memory, and all of it on a real server."""

from __future__ import annotations

import importlib
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from pinlater_workers import testing
from tests.demo.examples import EXAMPLES, copied, processes_of, run, table


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PAYROLL_FOLDER", str(tmp_path))
    return importlib.import_module("payroll")


def test_all_are_paid_once_but_the_one_without_a_contract(example: ModuleType) -> None:
    people = [{"user": user, "hours": 10} for user in range(1, 31)]
    with testing.in_memory(example.app) as jobs:
        paid = example.payroll.start(people, metadata={"month": "11"}, on_complete=example.close_month)
        paid.add(people[:5])  # once more: nothing comes of it
        paid.seal()
        assert paid.wait().completed_ms is not None
        jobs.run_all()
        calculated = {item.payload["user"]: item for item in paid.results(example.calculated)}
        sent = {item.payload["user"]: len(item.failures) for item in paid.results(example.sent)}
    assert [user for user, item in calculated.items() if not item.succeeded] == [13]
    assert ["no contract" in failure.reason for failure in calculated[13].failures] == [True] * 3
    assert {user: tries for user, tries in sent.items() if tries} == {7: 1, 27: 1}
    with closing(example.open_ledger()) as ledger:
        booked = dict(ledger.execute("SELECT number, cents FROM checks"))
        assert ledger.execute("SELECT * FROM closed").fetchall() == [("11", "COMPLETE")]
    assert booked == {f"2026-11/{user}": 42_500 for user in range(1, 31) if user != 13}


def test_the_demonstration_draws_the_flow_and_leaves_no_process_behind(tmp_path: Path) -> None:
    code, output = run([*copied(tmp_path, "demo.py"), "--payroll"])
    assert code == 0, output
    rows = table(output)
    assert (rows["people"], rows["checks sent"], rows["checks booked"], rows["failed"]) == ("240", "239", "239", "1")
    assert (rows["at the second try"], rows["months closed"]) == ("12", "1")
    assert "FAILED item 13 of stage calculate_pay (on purpose)" in output
    assert output.count("LookupError: person 13 has no contract") == 3
    assert "calculate_pay: 0 of 20 items done, open" in output
    assert "book: 239 of 239 items done, complete" in output
    assert not processes_of(tmp_path)
