"""Rows of an export, written into an SQL store: a block and the state of the import behind it in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pinlater.backends.sql.extensions import HeldKeys, dedupe_name, set_extended, tag_flags
from pinlater.backends.sql.held_references import BODY, RESULT
from pinlater.backends.sql.keyed_jobs import put_marks
from pinlater.backends.sql.records import (
    CANCELLED,
    DEAD_LETTER_PENDING_MS,
    EXPIRES,
    LIVE,
    OWN_TIMEOUT,
    REFERENCE_BIT,
    REPLAYED,
    SHOWN,
    STOPPING,
    TIERED,
    WAITING,
)
from pinlater.backends.sql.session import Row, Session
from pinlater.backends.sql.successors import successor_name
from pinlater.backends.store_transfer import (
    ChainRow,
    ConfigRow,
    ExportBlock,
    ExportedJob,
    JobMore,
    KeyRow,
    KvRow,
    QuotaRow,
    ResultRow,
)
from pinlater.model import MAX_TIME_MS
from pinlater.model.body_reference import BodyReference

STATE_KIND, STATE_NAME = "import", "state"
_SPOTS = 1 << 31


def take_block(session: Session, block: ExportBlock, state: bytes) -> None:
    """See StoreTransfer.load."""
    if block.kind == "config":
        _take_config(session, [ConfigRow(*row) for row in block.rows])
    else:
        _TAKES[block.kind](session, _queue_ids(session), block.rows)
    put_state(session, state)


def put_state(session: Session, state: bytes) -> None:
    session.run("touch_kv_entry", (STATE_KIND, STATE_NAME))
    session.run("write_kv_entry", (1, MAX_TIME_MS, state, STATE_KIND, STATE_NAME))


def drop_state(session: Session) -> None:
    session.run("remove_kv_entries", (STATE_KIND, session.bound_texts([STATE_NAME])))


def _queue_ids(session: Session) -> dict[str, int]:
    return {name: queue_id for queue_id, name, _ in session.rows("export_queues")}


def _take_config(session: Session, rows: Sequence[ConfigRow]) -> None:
    revision = session.allocate_revisions(len(rows))
    for place, row in enumerate(rows):
        session.run("put_config_entry", (row.name, row.version, row.deleted_version, revision + place, row.text))
    queues = [(row.name, row.created_at_ms) for row in rows if row.created_at_ms is not None]
    session.put_new("import_queues", queues)


def _take_quotas(session: Session, queue_ids: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> None:
    quotas = [QuotaRow(*row) for row in rows]
    session.put_new("import_quotas", [(queue_ids[each.queue], each.quota, each.version) for each in quotas])


def _take_kv(session: Session, queue_ids: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> None:
    entries = [KvRow(*row) for row in rows]
    session.put_new("import_kv", [(each.namespace, each.name, 1, each.expires_at_ms, each.body) for each in entries])


def _take_jobs(session: Session, queue_ids: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> None:
    jobs: list[Row] = []
    few: list[tuple[ExportedJob, JobMore]] = []
    for row in rows:
        more = row[17]
        if more is None:
            body = row[16]
            jobs.append((row[0], queue_ids[row[1]], *row[2:16], len(body), body, None, None))
        else:
            job, own = ExportedJob(*row), JobMore(*more)
            few.append((job, own))
            jobs.append(_extended_row(job, own, queue_ids[job.queue]))
    session.put_new("import_jobs", jobs)
    if few:
        _take_more(session, queue_ids, few)


def _extended_row(job: ExportedJob, more: JobMore, queue_id: int) -> Row:
    size = BodyReference(job.body).length if more.is_reference else len(job.body)
    expires_at_ms = DEAD_LETTER_PENDING_MS if more.awaits_letter else job.claim_expires_at_ms
    flags = _flags(job, more)
    keys = _keys_of(more).dump()
    return (
        *(job.id, queue_id, *job[2:12], expires_at_ms, *job[13:16], size, job.body),
        *(flags or None, keys if more.has_keys or flags else None),
    )


def _keys_of(more: JobMore) -> HeldKeys:
    keys = (more.dedupe_key, more.serialize_key, more.send_id, more.place, more.slot, more.dedupe_for_ms)
    return HeldKeys(*keys, more.group)


def _flags(job: ExportedJob, more: JobMore) -> int:
    """What `extended` of the job is."""
    flags = SHOWN if more.shows_keys else _keys_of(more).flags
    flags |= OWN_TIMEOUT if more.own_timeout_ms is not None else 0
    flags |= EXPIRES if more.expires_at_ms is not None else 0
    flags |= STOPPING if more.cancelled_by is not None or job.state in (CANCELLED, REPLAYED) else 0
    flags |= SHOWN if more.progress_at_ms is not None else 0
    flags |= TIERED if more.is_reference else 0
    return tag_flags(flags) if more.tags else flags


def _take_more(session: Session, queue_ids: Mapping[str, int], few: Sequence[tuple[ExportedJob, JobMore]]) -> None:
    links: list[Row] = []
    extensions: list[Row] = []
    expiries: list[Row] = []
    tags: list[Row] = []
    held: list[Row] = []
    cancelled: list[Row] = []
    waiting: list[Row] = []
    times = sorted({(queue_ids[job.queue], job.priority, 0.0) for job, more in few if more.group})
    for job, more in few:
        undelivered = more.undelivered or (None, None, None)
        link = (more.origin, more.origin_attempts, more.moved_to, *undelivered, more.attempts, more.log)
        if link != _NO_LINK:
            links.append((job.id, *link))
        extension = (more.own_timeout_ms, more.expires_at_ms, *more[17:21], more.tags)
        if extension != _NO_EXTENSION:
            extensions.append((job.id, *extension))
        if more.expires_at_ms is not None and job.state in LIVE:
            expiries.append((job.id, more.expires_at_ms))
        if more.tags:
            tags += [(queue_ids[job.queue], tag, job.id) for tag in more.tags.split(b"\n")]
        if more.is_reference:
            held.append((job.id, BODY, job.body))
        if job.state in (CANCELLED, REPLAYED):
            cancelled.append((job.id, queue_ids[job.queue], job.ended_at_ms))
        if job.state == WAITING and more.serialize_key:
            waiting.append((more.serialize_key, more.place, job.id))
    for statement, rows in (
        ("import_links", links),
        ("import_extensions", extensions),
        ("put_expiries", expiries),
        ("put_tags", tags),
        ("hold_references", held),
        ("import_cancelled", cancelled),
        ("put_waiting", waiting),
    ):
        session.put_new(statement, rows)
    session.put("put_virtual_times", times)


_NO_LINK = (None,) * 8
_NO_EXTENSION = (None,) * 7


def _take_results(session: Session, queue_ids: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> None:
    results = [ResultRow(*row) for row in rows]
    session.put_new(
        "put_results",
        [
            (
                *(each.id, queue_ids[each.queue], each.priority, each.attempts_remaining, each.ended_at_ms),
                *(each.expires_at_ms, _result_size(each), each.result),
            )
            for each in results
        ],
    )
    session.put_new("hold_references", [(each.id, RESULT, each.result) for each in results if each.is_reference])


def _result_size(row: ResultRow) -> int:
    return BodyReference(row.result).length | REFERENCE_BIT if row.is_reference else len(row.result)


def _take_keys(session: Session, queue_ids: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> None:
    """Send ids, and windows of jobs that are gone, have a time at which they are removed."""
    entries: list[Row] = []
    successors: list[int] = []
    for row in rows:
        key = KeyRow(*row)
        name = b"i" + key.send_id if key.send_id else dedupe_name(key.dedupe_key, key.serialize_key)
        goes = key.until_ms is not None and key.until_ms < MAX_TIME_MS and (key.send_id or not key.is_kept)
        entries.append(
            (
                *(
                    queue_ids[key.queue],
                    name,
                    key.job_id,
                    key.priority,
                    key.slot,
                    key.window_ms,
                    int(bool(key.send_id)),
                ),
                *(key.outcome, key.until_ms, key.until_ms if goes else None, key.elsewhere),
            )
        )
        if key.successor_id:
            successors.append(key.successor_id)
            named = (queue_ids[key.queue], successor_name(name), key.successor_id, key.successor_priority, key.slot)
            entries.append((*named, 0, 0, 0, None, None, None))
    session.put_new("put_keys", entries)
    found = session.rows_of("states", (), sorted(successors))
    set_extended(session, {job_id: (flags or 0) | STOPPING for job_id, _, _, flags in found})


def _take_chains(session: Session, queue_ids: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> None:
    chains: list[Row] = []
    blocked: list[Row] = []
    barriers: list[Row] = []
    for row in rows:
        chain = ChainRow(*row)
        key, waiting = chain.serialize_key, chain.waiting
        if chain.barrier:
            place, job_id, queue_id, priority, held = session.rows("first_waiting", (key,))[0]
            chain = chain._replace(slot=HeldKeys.load(bytes(held)).slot)
            session.run("remove_one_waiting", (key, place))
            barriers.append((key, chain.barrier))
            waiting -= 1
        else:
            queue_id, job_id, priority, place = queue_ids[chain.queue], chain.job_id, chain.priority, chain.place
        chains.append((key, job_id, place, queue_id, priority, chain.slot, chain.since_ms, chain.barrier))
        if waiting:
            blocked.append((key, waiting, chain.since_ms, queue_id))
    session.put_new("put_chains", chains)
    session.put_new("add_blocked", blocked)
    session.put_new("put_barriers", barriers)


def _take_firings(session: Session, queue_ids: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> None:
    put_marks(session, {bytes(name).decode(): bytes(mark).decode() for name, mark in rows})


def _take_shared(session: Session, queue_ids: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> None:
    session.put_new("import_shared", [tuple(row) for row in rows])


def _take_dropped(session: Session, queue_ids: Mapping[str, int], rows: Iterable[Sequence[Any]]) -> None:
    session.put_new("import_dropped", [(row[0], secrets.randbelow(_SPOTS)) for row in rows])


_TAKES: Mapping[str, Callable[[Session, Mapping[str, int], Sequence[Sequence[Any]]], None]] = {
    "quota": _take_quotas,
    "kv": _take_kv,
    "job": _take_jobs,
    "result": _take_results,
    "key": _take_keys,
    "chain": _take_chains,
    "mark": _take_firings,
    "shared": _take_shared,
    "dropped": _take_dropped,
}
