"""Flows: trees of stages whose items stream through them. One database is the truth; queues carry items to workers."""
