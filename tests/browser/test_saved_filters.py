"""Filters that a browser keeps: saved under a name, led to, and forgotten."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.chromium import visit
from tests.browser.hostile import planted, shown
from tests.browser.stand import Stand


def test_a_filter_is_saved_led_to_and_forgotten(browser: Browser, sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    with visit(browser, stand.address, stand.cookies("operator")) as (page, watch):
        page.goto("/dashboard/jobs")
        expect(page.locator("[data-saved]")).to_be_hidden()
        page.goto('/dashboard/jobs?filter=state:failed status:"disk full"')
        page.locator("#save-filter summary").click()
        page.get_by_label("Name").fill(planted("saved"))
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.locator("#save-filter")).to_be_hidden()
        page.goto("/dashboard/jobs")
        link = page.locator("[data-saved] li a")
        expect(link).to_contain_text(shown("saved"))
        link.click()
        expect(page.locator("[data-filter]")).to_have_value('state:failed status:"disk full"')
        expect(link).to_have_attribute("aria-current", "true")
        page.locator("[data-saved] li button").click()
        expect(link).to_have_count(0)
        page.reload()
        expect(link).to_have_count(0)
        watch.check()
