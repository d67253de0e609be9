"""The identities on record in the data folder: which store each shard was, and which server this is.

    shards.json    {"1": "<the random id of its store>", "1 (version 2)": "of a newer PinLater"}
    server.json    {"server": "<10 characters 0-9 A-Z>"}

A store that was wiped or swapped carries another id than the one on record, and is refused (docs/semantics.md). The
server's id is made once; it names the server's overflow shard (docs/overflow.md), so a data folder is never copied.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pinlater.data_folder.private_files import make_private_folder, tighten, write_private_file

FILE = "shards.json"
SERVER_FILE = "server.json"
OVERFLOW_ID = r"o[0-9A-Z]{10}"
"""The id of a server's overflow shard: an o and the server's id. No store may be configured under such an id."""

_NEWER = "of a newer PinLater"
"""Stands in place of a store id, which no store has: a version that takes such a name for a shard id refuses it."""

_ID_CHARS = string.digits + string.ascii_uppercase
_ID_LENGTH = 10
_SERVER_ID = re.compile(rf"[0-9A-Z]{{{_ID_LENGTH}}}")
_OVERFLOW_ID = re.compile(OVERFLOW_ID)


class RecordBroken(Exception):
    """The file is there and is not what we wrote; the message names it."""


def _record(folder: Path) -> dict[str, str]:
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


def known_stores(folder: Path) -> dict[str, str]:
    """The store id of each shard id on record; nothing where there is no record. OSError, RecordBroken."""
    return {shard_id: store for shard_id, store in _record(folder).items() if store != _NEWER}


def remember(folder: Path, stores: Mapping[str, str], guarded: Sequence[str] = ()) -> None:
    """Add what is known now to the record, atomically, also beside other servers. OSError, RecordBroken. `guarded` are
    names that versions before keys give to marked stores: they refuse them by this record.
    """
    with _alone(folder):
        before = _record(folder)
        after = {**before, **stores, **dict.fromkeys(guarded, _NEWER)}
        if after != before:
            _write(folder, FILE, after)


def forget(folder: Path, shard_ids: Sequence[str]) -> None:
    """Take shards off the record, so that whatever store they have next is taken. OSError, RecordBroken."""
    with _alone(folder):
        before = _record(folder)
        after = {name: store for name, store in before.items() if name.partition(" ")[0] not in shard_ids}
        if after != before:
            _write(folder, FILE, after)


def server_id(folder: Path) -> str:
    """The id of the server that this data folder belongs to, made at the first call. OSError, RecordBroken."""
    path = folder / SERVER_FILE
    with _alone(folder):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            made = new_server_id()
            _write(folder, SERVER_FILE, {"server": made})
            return made
        except ValueError as error:
            raise RecordBroken(f"{path} cannot be read ({error}); restore it") from error
    known = found.get("server") if isinstance(found, dict) else None
    if not isinstance(known, str) or not _SERVER_ID.fullmatch(known):
        raise RecordBroken(f"{path} does not hold the id of a server; restore it")
    return known


def new_server_id() -> str:
    """One that no other server has."""
    return "".join(secrets.choice(_ID_CHARS) for _ in range(_ID_LENGTH))


def overflow_id(server: str) -> str:
    """The id of that server's overflow shard."""
    return f"o{server}"


def is_overflow_id(shard_id: str) -> bool:
    """
    >>> is_overflow_id("o0123456789"), is_overflow_id("old")
    (True, False)
    """
    return _OVERFLOW_ID.fullmatch(shard_id) is not None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make the folder where it is missing, and keep other servers from writing meanwhile."""
    make_private_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        tighten(folder / FILE, folder / SERVER_FILE)
        yield
    finally:
        os.close(descriptor)


def _write(folder: Path, name: str, record: Mapping[str, str]) -> None:
    text = json.dumps(dict(sorted(record.items())), indent=1)
    write_private_file(folder / name, f"{text}\n", is_synced=True)
