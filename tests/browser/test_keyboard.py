"""The dashboard by the keyboard alone: everything is reached, what has the focus is seen, and it keeps the focus."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pinlater import JobFilter, JobState
from tests.browser.chromium import visit
from tests.browser.pages import PAGES
from tests.browser.seed import failed_jobs, is_in
from tests.browser.stand import Stand

_FOCUSED = """() => {
    const each = document.activeElement;
    if (!each || each === document.body) return '';
    const style = getComputedStyle(each), box = each.getBoundingClientRect();
    const seen = (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none';
    const place = `${each.tagName} ${each.textContent.trim().slice(0, 40)} ${Math.round(box.x)},${Math.round(box.y)}`;
    return (seen && box.width && box.height ? 'seen ' : 'unseen ') + place;
}"""
_REACHABLE = """[...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex="0"]')].filter(each =>
    each.checkVisibility({visibilityProperty: true}) && !each.disabled && each.type !== 'hidden').length"""
MOST_TABS, ENOUGH_TABS = 400, 80
PLACES = {"o": "", "q": "/queues", "j": "/jobs", "f": "/flows", "s": "/schedules"} | {
    "w": "/workers",
    "c": "/cluster",
    "a": "/audit",
}


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until it has the focus."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if target.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError(f"{target} is not reached by Tab")


def test_log_in_filter_open_a_job_and_retry_it(browser: Browser, sqlite_stand: Stand) -> None:
    with sqlite_stand.client() as client:
        queue = failed_jobs(client, 1)
        (failed,) = (job.descriptor for job in client.scan(JobFilter(queue, JobState.FAILED)).jobs)
        with visit(browser, sqlite_stand.address) as (page, watch):
            page.goto("/dashboard")
            expect(page).to_have_url(f"{sqlite_stand.address}/login?next=/dashboard")
            page.keyboard.type(sqlite_stand.tokens["operator"])  # the field has the focus
            page.keyboard.press("Enter")
            expect(page).to_have_url(f"{sqlite_stand.address}/dashboard")
            page.wait_for_load_state()
            page.keyboard.press("g")
            page.keyboard.press("j")
            expect(page).to_have_url(f"{sqlite_stand.address}/dashboard/jobs")
            page.keyboard.press("/")
            page.keyboard.type(f"queue:{queue} state:failed")
            page.keyboard.press("Enter")
            link = page.locator(f"main a[href$='{quote(failed, safe='')}']")
            expect(link).to_be_visible()
            tab_to(page, link)
            page.keyboard.press("Enter")
            expect(page.locator("main .head")).to_contain_text(failed)
            tab_to(page, page.locator("main summary", has_text="Retry"))
            page.keyboard.press("Enter")
            tab_to(page, page.locator("main details[open]").get_by_role("button", name="Retry"))
            page.keyboard.press("Enter")
            expect(page.locator("#notices")).to_contain_text("The job waits for a worker again")
            watch.check()
        assert is_in(client, failed) == JobState.PENDING


def test_everything_is_reached_by_tab_and_seen_to_have_the_focus(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        for shown_page in PAGES:
            page.goto(shown_page.address(sqlite_stand.seeded))
            page.evaluate("document.body.dataset.live = 'off'")
            reachable = min(page.evaluate(_REACHABLE), ENOUGH_TABS)
            places = list(_places(page, reachable))
            assert [place for place in places if not place.startswith("seen")] == [], shown_page.name
            assert len(places) >= reachable - 1, shown_page.name


def _places(page: Page, tabs: int) -> Iterator[str]:
    """What has the focus after each press of Tab, until the page ends."""
    for _ in range(tabs):
        page.keyboard.press("Tab")
        place = page.evaluate(_FOCUSED)
        if not place:
            return
        yield place


def test_the_skip_link_leads_past_the_navigation(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        page.goto("/dashboard/queues")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


@pytest.mark.parametrize(
    ("key", "path"),
    PLACES.items(),
)
def test_g_and_a_letter_go_to_a_page(browser: Browser, sqlite_stand: Stand, key: str, path: str) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        page.goto("/dashboard/audit" if key != "a" else "/dashboard")
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page).to_have_url(f"{sqlite_stand.address}/dashboard{path}")


def test_the_list_of_shortcuts_keeps_the_focus_and_gives_it_back(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        page.goto("/dashboard/queues")
        link = page.get_by_role("link", name="mail", exact=True).first
        link.focus()
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        for _ in range(4):
            page.keyboard.press("Tab")
            assert page.evaluate("!document.querySelector('main').contains(document.activeElement)")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(link).to_be_focused()


def test_letters_that_are_typed_into_a_field_go_nowhere(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        page.goto("/dashboard/jobs")
        page.keyboard.press("/")
        page.keyboard.type("g q ? / gw")
        expect(page.locator("[data-filter]")).to_have_value("g q ? / gw")
        expect(page).to_have_url(f"{sqlite_stand.address}/dashboard/jobs")
        expect(page.get_by_role("dialog")).to_be_hidden()
