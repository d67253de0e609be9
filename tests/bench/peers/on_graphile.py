"""The jobs on graphile-worker, which are sent by its own SQL function; graphile_tasks/noop.js runs them."""

from __future__ import annotations

import json

import psycopg

from tests.bench.peers.record import BROKER, QUEUES

_connection = psycopg.connect(BROKER, autocommit=True)
_ADD = """SELECT COUNT(*) FROM graphile_worker.add_jobs(ARRAY(
    SELECT json_populate_record(NULL::graphile_worker.job_spec, value) FROM json_array_elements(%s) AS value))"""


def send(queue: str, sent_ns: list[int]) -> None:
    number = QUEUES.index(queue)
    jobs = [{"identifier": "noop", "payload": {"queue": number, "sent_ns": str(each)}} for each in sent_ns]
    _connection.execute(_ADD, [json.dumps(jobs)])
