"""The contract of a shard, and its stores: SQLite, Redis, MariaDB, PostgreSQL and DynamoDB."""
