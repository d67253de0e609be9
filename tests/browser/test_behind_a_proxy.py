"""The scripts of the pages below a path of a reverse proxy: they ask for nothing outside it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from pinlater import Client
from pinlater.cli.dashboard_link import Shown, make_link
from tests.browser.chromium import visit
from tests.dashboard.reverse_proxy import proxying
from tests.server.running import running

PREFIX = "/queue"


def test_scripts_find_what_they_ask_for_below_the_path(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0", "--api-prefix", PREFIX) as server:
        target = str(server.wait_for("api_ready")["address"]).removesuffix(f"{PREFIX}/")
        password = (tmp_path / "pinlater-data" / "admin-password").read_text().strip()
        with (
            Client(f"127.0.0.1:{server.port}") as client,
            proxying(target, PREFIX, strips=True) as proxy,
            visit(browser, proxy.address) as (page, watch),
        ):
            client.create_queue("mail")
            page.goto(make_link(proxy.address, Shown("", password, "anna@laptop")))
            page.wait_for_url(f"{proxy.address}/dashboard")
            (cookie,) = page.context.cookies()
            assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", PREFIX)

            page.keyboard.press("g")
            page.keyboard.press("q")
            page.wait_for_url(f"{proxy.address}/dashboard/queues")
            client.create_queue("made-meanwhile")
            expect(page.get_by_role("link", name="made-meanwhile")).to_be_visible()
            page.get_by_role("link", name="Jobs", exact=True).click()
            page.locator("[data-filter]").press_sequentially("queue:ma")
            expect(page.locator("#options").get_by_role("option").first).to_be_visible()

            page.goto(f"{proxy.address}/docs")
            expect(page.locator("#identity")).to_have_text("You are anonymous.")
            page.locator("#get_queue_names summary").click()
            page.locator("#get_queue_names").get_by_role("button", name="Send").click()
            expect(page.locator("#get_queue_names pre")).to_contain_text('"made-meanwhile"')
            assert proxy.outside == []
            watch.check()

            page.goto(f"{proxy.address}/dashboard/queues?name=mail")
            watch.allowed.append("401")
            page.context.clear_cookies()
            page.get_by_role("link", name="Log in").click()
            page.wait_for_url(f"{proxy.address}/login?*")
            page.get_by_label("Token").fill(password)
            page.keyboard.press("Enter")
            page.wait_for_url(f"{proxy.address}/dashboard/queues?name=mail")
            assert proxy.outside == []
            watch.check()
