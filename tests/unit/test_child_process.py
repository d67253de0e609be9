"""Child processes, with and without a kernel that tells of their end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from pinlater.child_process import ChildProcess

WITHIN_S = 100.0
SLEEPS = "import time; time.sleep(600)"
LEAVES_A_CHILD = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(left.pid, file=open(sys.argv[1], "w"), flush=True)
"""


@pytest.fixture(params=[True, False], ids=["pidfd", "asked"])
def kernel_tells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.delattr(os, "pidfd_open")


class Child:
    """A Python program, and the codes that its end was told with."""

    def __init__(self, code: str, *arguments: str, own_group: bool = True) -> None:
        self.codes: list[int] = []
        self._gone = asyncio.Event()
        self.process = ChildProcess([sys.executable, "-c", code, *arguments], [], self._exited, own_group=own_group)

    async def code(self) -> int:
        await asyncio.wait_for(self._gone.wait(), WITHIN_S)
        await asyncio.sleep(0.1)  # nothing more comes
        (code,) = self.codes
        return code

    def _exited(self, code: int) -> None:
        self.codes.append(code)
        self._gone.set()


@pytest.mark.usefixtures("kernel_tells")
@pytest.mark.parametrize("own_group", [True, False])
def test_the_end_is_told_once_with_its_code(own_group: bool) -> None:
    async def run() -> None:
        child = Child("raise SystemExit(3)", own_group=own_group)
        assert await child.code() == 3
        assert child.process.is_gone
        child.process.kill()

    asyncio.run(run())


@pytest.mark.usefixtures("kernel_tells")
@pytest.mark.parametrize("own_group", [True, False])
def test_a_child_that_is_killed_ends_by_that_signal(own_group: bool) -> None:
    async def run() -> None:
        child = Child(SLEEPS, own_group=own_group)
        child.process.kill()
        assert await child.code() == -signal.SIGKILL

    asyncio.run(run())


@pytest.mark.usefixtures("kernel_tells")
def test_a_child_that_is_killed_now_is_gone_at_once() -> None:
    async def run() -> None:
        child = Child(SLEEPS)
        child.process.kill_now()
        assert child.codes == [-signal.SIGKILL]
        assert await child.code() == -signal.SIGKILL

    asyncio.run(run())


@pytest.mark.usefixtures("kernel_tells")
@pytest.mark.parametrize("spares_group", [False, True])
def test_what_a_child_leaves_in_its_group_ends_after_it_unless_it_is_spared(tmp_path: Path, spares_group: bool) -> None:
    async def run() -> None:
        child = Child(LEAVES_A_CHILD, str(tmp_path / "pid"))
        child.process.spares_group = spares_group
        assert await child.code() == 0

    asyncio.run(run())
    left = int((tmp_path / "pid").read_text())
    try:
        assert lives(left) if spares_group else ends(left)
    finally:
        if lives(left):
            os.kill(left, signal.SIGKILL)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pid: int) -> bool:
    end_s = time.monotonic() + WITHIN_S
    while lives(pid) and time.monotonic() < end_s:
        time.sleep(0.01)
    return not lives(pid)


def test_a_program_that_is_not_there_is_an_error() -> None:
    async def run() -> None:
        with pytest.raises(OSError, match="no-such-program"):
            ChildProcess(["/no-such-program"], [], print)

    asyncio.run(run())
