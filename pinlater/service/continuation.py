"""Where a scan goes on: a text that holds the place, the scan's own now, and a digest that ties both to its filter."""

from __future__ import annotations

import hashlib
import re

from pinlater.errors import ContinuationInvalid
from pinlater.model import CONTINUATION_START, MAX_TIME_MS, JobFilter
from pinlater.shards.merge import Place

_TOKEN = re.compile(r"([0-9]{1,16})\.([A-Za-z0-9]{1,16})\.([0-9]{1,16})\.([0-9]{1,16})\.([0-9a-f]{16})", re.ASCII)


def write_continuation(filter: JobFilter, now_ms: int, place: Place) -> str:
    """The text for "behind this place"; only for the same filter."""
    return f"{place.run_after_ms}.{place.shard}.{place.id}.{now_ms}.{_digest(filter, now_ms, place)}"


def read_continuation(filter: JobFilter, text: str, now_ms: int) -> tuple[Place | None, int]:
    """The place to go on behind, and the now the scan began with. ContinuationInvalid for any text not made for it."""
    if text == CONTINUATION_START:
        return None, now_ms
    match = _TOKEN.fullmatch(text)
    if match is not None:
        place = Place(int(match[1]), match[2], int(match[3]))
        began_ms = int(match[4])
        in_range = max(place.run_after_ms, place.id, began_ms) <= MAX_TIME_MS
        if in_range and text == write_continuation(filter, began_ms, place):
            return place, began_ms
    raise ContinuationInvalid(
        f"continuation {text[:100]!r} was not given for this filter; begin with {CONTINUATION_START!r}"
    )


def _digest(filter: JobFilter, now_ms: int, place: Place) -> str:
    meant = (filter.queue, int(filter.state), filter.priority, filter.future, filter.body_regex, now_ms, tuple(place))
    return hashlib.blake2b(repr(meant).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
