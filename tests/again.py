"""Tries the few tests once more, alone, that failed beside others: on a busy machine some come too late.

What passes then fails nothing, and is told of by name: it stands still for longer than its test allows, or has a fault
that needs company. What fails again has failed, and more than MOST failures are no matter of chance.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.pythons import ROOT

MOST = 12


def failed(cache: Path) -> list[str]:
    """The names that a run of pytest left there."""
    kept = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(kept.read_text(encoding="utf-8"))) if kept.is_file() else []


def again(folder: Path, arguments: Sequence[str]) -> int:
    """0 where each passes. `folder`: where the run was; `arguments`: more of pytest's."""
    names = failed(folder / ".pytest_cache")
    if not 0 < len(names) <= MOST:
        return 1
    print(f"\nOnce more, alone: {len(names)} that failed beside others", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", *arguments, *names]
    code = subprocess.run(command, cwd=folder, check=False).returncode
    outcome = "passed alone, and failed beside others" if code == 0 else "failed beside others; see which failed again"
    print("\n".join([f"\n{outcome}:", *(f"  {name}" for name in names)]), flush=True)
    return int(code != 0)


if __name__ == "__main__":
    raise SystemExit(again(ROOT, sys.argv[1:]))
