"""The planted faults that a plan finds, by the names of the plans, and within how many minutes of virtual time."""

from __future__ import annotations

from collections.abc import Mapping

FOUND: Mapping[str, Mapping[str, int]] = {
    "plain": {
        "sqlite candidates: state = 0 AND -> state <= 1 AND": 2,
        "sqlite attempts: attempts_remaining <= 1 -> attempts_remaining <= 0": 2,
        "sqlite attempts: each.permanent or -> nothing": 2,
        "shards.resilience: jobs are handed out five seconds early": 2,
        "maintenance.tasks: claims expire three seconds early": 2,
        "server.deliveries: jobs that were received are taken back as undelivered": 2,
    },
    "keyed": {
        "sqlite keys: NOT IN (0, 1, 4) THEN -> NOT IN (1, 4) THEN": 2,
        "sqlite chains: for head in heads if head.waiting -> for head in heads if False": 8,
        "service.job_lifecycle: the keys of a job are left out": 2,
    },
    "cancels": {
        "service.job_commands: a request to stop is forgotten": 2,
        "service.heartbeats: heartbeats do not tell of a request to stop": 2,
    },
    "bodies": {
        "cluster.membership: nobody looks after shard 1": 32,
        "bodies.tiered_shard: a body is deleted as soon as its job is stored": 2,
    },
    "flows": {
        "flows.end_records: an item that has ended ends again": 32,
    },
    "noise": {
        "service.job_lifecycle: an ack is answered although its call of the store failed": 2,
    },
    "noise at bodies": {
        "bodies.tiered_shard: a body is deleted although its job may be stored": 2,
    },
    "a wrong clock": {
        "cluster.clocks: the time is that of the server's own clock, whatever the others say": 32,
    },
    "shards that come and go": {
        "sqlite coordination: entry.version > here -> entry.version >= here": 5,
        'sqlite keyed_jobs: session.run_in("untake_keys", (self._queue_id,), [ -> nothing': 5,
    },
}
