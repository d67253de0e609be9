"""Which store each shard was when it was last seen: `shards.json` in the data folder.

    {"1": "<the random id of its store>"}

A store that was wiped or swapped carries another id than the one on record, and is refused (docs/semantics.md).
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

FILE = "shards.json"


class RecordBroken(Exception):
    """The file is there and is not what we wrote; the message names it."""


def known_stores(folder: Path) -> dict[str, str]:
    """The store id of each shard id on record; nothing where there is no record. OSError, RecordBroken."""
    path = folder / FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RecordBroken(
            f"{path} cannot be read ({error}); restore it, or remove it to trust the stores anew"
        ) from error
    if not isinstance(record, dict) or not all(isinstance(each, str) for each in record.values()):
        raise RecordBroken(f"{path} is not a record of shards; restore it, or remove it to trust the stores anew")
    return record


def remember(folder: Path, stores: Mapping[str, str]) -> None:
    """Add what is known now to the record, atomically, also beside other servers. OSError, RecordBroken."""
    with _alone(folder):
        before = known_stores(folder)
        after = {**before, **stores}
        if after != before:
            _write(folder, after)


def forget(folder: Path, shard_ids: Sequence[str]) -> None:
    """Take shards off the record, so that whatever store they have next is taken. OSError, RecordBroken."""
    with _alone(folder):
        before = known_stores(folder)
        after = {shard_id: store for shard_id, store in before.items() if shard_id not in shard_ids}
        if after != before:
            _write(folder, after)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make the folder where it is missing, and keep other servers from writing meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(folder: Path, record: Mapping[str, str]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=FILE)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(dict(sorted(record.items())), file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / FILE)
    except BaseException:
        os.unlink(temporary)
        raise
