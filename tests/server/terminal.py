"""The command `pinlater` on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from pathlib import Path

from tests.server.running import PROGRAM

WITHIN_S = 60.0


def _take_terminal() -> None:
    """Standard input becomes the terminal of this session: Ctrl-C typed there is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A command whose standard streams are a terminal, of unknown width unless `columns` are given; `more` is for its
    environment.
    """

    def __init__(
        self, folder: Path, address: str, *arguments: str, columns: int = 0, lines: int = 40, **more: str
    ) -> None:
        self._ours, theirs = pty.openpty()
        if columns:
            termios.tcsetwinsize(theirs, (lines, columns))
        environment = {"PATH": os.environ["PATH"], "PINLATER_SERVER": address, "HOME": str(folder)} | more
        self._process = subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> None:
        """Reads until `text` is shown."""
        deadline_s = time.monotonic() + WITHIN_S
        while text not in self.shown:
            assert time.monotonic() < deadline_s, self.shown
            assert self._read(), self.shown

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def ended(self) -> int:
        """Reads to the end; the exit code."""
        while self._read():
            pass
        os.close(self._ours)
        return self._process.wait(WITHIN_S)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], WITHIN_S)[0]:
            return False
        try:
            data = os.read(self._ours, 65_536)
        except OSError:
            return False
        self.shown += data.decode()
        return bool(data)
