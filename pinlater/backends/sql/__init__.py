"""Shards in SQL: `sqlite.SqliteShard` (the standard library alone) and `mysql.MysqlShard` (the extra `mysql`).

shard.py runs each call of the protocol as one step, in one transaction, on a thread. The steps (storing, claiming,
acking, checkpointing, lapsing, looking, operating, collecting) are the same for every dialect and speak to a session by
the names of statements, which stand in one .sql file per dialect.
"""
