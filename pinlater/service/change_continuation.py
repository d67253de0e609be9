"""Where a change to many jobs goes on: a text that holds the place and when it began, tied to all that is asked for."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from pinlater.errors import ContinuationInvalid
from pinlater.model import CONTINUATION_START, MAX_TIME_MS, JobChange
from pinlater.shards.merge import Place

_PLACE = r"([0-9]{1,16})\.([A-Za-z0-9]{1,16})\.([0-9]{1,16})|-"
_MARK = re.compile(rf"([0-9])\.(?:{_PLACE})\.([0-9]{{1,16}})\.([0-9a-f]{{16}})", re.ASCII)


class Mark(NamedTuple):
    """Which of the scans a change consists of, the place in it that was reached (None: none yet), when all began."""

    part: int
    after: Place | None
    began_ms: int


def write_mark(change: JobChange, mark: Mark) -> str:
    """The text for "go on here"; only for the same change, though its limit may be another one."""
    place = "-" if mark.after is None else ".".join(map(str, mark.after))
    return f"{mark.part}.{place}.{mark.began_ms}.{_digest(change, mark)}"


def read_mark(change: JobChange, now_ms: int, parts: int) -> Mark:
    """Where to begin. ContinuationInvalid for any text that was not made for this change."""
    text = change.continuation
    if text == CONTINUATION_START:
        return Mark(0, None, now_ms)
    match = _MARK.fullmatch(text)
    if match is not None:
        after = None if match[2] is None else Place(int(match[2]), match[3], int(match[4]))
        mark = Mark(int(match[1]), after, int(match[5]))
        in_range = max(mark.began_ms, *((after.run_after_ms, after.id) if after else (0,))) <= MAX_TIME_MS
        if in_range and mark.part < parts and text == write_mark(change, mark):
            return mark
    raise ContinuationInvalid(
        f"continuation {text[:100]!r} was not given for this change; begin with {CONTINUATION_START!r}"
    )


def _digest(change: JobChange, mark: Mark) -> str:
    meant = (
        change.queue,
        int(change.action),
        None if change.state is None else int(change.state),
        change.priority,
        change.created_before_ms,
        change.created_after_ms,
        change.body_regex,
        change.dry_run,
        change.attempts,
        change.run_after_ms,
        mark.part,
        None if mark.after is None else tuple(mark.after),
        mark.began_ms,
    )
    return hashlib.blake2b(repr(meant).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
