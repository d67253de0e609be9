"""The trial of new code before a worker restarts with it: another process loads it, by the same command line."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from pinlater_workers.cli.process_exit import STARTED_IN

WITHIN_S = 120.0
_LINES = 14
"""So much of what the process says: its end has the reason."""


async def fault_of_new_code() -> str:
    """Why this command would not begin now, as it says itself; "": it would."""
    process = _begun()
    try:
        _, text = await asyncio.to_thread(process.communicate, timeout=WITHIN_S)
    except subprocess.TimeoutExpired:
        return f"it has not been imported within {WITHIN_S:g} s"
    finally:
        process.kill()
    return "" if process.returncode == 0 else "\n".join(text.rstrip().split("\n")[-_LINES:]) or _ended(process)


def _begun() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:], "--check"],
        cwd=STARTED_IN,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _ended(process: subprocess.Popen[str]) -> str:
    return f"the process that loaded it ended with {process.returncode}"
