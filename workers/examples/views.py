"""Page views, written in batches: one transaction for up to 500 jobs, and an outcome for each of them.

    export VIEWS_DB=/tmp/views.db                                              # where they are counted
    PYTHONPATH=workers/examples pinlater-worker --app views:app --create-queues &
    python workers/examples/views.py /home /about /home nowhere                # a job for each
    python workers/examples/views.py --count                                   # /home 2, /about 1

A view is counted once, however often its job runs: its descriptor, which stays the same, is the key of its row.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from pinlater_workers import App, Batch, Fail

app = App()

TABLE = "CREATE TABLE IF NOT EXISTS views (descriptor TEXT PRIMARY KEY, path TEXT NOT NULL, visitor TEXT NOT NULL)"


@dataclass
class View:
    """What one job is enqueued with."""

    path: str
    visitor: str = "somebody"


@app.job(queue="views", batch=500, wait="1s", retry="constant delay=5s")
def store_views(batch: Batch[View]) -> None:
    """What is no path fails alone, and for good. Where the database fails, all others are tried again."""
    rows: list[tuple[str, str, str]] = []
    for job in batch:
        view = job.arguments
        if view.path.startswith("/"):
            rows.append((job.context.descriptor, view.path, view.visitor))
        else:
            job.fail(Fail(f"{view.path!r} is no path"))
    with database() as connection:
        connection.executemany("INSERT OR IGNORE INTO views VALUES (?, ?, ?)", rows)


def counts() -> dict[str, int]:
    """How often each page was seen."""
    with database() as connection:
        found = connection.execute("SELECT path, count(*) FROM views GROUP BY path ORDER BY 2 DESC, 1")
        return {str(path): int(times) for path, times in found}


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """One transaction."""
    with closing(sqlite3.connect(os.environ.get("VIEWS_DB", "views.db"))) as connection, connection:
        connection.execute(TABLE)
        yield connection


def main() -> None:
    parser = argparse.ArgumentParser(description="See pages, or count who did.")
    parser.add_argument("path", nargs="*")
    parser.add_argument("--count", action="store_true", help="print how often each page was seen")
    wanted = parser.parse_args()
    if wanted.path:
        store_views.enqueue_many([(View(path),) for path in wanted.path])
        app.close()
    if wanted.count:
        for path, times in counts().items():
            print(f"{path} {times}")


if __name__ == "__main__":
    main()
