"""What the commands print, as rows, and jobs that have ended."""

from __future__ import annotations

import json
from typing import Any

from pinlater import Ack, Client, DequeueRequest

PASSWORD = "correct horse"
UNKNOWN = "mail:s1:p1:1790000000000000"
FORMATS = ["table", "json", "jsonl"]


def rows(format: str, text: str) -> list[dict[str, Any]]:
    """The rows of any format; a table's are texts."""
    if format == "json":
        return list(json.loads(text))
    if format == "jsonl":
        return [json.loads(line) for line in text.splitlines()]
    lines = text.splitlines()
    names = lines[0].lower().split() if lines else []
    return [dict(zip(names, line.split(), strict=False)) for line in lines[1:]]


def finish(client: Client, queue: str, *, fail: int, succeed: int) -> None:
    jobs = client.dequeue(DequeueRequest(queue, fail + succeed))
    acks = [Ack(job.descriptor, "said so", permanent=True) for job in jobs]
    client.ack(queue, succeeded=acks[fail:], failed=acks[:fail])
