"""A shard in one table of Amazon DynamoDB: conditional writes, small transactions, and no locks.

table_address.py  the URL of a table
client.py         signed requests, what the answers mean, and when a request is sent again
items.py          items as DynamoDB writes them, the keys of the table, and where each kind of item lies
table.py          the table, its identity, and the numbers that jobs get
steps.py          an optimistic transaction: read, change, write under the condition that nobody else has
stored_job.py     the record of a job
agenda.py         which partitions have something due, and when
queue_records.py  queues and configuration entries
store_parts.py    the parts of an open shard, and steps for each of many jobs
key_items.py      dedupe keys, send ids and serialize keys
enqueue.py        enqueue
claims.py         claim
attempt_steps.py  acks, checkpoints, heartbeats, and claims that end otherwise
operators.py      cancel, reschedule, retry, delete, replay
table_queries.py  lookup, count, scan, statistics
due_work.py       expiry, dead letters, pruning
coordination.py   key-value entries, tokens, quotas, marks of schedules, references to bodies
shard.py          the shard
"""

from __future__ import annotations

from pinlater.backends.dynamodb.shard import DynamodbShard

__all__ = ["DynamodbShard"]
