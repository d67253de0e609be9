"""Windows of keys: entries whose jobs have ended, which move with their slots when the homes of keys change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pinlater.backends.extended import SEND_ID_KEPT_MS, KeyWindow, OfferOutcome
from pinlater.backends.key_windows import WindowText
from pinlater.backends.sql.attempts import queue_names_of
from pinlater.backends.sql.extensions import dedupe_name, entries, send_name
from pinlater.backends.sql.held_references import RESULT, release
from pinlater.backends.sql.keyed_jobs import marks
from pinlater.backends.sql.records import REFERENCE_BIT, Descriptors
from pinlater.backends.sql.session import Row, Session, in_slices
from pinlater.model import parse_descriptor


def key_slots(session: Session) -> list[int]:
    return [slot for (slot,) in session.rows("key_slots")]


def list_windows(session: Session, limit: int, after: str, now_ms: int) -> list[KeyWindow]:
    """Up to `limit` windows behind `after`, in the order of the primary key, which a window's name has."""
    queue_id, name = _place(after)
    rows = session.rows("windows", (queue_id, queue_id, name, now_ms, limit))
    queues = queue_names_of(session, {row[0] for row in rows})
    return [_window(session, row, queues.get(row[0], "")) for row in rows]


def _window(session: Session, row: Row, queue: str) -> KeyWindow:
    queue_id, name, job_id, priority, slot, until_ms, is_send_id, outcome, elsewhere = row
    descriptor = elsewhere or Descriptors(queue, session.shard_id).of(priority, job_id)
    text = bytes(name)[1:]
    if is_send_id:
        window = WindowText(queue, descriptor, send_id=text.decode(), outcome=outcome)
    else:
        length, _, keys = text.partition(b":")
        at = int(length)
        window = WindowText(queue, descriptor, dedupe_key=keys[at:].decode(), serialize_key=keys[:at].decode())
    return KeyWindow(f"{queue_id:010d}:{bytes(name).hex()}", slot, until_ms, window.dump())


def _place(name: str) -> tuple[int, bytes]:
    queue_id, _, key = name.partition(":")
    return int(queue_id or -1), bytes.fromhex(key)


def put_windows(session: Session, windows: Sequence[KeyWindow], now_ms: int) -> None:
    """Ids are taken first, as by an enqueue: so that no other one takes such a key meanwhile."""
    session.allocate_ids(0, 0)
    queues: dict[str, int | None] = {}
    per_queue: dict[int, dict[bytes, Row]] = defaultdict(dict)
    for window in windows:
        text = WindowText.load(window.text)
        if text.queue not in queues:
            rows = session.rows("queue_id_for_enqueue", (text.queue,))
            queues[text.queue] = rows[0][0] if rows else None
        queue_id, ref = queues[text.queue], parse_descriptor(text.descriptor)
        if queue_id is None or window.until_ms <= now_ms:
            continue
        name = (
            send_name(text.send_id)
            if text.send_id
            else dedupe_name(text.dedupe_key.encode(), text.serialize_key.encode())
        )
        outcome = text.outcome if text.send_id else int(OfferOutcome.STORED)
        per_queue[queue_id][name] = (
            *(queue_id, name, 0, 0 if ref is None else ref.priority, window.slot, SEND_ID_KEPT_MS),
            *(int(bool(text.send_id)), outcome, window.until_ms, window.until_ms, text.descriptor),
        )
    for queue_id, new in per_queue.items():
        stand = {name for name, entry in entries(session, queue_id, new).items() if entry.stands(now_ms)}
        session.put("put_keys", [new[name] for name in sorted(new) if name not in stand])


def drop_windows(session: Session, windows: Sequence[KeyWindow]) -> None:
    for window in windows:
        session.run("drop_window", (*_place(window.name), window.until_ms))


def remove_entries_over(session: Session, limit: int, now_ms: int) -> None:
    """Entries of keys, and results, whose time has passed."""
    per_queue: dict[int, list[bytes]] = defaultdict(list)
    for queue_id, name in session.rows("keys_over", (now_ms, limit)):
        per_queue[queue_id].append(bytes(name))
    for queue_id, names in sorted(per_queue.items()):
        session.run_in("remove_keys", (queue_id,), names)
    over = session.rows("results_over", (now_ms, limit))
    release(session, [job_id for job_id, size in over if size & REFERENCE_BIT], RESULT)
    for some in in_slices(sorted(job_id for job_id, _ in over), limit or 1):
        session.run_of("remove_results", (), some)


def last_firings(session: Session, schedules: Sequence[str]) -> list[str | None]:
    found = marks(session, schedules)
    return [found.get(schedule) for schedule in schedules]
