"""What the run before a release writes down, and the table of what CI leaves to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import LEFT, PATTERNS
from tests.parts import table as left_to_release
from tests.proof.counts import Counts
from tests.release import PAGE, ROOT, Outcome, page_with, table

REPORT = """<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="2500" /></testsuites>"""


def test_the_page_says_what_is_left_to_a_release() -> None:
    assert left_to_release() in PAGE.read_text(encoding="utf-8"), f"docs/testing.md has to say:\n{left_to_release()}"


@pytest.mark.slow
def test_every_pattern_names_tests() -> None:
    paths = {row.pattern.partition("::")[0].partition("/.*")[0].replace("\\", "") for row in LEFT if row.pattern}
    command = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-q", "--release", *sorted(paths)]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    stale = [pattern.pattern for pattern in PATTERNS if not any(pattern.match(name) for name in names)]
    assert stale == [], "tests/parts.py: no test has such a name"


def test_a_report_is_counted_and_one_that_is_missing_counts_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert Counts.of(report) == Counts()
    report.write_text(REPORT)
    assert Counts.of(report) == Counts(items=2500, failed=3, skipped=3)


def test_the_last_run_takes_the_place_of_the_one_before() -> None:
    page = "# Tests\n<!-- the last release run -->\nNone yet.\n<!-- end of the last release run -->\nMore.\n"
    ran = Outcome("all tests", "FAILED (exit 1)", Counts(2500, 3, 3), 61.4)
    left_out = Outcome("the tests of CI on Python 3.14", "not run: not found")
    once = page_with(page, table([ran], "0123456789ab", "2026-01-01"))
    again = page_with(once, table([ran, left_out], "ba9876543210", "2026-02-02"))
    assert "None yet." not in once
    assert "2026-01-01" not in again
    assert "2026-02-02, commit `ba9876543210`:" in again
    assert "| all tests | 2,500 | 3 | 3 | 61 | FAILED (exit 1) |" in again
    assert "| the tests of CI on Python 3.14 |  |  |  | 0 | not run: not found |" in again
    assert again.startswith("# Tests\n")
    assert again.endswith("\nMore.\n")
    assert not ran.is_right
    assert left_out.is_right
