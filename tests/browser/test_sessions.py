"""Sessions in a browser: how one begins, what its cookie may, and how it ends."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.chromium import visit
from tests.browser.stand import Stand


def test_a_token_logs_in_and_its_cookie_is_for_this_site_alone(browser: Browser, stand: Stand) -> None:
    with visit(browser, stand.address) as (page, _):
        page.goto("/login?next=/session")
        page.get_by_label("Token").fill(stand.tokens["operator"])
        page.keyboard.press("Enter")
        expect(page.get_by_text('"token:operator"')).to_be_visible()
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert page.evaluate("document.cookie") == ""
        assert stand.tokens["operator"] not in str(page.context.storage_state())
