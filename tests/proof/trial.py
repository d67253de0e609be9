"""A run of a proof with one guard taken out, in a copy of the checkout: whether it fails, and by what it should."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kits.columns import LEFT_BY_TOOLS
from tests.parts import SOAKS
from tests.proof.planted import Fault
from tests.pythons import ROOT

COPIED = ("pinlater", "workers", "thrift", "tests", "conf", "scripts", "setup.cfg", "pyproject.toml")
LINKED = (".git", ".venv")
"""What tests read and do not change: commits of before, and programs that were fetched."""

WITHIN_S = 300.0
"""On a busy machine; most are found within one minute, and what takes longer was not found."""

SHOWN_CHARS = 3_000
"""Of what pytest says."""

_FAILED = re.compile("[>E]")
"""A line of a failure that failed, or says how; the others of its function are beside it."""


@dataclass(frozen=True)
class Trial:
    """`failures`: what each test says that failed. `output`: the end of pytest's. `code`: None where it did not end."""

    fault: Fault
    failures: list[str]
    output: str
    code: int | None
    seconds: float

    @property
    def is_found(self) -> bool:
        """By what it should be found by: a test that fails for another reason says nothing of the guard."""
        return any(re.search(self.fault.finds, failure) for failure in self.failures)

    @property
    def has_passed(self) -> bool:
        return self.code == 0

    @property
    def said(self) -> str:
        return "\n".join(self.failures) or self.output

    def line(self, *, was_intact: bool = False) -> str:
        """`was_intact`: nothing was taken out."""
        found = "passed" if self.has_passed else "FAILED"
        if not was_intact:
            found = "found" if self.is_found else "NOT FOUND"
        return f"{self.fault.proof}: {found} in {self.seconds:.0f} s: {self.fault.guard.what}"


@contextlib.contextmanager
def checkout() -> Iterator[Path]:
    """A copy of this one, in which files may be changed."""
    with tempfile.TemporaryDirectory(prefix="pinlater-planted-") as place:
        folder = Path(place) / "checkout"
        folder.mkdir()
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=LEFT_BY_TOOLS)
            else:
                shutil.copy2(ROOT / name, folder / name)
        for name in LINKED:
            if (ROOT / name).exists():
                (folder / name).symlink_to(ROOT / name)
        yield folder


@contextlib.contextmanager
def planted(fault: Fault, folder: Path) -> Iterator[None]:
    """The fault is in that checkout meanwhile. AssertionError: the guard is not there exactly once."""
    file = folder / fault.path
    text = file.read_text(encoding="utf-8")
    file.write_text(fault.guard.changed(text), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")


def run(fault: Fault, folder: Path) -> Trial:
    """The tests that are to find the fault, on that checkout as it is."""
    report = folder.parent / "report.xml"
    report.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in SOAKS} | fault.lengths
    environment |= {
        "PYTHONPATH": os.pathsep.join(map(str, [folder, folder / "workers"])),
        "PYTHONPYCACHEPREFIX": str(folder.parent / "bytecode"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "--release", "-p", "no:cacheprovider", f"--junitxml={report}"]
    began_s = time.monotonic()
    shown = folder.parent / "output.txt"
    with shown.open("w") as output:
        process = subprocess.Popen(
            [*command, *fault.tests], cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code: int | None = process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
                process.wait()
    cases = ElementTree.parse(report).iter("failure") if report.is_file() else ()
    failures = ["\n".join(filter(_FAILED.match, (each.text or "").splitlines())) for each in cases]
    return Trial(fault, failures, shown.read_text(errors="replace")[-SHOWN_CHARS:], code, time.monotonic() - began_s)
