"""Who owns the overflow shard of a server: the process that has locked `overflow.lock` in the data folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pinlater.private_files import open_private_file


class OwnerLock:
    """Held until it is freed, or the process is gone, however it went."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Whether this process has it now. OSError: the file cannot be made."""
        if self._descriptor is not None:
            return True
        descriptor = open_private_file(self._path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def free(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
