"""The table of store operations: what the wrappers of a shard have to know about each method of the protocol.

To add an operation: the method in `pinlater.backends.base.Shard`, a line here, a line in
`pinlater.shards.decorator.ShardDecorator`, and the method in each store.
"""

from __future__ import annotations

from typing import NamedTuple


class Operation(NamedTuple):
    """A method of `Shard` that goes to the store.

    `label` is its value in the metrics, which stays when the method gets another name; "" where it is not counted.
    `reads`: it changes nothing and may be sent again. `bulk`: it reads many jobs, or brings many bodies; such calls
    have a limit of their own. `urgent`: it waits for no other. `claims`: it hands out jobs, which go back where nobody
    waits for them any more; `claims_listed`: likewise those that it names, in ClaimAnswers. `batch` is the position of
    the argument that is a list of jobs, `batch_label` what these count as.
    """

    name: str
    label: str
    reads: bool = False
    bulk: bool = False
    urgent: bool = False
    claims: bool = False
    claims_listed: bool = False
    batch: int | None = None
    batch_label: str = ""


def _batch(name: str, label: str = "", *, batch_label: str = "", reads: bool = False, bulk: bool = False) -> Operation:
    label = label or name
    return Operation(name, label, reads=reads, bulk=bulk, batch=1, batch_label=batch_label or label)


OPERATIONS = {
    each.name: each
    for each in (
        Operation("open", "", urgent=True),
        Operation("ping", "ping", urgent=True),
        # What all shards agree on
        Operation("put_config", "put_records"),
        Operation("list_config", "records", reads=True),
        # The life of a job
        _batch("enqueue"),
        _batch("enqueue_extended", batch_label="enqueue"),
        Operation("find_keys", "find_keys", reads=True),
        Operation("count_ready", "ready", reads=True),
        Operation("next_due", "next_due", reads=True),
        Operation("claim", "claim", claims=True),
        _batch("claim_listed")._replace(claims_listed=True),
        Operation("peek", "peek", reads=True, bulk=True),
        _batch("ack"),
        _batch("ack_and_claim", batch_label="ack")._replace(claims=True),
        _batch("checkpoint"),
        _batch("heartbeat"),
        _batch("reschedule"),
        _batch("requeue", "give_back"),
        Operation("expire_disconnected", "release"),
        _batch("expire_listed"),
        Operation("requeue_undelivered", "requeue_undelivered"),
        _batch("cancel"),
        # Queries
        _batch("lookup", reads=True, bulk=True),
        Operation("count", "count", reads=True, bulk=True),
        Operation("scan", "scan", reads=True, bulk=True),
        Operation("watch_ends", "watch_ends"),
        Operation("blocked_chains", "blocked_chains", reads=True),
        # Operators
        Operation("retry_failed", "retry_failed", bulk=True),
        Operation("retry_listed", "retry_listed", bulk=True),
        Operation("taken_keys", "taken_keys", reads=True),
        Operation("delete_jobs", "delete_jobs", bulk=True),
        Operation("delete_listed", "delete_listed", bulk=True),
        Operation("replay", "replay", bulk=True),
        Operation("mark_moved", "mark_moved"),
        # Maintenance
        Operation("expire_claims", "expire_claims"),
        Operation("expired_claims", "expired_claims", reads=True),
        Operation("expire_jobs", "expire_jobs"),
        Operation("dead_letter", "bury"),
        Operation("prune", "collect"),
        # Schedules
        Operation("last_firings", "last_firings", reads=True),
        Operation("raise_marks", "raise_marks"),
        # The homes of keys
        Operation("key_slots", "key_slots", reads=True),
        Operation("list_windows", "list_windows", reads=True),
        Operation("put_windows", "put_windows"),
        Operation("drop_windows", "drop_windows"),
        Operation("has_chains", "has_chains", reads=True),
        Operation("list_barriers", "list_barriers", reads=True),
        Operation("lift_barriers", "lift_barriers"),
        # References to bodies
        Operation("list_references", "list_references", reads=True, bulk=True),
        Operation("dropped_references", "dropped_references", reads=True),
        Operation("forget_references", "forget_references", batch=0, batch_label="forget_references"),
        # What the servers of a cluster tell each other
        Operation("kv_put", "put_note"),
        Operation("kv_list", "notes", reads=True),
        Operation("take_tokens", "take_tokens"),
        Operation("set_quota", "set_share"),
        Operation("stats", "census", reads=True, bulk=True),
    )
}
"""By name."""
