"""A folder of histories, in which each process that may call has a file of its own.

A fork of such a process begins another file with its first call. Where a line cannot be written, as on a full disk,
recording ends and the calls go on.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from functools import cache
from pathlib import Path

from pinlater.data_folder.private_files import make_private_folder, new_private_file
from pinlater.history.history_files import SUFFIX
from pinlater.history.recorder import Recorder, header
from pinlater.log_guard import GuardedLogger

TOLERANCE_MS = 50.0
"""More than clocks differ that are kept by NTP, and little beside the times of claims: what a wider one lets through
is not found.
"""

_log = GuardedLogger("pinlater.client")


def folder_recorder(folder: str | Path) -> Recorder:
    """The recorder of this process and its forks, by the system's clock. OSError: the folder cannot be written."""
    return _recorder(Path(folder).expanduser().absolute())


@cache
def _recorder(folder: Path) -> Recorder:
    make_private_folder(folder)
    return Recorder(_FileOfProcess(folder).write, lambda: time.time_ns() / 1_000_000)


class _FileOfProcess:
    """Takes whole lines, one system call each, so that a kill of the process loses none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._has_failed = False
        self._pid, self._file = os.getpid(), self._opened()

    def write(self, line: bytes) -> None:
        if self._has_failed:
            return
        try:
            if self._pid != os.getpid():  # a fork, which has no other threads yet
                self._pid, self._file = os.getpid(), self._opened()
            if os.write(self._file, line) != len(line):
                raise OSError(f"there is no room for a line of {len(line):,} bytes")
        except OSError as error:
            self._has_failed = True
            _log.error("the history in %s ends here, so it cannot be judged: %s", self._folder, error)

    def _opened(self) -> int:
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        file = new_private_file(self._folder / name)
        os.write(file, header(TOLERANCE_MS))
        return file
