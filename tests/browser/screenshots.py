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
from tests.browser.chromium import chromium, visit
from tests.browser.shop import fill_history, fill_past, open_the_shop, working
from tests.browser.stand import Stand, standing

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "dashboard"
SIZE, MOST_HIGH = (1280, 480), 1700
COLORS = 64
"""Enough for a page of few colours, and a third of the bytes."""

WORKS_FOR_S = 12.0
"""Before the first picture: until rates are known."""

PAGES = {
    "overview": "/dashboard",
    "queues": "/dashboard/queues",
    "queue": "/dashboard/queues/emails",
    "jobs": "/dashboard/jobs?filter=queue:emails state:failed",
    "job": "/dashboard/jobs/{failed}",
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
        now_ms = int(time.time() * 1000)
        asyncio.run(fill_past(f"sqlite:///{folder}/shop.db", now_ms))
        fill_history(Path(folder) / "pinlater-data" / HISTORY_FILE, now_ms)
        with standing(Path(folder), "sqlite", "sqlite:///shop.db", seeds=False) as stand:
            open_the_shop(stand)
            stand.seeded.jobs["failed"] = _failed(stand)
            with working(stand), chromium() as browser:
                time.sleep(WORKS_FOR_S)
                for name in given.page or PAGES:
                    for dark in (False, True):
                        _take(browser, stand, name, given.to, dark)


def _failed(stand: Stand) -> str:
    with stand.client() as client:
        return client.scan(JobFilter("emails", JobState.FAILED), limit=1).jobs[0].descriptor


def _take(browser: Browser, stand: Stand, name: str, folder: Path, dark: bool) -> None:
    path = PAGES[name].format(failed=stand.seeded.jobs["failed"], flow=stand.seeded.flow)
    state = None if name == "login" else stand.cookies("admin")
    with visit(browser, stand.address, state, size=SIZE, dark=dark) as (page, _):
        page.goto(path)
        page.evaluate("document.documentElement.style.scrollbarGutter = 'auto'")  # no picture has a scroll bar
        file = folder / f"{name}-{'dark' if dark else 'light'}.png"
        file.write_bytes(_small(_shot(page)))
        print(f"{file}: {file.stat().st_size:,} bytes")


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
