"""What the servers of a cluster tell each other through a store: notes, and the buckets of rate limits."""

from __future__ import annotations

from pinlater.backends.base import KvEntry, Tokens
from pinlater.backends.sql.session import Session
from pinlater.backends.token_bucket import Level, take

TIDIED_AT_ONCE = 1000


def kv_put(
    session: Session,
    namespace: str,
    name: str,
    body: bytes,
    expires_at_ms: int,
    now_ms: int,
    expected_version: int | None,
    keep: int,
) -> int:
    """There is always a row to lock: one of version 0, which nobody sees, where there is no note yet."""
    session.run("touch_note", (namespace, name))
    version, expired_at_ms = session.rows("note", (namespace, name))[0]
    if expired_at_ms <= now_ms:
        version = 0
    is_expected = expected_version in (None, version)
    if is_expected and expires_at_ms > now_ms:
        session.run("write_note", (version + 1, expires_at_ms, body, namespace, name))
    elif is_expected or version == 0:
        session.run("remove_notes", (namespace, session.bound_texts([name])))
    if not is_expected:
        return 0
    _tidy(session, namespace, now_ms, keep if version == 0 else None)
    return int(version) + 1


def _tidy(session: Session, namespace: str, now_ms: int, keep: int | None) -> None:
    """`keep` None: there are no more notes than before."""
    rows = session.rows("expired_notes", (namespace, now_ms, TIDIED_AT_ONCE))
    if keep is not None:
        rows += session.rows("excess_notes", (namespace, TIDIED_AT_ONCE, keep))
    names = sorted({str(name) for (name,) in rows})
    if names:
        session.run("remove_notes", (namespace, session.bound_texts(names)))


def kv_list(session: Session, namespace: str, now_ms: int) -> dict[str, KvEntry]:
    rows = session.rows("notes", (namespace, now_ms))
    return {name: KvEntry(bytes(body), version, expires_at_ms) for name, body, version, expires_at_ms in rows}


def take_tokens(session: Session, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
    """The bucket is locked until the commit."""
    rows = session.rows("bucket", (queue,))
    if not rows:
        session.run("touch_bucket", (queue, now_ms))
        rows = session.rows("bucket", (queue,))
    taken = take(Level(*rows[0]), wanted, per_second, capacity, now_ms)
    session.run("fill_bucket", (*taken.level, queue))
    return Tokens(taken.granted, taken.retry_after_ms)
