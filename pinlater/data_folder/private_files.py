"""Files and folders that their owner alone can use, under any umask; docs/operations.md says which and why.

Whatever the product makes, it makes here, private from the start. What stands from before is tightened where it is the
server's: a regular file of its own, and a folder with nothing of anybody else's in it.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pinlater.log_guard import GuardedLogger
from pinlater.written import text_of, variable

FOLDER_MODE, FILE_MODE = 0o700, 0o600
OPEN_SECRETS_VARIABLE = "PINLATER_OPEN_SECRETS"
"""Set to `allow`, files with secrets are read though others may read them too."""

_log = GuardedLogger("pinlater.files")
_OTHERS = 0o077
_MAX_SECRET_BYTES = 64 * 1024
_SHARED = stat.S_ISVTX | stat.S_ISGID
"""A folder that many use, as /tmp, or that was given to a group on purpose."""

SESSIONS_FOLDER, SESSION_KEY = "sessions", "session-key"
"""In a data folder: what is kept of browsers that are logged in, a file each, and the key that makes their names."""

_OURS = re.compile(
    r"\.?(shards|server|overflow|admin|history|session)[-.].*|.*\.db(-wal|-shm|-journal|\.lock)?|sessions"
)
"""Names that a server gives to files in its data folder."""

SESSION_FILE = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.[0-9a-f]{8}")
"""Those that it gives in the folder of sessions; with a point while one is written."""

SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""An SQLite file, and those that SQLite has beside it, with the permissions of the first."""

_KEPT = re.compile(
    r"(shards|server|overflow)\.json|server-api-address|overflow\.lock|session-key|"
    r"((pinlater|overflow|flows)\.db|history\.sqlite)(-wal|-shm|-journal|\.lock)?"
)
"""Files that a server alone has under these names, also in a folder that it shares. One is not among them: a password
that others could read is refused.
"""


