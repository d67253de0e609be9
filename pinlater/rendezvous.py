"""Who is it? Everybody who knows the same candidates finds the same one, without asking (highest random weight).

When a candidate goes, only what was its own moves; when one comes, it takes its share from all.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def weight(key: str, candidate: str) -> bytes:
    """How much a candidate is drawn to a key: like a throw of dice, but the same for everybody."""
    return blake2b(f"{key}\0{candidate}".encode(), digest_size=8).digest()


def chosen(key: str, candidates: Iterable[str]) -> str | None:
    """The one that is drawn to the key most; None where there is no candidate.

    >>> chosen("mail", ["1", "2", "3"]) == chosen("mail", ["3", "2", "1"])
    True
    """
    return max(candidates, key=lambda candidate: (weight(key, candidate), candidate), default=None)
