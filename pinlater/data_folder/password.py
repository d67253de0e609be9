"""The admin password: a salted hash of it, and the file that an embedded server makes where none is configured.

A hash names its own parameters. Two kinds: `scrypt:N:R:P:SALT:KEY` for a password that a person chose, which costs time
and memory on purpose; `random:SALT:KEY` for one that a server made, which nobody can guess.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import stat
from pathlib import Path

from pinlater.data_folder.private_files import OPEN_SECRETS_VARIABLE, new_whole_file
from pinlater.redaction import SECRETS
from pinlater.written import secret_line, text_of, variable

PASSWORD_FILE = "admin-password"
"""In the data folder. One line: the password."""

_SCHEME, _RANDOM = "scrypt", "random"
_N, _R, _P = 2**14, 8, 1
_MAX_N, _MAX_R, _MAX_P = 2**20, 32, 16
_MEMORY_BYTES = 2**30
_SALT_BYTES = _KEY_BYTES = 32
_MADE = re.compile(r"pinlater-[A-Za-z0-9_-]{43}")
_MAX_FILE_BYTES = 4_096


class PasswordFileUnsafe(Exception):
    """The file is there and cannot be trusted; the message names it, and says what to do."""


def hash_password(password: str) -> str:
    """`scrypt:N:R:P:SALT:KEY`, salted anew each time."""
    salt = os.urandom(_SALT_BYTES)
    return ":".join((_SCHEME, str(_N), str(_R), str(_P), _text(salt), _text(_derive(password, salt, _N, _R, _P))))


def hash_from_file(password: str) -> str:
    """`random:SALT:KEY` where a server made the password, else as above: a person may have put another one there."""
    if not is_made(password):
        return hash_password(password)
    salt = os.urandom(_SALT_BYTES)
    return ":".join((_RANDOM, _text(salt), _text(_digest(password, salt))))


def verify_password(password: str, hashed: str) -> bool:
    """Whether this is the password; takes as long for a wrong one. ValueError: `hashed` is no hash of ours."""
    if is_random(hashed):
        salt, key = map(base64.b64decode, hashed.split(":")[1:])
        return hmac.compare_digest(_digest(password, salt), key)
    n, r, p, salt, key = _parse(hashed)
    return hmac.compare_digest(_derive(password, salt, n, r, p), key)


def is_password_hash(text: str) -> bool:
    """Whether it is a hash of a password that somebody chose, as a configuration has it."""
    try:
        _parse(text)
    except ValueError:
        return False
    return True


def is_random(hashed: str) -> bool:
    """Whether it is the hash of a password that a server made: quickly checked, and beyond guessing."""
    return hashed.startswith(f"{_RANDOM}:")


def is_made(password: str) -> bool:
    """Whether it looks like one that a server made."""
    return _MADE.fullmatch(password) is not None


# -- the file ----------------------------------------------------------------------------------------------------------


def make_password_file(folder: Path) -> Path | None:
    """Write a new random password, for this user's eyes only; None where there is a file already. OSError.

    The file is whole from its first moment: it gets its name when it is written.
    """
    path = folder / PASSWORD_FILE
    return path if new_whole_file(path, f"pinlater-{secrets.token_urlsafe(32)}\n".encode()) else None


def read_password_file(path: Path, *, is_server: bool = False) -> str:
    """Its first line. OSError, PasswordFileUnsafe: others may read it.

    A server, which is about to believe what is in it, wants a file of its own user, and no link to one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (os.O_NOFOLLOW if is_server else 0))
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PasswordFileUnsafe(f"{path} is no regular file; remove it")
        if found.st_mode & 0o077 and (is_server or variable(OPEN_SECRETS_VARIABLE) != "allow"):
            raise PasswordFileUnsafe(
                f"{path} can be read by others (mode {stat.S_IMODE(found.st_mode):04o}), so who knows the password in "
                "it is unknown; remove it and start the server again, which makes a new one; or, if nobody had a look, "
                f"chmod 600 {path}"
            )
        if is_server and found.st_uid != os.geteuid():
            raise PasswordFileUnsafe(f"{path} belongs to another user; remove it")
        content = os.read(descriptor, _MAX_FILE_BYTES)
    finally:
        os.close(descriptor)
    try:
        line = secret_line(text_of(content, "replace").split("\n", 1)[0])
    except UnicodeError:
        raise PasswordFileUnsafe(f"{path} holds no text in UTF-8; write the password into it anew") from None
    if not line:
        raise PasswordFileUnsafe(f"{path} is empty; remove it and start the server again, which makes a new one")
    SECRETS.keep([line])
    return line


def drop_password_file(folder: Path, hashed: str) -> Path | None:
    """Remove the file of a password that a server made, and that is not the one of this hash; which one it was.

    The command line would go on sending it. OSError.
    """
    path = folder / PASSWORD_FILE
    try:
        password = read_password_file(path, is_server=True)
    except (FileNotFoundError, PasswordFileUnsafe):
        return None
    if not is_made(password) or verify_password(password, hashed):
        return None
    path.unlink(missing_ok=True)
    return path


# -- hashing -----------------------------------------------------------------------------------------------------------


def _parse(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    parts = hashed.split(":")
    if len(parts) != 6 or parts[0] != _SCHEME:
        raise ValueError("not a password hash: expected scrypt:N:R:P:SALT:KEY")
    try:
        n, r, p = (int(part) for part in parts[1:4])
        salt, key = (base64.b64decode(part, validate=True) for part in parts[4:6])
    except (ValueError, binascii.Error) as error:
        raise ValueError("not a password hash: a part of it cannot be read") from error
    if not (1 < n <= _MAX_N and n & (n - 1) == 0 and 1 <= r <= _MAX_R and 1 <= p <= _MAX_P) or len(key) < 16:
        raise ValueError("not a password hash: parameters out of range")
    return n, r, p, salt, key


def _derive(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY_BYTES, dklen=_KEY_BYTES)


def _digest(password: str, salt: bytes) -> bytes:
    return hmac.digest(salt, password.encode("utf-8", "surrogatepass"), "sha256")


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
