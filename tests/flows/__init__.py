"""The database of flows, on SQLite, PostgreSQL and MariaDB."""
