"""What recording costs a program, and how long a history takes to be judged: `scripts/bench history --help`.

Two programs enqueue, dequeue and ack against a server of their own, in turn with and without a history; what counts is
the processor time of the program. The history that is judged is made up (recorded_shop.py), and judged by the command.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pinlater import AsyncClient
from pinlater.history.recorder import event_line, header
from tests.bench.recorded_shop import Shop
from tests.server.running import PROGRAM, running

CALLS = 3_000
AT_A_TIME = 16


async def _cycles(port: int, folder: str) -> float:
    """The processor time of so many calls in microseconds each: enqueues, dequeues and acks of single jobs."""
    async with AsyncClient(f"127.0.0.1:{port}", history=folder) as client:
        await client.create_queue("mail")

        async def worker() -> None:
            for _ in range(CALLS // 3 // AT_A_TIME):
                await client.enqueue("mail", [b"x" * 200])
                jobs = await client.dequeue("mail", 1)
                await client.ack("mail", jobs)

        began_s = time.process_time()
        await asyncio.gather(*[worker() for _ in range(AT_A_TIME)])
        return (time.process_time() - began_s) / CALLS * 1e6


def recording(rounds: int) -> None:
    with TemporaryDirectory() as folder, running(Path(folder)) as server:
        port = server.port
        asyncio.run(_cycles(port, ""))
        without, recorded = [], []
        for number in range(rounds):
            without.append(asyncio.run(_cycles(port, "")))
            recorded.append(asyncio.run(_cycles(port, os.path.join(folder, f"run{number}"))))
    ratio = statistics.median(each / bare for each, bare in zip(recorded, without, strict=True))
    print(
        f"a call takes {statistics.median(without):.0f} µs of its program's processor, "
        f"{statistics.median(recorded):.0f} µs with a history: {ratio:.2f} times as much"
    )


def judging(events: int) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "shop.jsonl"
        with file.open("wb") as opened:
            opened.write(header(tolerance_ms=1))  # servers know whole milliseconds
            written = 0
            for event in Shop().events(events):
                opened.write(event_line(event))
                written += 1
        size = file.stat().st_size / 1e6
        began_s = time.monotonic()
        with subprocess.Popen([PROGRAM, "history", "check", str(file)], stdout=subprocess.PIPE, text=True) as judge:
            assert judge.stdout is not None
            verdict = judge.stdout.read()
            _, status, usage = os.wait4(judge.pid, 0)
            judge.returncode = os.waitstatus_to_exitcode(status)
        took_s = time.monotonic() - began_s
        print(verdict, end="")
        print(
            f"{written:,} events, {size:,.0f} MB: judged in {took_s:.1f} s ({written / took_s:,.0f} a second, "
            f"{usage.ru_utime + usage.ru_stime:.1f} s of the processor), in {usage.ru_maxrss / 1024:,.0f} MB of memory"
        )
        if judge.returncode:
            sys.exit(judge.returncode)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench history", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="how long the history is [1,000,000]")
    parser.add_argument("--rounds", type=int, default=5, help="how often recording is measured [5]")
    options = parser.parse_args()
    recording(options.rounds)
    judging(options.events)


if __name__ == "__main__":
    main()
