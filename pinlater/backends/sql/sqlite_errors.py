"""SQLite's errors as ours: what each says about what was stored, and what to do about it."""

from __future__ import annotations

import sqlite3

from pinlater.errors import NothingStored, OutcomeUnknown, PinLaterError, StoreConflict, StoreFull, StoreRefused

_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full (or the quota is used up): free some space",
    sqlite3.SQLITE_READONLY: "it cannot be written: check the permissions of the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that the folder exists and may be read and written",
    sqlite3.SQLITE_PERM: "permission denied: check the permissions of the file and its folder",
    sqlite3.SQLITE_AUTH: "permission denied: check the permissions of the file and its folder",
    sqlite3.SQLITE_IOERR: "the disk could not be read or written: look into the system's log",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite takes (1 GB)",
}
_REFUSED = {
    sqlite3.SQLITE_NOTADB: "this file is not an SQLite database: give another path",
    sqlite3.SQLITE_CORRUPT: "this file is damaged: restore a backup (`sqlite3 FILE .recover` saves what is left)",
}
_CONFLICTS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def shard_error(error: sqlite3.Error, place: str, *, committing: bool) -> PinLaterError:
    """Before the commit nothing is stored, whatever happened; a commit that fails may have reached the disk."""
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if primary in _CONFLICTS:
        return StoreConflict(f"{place}: locked by another process for longer than the time-out")
    if primary in _REFUSED:
        return StoreRefused(f"{place}: {_REFUSED[primary]}")
    message = f"{place}: {_ADVICE.get(primary, 'SQLite refused the call')} ({error})"
    if committing and primary == sqlite3.SQLITE_IOERR:
        return OutcomeUnknown(message)
    return StoreFull(message) if primary == sqlite3.SQLITE_FULL else NothingStored(message)