def make_private_folder(folder: Path) -> None:
    """Make it where it is missing, and its parents. One that is there stays as it is. OSError."""
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    try:
        new_private_folder(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise


def new_private_folder(folder: Path) -> None:
    """FileExistsError, OSError."""
    folder.mkdir(FOLDER_MODE)
    folder.chmod(FOLDER_MODE)  # a umask may have taken something from us, too


def new_private_file(path: Path) -> int:
    """A descriptor to write it with. FileExistsError, OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    os.fchmod(descriptor, FILE_MODE)  # a umask may have taken something from us, too
    return descriptor


def make_private_file(path: Path) -> None:
    """Make it, empty, where it is missing. OSError."""
    with suppress(FileExistsError):
        os.close(new_private_file(path))


def new_whole_file(path: Path, content: bytes) -> bool:
    """Make it with this content, whole and on disk before it has its name. False: it is there, and stays. OSError."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = new_private_file(fresh)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(fresh)
    return True


def make_private_database(path: Path) -> None:
    """An SQLite file, empty where it is missing, with its folder; what stands of it from before is tightened. OSError.

    SQLite gives the files that it makes beside this one the same permissions.
    """
    real = Path(os.path.realpath(path))
    make_private_folder(real.parent)
    make_private_file(real)
    tighten(*(real.with_name(real.name + suffix) for suffix in SQLITE_SUFFIXES))


def open_private_file(path: Path) -> int:
    """A descriptor to read and write with; the file is made where it is missing. No symbolic link is followed.

    OSError.
    """
    make_private_file(path)
    tighten(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)


def write_private_file(path: Path, content: str | bytes | Iterable[bytes], *, is_synced: bool = False) -> None:
    """Put a text, as UTF-8, bytes, or pieces of bytes as they come in place of whatever is there, atomically.
    `is_synced`: they are on disk before they get their name. OSError, and what the pieces raise.
    """
    if isinstance(content, str):
        content = content.encode()
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = new_private_file(fresh)
    try:
        with open(descriptor, "wb") as file:
            file.writelines((content,) if isinstance(content, bytes) else content)
            file.flush()
            if is_synced:
                os.fsync(descriptor)
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


class SecretFileOpen(Exception):
    """Others may read a file with a secret; the message names it, and says what to do."""


def read_secret_file(path: Path) -> str:
    """The text of a file with a secret. OSError; ValueError: no text; SecretFileOpen: others may read it."""
    with path.open("rb") as file:
        check_secret_file(path, os.fstat(file.fileno()))
        return text_of(file.read(_MAX_SECRET_BYTES))


def check_secret_file(path: Path, found: os.stat_result) -> None:
    """SecretFileOpen. Its owner alone may read it; of root's, a group may, too, as operators hand files to a service.

    Where nobody else is on the machine, as in a container, PINLATER_OPEN_SECRETS=allow says that this does not matter.
    """
    if not hasattr(os, "geteuid"):  # Windows: a mode there says nothing of who may read
        return
    others = _OTHERS if found.st_uid == os.geteuid() else _OTHERS & ~stat.S_IRGRP
    if found.st_mode & others and variable(OPEN_SECRETS_VARIABLE) != "allow":
        raise SecretFileOpen(
            f"{path} has a secret, and others can read it (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 {path}, "
            f"or set {OPEN_SECRETS_VARIABLE}=allow where nobody else uses this machine"
        )


def others_can_read(path: Path) -> str:
    """Why a file with a secret is not for its owner alone, and what to do; "" where it is."""
    try:
        check_secret_file(path, path.stat())
    except SecretFileOpen as open_file:
        return str(open_file)
    except OSError:  # whoever reads it says so
        return ""
    return ""


def tighten(*paths: Path) -> None:
    """Let nobody else use these files of a server; a line in the log says so, or why it cannot be. Raises nothing.

    By their paths: a descriptor that is opened and closed would take SQLite's locks off a file that is in use.
    """
    for path in paths:
        found = _stat(path)
        if found is not None and stat.S_ISREG(found.st_mode):
            _tighten(path, found)


def tighten_folder(folder: Path) -> None:
    """Let nobody else use a data folder, and what a server keeps in it. Raises nothing.

    A folder that is shared, or holds what no server made, stays as it is: it was named for other things as well. One
    behind a symbolic link counts as itself.
    """
    path = Path(os.path.realpath(folder))
    _tighten_folder(path / SESSIONS_FOLDER, SESSION_FILE, SESSION_FILE)
    _tighten_folder(path, _KEPT, _OURS)


def _tighten_folder(path: Path, kept: re.Pattern[str], ours: re.Pattern[str]) -> None:
    """`kept`: files of a server that are its own whatever else is there; `ours`: all that it may have there."""
    found = _stat(path)
    if found is None or not stat.S_ISDIR(found.st_mode):
        return
    try:
        names = os.listdir(path)
    except OSError:
        return
    if found.st_mode & _OTHERS:
        if found.st_mode & _SHARED or path in (Path.home(), Path("/")) or not all(map(ours.fullmatch, names)):
            _log.warning("%s: others can look into it, and it is not the server's alone: it stays as it is", path)
        else:
            _tighten(path, found)
    tighten(*(path / name for name in names if kept.fullmatch(name)))


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _tighten(path: Path, found: os.stat_result) -> None:
    before = stat.S_IMODE(found.st_mode)
    if not before & _OTHERS:
        return
    after = before & ~_OTHERS | (stat.S_IXUSR if stat.S_ISDIR(found.st_mode) else 0)  # else it could not be used
    try:
        path.chmod(after)
    except OSError as error:
        _log.warning(
            "%s: others can use it (%04o), which cannot be changed: %s; user %d, who owns it, or root can: chmod %o",
            *(path, before, error.strerror, found.st_uid, after),
        )
    else:
        _log.info("%s: permissions tightened from %04o to %04o, others could use it", path, before, after)
