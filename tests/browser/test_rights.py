"""Who sees which pages and buttons: readers, operators, those of one queue, and those who have shown nothing."""

from __future__ import annotations

import httpx
from playwright.sync_api import Browser, expect

from tests.browser.chromium import visit
from tests.browser.hostile import shown
from tests.browser.pages import PAGES
from tests.browser.stand import Stand


def test_a_reader_sees_no_button_that_changes_something(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("viewer")) as (page, watch):
        watch.allowed.append("403")
        for shown_page in PAGES:
            answer = page.goto(shown_page.address(sqlite_stand.seeded))
            assert answer is not None
            # a saved filter stays in the browser
            expect(page.locator("main form[method=post], main details.action:not(#save-filter)")).to_have_count(0)
            if shown_page.changes:
                assert answer.status == 403 or "may not change" in page.locator("main").inner_text()
            else:
                assert answer.status == 200, shown_page.name
                expect(page.get_by_text("read-only")).to_be_visible()
        watch.check()


def test_nobody_sees_anything_without_a_login(browser: Browser, sqlite_stand: Stand) -> None:
    with httpx.Client(base_url=sqlite_stand.address, timeout=60, trust_env=False) as http:
        for shown_page in PAGES:
            answer = http.get(shown_page.address(sqlite_stand.seeded))
            assert answer.status_code == 303
            assert answer.headers["Location"].startswith("/login?next=/dashboard")
            assert answer.text == ""
    address = "/dashboard/jobs?filter=queue:mail%20state:failed"
    with visit(browser, sqlite_stand.address) as (page, _):
        page.goto(address)
        page.get_by_label("Token, or admin password").fill(sqlite_stand.tokens["operator"])
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{sqlite_stand.address}{address}")  # where it was to go


def test_who_may_operate_one_queue_sees_that_one_alone(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("of-mail")) as (page, watch):
        page.goto("/dashboard/queues/mail")
        expect(page.locator("main details.action:not(#save-filter)").first).to_be_visible()
        answer = page.goto("/dashboard/queues/images")
        assert answer is not None
        assert answer.status == 403
        assert "images" not in page.locator("main").inner_text().replace("images", "", 1)
        watch.allowed.append("403")


def test_bodies_are_hidden_from_those_who_may_only_look(browser: Browser, sqlite_stand: Stand) -> None:
    job = sqlite_stand.seeded.jobs["markup"]
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        page.goto(f"/dashboard/jobs/{job}")
        expect(page.locator("main")).to_contain_text(shown("body"))
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("viewer")) as (page, _):
        page.goto(f"/dashboard/jobs/{job}")
        expect(page.locator("main")).to_contain_text(job)
        expect(page.locator("main")).not_to_contain_text(shown("body"))


def test_a_token_that_is_revoked_ends_what_an_open_page_shows(browser: Browser, sqlite_stand: Stand) -> None:
    with sqlite_stand.client() as client:
        token = sqlite_stand.make_token(client, "leaving", "viewer")
        with visit(browser, sqlite_stand.address, sqlite_stand.log_in(token)) as (page, watch):
            watch.allowed.append("401")
            page.goto("/dashboard/queues")
            expect(page.get_by_role("link", name="mail", exact=True)).to_be_visible()
            client.delete_token("leaving", sqlite_stand.password)
            expect(page.get_by_role("alert")).to_contain_text("Your session has ended")
            page.goto("/dashboard/queues")
            assert "/login?next=" in page.url
            watch.check()
