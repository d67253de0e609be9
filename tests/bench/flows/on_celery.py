"""The two steps on Celery, a chord of chains: `python -m tests.bench.flows.on_celery ITEMS` is its producer, which says
`ready`, begins at a line, and prints one JSON object.

Runs in the environment of the other products (peers/products.py).
"""

from __future__ import annotations

import json
import os
import sys
import time

from celery import Celery, chain, chord

app = Celery("bench", broker=os.environ["BENCH_BROKER"], backend=os.environ["BENCH_BROKER"])
app.conf.broker_connection_retry_on_startup = True
WITHIN_S = 300


@app.task(name="calculate")
def calculate(user: int) -> dict[str, int]:
    return {"user": user, "amount": 7 * user}


@app.task(name="pay")
def pay(calculated: dict[str, int]) -> dict[str, int]:
    return {"paid": calculated["amount"]}


@app.task(name="done")
def done(paid: list[dict[str, int]]) -> int:
    return len(paid)


def carried_out(items: int) -> float:
    began_s = time.monotonic()
    counted = chord([chain(calculate.s(user), pay.s()) for user in range(items)])(done.s()).get(timeout=WITHIN_S)
    assert counted == items
    return time.monotonic() - began_s


if __name__ == "__main__":
    carried_out(20)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps({"jobs": int(sys.argv[1]), "seconds": carried_out(int(sys.argv[1]))}), flush=True)
