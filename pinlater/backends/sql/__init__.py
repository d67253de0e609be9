"""Shards in SQL: `sqlite.SqliteShard` (the standard library alone), `mysql.MysqlShard` and
`postgres.PostgresShard` (the extras `mysql` and `postgresql`).

shard.py runs each call of the protocol as one transaction, on a thread. The transactions (ready_jobs, attempts,
queries, admin, coordination, keyed_jobs, key_entries) are the same for every dialect and speak to a session by the
names of statements, which stand in one .sql file per dialect. What few jobs have lies in tables of its own: see
extensions.py, and chains.py for the jobs of a serialize key. coordination.py opens a store: it makes the tables, or
brings those of an older version up to date.
"""
