"""The packed records of what few jobs have in Redis: keys, chains, offers, progress. records.py says where they are."""

from __future__ import annotations

from struct import Struct

from pinlater.backends.extended import SEND_ID_KEPT_MS
from pinlater.backends.redis.store_version import EXTENDED_VERSION, SUCCESSORS_VERSION
from pinlater.model import JobInfo, JobProgress
from pinlater.model.status_text import (
    NEWER_WAITS,
    NEWER_WAITS_BEFORE_NAME,
    NEWER_WAITS_END,
    NOT_REPLACED,
    NOT_REPLACED_END,
)

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


KEY_ENTRY = Struct(">QHBB")
"""Behind the id of the job that a key names (0: of another shard, whose descriptor follows): when the entry ends to
count (0: the job is live), slot, priority, OfferOutcome. Of a dedupe key SUCCESSOR follows, where there is one.
"""

SUCCESSOR = Struct(">QB")
"""The id and priority of the newer job of a dedupe key that waits for the running one."""

_SUCCESSOR_AT = Struct(">Q").size + KEY_ENTRY.size


def successor_of(entry: bytes) -> tuple[int, int]:
    """The id and priority of the job that waits for the one that an entry of BASE:keys names; zeros: there is none."""
    if len(entry) == _SUCCESSOR_AT or not any(entry[:8]):
        return 0, 0
    job_id, priority = SUCCESSOR.unpack_from(entry, _SUCCESSOR_AT)
    return job_id, priority


CHAIN_HEAD = Struct(">QB")
"""Since when; what is behind it (_chain.lua). Behind it stand id, a byte of priority and the queue."""

OFFER = Struct(">QBBBBB")
"""What a script is told of an offer: run_after, on_duplicate, flags (1 only if known, 2 takes no jobs, 4 there are
REPLACE_RULES), bytes of the shard id of a barrier, of the name of a schedule and of its mark; these follow.
"""

REPLACE_RULES = Struct(">QBH")
"""Behind these, of an offer that replaces by rules of its own: for how long a job may be postponed since its enqueue
(0: no bound), replace_running, bytes of who enqueues; that follows.
"""

_LUA_CODES = {"d": "d", "Q": "I8", "q": "i8", "I": "I4", "H": "I2", "B": "B", ">": ">"}


def lua_format(record: Struct) -> str:
    return "'" + "".join([_LUA_CODES[code] for code in record.format]) + "'"


PERMIT = Struct(">BB")
"""The priority of a job, bytes of its group; the group and the claim descriptor follow."""


KEY_LAYOUT = {
    "PERMIT": lua_format(PERMIT),
    "PERMIT_BYTES": str(PERMIT.size),
    "NOT_REPLACED": NOT_REPLACED,
    "NOT_REPLACED_END": NOT_REPLACED_END.replace("\n", "\\n"),
    "EXTRA": lua_format(EXTRA),
    "EXTRA_TIMEOUT": lua_format(Struct(">Q")),
    "EXTRA_SLOT_AT": str(Struct(">QQq").size + 1),
    "EXTRA_FLAGS_AT": str(Struct(">QQqHB").size + 1),
    "TAGGED": str(TAGGED),
    "GROUPED": str(GROUPED),
    "TAG_BYTES": lua_format(TAG_BYTES),
    "PROGRESS": lua_format(PROGRESS),
    "PROGRESS_BYTES": str(PROGRESS.size),
    "KEY_ENTRY": lua_format(KEY_ENTRY),
    "KEY_ENTRY_BYTES": str(KEY_ENTRY.size),
    "CHAIN_HEAD": lua_format(CHAIN_HEAD),
    "OFFER": lua_format(OFFER),
    "OFFER_BYTES": str(OFFER.size),
    "REPLACE_RULES": lua_format(REPLACE_RULES),
    "REPLACE_RULES_BYTES": str(REPLACE_RULES.size),
    "SUCCESSOR": lua_format(SUCCESSOR),
    "SUCCESSOR_AT": str(_SUCCESSOR_AT + 1),
    "NEWER_WAITS": NEWER_WAITS,
    "NEWER_WAITS_BEFORE_NAME": NEWER_WAITS_BEFORE_NAME,
    "NEWER_WAITS_END": NEWER_WAITS_END.replace("\n", "\\n"),
    "SEND_ID_KEPT_MS": str(SEND_ID_KEPT_MS),
    "EXTENDED_VERSION": str(EXTENDED_VERSION),
    "SUCCESSORS_VERSION": str(SUCCESSORS_VERSION),
}
"""What scripts have of these in place of `$NAME`."""
