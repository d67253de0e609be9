"""What came of the commands that try to break a promise: a file of each, from which docs/proof.md is made.

Every such command takes `--record`, and writes what came of it, right or wrong, in place of what was there of before.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent / "results"


def commit() -> str:
    """Of the checkout, with a + where its files differ, but for documents and results; "unknown" outside of one."""
    found = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", ":/", ":!/docs", ":!/tests/proof/results")
    return f"{found}{'+' if changed else ''}" or "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=FOLDER.parent, capture_output=True, text=True, check=False
    ).stdout.strip()


def machine() -> str:
    """What a stranger has to know of it to judge a figure.

    >>> machine().startswith(f"{os.cpu_count()} cores, ")
    True
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    linux = ".".join(platform.release().split(".")[:2])
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {linux}, Python {platform.python_version()}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """Of the last run of one command.

    `name`: that of the file. `command`: what a reader repeats it with, seed and all. `amounts`: how much was tried and
    what was counted, as {"cuts": 500}, in the order in which a page says it. `outcome`: a sentence; what was wrong,
    where something was. `is_right`: the promise held. `load`: what else the machine had to do.
    """

    name: str
    command: str
    outcome: str
    is_right: bool
    seconds: float
    amounts: Mapping[str, int | float | str] = field(default_factory=dict)
    load: str = field(default_factory=lambda: f"a load of {os.getloadavg()[2]:.0f} at the end")
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}")
    commit: str = field(default_factory=commit)
    machine: str = field(default_factory=machine)

    def record(self, folder: Path = FOLDER) -> Path:
        """Writes it in place of what was there before. The file's path."""
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        return path


def results(folder: Path = FOLDER) -> dict[str, Result]:
    """All that were recorded, by their names."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {each["name"]: Result(**each) for each in read}
