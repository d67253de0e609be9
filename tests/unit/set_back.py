"""A store that loses its last changes: the file of a SQLite shard, as it was at a mark."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


class Marked:
    """What the file holds now. The shard that has it open goes on, as over a store that came back from a crash."""

    def __init__(self, path: Path) -> None:
        self._path, self._kept = path, path.with_suffix(".marked")
        _copy(path, self._kept)

    def set_back(self) -> None:
        """All that came since the mark is gone."""
        _copy(self._kept, self._path)


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)
