"""A type checker sees what the function sees: calls of jobs, right and wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT

CALLS = Path(__file__).parent / "typing" / "checked_calls.py"
REPORT = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$", re.MULTILINE)
EXPECTED = re.compile(r"# error: ([\w-]+)$")


@pytest.mark.slow
def test_mypy_complains_where_it_should_and_nowhere_else() -> None:
    lines = CALLS.read_text(encoding="utf-8").splitlines()
    expected = {number: match[1] for number, line in enumerate(lines, 1) if (match := EXPECTED.search(line))}
    assert len(expected) > 20
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(CALLS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    found = {int(match["line"]): match["code"] for match in REPORT.finditer(done.stdout)}
    assert found == expected, done.stdout + done.stderr
    assert {Path(match["file"]).name for match in REPORT.finditer(done.stdout)} == {CALLS.name}, done.stdout
