"""`python -m tests.kits [PYTEST ARGUMENTS]`: the whole trial, and its table in docs/languages.md."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.kits.columns import ROOT
from tests.kits.table import PAGE, page_with, states_of, table


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pinlater-kits-") as folder:
        report = Path(folder) / "report.xml"
        trial = ["tests/kits", "-q", "-n", "2", "--release", f"--junitxml={report}", *sys.argv[1:]]
        code = subprocess.run([sys.executable, "-m", "pytest", *trial], cwd=ROOT, check=False).returncode
        if not report.is_file():
            return code
        states = states_of(report)
    text = table(states, f"{datetime.now(UTC):%Y-%m-%d}")
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(f"The table of {PAGE.relative_to(ROOT)} is written.")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
