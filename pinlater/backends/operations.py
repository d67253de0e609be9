"""The table of store operations: what the wrappers of a shard have to know about each method of the protocol.

Adding an operation means a method in `pinlater.backends.base.Shard`, a line here, and the method in each store.
"""

from __future__ import annotations

from typing import NamedTuple


class Operation(NamedTuple):
    """A method of `Shard` that goes to the store.

    `label` is its value in the metrics, which stays when the method gets another name. A `reads` operation changes
    nothing and may be sent again. A `bulk` operation looks at many jobs, or brings many bodies: such calls have a limit
    of their own. An `urgent` one waits for no other. `batch` is the position of the argument that is a list of jobs.
    """

    name: str
    label: str
    reads: bool = False
    bulk: bool = False
    urgent: bool = False
    batch: int | None = None


OPERATIONS = {
    each.name: each
    for each in (
        Operation("open", "open", urgent=True),
        Operation("ping", "ping", urgent=True),
        # What all shards agree on
        Operation("put_config", "put_records"),
        Operation("list_config", "records", reads=True),
        # The life of a job
        Operation("enqueue", "enqueue", batch=1),
        Operation("count_ready", "ready", reads=True),
        Operation("next_due", "next_due", reads=True),
        Operation("subscribe", "follow"),
        Operation("claim", "claim"),
        Operation("ack_and_claim", "ack_and_claim", batch=1),
        Operation("peek", "peek", reads=True, bulk=True),
        Operation("ack", "ack", batch=1),
        Operation("checkpoint", "checkpoint", batch=1),
        Operation("requeue", "give_back", batch=1),
        Operation("expire_disconnected", "release"),
        Operation("requeue_undelivered", "requeue_undelivered"),
        Operation("cancel", "cancel", batch=1),
        # Queries
        Operation("lookup", "lookup", reads=True, bulk=True, batch=1),
        Operation("count", "count", reads=True, bulk=True),
        Operation("scan", "scan", reads=True, bulk=True),
        # Operators
        Operation("retry_failed", "retry_failed", bulk=True),
        Operation("retry_listed", "retry_listed", bulk=True),
        Operation("delete_jobs", "delete_jobs", bulk=True),
        Operation("delete_listed", "delete_listed", bulk=True),
        Operation("replay", "replay", bulk=True),
        Operation("mark_moved", "mark_moved"),
        # Maintenance
        Operation("expire_claims", "expire_claims"),
        Operation("dead_letter", "bury"),
        Operation("prune", "collect"),
        # What the servers of a cluster tell each other
        Operation("kv_put", "put_note"),
        Operation("kv_list", "notes", reads=True),
        Operation("take_tokens", "take_tokens"),
        Operation("set_quota", "set_share"),
        Operation("stats", "census", reads=True, bulk=True),
    )
}
"""By name."""
