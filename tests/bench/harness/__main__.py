"""PinLater in somebody else's harness, github.com/hardbyte/postgresql-job-queue-benchmarking: five scenarios of chaos
and four of pressure, beside other job queues on PostgreSQL.

The harness runs as its authors wrote it, from a checkout. What it asks of Docker is done by docker.py, beside this.
Of PinLater every stored and every run job is written down, and what is left when a scenario is over runs to its end: a
job that was stored and never ran is lost.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.harness import docker
from tests.bench.harness.adapter import FAULTS
from tests.bench.harness.ledger import Account, account
from tests.bench.harness.registered import SYSTEM
from tests.bench.harness.runs import LEDGER, Harness, run
from tests.bench.harness.scenarios import CELLS, Cell
from tests.bench.harness.verdicts import Verdict, judged, keep, kept, table
from tests.proof.results import Result

SYSTEMS = (SYSTEM, *(image.removesuffix("-bench") for image in docker.IMAGES))
KINDS = ("chaos", "pressure")
NO_PROGRESS_S = 75.0
"""Claims of a worker that was killed run out within 30 s, and a store that was away is tried again within a minute."""


def drained(folder: Path, database: str, patience_s: float = NO_PROGRESS_S) -> Account:
    """The account when nothing has run any more for `patience_s`: a replica that enqueues nothing runs what is left."""
    env = {**os.environ, "DATABASE_URL": database, "PRODUCER_RATE": "0", "SAMPLE_EVERY_S": "3600", LEDGER: str(folder)}
    found = account(folder)
    if not found.not_run:
        return found
    env.pop("HARNESS_FAULT", None)
    command = [sys.executable, "-m", "tests.bench.harness.adapter"]
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # it works now, however long its start took
    until_s = time.monotonic() + patience_s
    try:
        while found.not_run and time.monotonic() < until_s:
            time.sleep(1)
            now = account(folder)
            if now.not_run < found.not_run:
                until_s = time.monotonic() + patience_s
            found = now
        return found
    finally:
        process.terminate()
        process.communicate()


def tried(harness: Harness, cell: Cell, system: str, scale: float) -> Verdict:
    """One cell for one system, on a store of its own."""
    ledger = Path(tempfile.mkdtemp(prefix="pinlater-ledger-")) if system == SYSTEM else None
    log = harness.folder / f"{cell.name}-{system}.log"
    try:
        came = run(harness, cell, system, scale, log, ledger)
        url = f"postgresql://{docker.USER}@127.0.0.1:{docker.PORT}/{SYSTEM}_bench"
        return judged(came, cell, system, drained(ledger, url) if ledger else None)
    finally:
        docker.down()
        if ledger:
            shutil.rmtree(ledger)


def came_of(verdicts: Sequence[Verdict], kind: str, options: argparse.Namespace, harness: str) -> Result:
    """Of all that was tried of a kind, now or in the file of --kept. PinLater alone decides whether it is right.

    `harness`: its commit.
    """
    own = [each for each in verdicts if each.kind == kind and each.system == SYSTEM]
    accounts = [each.account for each in own if each.account]
    wrong = [f"{each.name}: {each.wrong}" for each in own if each.wrong]
    amounts: dict[str, int | float | str] = {
        "harness": harness,
        "scenarios": len(own),
        "jobs": sum(each.stored for each in accounts),
        "lost": sum(each.not_run for each in accounts),
        "ran again": sum(each.repeated for each in accounts),
    }
    amounts |= {
        f"{each.name}, {each.system}": each.wrong or f"{each.share:.0%}" for each in verdicts if each.kind == kind
    }
    what = "of the rate before, when it was over" if kind == "chaos" else "of the rate before, while it lasted"
    right = f"came through {len(own) - len(wrong)} of {len(own)} scenarios; shares are {what}"
    words = ["scripts/bench", "harness", "--checkout", "../harness", "--scale", f"{options.scale:g}"]
    return Result(
        name=f"harness_{kind}",
        command=shlex.join([*words, "--systems", options.systems, kind]),
        outcome="; ".join([right, *wrong]),
        is_right=bool(own) and not wrong,
        seconds=sum(cell.seconds(options.scale) for cell in CELLS if cell.name in {each.name for each in own}),
        amounts=amounts,
        load=options.load,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench harness",
        description=__doc__,
        epilog="""examples:
  git clone https://github.com/hardbyte/postgresql-job-queue-benchmarking ../harness
  scripts/bench harness --checkout ../harness chaos                            # as long as its authors do: 20 minutes
  scripts/bench harness --checkout ../harness --scale 0.34 --systems pinlater,river,procrastinate --record
  scripts/bench harness --checkout ../harness --only repeated_kills --fault early-acks  # a fault that is to be found
  scripts/bench harness --checkout ../harness --only active_readers --fault whole-locks # and another
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", nargs="?", choices=KINDS, help="[both]")
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="of the harness")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="for packages, adapters, stores and logs; it is kept"
    )
    parser.add_argument("--systems", default=SYSTEM, metavar="NAME,...", help=f"of {', '.join(SYSTEMS)} [{SYSTEM}]")
    parser.add_argument("--only", choices=[cell.name for cell in CELLS], action="append", help="this scenario")
    parser.add_argument("--scale", type=float, default=1.0, help="of the length of phases [1: as the authors' sweep]")
    parser.add_argument(
        "--fault",
        choices=list(FAULTS),
        help="one of PinLater that is to be found: " + "; ".join(f"{each}: {what}" for each, what in FAULTS.items()),
    )
    parser.add_argument("--kept", type=Path, metavar="FILE", help="goes on where this file ends, and adds to it")
    parser.add_argument("--load", default="", metavar="TEXT", help="what else the machine does, for the record")
    parser.add_argument("--record", action="store_true", help="write tests/proof/results/harness_*.json")
    options = parser.parse_args()
    systems = options.systems.split(",")
    if unknown := set(systems) - set(SYSTEMS):
        parser.error(f"no such system: {', '.join(sorted(unknown))}")
    if options.fault:
        os.environ["HARNESS_FAULT"] = options.fault
    folder = (options.folder or Path(tempfile.gettempdir()) / "pinlater-harness").absolute()
    harness = Harness(options.checkout.absolute(), folder)
    verdicts = kept(options.kept) if options.kept else []
    done = {(each.name, each.system) for each in verdicts}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the store is taken down in any case
    with harness.ready():
        for cell in CELLS:
            if options.kind not in (None, cell.kind) or (options.only and cell.name not in options.only):
                continue
            for system in systems:
                if (cell.name, system) in done:
                    continue
                verdict = tried(harness, cell, system, options.scale)
                verdicts.append(verdict)
                print(f"{cell.name}, {system}: {verdict.wrong or f'{verdict.share:.0%}'}", file=sys.stderr, flush=True)
                if options.kept:
                    keep(verdict, options.kept)
    print("".join(table(verdicts)), end="")
    if options.record:
        for kind in KINDS if options.kind is None else (options.kind,):
            came_of(verdicts, kind, options, harness.commit()).record()
    return 1 if any(each.wrong for each in verdicts if each.system == SYSTEM) else 0


if __name__ == "__main__":
    sys.exit(main())
