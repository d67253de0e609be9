"""The examples that run by themselves, in a copy of their folder, and what is left of their processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "workers" / "examples"


def copied(folder: Path, program: str) -> list[str]:
    """The command. What it writes goes to demo-output/ beside the copy of workers/."""
    copy = folder / "workers" / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return [sys.executable, str(copy / program)]


def run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    )
    return done.returncode, done.stdout


def table(output: str) -> dict[str, str]:
    return dict(re.findall(r"^(\S.*?)  +(\S+)$", output, re.MULTILINE))


def processes_of(folder: Path) -> list[str]:
    """The command lines of the processes that run in a folder, or name it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = Path(os.readlink(process / "cwd"))
        except OSError:
            continue
        if str(folder) in line or place.is_relative_to(folder):
            found.append(line)
    return found
