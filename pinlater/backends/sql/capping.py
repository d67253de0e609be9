"""How many claims of a queue may be alive on this shard: its share. Whoever claims under it locks it first."""

from __future__ import annotations

from pinlater.backends.base import Quota
from pinlater.backends.sql.session import Session

NO_BOUND = 2**31 - 1


def room_for_claims(session: Session, queue_id: int) -> int:
    """How many more may be handed out by this step, which holds the lock until its commit."""
    rows = session.rows("locked_share", (queue_id,))
    share = rows[0][0] if rows else 0
    return max(0, share - _in_progress(session, queue_id, share)) if share else 0


def _in_progress(session: Session, queue_id: int, at_most: int) -> int:
    return int(session.rows("in_progress_up_to", (queue_id, at_most))[0][0])


def set_quota(session: Session, queue: str, share: int, version: int) -> Quota:
    """The queue is locked against deletion first, so that no share is left behind it."""
    queue_id = session.queue_id(queue, "queue_id_for_enqueue")
    if version == 0:
        rows = session.rows("share", (queue_id,))
        share_here, version_here = rows[0] if rows else (0, 0)
        return Quota(share_here, version_here, _in_progress(session, queue_id, NO_BOUND))
    session.run("touch_share", (queue_id,))
    share_here, version_here = session.rows("locked_share", (queue_id,))[0]
    in_progress = _in_progress(session, queue_id, NO_BOUND)
    if version <= version_here:
        return Quota(share_here, version_here, in_progress)
    session.run("set_share", (share, version, queue_id))
    return Quota(share, version, in_progress)
