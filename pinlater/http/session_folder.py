"""The folder of sessions in a data folder: they outlive the process, and are of no use to who reads the disk.

Each is a file, named by the hash of its cookie. What is in it is sealed by a key of its own, which takes both the key
of the data folder and the cookie to make: the files say nothing without the key, and with it nothing without the
browser. When a file was changed is when its session was used last, give or take a minute.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256, shake_256
from pathlib import Path
from secrets import token_bytes

import msgspec
import structlog

from pinlater.data_folder.private_files import make_private_folder, new_whole_file, write_private_file

_log = structlog.get_logger("pinlater.http")
FOLDER, KEY_FILE = "sessions", "session-key"
"""In the data folder."""

KEY_BYTES = 32
TOUCH_EVERY_S = 60.0
SWEEP_EVERY_S = 600.0
_MAC_BYTES, _OWNER_BYTES = 32, 16
_NAME = re.compile(r"[0-9a-f]{64}")
_UNFINISHED = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{8}")


class StoredSession(msgspec.Struct, array_like=True):
    """What a file has sealed. `ends_at_s` is by the clock of the machine, as another process has no other in common."""

    token: str | None
    password: str
    identity: str
    source: str
    csrf: str
    ends_at_s: float


class SessionFolder:
    """Of one data folder. `idle_s`: after so long without use a session has ended; `max_age_s`: none lasts longer."""

    def __init__(self, data: Path, *, idle_s: float, max_age_s: float, clock: Callable[[], float] = time.time) -> None:
        """OSError: it cannot be made, or its key cannot be read."""
        self.clock = clock
        self._idle_s, self._max_age_s = idle_s, max_age_s
        self._folder = data.expanduser() / FOLDER
        self._swept_s = 0.0
        make_private_folder(self._folder)
        self._key = _key_of(data.expanduser() / KEY_FILE)

    def owner_of(self, identity: str) -> bytes:
        """As whose a session of that identity counts; it does not tell the identity."""
        return hmac.digest(self._key, b"owner " + identity.encode(), "sha256")[:_OWNER_BYTES]

    def sweep(self) -> Iterator[tuple[bytes, bytes]]:
        """Remove what has ended by its rest, and give what is left: the hash of each one's cookie, and its owner."""
        self._swept_s = now_s = self.clock()
        for path in sorted(self._folder.iterdir(), key=_changed_s):
            if not _NAME.fullmatch(path.name):
                if _UNFINISHED.fullmatch(path.name) and now_s - _changed_s(path) >= self._idle_s:
                    path.unlink(missing_ok=True)
            elif not self._is_used(now_s, _changed_s(path)):
                path.unlink(missing_ok=True)
            elif owner := _content_of(path)[:_OWNER_BYTES]:
                yield bytes.fromhex(path.name), owner

    def put(self, cookie: str, session: StoredSession) -> bool:
        """A new one. False: it could not be written, and ends with the process."""
        key = cookie_key(cookie)
        owner, packed = self.owner_of(session.identity), msgspec.msgpack.encode(session)
        seal, mac = self._keys(cookie)
        sealed = owner + _xor(packed, seal)
        try:
            if self.clock() - self._swept_s >= SWEEP_EVERY_S:
                for _ in self.sweep():
                    pass
            write_private_file(self._path(key), sealed + hmac.digest(mac, sealed, "sha256"))
        except OSError as error:
            _log.warning("session_not_kept", folder=str(self._folder), error=str(error))
            return False
        return True

    def get(self, cookie: str) -> tuple[StoredSession, float] | None:
        """That of a cookie, and for how long it was not used. None: there is none, or it has ended."""
        path = self._path(cookie_key(cookie))
        content = _content_of(path)
        sealed, shown = content[:-_MAC_BYTES], content[-_MAC_BYTES:]
        seal, mac = self._keys(cookie)
        if not hmac.compare_digest(hmac.digest(mac, sealed, "sha256"), shown):
            return None
        try:
            session = msgspec.msgpack.decode(_xor(sealed[_OWNER_BYTES:], seal), type=StoredSession)
        except msgspec.DecodeError:  # of another version
            return None
        now_s, used_s = self.clock(), _changed_s(path)
        is_young = 0 < session.ends_at_s - now_s <= self._max_age_s
        return (session, now_s - used_s) if is_young and self._is_used(now_s, used_s) else None

    def use(self, key: bytes) -> bool:
        """A session is used. False: it has ended, by another process of this data folder."""
        path, now_s = self._path(key), self.clock()
        try:
            if abs(now_s - path.stat().st_mtime) >= TOUCH_EVERY_S:
                os.utime(path, (now_s, now_s))
        except FileNotFoundError:
            return False
        except OSError:  # it cannot be marked as used, and ends the earlier
            return True
        return True

    def drop(self, key: bytes) -> None:
        """It has ended."""
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            _log.error("session_not_removed", folder=str(self._folder), error=str(error))

    def _is_used(self, now_s: float, used_s: float) -> bool:
        """A clock that was set back does not make a session last longer."""
        return -TOUCH_EVERY_S <= now_s - used_s < self._idle_s

    def _path(self, key: bytes) -> Path:
        return self._folder / key.hex()

    def _keys(self, cookie: str) -> tuple[bytes, bytes]:
        """To seal and to sign; a cookie has one session, which is written once."""
        both = hmac.digest(self._key, b"session " + cookie.encode("utf-8", "replace"), "sha512")
        return both[:32], both[32:]


def cookie_key(cookie: str) -> bytes:
    """By which a session is known, that says nothing of the cookie."""
    return sha256(cookie.encode("utf-8", "replace")).digest()


def _xor(data: bytes, seal: bytes) -> bytes:
    stream = shake_256(seal).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream, strict=True))


def _content_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _key_of(path: Path) -> bytes:
    """That of a data folder, made where it is missing. One that others could read, or that is none, is made anew, and
    what was sealed by it is void. OSError.
    """
    for _ in range(3):
        new_whole_file(path, token_bytes(KEY_BYTES))
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            key = os.read(descriptor, KEY_BYTES + 1) if stat.S_ISREG(found.st_mode) else b""
        finally:
            os.close(descriptor)
        if len(key) == KEY_BYTES and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            return key
        _log.warning("session_key_made_anew", path=str(path), reason="others could read it, or it is no key of ours")
        with suppress(FileNotFoundError):
            path.unlink()
    raise OSError(f"{path} is not a key that this process alone can read")
