"""Rendezvous hashing (highest random weight): all that know the same candidates pick the same one.

When a candidate goes, only what was its own moves; when one comes, it takes its share from all.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def score(key: str, candidate: str) -> bytes:
    """The weight of a candidate for a key: like a throw of dice, but the same for all who ask."""
    return blake2b(f"{key}\0{candidate}".encode(), digest_size=8).digest()


def rendezvous_pick(key: str, candidates: Iterable[str]) -> str | None:
    """The candidate with the highest score; None where there is none.

    >>> rendezvous_pick("mail", ["1", "2", "3"]) == rendezvous_pick("mail", ["3", "2", "1"])
    True
    """
    return max(candidates, key=lambda candidate: (score(key, candidate), candidate), default=None)
