"""Where does what lie in Redis? Every key of a shard begins with its root, whose braces are a hash tag.

    ROOT = {PREFIX}               hash    shard, store: the identity
    ROOT:last                     string  the last id given out
    ROOT:queues                   hash    queue -> created_at; exactly the queues that are there
    ROOT:records                  hash    name -> version, deleted version, text (_versions.lua)
    ROOT:revisions                zset    name -> revision: the order in which the records came
    ROOT:revision                 string  the last revision given out
    ROOT:marks                    zset    name of a record that is a mark of a deletion -> the time in its version
    ROOT:claimed                  zset    queue -> no claim in it expires before this
    ROOT:ended:2, ROOT:ended:3    zset    queue -> no job in it succeeded (2) or failed (3) before this

    ROOT:dead                     zset    queue -> no job in it was marked for bury before this
    ROOT:shares                   hash    queue -> share, version; missing where none was set
    ROOT:buckets                  hash    queue -> tokens, as of when; only of queues with a rate limit
    ROOT:notes:KIND               hash    name -> version (8 bytes), body
    ROOT:until:KIND               zset    name -> when the note expires

    BASE = ROOT:q:QUEUE           in these, an id is its eight bytes, so that the order of bytes is that of age
    BASE:s:STATE:PRIORITY         zset    id -> run_after; every job is in exactly one of these
    BASE:jobs                     hash    id -> what never changes but for a new body (packing.HEAD, first status, body)
    BASE:changed                  hash    id -> what changes (packing.CHANGED, status); missing while all is as enqueued
    BASE:claims                   hash    id -> the claim (packing.CLAIM, descriptor); kept when the job has ended
    BASE:expiry                   zset    id -> when the claim expires; exactly the jobs in progress
    BASE:ended:2, BASE:ended:3    zset    id -> finished_at; what is marked for bury is not in there, but in
    BASE:dead                     zset    id -> finished_at
    BASE:news                     channel: what becomes pending in the queue (news.py); nothing is kept
    BASE:undelivered              hash    id -> how often in a row nobody received it (requeue_undelivered.lua)
    BASE:links                    hash    id -> where the job came from and went to (_links.lua); missing for most jobs

A pending job that nobody claimed yet has one entry in `jobs` and one in its state's zset, and nothing else. Scripts get
ROOT and, where they work on one queue, BASE as KEYS, and derive the rest: all in one slot of a Redis Cluster.
"""

from __future__ import annotations

DEFAULT_PREFIX = "pinlater"
MAX_PRIORITY = 127
"""A byte on the wire; deleting a queue frees the keys of so many priorities."""


def root_key(prefix: str) -> bytes:
    return b"{%s}" % prefix.encode()


def base_key(root: bytes, queue: str) -> bytes:
    return b"%s:q:%s" % (root, queue.encode())
