"""Flows: trees of stages whose items stream, join and report; one database is the truth, queues carry items to workers.
"""
