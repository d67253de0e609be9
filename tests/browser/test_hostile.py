"""Texts of callers that want to be more than texts: nothing of them runs, and all of them can be read."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import visit
from tests.browser.hostile import TURNS, planted, shown
from tests.browser.pages import DATA, PAGES
from tests.browser.stand import Stand

FIELDS = {
    "source",
    "status",
    "body",
    "json",
    "type",
    "argument",
    "keyword",
    "error",
    "frame",
    "ending",
    "result",
    "progress",
    "checkpoint",
    "dedupe-markup",
    "serialize",
    "reason",
    "worker",
    "host",
    "running-type",
    "version",
    "maker",
    "schedule-key",
    "stage-type",
    "flow-key",
    "label",
    "metadata",
    "item-ada",
    "item-failure",
}
"""Each is seeded, and has to be read on some page."""


def test_no_text_of_a_caller_runs_and_each_is_shown(browser: Browser, stand: Stand) -> None:
    """The page of each job too, whatever its body is."""
    addresses = {page.address(stand.seeded) for page in PAGES}
    addresses |= {f"/dashboard/jobs/{descriptor}" for descriptor in stand.seeded.jobs.values()}
    missing = set(FIELDS)
    with visit(browser, stand.address, stand.cookies("admin")) as (page, watch):
        for address in sorted(addresses):
            answer = page.goto(address)
            assert answer is not None
            assert answer.ok, f"{address}: {answer.status}"
            page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            text = page.locator("body").inner_text()
            missing -= {field for field in missing if shown(field) in text}
            assert not set(TURNS) & set(text), f"{address} turns its text around"
            assert not {"\x1b", "\x00", "\u2028"} & set(text), address
            assert page.locator("[href^='javascript:'], [src='x'], svg[onload]").count() == 0
            assert watch.ran == [], address
        watch.check()
    assert missing == set()


@pytest.mark.parametrize("route", DATA)
def test_data_of_callers_is_kept_as_a_file_and_shown_as_no_page(
    browser: Browser, sqlite_stand: Stand, route: str
) -> None:
    stand = sqlite_stand
    address = DATA[route].format_map({**stand.seeded.jobs, "flow": stand.seeded.flow})
    with visit(browser, stand.address, stand.cookies("admin")) as (page, _):
        answer = page.request.get(address)
        assert answer.status == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind == "application/json" or answer.headers["content-disposition"].startswith("attachment")


REFLECTED = (
    "/dashboard/queues?name={}",
    "/dashboard/queues?show={}&sort={}&page={}",
    "/dashboard/queues/{}",
    "/dashboard/jobs?filter={}",
    "/dashboard/jobs?filter=queue:mail%20body:~{}",
    "/dashboard/jobs/{}",
    "/dashboard/runs/{}",
    "/dashboard/flows/{}",
    "/dashboard/flows?name={}&state={}",
    "/dashboard/schedules/{}",
    "/dashboard/schedules?queue={}",
    "/dashboard/workers?queue={}&name={}",
    "/dashboard/audit?filter={}",
    "/dashboard/open/{}",
    "/dashboard/{}",
    "/login?next={}",
    "/login?next=/dashboard?{}",
)


@pytest.mark.parametrize("path", REFLECTED)
def test_what_stands_in_an_address_runs_on_no_page(browser: Browser, sqlite_stand: Stand, path: str) -> None:
    text = "".join(f"%{byte:02X}" for byte in planted("address").encode())
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("admin")) as (page, watch):
        watch.allowed += ["400", "403", "404", "410"]
        answer = page.goto(path.replace("{}", text))
        assert answer is not None
        assert answer.status < 500
        expect(page.locator("main")).to_be_visible()
        assert page.locator("[src='x'], svg[onload], main script").count() == 0
        watch.check()
