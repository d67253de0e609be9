"""How large the overflow shard's file may become.

What counts are the pages that hold something, plus what was taken since they were counted. The bound is kept but for
the calls that are under way at the same moment; the write-ahead log beside the file is not in it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from pinlater.errors import EnqueueRejected, NothingStored
from pinlater.model import Job

JOB_BYTES = 400
"""Of a job in the file, beside its body and its status: its row and its entries in the indexes."""

OVERFLOW_FULL = "OVERFLOW_FULL"


class Room:
    """`used` bytes of `bound`."""

    def __init__(self, path: Path, bound: int) -> None:
        self._path = path
        self.bound = bound
        self.used = 0

    async def reserve(self, jobs: Sequence[Job]) -> None:
        """EnqueueRejected: these jobs would pass the bound. NothingStored."""
        wanted = sum(len(job.body) + len(job.custom_status) + JOB_BYTES for job in jobs)
        if self.used + wanted > self.bound:
            await self.measure()
        if self.used + wanted > self.bound:
            raise EnqueueRejected(
                f"no shard takes jobs now, and the overflow shard is full: it has {self.used} bytes, these jobs take "
                f"{wanted}; allowed: {self.bound}",
                reason=OVERFLOW_FULL,
                retry_after_ms=1_000,
            )
        self.used += wanted

    async def measure(self) -> None:
        """NothingStored: the file cannot be read."""
        try:
            self.used = await asyncio.to_thread(used_bytes, self._path)
        except sqlite3.Error as error:
            raise NothingStored(f"{self._path}: {error}") from error


def used_bytes(path: Path) -> int:
    """The pages of an SQLite file that hold something."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size
