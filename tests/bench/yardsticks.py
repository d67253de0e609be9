"""Yardsticks of the machine: what a store does when nothing stands before it."""

from __future__ import annotations

import shutil
import subprocess

YARDSTICK_CALLS = 300_000


def sets_per_s(port: int) -> float:
    """SETs per second of `redis-benchmark` with sixteen in a pipeline."""
    program = shutil.which("redis-benchmark")
    if program is None:
        raise SystemExit("redis-benchmark is missing: ./scripts/services installs it")
    command = [program, "-p", str(port), "-n", str(YARDSTICK_CALLS), "-P", "16", "-t", "set", "-d", "200", "--csv"]
    last = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    return float(last.split(",")[1].strip('"'))
