"""Every page on every kind of store: it is whole, shows what is there, and runs nothing that a caller sent."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from pinlater.dashboard.site import TABLES
from tests.browser.chromium import visit
from tests.browser.hostile import shown
from tests.browser.pages import AFTER_A_CHANGE, DATA, PAGES, ShownPage
from tests.browser.stand import Stand

MOST_LINKS = 150


def test_every_page_of_the_product_is_in_the_table() -> None:
    routes = {route.path for table in TABLES for route in table if route.verb == "GET"}
    assert routes == {page.route for page in PAGES} | AFTER_A_CHANGE | set(DATA)


@pytest.mark.parametrize("shown_page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_is_there(browser: Browser, stand: Stand, shown_page: ShownPage) -> None:
    with visit(browser, stand.address, stand.cookies("operator")) as (page, watch):
        answer = page.goto(shown_page.address(stand.seeded))
        assert answer is not None
        assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
        expect(page.locator("h1")).to_have_count(1)
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
        assert "PinLater" in page.title()
        main = page.locator("main")
        for text in (*shown_page.texts, *map(shown, shown_page.fields)):
            expect(main).to_contain_text(text)
        expect(page.locator("main .failed")).to_have_count(0)
        watch.check()


def test_pages_are_whole_without_their_scripts(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator"), script=False) as (page, _):
        for shown_page in PAGES:
            page.goto(shown_page.address(sqlite_stand.seeded))
            for text in (*shown_page.texts, *map(shown, shown_page.fields)):
                expect(page.locator("main")).to_contain_text(text)


def test_links_between_pages_lead_somewhere(browser: Browser, sqlite_stand: Stand) -> None:
    """Each address of this site that a page links to, once."""
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator"), script=False) as (page, _):
        known = {each.address(sqlite_stand.seeded) for each in PAGES}
        found = set[str]()
        for address in sorted(known):
            page.goto(address)
            found |= set(_links(page))
        for address in sorted(found - known)[:MOST_LINKS]:
            answer = page.request.get(address)
            assert answer.ok, f"{address}: {answer.status}"


def _links(page: Page) -> list[str]:
    links = page.locator("a[href^='/']").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    return [each.partition("#")[0] for each in links]
