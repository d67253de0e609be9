"""A file that is watched for changes: each new content counts once, when it is completely written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

LOOK_EVERY_S = 1.0
_Stamp = tuple[int, int, int]


class WatchedFile:
    """To be looked at each second. What the file holds at first is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: _Stamp | None = None
        self._known: bytes | None = None
        self._candidate: bytes | None = None
        self.accept()

    def accept(self) -> None:
        """What the file holds now is known."""
        self._candidate = None
        try:
            self._stamp = self._stamp_now()
            self._known = self._digest()
        except OSError:
            self._stamp = None

    def has_changed(self) -> bool:
        """True when the content is not the known one, and has been the same at two looks; then it is known.

        A file that is not there, or cannot be read, tells nothing: it may be on its way.
        """
        try:
            stamp = self._stamp_now()
            if stamp == self._stamp and self._candidate is None:
                return False
            self._stamp = stamp
            digest = self._digest()
        except OSError:
            self._candidate = None
            return False
        is_stable, self._candidate = digest == self._candidate, digest
        if digest == self._known:
            self._candidate = None
            return False
        if is_stable:
            self._known, self._candidate = digest, None
        return is_stable

    def _stamp_now(self) -> _Stamp:
        found = os.stat(self.path)
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _digest(self) -> bytes:
        return hashlib.sha256(self.path.read_bytes()).digest()
