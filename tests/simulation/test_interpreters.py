"""A plan on another interpreter than `.venv`'s: the same calls at the same times; tests/pythons.py runs this there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.faults import WEIGHTS
from tests.simulation.plan import draw

ROOT = Path(__file__).parents[2]
OURS = ROOT / ".venv" / "bin" / "python"
SEEDS = (2, 3)


def _run(python: Path, plan: str, history: Path) -> bytes:
    command = [str(python), "-m", "tests.simulation", "--plan", plan, "--history", str(history)]
    variables = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "workers")])}
    subprocess.run(command, cwd=ROOT, env=variables, check=True, capture_output=True, timeout=300)
    return history.read_bytes()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_is_the_same_run_as_on_the_python_of_the_environment(seed: int, tmp_path: Path) -> None:
    plan = draw(seed, WEIGHTS, most_minutes=1.01)
    here = _run(Path(sys.executable), plan.to_json(), tmp_path / "here.jsonl")
    there = _run(OURS, draw(seed, WEIGHTS, most_minutes=1.01).to_json(), tmp_path / "there.jsonl")
    assert len(here.splitlines()) > 100
    assert here == there
