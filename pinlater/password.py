"""The admin password: only a salted hash of it is ever configured. The hash names its own parameters."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os

_SCHEME = "scrypt"
_N, _R, _P = 2**14, 8, 1
_MAX_N, _MAX_R, _MAX_P = 2**20, 32, 16
_MEMORY_BYTES = 2**30
_SALT_BYTES = _KEY_BYTES = 32


def hash_password(password: str) -> str:
    """`scrypt:N:R:P:SALT:KEY`, salted anew each time."""
    salt = os.urandom(_SALT_BYTES)
    return ":".join((_SCHEME, str(_N), str(_R), str(_P), _text(salt), _text(_derive(password, salt, _N, _R, _P))))


def verify_password(password: str, hashed: str) -> bool:
    """Whether this is the password; takes as long for a wrong one. ValueError: `hashed` is no hash of ours."""
    n, r, p, salt, key = _parse(hashed)
    return hmac.compare_digest(_derive(password, salt, n, r, p), key)


def is_password_hash(text: str) -> bool:
    """Whether `hash_password` can have written this."""
    try:
        _parse(text)
    except ValueError:
        return False
    return True


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


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
