"""A job that repeats for ever: how full a disk is, in the job's own status. It keeps what it counts in its body.

    PYTHONPATH=workers/examples pinlater-worker --app periodic:app --create-queues &
    python workers/examples/periodic.py / --every 10        # prints the descriptor: one such job is one series
    pinlater job get DESCRIPTOR                             # its status: a line for each round, the newest first
    pinlater job cancel DESCRIPTOR                          # the end of it

Each round ends with Reschedule, one checkpoint that stores the next body and puts the job back until then: no
scheduler, and no moment at which the series exists twice or not at all. Where a worker dies, its round runs again.
"""

from __future__ import annotations

import argparse
import shutil

from pinlater_workers import App, Reschedule, current

app = App()


@app.job(queue="reports", attempts=3, retry=[5, 30], time_limit="1m")
def disk_usage(path: str, every_s: float, round: int = 1, before: int | None = None, rounds: int | None = None) -> None:
    """One round: `before` are the bytes that were used in the last one. With `rounds` of them the job has succeeded."""
    used = shutil.disk_usage(path).used
    change = 0 if before is None else used - before
    report = f"round {round}: {used / 2**30:.2f} GiB used of {path}, {change:+,} bytes"
    if round == rounds:
        current().set_status(report)
        return
    body = disk_usage.body(path, every_s, round=round + 1, before=used, rounds=rounds)
    raise Reschedule(until_next(every_s, app.clock.now_ms() / 1000), body=body, message=report)


def until_next(every_s: float, now_s: float) -> float:
    """The seconds to the next full period of the clock, so that rounds that take their time do not shift the next.

    >>> until_next(3600, 7300.0)
    3500.0
    """
    return every_s - now_s % every_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Begin a series of reports.")
    parser.add_argument("path")
    parser.add_argument("--every", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--rounds", type=int, help="how many; for ever, unless it is said")
    wanted = parser.parse_args()
    print(disk_usage.enqueue(wanted.path, wanted.every, rounds=wanted.rounds))
    app.close()


if __name__ == "__main__":
    main()
