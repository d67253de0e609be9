"""The folder of sessions in a data folder, in which they outlive the process.

Each is a file, named by a keyed hash of its cookie. The credential in it is a half alone: its bytes, XORed with as many
random ones that the cookie has and nobody else (a one-time pad). So the folder with its key opens no session, in a
backup neither. When a file was changed is when its session was used last, give or take a minute.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes

import msgspec
import structlog

from pinlater.data_folder.private_files import (
    SESSION_FILE,
    SESSION_KEY,
    SESSIONS_FOLDER,
    make_private_folder,
    new_whole_file,
    open_private_file,
    tighten,
    write_private_file,
)
from pinlater.job_body import UNREADABLE

_log = structlog.get_logger("pinlater.http")
KEY_BYTES = 32
TOUCH_EVERY_S = 60.0


class StoredSession(msgspec.Struct, array_like=True):
    """What a file says. `half` is that of the credential."""

    identity: str
    ends_s: float
    half: bytes


class SessionFolder:
    """That of one data folder; times are those of the machine's clock, as another process has no other in common."""

    def __init__(self, data: Path) -> None:
        """OSError: it cannot be made, or its key cannot be read."""
        data = data.expanduser()
        self._folder = data / SESSIONS_FOLDER
        self._left: set[str] = set()
        """Names of what has ended and could not be removed."""
        make_private_folder(self._folder)
        tighten(*self._ours())
        self._key = self._read_key(data / SESSION_KEY)

    def name_of(self, cookie: str) -> str:
        """That of the file of its session; it says nothing of the cookie."""
        return hmac.digest(self._key, cookie.encode("utf-8", "replace"), "sha256").hex()

    def stored(self, now_s: float) -> Iterator[tuple[str, StoredSession, float]]:
        """All, with their names and when each was used last, that of the longest rest first. What cannot be read is
        removed. OSError.
        """
        for path in sorted(self._ours(), key=_changed_s):
            used_s = _changed_s(path)
            is_whole = not path.name.startswith(".")
            if is_whole and (session := self.read(path.name)) is not None:
                yield path.name, session, used_s
            elif now_s - used_s >= TOUCH_EVERY_S:  # else another process may be writing it
                path.unlink(missing_ok=True)

    def read(self, name: str) -> StoredSession | None:
        """None: there is none, or it is torn or of another version."""
        if name in self._left:
            return None
        with suppress(OSError, *UNREADABLE):
            return msgspec.msgpack.decode((self._folder / name).read_bytes(), type=StoredSession)
        return None

    def write(self, name: str, session: StoredSession, now_s: float) -> bool:
        """A new one. False: it ends with the process, as it could not be written."""
        try:
            make_private_folder(self._folder)
            write_private_file(self._folder / name, msgspec.msgpack.encode(session))
            os.utime(self._folder / name, (now_s, now_s))
        except OSError as error:
            _log.warning("session_not_kept", folder=str(self._folder), error=str(error))
            return False
        return True

    def use(self, name: str, now_s: float) -> bool:
        """A session is used. False: it has ended, by another process of this data folder or by hand."""
        path = self._folder / name
        try:
            if abs(now_s - path.stat().st_mtime) >= TOUCH_EVERY_S:
                os.utime(path, (now_s, now_s))
        except FileNotFoundError:
            return False
        except OSError:  # it cannot be marked as used, and ends the earlier
            return True
        return True

    def used_s(self, name: str) -> float:
        """When it was used last."""
        return _changed_s(self._folder / name)

    def remove(self, name: str) -> None:
        """It has ended."""
        path = self._folder / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            if path.exists():
                self._left.add(name)
                _log.error("session_not_removed", path=str(path), error=str(error))

    def _ours(self) -> list[Path]:
        return [path for path in self._folder.iterdir() if SESSION_FILE.fullmatch(path.name)]

    def _read_key(self, path: Path) -> bytes:
        """Made where it is missing, or is none; what was named by another one is removed. OSError."""
        is_new = new_whole_file(path, token_bytes(KEY_BYTES))
        key = _content_of(path)
        if len(key) != KEY_BYTES:
            _log.warning("session_key_made_anew", path=str(path), reason=f"a key has {KEY_BYTES} bytes")
            write_private_file(path, token_bytes(KEY_BYTES), is_synced=True)
            is_new, key = True, _content_of(path)
        if is_new:
            for each in self._ours():
                each.unlink(missing_ok=True)
        return key


def halved(secret: bytes) -> tuple[bytes, bytes]:
    """Two, of which each is random without the other."""
    pad = token_bytes(len(secret))
    return pad, joined(secret, pad)


def joined(half: bytes, other: bytes) -> bytes:
    """The secret that was halved. ValueError: they are not of one length."""
    return bytes(a ^ b for a, b in zip(half, other, strict=True))


def _content_of(path: Path) -> bytes:
    descriptor = open_private_file(path)
    try:
        return os.read(descriptor, KEY_BYTES + 1)
    finally:
        os.close(descriptor)


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
