"""What all benchmarks have in common: the yardstick of the machine, and how figures are shown and kept."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

YARDSTICK_CALLS = 500_000


def yardstick(port: int) -> float:
    """SETs per second of `redis-benchmark` with sixteen in a pipeline."""
    program = shutil.which("redis-benchmark")
    if program is None:
        raise SystemExit("redis-benchmark is missing: ./scripts/services installs it")
    command = [program, "-p", str(port), "-n", str(YARDSTICK_CALLS), "-P", "16", "-t", "set", "-d", "200", "--csv"]
    last = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    return float(last.split(",")[1].strip('"'))


def show(figures: dict[str, Any]) -> None:
    for name, value in figures.items():
        print(f"{name:24} {json.dumps(value) if isinstance(value, dict | list) else value}")


def keep(figures: dict[str, Any], path: str | None) -> None:
    """Write them to a file, where one is named."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)
