"""The demonstration: a server on SQLite, a worker with a pool of processes, and a job per picture and size.

    ./scripts/demo [--images DIR] [--bodies]    # --bodies: the photographs travel as bodies, through a tier (tier.py)
    ./scripts/demo --once               # ends when the jobs are done, where else it stays until Enter (look_around.py)
    ./scripts/demo --payroll            # another one: a flow of three stages (payday.py)

Exit codes: 0 all went as it should (of the pictures that ship with it, the truncated one fails); 1 something did not;
2 a wrong command line; 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from look_around import is_watched, look_around
from payday import pay_all
from processes import OUTPUT, check, free_address, make_anew, run_to_its_end, server, worker
from progress import Progress
from report import collect, show
from thumbnails import app, thumbnail
from tier import enqueue_bodies, show_tier, tier_options

from pinlater import Client, JobFilter, JobState

PICTURES = Path(__file__).resolve().parent / "pictures"
BROKEN_ON_PURPOSE = {"chelsea-truncated.png"}
SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff"}
SIZES = (64, 128, 256)
PROCESSES = 4
LOOK_EVERY_S = 0.1


def main() -> int:
    given = _arguments()
    if given.payroll:
        return run_to_its_end(pay_all)
    pictures = _pictures(given.images)
    return run_to_its_end(lambda: _demonstrate(pictures, OUTPUT / "thumbnails", given))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Thumbnails of photographs, made by a worker.")
    parser.add_argument(
        "--once", action="store_true", help="end when the jobs are done, and do not stay until Enter is pressed"
    )
    parser.add_argument("--payroll", action="store_true", help="instead: a flow that pays people in three steps")
    parser.add_argument("--images", type=Path, default=PICTURES, metavar="DIR", help="a folder of pictures of your own")
    parser.add_argument(
        "--bodies",
        nargs="?",
        const="",
        metavar="URL",
        help="send the photographs themselves, through a tier: a folder of the demonstration's own, or file:///, s3://...",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="keep the jobs there, in an empty store: redis://..., postgresql+psycopg://..., dynamodb://..., and so on",
    )
    given = parser.parse_args()
    if not given.images.is_dir():
        parser.error(f"--images {given.images} is no folder")
    if given.payroll and given.bodies is not None:
        parser.error("--bodies is for pictures, not for --payroll")
    if given.payroll and given.store is not None:
        parser.error("--store is for pictures, not for --payroll")
    given.images = given.images.resolve()
    return given


def _pictures(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not found:
        print(f"There is no picture in {folder} ({', '.join(sorted(SUFFIXES))}).", file=sys.stderr)
        raise SystemExit(2)
    return found


def _demonstrate(pictures: list[Path], thumbnails: Path, given: argparse.Namespace) -> int:
    make_anew(thumbnails)
    bodies, store = given.bodies, given.store
    queue = thumbnail.settings.queue
    with ExitStack() as stack:
        api = free_address()
        options = [] if bodies is None else list(tier_options(bodies))
        options += [] if store is None else ["--store", f"1={store}"]
        serving = stack.enter_context(server("--api", api, *options))
        kept = "SQLite" if store is None else store.partition(":")[0]
        print(f"A server on {kept} listens on {serving.address}; its HTTP interface is http://{api}/.", flush=True)
        if link := serving.dashboard_link(api):
            print(f"Its dashboard, by a link that opens once, within five minutes:\n  {link}", flush=True)
        app.use(servers=[serving.address], source="demo")
        stack.callback(app.close)
        app.client.create_queue(queue)
        pool = ("--pool", "process", "--concurrency", str(PROCESSES))
        working = stack.enter_context(worker("thumbnails:app", serving.address, *pool))
        print(f"A worker process (pid {working.pid}) waits for jobs.", flush=True)
        started = time.monotonic()
        if bodies is None:
            jobs = thumbnail.enqueue_many((picture, size, thumbnails) for picture in pictures for size in SIZES)
        else:
            jobs = [job for each in pictures for job in enqueue_bodies(each, SIZES, thumbnails)]
        print(f"Enqueued {len(jobs)} jobs: {len(pictures)} pictures in {len(SIZES)} sizes.", flush=True)
        _wait(app.client, queue, len(jobs), serving.process, working)
        report = collect(app.client, queue, len(jobs), time.monotonic() - started)
        if bodies is not None:
            show_tier(app.client, queue)
        show(report, thumbnails, BROKEN_ON_PURPOSE)
        if is_watched() and not given.once:
            more = itertools.cycle((picture, size) for size in SIZES for picture in pictures)
            failed = report.failed[0].descriptor if report.failed and bodies is None else ""
            look_around(serving, api, queue, failed, lambda: thumbnail.enqueue(*next(more), thumbnails))
    return 0 if report.failed_pictures <= BROKEN_ON_PURPOSE else 1


def _wait(client: Client, queue: str, total: int, *processes: subprocess.Popen[str]) -> None:
    """Until every job has ended."""
    with Progress(total) as progress:
        while True:
            succeeded, failed = client.counts([JobFilter(queue, JobState.SUCCEEDED), JobFilter(queue, JobState.FAILED)])
            progress.update(succeeded, failed)
            if succeeded + failed >= total:
                return
            check(*processes)
            time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    raise SystemExit(main())
