"""A Python program under valgrind, whose instructions are counted only when asked for.

Instructions of the program itself, its C libraries included; not those of the kernel, nor of other processes. Unlike
seconds they are the same on a busy machine, within about one per cent.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.stores.process import dies_with_us

SAID_WITHIN_S = 60
_TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)


class Counted:
    """A program that says something and does what it is told, by lines. `tell` and `said` are its line."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._dumps = 0

    def said(self) -> str:
        """The next line of its standard output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the program under valgrind ended with {self._process.wait(SAID_WITHIN_S)}")
        return line

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """What is done in the block counts, and nothing else."""
        self._order("instrumentation", "on")
        try:
            yield
        finally:
            self._order("instrumentation", "off")

    def taken(self) -> int:
        """The instructions that were counted since the last time."""
        self._order("dump")
        self._dumps += 1
        found = _TOTAL.search((self._folder / f"out.{self._dumps}").read_text())
        assert found is not None
        return int(found[1])

    def _order(self, *words: str) -> None:
        command = ["vgdb", f"--vgdb-prefix={self._folder}/vgdb", f"--pid={self._process.pid}", *words]
        subprocess.run(command, check=True, capture_output=True, timeout=SAID_WITHIN_S)


@contextlib.contextmanager
def counted(*arguments: str) -> Iterator[Counted]:
    """`python ARGUMENTS` under valgrind, until the block ends."""
    if not shutil.which("valgrind") or not shutil.which("vgdb"):
        raise SystemExit("valgrind is missing; as root: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="pinlater-valgrind-") as folder:
        options = [f"--callgrind-out-file={folder}/out", f"--vgdb-prefix={folder}/vgdb", "--instr-atstart=no", "-q"]
        process = subprocess.Popen(
            [*dies_with_us(), "valgrind", "--tool=callgrind", *options, sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONHASHSEED": "0"},
            text=True,
        )
        try:
            yield Counted(process, Path(folder))
        finally:
            process.kill()
            process.communicate(timeout=SAID_WITHIN_S)
