"""A minute of the soak with everything on, and a shorter one of a server that leaks and loses, which must be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.__main__ import run
from tests.soak.judged import Outcome
from tests.soak.planted import FAULTS, variables
from tests.soak.soak import Options

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SEED = 20_261_130


@pytest.mark.store("redis", "mysql", "postgres")
def test_a_minute_with_everything_on_loses_nothing_and_grows_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, Options(seconds=60, seed=SEED))
    text = "\n".join(outcome.lines())
    print(text)
    assert outcome.is_right, text
    assert all(outcome.amounts[what] for what in ("kills", "jobs", "flows", "pages", "events")), text


def found(outcome: Outcome) -> set[str]:
    """Which of the planted faults it says."""
    grown = " ".join(each.name for each in outcome.grown)
    by_trend = {
        "memory": "memory of each server process" in grown,
        "descriptors": "descriptors of each server process" in grown,
        "rows": "rows of alone sqlite" in grown,
    }
    return {name for name, is_so in by_trend.items() if is_so} | (
        {"lost_jobs"} if any("were lost" in each for each in outcome.faults) else set()
    )


def test_what_leaks_and_what_loses_is_found(tmp_path: Path) -> None:
    planted = variables(tmp_path / "planted", *FAULTS)
    options = Options(seconds=30, seed=SEED, rate=3.0, is_small=True, is_calm=True, planted=planted)
    outcome = run(tmp_path, options)
    text = "\n".join(outcome.lines())
    print(text)
    assert found(outcome) == FAULTS.keys(), text
    assert any(each.startswith("lost: ") for each in outcome.faults), text
