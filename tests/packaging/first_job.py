"""A first job at a server that has just been installed: stored, handed out, done and counted, by an installed PinLater.

`python -I first_job.py HOST:PORT` runs in the environment that is tried, so it imports nothing of the tests.
"""

from __future__ import annotations

import sys
import time

from pinlater import Client, Job
from pinlater.errors import ServerUnreachable

WITHIN_S = 60.0
QUEUE = "first"


def reached(address: str) -> Client:
    """A client of the server there, as soon as it answers; an error where it does not."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        client = Client(address)
        try:
            client.create_queue(QUEUE)
        except ServerUnreachable:
            client.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return client


def main() -> None:
    began_s = time.monotonic()
    with reached(sys.argv[1]) as client:
        stored = client.enqueue(QUEUE, Job(b"to: ada@example.org"))
        (job,) = client.dequeue(QUEUE, 10, wait="10s")
        assert job.body == b"to: ada@example.org", job
        client.ack(QUEUE, succeeded=[job])
        states = [each.state for each in client.lookup([stored]).values()]
        assert [str(state) for state in states] == ["succeeded"], states
    print(f"a first job was done {time.monotonic() - began_s:.1f} s after the server was looked for")


if __name__ == "__main__":
    main()
