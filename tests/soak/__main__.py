"""Everything on for hours, while servers and workers are killed and rolled: `python -m tests.soak --hours 10`.

Two servers over a Redis, a MariaDB and a PostgreSQL, one over SQLite, their workers, flows, schedules, keys, groups,
bodies in a folder, HTTP and open dashboards. Every minute a process is killed, and every ten all servers are rolled.
It fails where a job is lost, where no order of events explains what callers were answered, or where memory,
descriptors, rows, files or latencies grow. Ctrl-C ends it early, with the verdict until then.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.proof.results import commit
from tests.soak.judged import Outcome
from tests.soak.soak import Options, Soak
from tests.soak.stand import Stand


def run(folder: Path, options: Options) -> Outcome:
    """From the first process to the last. The first Ctrl-C ends the run early, a second one breaks it off."""
    stand = Stand(
        folder,
        ttl_s=options.ttl_s,
        is_small=options.is_small,
        dice=random.Random(options.seed),
        planted=options.planted,
    )

    async def whole() -> Outcome:
        soak = Soak(stand, options, lambda text: print(text, flush=True))
        loop = asyncio.get_running_loop()

        def told() -> None:
            print("ending early", flush=True)
            soak.stops.set()
            loop.remove_signal_handler(signal.SIGINT)

        loop.add_signal_handler(signal.SIGINT, told)
        return await soak.run()

    try:
        return asyncio.run(whole())
    finally:
        stand.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--hours", type=float)
    length.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="who is killed, and what is enqueued")
    parser.add_argument("--rate", type=float, default=1.0, help="1 is about forty jobs a second")
    parser.add_argument("--record", action="store_true", help="write what came of it, for docs/proof.md")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder for all files, which stay")
    given = parser.parse_args()
    minutes = given.minutes if given.hours is None else given.hours * 60
    if not minutes > 0:
        parser.error("give a length of more than nothing")
    options = Options(seconds=minutes * 60, seed=given.seed, rate=given.rate)
    words = f"--minutes {minutes:g}" if given.hours is None else f"--hours {given.hours:g}"
    command = f"python -m tests.soak {words} --seed {given.seed}"
    command += f" --rate {given.rate:g}" if given.rate != 1.0 else ""
    begun_with = commit()
    print(f"{command}, commit {begun_with}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pinlater-soak-") as name:
        outcome = run(given.keep or Path(name), options)
    print("\n".join(outcome.lines()), flush=True)
    if given.record:
        load = f"a load of {os.getloadavg()[2]:.0f} at the end"
        print(f"written: {outcome.result(command, load, begun_with).record()}")
    return 0 if outcome.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
