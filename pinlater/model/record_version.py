"""Versions of what operators and servers write: they sort by time, and no two are alike."""

from __future__ import annotations

import re
import secrets

RECORD_VERSION = re.compile(r"[0-9]{16}-[0-9a-f]{8}", re.ASCII)


def new_version(now_ms: int, above: str = "") -> str:
    """A version for a change that is made now, higher than `above`, and like no other one.

    >>> new_version(0, "1790000000000000-0123abcd")[:17]
    '1790000000000001-'
    """
    micros = max(now_ms * 1000, int(above[:16]) + 1 if above else 0)
    return f"{micros:016d}-{secrets.token_hex(4)}"


def version_ms(version: str) -> int:
    """When a version was made."""
    return int(version[:16]) // 1000
