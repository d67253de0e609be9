"""The record of what few jobs have beside the others in Redis, in BASE:extra; _extra.lua reads and writes it too."""

from __future__ import annotations

from struct import Struct

from pinlater.model import JobInfo, JobProgress

EXTRA = Struct(">QQqHBBBBBH")
"""claim time-out, expires_at (0: none), dedupe_for, slot, priority, flags (1 it is to stop, 2 its keys are to show, 4
there are tags, 8 there is a group); the bytes of dedupe key, serialize key, send id, and of who asked it to stop. There
follow the name of the dedupe key (see _extra.lua), that of the send id, who asked, the group behind a byte with its
length where it has one, and PROGRESS and its text, where it has any.
"""

TAGGED, TAG_BYTES = 4, Struct(">H")
"""The flag of jobs with tags. An offer and a description of one have these behind the record, and how many bytes."""

GROUPED = 8
"""The flag of jobs with a group."""

KEY_AT = 4
"""Where the serialize key begins in the name of a dedupe key, behind a letter and the three digits of its length; the
dedupe key follows. The name of a send id is a letter and that.
"""

PROGRESS = Struct(">dQ")
"""The fraction (below 0: none), and when it was told."""


def show_extra(info: JobInfo, extra: bytes) -> None:
    """Put what the record says into the description of its job."""
    timeout_ms, expires_at_ms, dedupe_for_ms, _, _, flags, *sizes = EXTRA.unpack_from(extra)
    if flags & TAGGED:
        tags_at = len(extra) - TAG_BYTES.size - TAG_BYTES.unpack(extra[-TAG_BYTES.size :])[0]
        info.tags, extra = extra[tags_at : -TAG_BYTES.size].decode().split("\n"), extra[:tags_at]
    dedupe_bytes, serialize_bytes, send_bytes, by_bytes = sizes
    dedupe_at = EXTRA.size + KEY_AT + serialize_bytes
    by_at = dedupe_at + dedupe_bytes + 1 + send_bytes
    at = by_at + by_bytes
    serialize_key = extra[EXTRA.size + KEY_AT : dedupe_at].decode()
    dedupe_key = extra[dedupe_at : dedupe_at + dedupe_bytes].decode()
    cancelled_by = extra[by_at:at].decode()
    info.claim_timeout_ms, info.expires_at_ms = timeout_ms or None, expires_at_ms or None
    info.dedupe_key, info.serialize_key = dedupe_key or None, serialize_key or None
    info.cancel_requested_by, info.dedupe_for_ms = cancelled_by or None, dedupe_for_ms
    if flags & GROUPED:
        group_at, at = at + 1, at + 1 + extra[at]
        info.group = extra[group_at:at].decode()
    if at < len(extra):
        fraction, at_ms = PROGRESS.unpack_from(extra, at)
        info.progress = JobProgress(None if fraction < 0 else fraction, extra[at + PROGRESS.size :].decode(), at_ms)
