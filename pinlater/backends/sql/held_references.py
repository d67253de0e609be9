"""References to bodies in place of bodies: which jobs hold them, which jobs share one, and which were dropped.

A job that holds one has the bit TIERED in its `extended`, and its `body_bytes` are those of the body itself; a result
that is one has REFERENCE_BIT in its `result_bytes`. Each stands once more in `pinlater_held`, by its job. Jobs without
a reference cost nothing of this.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pinlater.backends.base import ReferencesPage
from pinlater.backends.sql.records import REFERENCE_BIT, TIERED
from pinlater.backends.sql.schema_version import EXTENDED_VERSION, GROUPS_VERSION, REFERENCES_VERSION
from pinlater.backends.sql.session import Row, Session
from pinlater.model.body_reference import BodyReference

BODY, RESULT = 0, 1
_SPOTS = 1 << 31


def hold(session: Session, references: Mapping[int, bytes], kind: int = BODY) -> None:
    """These jobs, which are locked, hold these from now on."""
    raise_version(session)
    session.put("hold_references", [(job_id, kind, bytes(each)) for job_id, each in sorted(references.items())])


def raise_version(session: Session) -> None:
    """The version of the store says that there are references, until the commit and behind it."""
    if int(session.rows("schema_version")[0][0]) < REFERENCES_VERSION:
        session.run("raise_references_version")


def release(session: Session, ids: Iterable[int], kind: int = BODY, keeping: bytes = b"") -> None:
    """These jobs, which are locked, hold none any more. `keeping`: but this one, which is given to its job again."""
    rows = session.rows_of("release_references", (kind,), sorted(ids))
    drop(session, [bytes(reference) for (reference,) in rows if bytes(reference) != keeping])


def drop(session: Session, references: Sequence[bytes]) -> None:
    """A reference that other jobs share goes from one to the others; else it is listed as dropped."""
    if not references:
        return
    others = {bytes(row[0]): row[1] for row in session.rows_in("shared_references", (), references)}
    dropped: list[Row] = []
    for reference, times in sorted(Counter(references).items()):
        left = others.get(reference, 0) - times
        if left >= 0:
            session.run("share_references", (left, reference))
        else:
            dropped.append((reference, secrets.randbelow(_SPOTS)))
            if reference in others:
                session.run("unshare_references", (reference,))
    if dropped:
        session.put("drop_references", dropped)


def share(session: Session, copies: Mapping[int, int]) -> None:
    """Copies hold what their originals hold, which are locked: {copy: original}."""
    held = {row[0]: bytes(row[1]) for row in session.rows_of("held_references", (BODY,), sorted(set(copies.values())))}
    hold(session, {copy: held[original] for copy, original in copies.items()})
    times = Counter(held[original] for original in copies.values())
    others = {bytes(row[0]): row[1] for row in session.rows_in("shared_references", (), times)}
    session.put("put_shared_references", [(each, others.get(each, 0) + more) for each, more in sorted(times.items())])


def replace_body(session: Session, job_id: int, flags: int, body: bytes) -> int:
    """A new body for a job that is locked and has these bits; the bits it has then."""
    session.replace_body(job_id, body)
    is_reference = type(body) is BodyReference
    if not is_reference and not flags & TIERED:
        return flags
    if flags & TIERED:
        release(session, [job_id], keeping=body if is_reference else b"")
    if is_reference:
        hold(session, {job_id: body})
    if is_reference != bool(flags & TIERED):
        flags ^= TIERED
        session.run_of("set_extended", (flags,), [job_id])
    return flags


def stored_at(session: Session, ids: Sequence[int]) -> dict[int, str]:
    """A text by id that says where the body of a job lies, and why; jobs whose bodies are in the shard are left out."""
    found = {}
    for job_id, reference in session.rows_of("held_references", (BODY,), sorted(ids)):
        found[job_id] = BodyReference(reference).described
    return found


def result_bytes(result: bytes) -> int:
    """What stands as the size of a result."""
    return result.length | REFERENCE_BIT if isinstance(result, BodyReference) else len(result)


def kept_result(result: bytes, size: int) -> bytes:
    return BodyReference(result) if size & REFERENCE_BIT else bytes(result)


# -- what the servers ask ----------------------------------------------------------------------------------------------


def list_references(session: Session, after: str, limit: int) -> ReferencesPage:
    """See ReferenceStore.list_references. Held ones come by job, since a copy is younger than its original; then come
    those that were dropped.
    """
    session.snapshot()
    section, *place = after.split(":") if after else ("held", "0", "-1")
    if section == "held":
        job_id, kind = int(place[0]), int(place[1])
        rows = session.rows("all_held_references", (job_id, job_id, kind, limit))
        if rows:
            return ReferencesPage([BodyReference(row[2]) for row in rows], f"held:{rows[-1][0]}:{rows[-1][1]}")
        place = [""]
    rows = session.rows("all_dropped_references", (bytes.fromhex(place[0]), limit))
    last = bytes(rows[-1][0]).hex() if rows else ""
    return ReferencesPage([BodyReference(row[0]) for row in rows], f"dropped:{last}" if rows else "")


def dropped_references(session: Session, limit: int) -> list[BodyReference]:
    """See ReferenceStore.dropped_references. They come from a place by chance on, and round."""
    session.snapshot()
    spot = secrets.randbelow(_SPOTS)
    rows = session.rows("dropped_from", (spot, limit))
    if len(rows) < limit:
        rows += session.rows("dropped_before", (spot, limit - len(rows)))
    return [BodyReference(row[0]) for row in rows]


def forget_references(session: Session, references: Sequence[bytes]) -> None:
    session.run_in("forget_references", (), [bytes(each) for each in references])


def lower_version(session: Session) -> None:
    """A store without references and groups is one that earlier versions understand. Who stores one waits for the
    commit.
    """
    version = int(session.rows("schema_version_for_change")[0][0])
    needed = EXTENDED_VERSION
    if session.rows("any_groups"):
        needed = GROUPS_VERSION
    elif session.rows("any_references"):
        needed = REFERENCES_VERSION
    if needed < version <= GROUPS_VERSION:
        session.run("set_schema_version", (str(needed),))
