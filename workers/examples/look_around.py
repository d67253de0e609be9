"""The demonstration after its jobs: it stays, and jobs keep coming, so that there is something to look at."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

from processes import Server, check

EVERY_S = 1.0
"""Between two jobs."""


def look_around(serving: Server, api: str, queue: str, failed: str, enqueue: Callable[[], object]) -> None:
    """Until Enter, or the end of the input. `failed`: a job to look at, "" for none; `enqueue` stores one more job."""
    link = serving.dashboard_link(api) or f"http://{api}/dashboard"
    program = os.path.relpath(serving.program)
    tries = [
        (f"{program} top", "queues and workers, live; q ends it"),
        (f"{program} queue pause {queue} --why demo", "and see them wait, on the dashboard too"),
        (f"{program} queue resume {queue}", ""),
        (f"{program} alarms", "what is broken, since when, why, and what to do"),
    ]
    if failed:
        tries.insert(1, (f"{program} job get '{failed}'", "what became of a job, attempt by attempt"))
    width = max(len(command) for command, _ in tries if len(command) < 60)
    print(f"\nJobs keep coming, one a second. Look at them here, by a link that opens once:\n  {link}\n")
    print("Or in another terminal:")
    print(f"  export PINLATER_SERVER={serving.address} PINLATER_DATA={serving.data}")
    for command, what in tries:
        print(f"  {command:<{width}}{f'   # {what}' if what else ''}")
    print("\nNext: a job of your own, docs/workers.md. Press Enter to end.", flush=True)
    serving.open_dashboard(api)
    while True:
        if select.select([sys.stdin], [], [], EVERY_S)[0]:
            return
        check(serving.process)
        enqueue()


def is_watched() -> bool:
    """Somebody is there to press Enter."""
    return sys.stdin.isatty() and sys.stdout.isatty()
