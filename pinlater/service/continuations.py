"""The texts by which the next page of a list begins: a place, and a digest of what the list is of.

So a text that no page has given, or the page of another list, is refused, and is never taken for a place in this one.
"""

from __future__ import annotations

import hashlib

from pinlater.errors import ContinuationInvalid
from pinlater.model import CONTINUATION_START

_BEFORE_DIGEST = "/"
"""The separator of a digest. Names of schedules and numbers lack it, so no place has one."""


def digest_of(meant: tuple[object, ...]) -> str:
    return hashlib.blake2b(repr(meant).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def continuation_behind(place: str, meant: tuple[object, ...]) -> str:
    """The text for "behind this place"; only for a list of the same."""
    return f"{place}{_BEFORE_DIGEST}{digest_of((place, *meant))}"


def place_behind(text: str, meant: tuple[object, ...]) -> str:
    """The place to go on behind, "" for the beginning. ContinuationInvalid."""
    if text == CONTINUATION_START:
        return ""
    place, _, _ = text.rpartition(_BEFORE_DIGEST)
    if not place or text != continuation_behind(place, meant):
        raise ContinuationInvalid(
            f"continuation {text[:100]!r} was not given for this list; begin with {CONTINUATION_START!r}"
        )
    return place
