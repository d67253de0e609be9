"""Shards in SQL: `sqlite.SqliteShard` (the standard library alone) and `mysql.MysqlShard` (the extra `mysql`).

shard.py runs each call of the protocol as one step, in one transaction, on a thread. The steps (storing, claiming,
acking, checkpointing, lapsing, looking, counting, operating, moving, collecting; recording, capping and noting for what
servers agree on) are the same for every dialect and speak to a session by the names of statements, which stand in one
.sql file per dialect. identity.py opens a store: it makes the tables, or brings those of an older version up to date.
"""
