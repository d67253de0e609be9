"""Screenshots of every page, light and dark, of a shop at work: those in docs/dashboard.md.

.venv/bin/python -m tests.browser.screenshots              # into docs/images/dashboard
.venv/bin/python -m tests.browser.screenshots queue job    # these pages alone
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page

from pinlater import JobFilter, JobState
from pinlater.api_process import HISTORY_FILE
from tests.access.cluster import until
from tests.browser.chromium import chromium, visit
from tests.browser.shop import fill_history, fill_past, open_the_shop, working
from tests.browser.stand import Stand, standing

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "dashboard"
SIZE, MOST_HIGH = (1280, 420), 1250
COLORS = 80
"""Enough for a page of few colours, and a third of the bytes."""

COUNTED_WITHIN_S = 60.0
RATES = 5.0
"""From so many jobs a second on they are worth a picture."""

PAGES = {
    "overview": "/dashboard",
    "queues": "/dashboard/queues",
    "queue": "/dashboard/queues/emails",
    "jobs": "/dashboard/jobs?filter=queue:emails state:failed",
    "job": "/dashboard/jobs/{failed}",
    "question": "/dashboard/runs/new?action=retry&which=all&filter=queue:webhooks state:failed status:~timeout",
    "run": "/dashboard/runs/{run}",
    "runs": "/dashboard/runs",
    "flows": "/dashboard/flows",
    "flow": "/dashboard/flows/{flow}",
    "schedules": "/dashboard/schedules",
    "schedule": "/dashboard/schedules/reports.nightly",
    "workers": "/dashboard/workers",
    "cluster": "/dashboard/cluster",
    "audit": "/dashboard/audit",
    "login": "/login?next=/dashboard",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.browser.screenshots", description="Screenshots of every page.")
    parser.add_argument("page", nargs="*", help="only these; all without one")
    parser.add_argument("--to", type=Path, default=FOLDER, metavar="DIR", help="the folder for them")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pinlater-shop-") as folder:
        time.sleep(60 - time.time() % 60)  # a minute that is recorded in part would be the last of each chart
        now_ms = int(time.time() * 1000)
        asyncio.run(fill_past(f"sqlite:///{folder}/shop.db", now_ms))
        fill_history(Path(folder) / "pinlater-data" / HISTORY_FILE, now_ms)
        with standing(Path(folder), "sqlite", "sqlite:///shop.db", seeds=False) as stand:
            open_the_shop(stand)
            stand.seeded.jobs["failed"] = _failed(stand)
            with working(stand), chromium() as browser:
                until(lambda: _is_counted(stand), COUNTED_WITHIN_S)
                stand.seeded.jobs["run"] = ""
                for name in given.page or PAGES:
                    for dark in (False, True):
                        _take(browser, stand, name, given.to, dark)


def _is_counted(stand: Stand) -> bool:
    """The servers know how many jobs there are, and how many come."""
    with stand.client() as client:
        queues = {queue.name: queue for queue in client.cluster_status().queues}
    counted = all(queues[name].levels for name in ("webhooks", "payroll", "payroll-ledger", "emails-dead"))
    return counted and queues["emails"].rates.get("succeeded", 0.0) > RATES


def _failed(stand: Stand) -> str:
    with stand.client() as client:
        return client.scan(JobFilter("emails", JobState.FAILED), limit=1).jobs[0].descriptor


def _take(browser: Browser, stand: Stand, name: str, folder: Path, dark: bool) -> None:
    things = stand.seeded.jobs
    if name == "run" and not things["run"]:
        things["run"] = _begun(browser, stand)
    path = PAGES[name].format(flow=stand.seeded.flow, **things)
    state = None if name == "login" else stand.cookies("admin")
    with visit(browser, stand.address, state, size=SIZE, dark=dark) as (page, _):
        page.goto(path)
        page.evaluate("document.documentElement.style.scrollbarGutter = 'auto'")  # no picture has a scroll bar
        file = folder / f"{name}-{'dark' if dark else 'light'}.png"
        file.write_bytes(_small(_shot(page)))
        print(f"{file}: {file.stat().st_size:,} bytes")


def _begun(browser: Browser, stand: Stand) -> str:
    """The id of a run that has ended."""
    with visit(browser, stand.address, stand.cookies("admin")) as (page, _):
        page.goto(PAGES["question"])
        page.get_by_label("Why").fill("partner-3 answers again")
        page.get_by_role("button", name="Retry all of them").click()
        page.locator("main .head", has_text="done").wait_for()
        return page.url.rpartition("/")[2]


def _shot(page: Page) -> bytes:
    height = min(page.evaluate("document.documentElement.scrollHeight"), MOST_HIGH)
    return page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": SIZE[0], "height": height})


def _small(png: bytes) -> bytes:
    with Image.open(BytesIO(png)) as picture:
        few = picture.convert("RGB").quantize(COLORS, Image.Quantize.MAXCOVERAGE, kmeans=4, dither=Image.Dither.NONE)
        out = BytesIO()
        few.save(out, "PNG", optimize=True)
        return out.getvalue()


if __name__ == "__main__":
    main()
