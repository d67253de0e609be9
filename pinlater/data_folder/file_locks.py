"""Files that belong to one server at a time: a lock beside each, which ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from pinlater.data_folder.private_files import make_private_folder, open_private_file

SUFFIX = ".lock"


class FileInUse(Exception):
    """Another process holds it; the message names the file and that process."""


class FileLocks:
    """What this process holds."""

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def take(self, paths: Iterable[Path]) -> None:
        """All of these, or none more than before. FileInUse.

        Where no lock file can be made there is nothing to be opened either; who opens it will say so.
        """
        before = set(self._held)
        try:
            for path in map(_resolved, paths):
                if path not in self._held:
                    self._lock(path)
        except FileInUse:
            self.keep(before)
            raise

    def keep(self, paths: Collection[Path]) -> None:
        """Let go of all others."""
        kept = set(map(_resolved, paths))
        for path in set(self._held) - kept:
            os.close(self._held.pop(path))

    def _lock(self, path: Path) -> None:
        try:
            make_private_folder(path.parent)
            descriptor = open_private_file(path.with_name(path.name + SUFFIX))
        except OSError:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 20).decode(errors="replace").strip()
            os.close(descriptor)
            who = f" (process {holder})" if holder else ""
            raise FileInUse(
                f"{path} is in use by another server{who}; a file belongs to one server at a time: stop that one, or "
                "give this one another --store or --data"
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._held[path] = descriptor


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path.expanduser()))
