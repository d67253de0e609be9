"""Open pages: they show what happens without a reload, and leave alone what their reader does."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from pinlater.durations import ago_text, span_text
from pinlater.model import Job
from tests.browser.chromium import ZONE, visit
from tests.browser.stand import Stand

MINUTE_MS = 60_000
NOW = datetime(2026, 11, 27, tzinfo=UTC)
_MARK = "document.querySelector('main').dataset.opened = 'once'; window.opened = true"
_FAIL_ONCE = """(() => {
  const morph = Idiomorph.morph;
  window.failed = 0;
  Idiomorph.morph = (...given) => {
    if (given[1].includes("/dashboard/queues/shown") && !window.failed) {
      window.failed = 1;
      throw new Error("planted");
    }
    return morph(...given);
  };
})()"""
_ADD_TIMES = """([now, ...ids]) => ids.forEach(id => {
  const time = document.createElement("time"), [kind, ms] = id.split(" ");
  time.id = id;
  time.dataset.ms = now - Number(ms);
  if (kind === "span") time.dataset.span = "";
  document.body.append(time);
})"""


def is_the_same(page: Page) -> bool:
    """It was not loaded again."""
    return bool(page.evaluate("window.opened === true"))


def test_what_happens_is_shown_without_a_reload(browser: Browser, stand: Stand) -> None:
    with stand.client() as client, visit(browser, stand.address, stand.cookies("viewer")) as (page, watch):
        page.goto("/dashboard/queues?name=live")
        page.evaluate(_MARK)
        client.create_queue("live")
        client.enqueue("live", [Job(b"x")] * 1_234)
        row = page.locator("main tr", has=page.get_by_role("link", name="live", exact=True))
        expect(row).to_contain_text("1,234")
        client.update_queue("live", stand.password, set={"paused": "true", "paused_why": "lunch"})
        expect(row).to_contain_text("paused")
        client.delete_queue("live", stand.password)
        expect(row).to_have_count(0)
        assert is_the_same(page)
        watch.check()


def test_what_could_not_be_shown_is_fetched_again(browser: Browser, sqlite_stand: Stand) -> None:
    with (
        sqlite_stand.client() as client,
        visit(browser, sqlite_stand.address, sqlite_stand.cookies("viewer")) as (page, watch),
    ):
        page.goto("/dashboard/queues?name=shown")
        page.evaluate(_FAIL_ONCE)
        client.create_queue("shown")
        expect(page.locator("main").get_by_role("link", name="shown", exact=True)).to_be_visible()
        assert page.evaluate("window.failed === 1")
        client.delete_queue("shown", sqlite_stand.password)
        watch.check()


def test_focus_selection_and_what_is_open_stay(browser: Browser, sqlite_stand: Stand) -> None:
    with (
        sqlite_stand.client() as client,
        visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, watch),
    ):
        page.goto("/dashboard/queues/images")
        page.evaluate(_MARK)
        details = page.locator("main details.action", has_text="Pause").first
        details.locator("summary").click()
        field = details.get_by_role("textbox").first
        field.fill("while I think")
        field.press("Home")
        page.evaluate("scrollTo(0, 40)")
        before = page.locator("main").inner_text()
        client.enqueue("images", [Job(b"new")] * 777)
        expect(page.locator("main")).to_contain_text("777")
        assert page.locator("main").inner_text() != before
        expect(field).to_be_focused()
        expect(field).to_have_value("while I think")
        assert field.evaluate("each => each.selectionStart") == 0
        expect(details).to_have_attribute("open", "")
        assert page.evaluate("scrollY") == 40
        assert is_the_same(page)
        watch.check()


def test_the_focus_on_a_link_stays(browser: Browser, sqlite_stand: Stand) -> None:
    with (
        sqlite_stand.client() as client,
        visit(browser, sqlite_stand.address, sqlite_stand.cookies("viewer")) as (page, _),
    ):
        page.goto("/dashboard/queues")
        link = page.get_by_role("link", name="reports", exact=True)
        link.focus()
        client.create_queue("another")
        expect(page.get_by_role("link", name="another", exact=True)).to_be_visible()
        expect(link).to_be_focused()
        client.delete_queue("another", sqlite_stand.password)


def test_times_pass_and_their_moment_is_in_the_zone_of_the_reader(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        page.goto("/dashboard/audit")
        moment = page.locator("main time").first
        text = moment.inner_text()
        expect(moment).not_to_have_text(text)
        expect(moment).to_have_attribute("title", re.compile(r"GMT\+5:30|IST"))


@pytest.mark.parametrize("ahead_s", [-180, 3_600])
def test_ages_go_by_the_clock_of_the_servers(browser: Browser, sqlite_stand: Stand, ahead_s: int) -> None:
    """Whatever the viewer's clock says."""
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, _):
        page.clock.set_fixed_time(datetime.fromtimestamp(time.time() + ahead_s, UTC))
        page.goto("/dashboard/cluster")
        age = page.locator("main time[data-span]").first
        lasted_s = time.time() - int(age.get_attribute("data-ms") or 0) / 1000
        expect(age).to_have_text(
            re.compile("|".join(re.escape(span_text((lasted_s + each) * 1000)) for each in range(8)))
        )
        assert abs(page.evaluate("Times.now()") / 1000 - time.time()) < 8


def test_times_are_shown_as_chosen_and_the_choice_is_remembered(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, watch):
        page.goto("/dashboard/audit")
        moment = page.locator("main time").first
        expect(moment).to_have_text(re.compile(" ago$"))
        at = datetime.fromtimestamp(int(moment.get_attribute("data-ms") or 0) / 1000, UTC)
        page.get_by_label("How times are shown").select_option("UTC")
        expect(moment).to_have_text(f"{at:%Y-%m-%d %H:%M:%S}")
        page.goto("/dashboard")
        expect(page.locator(".values th[data-zone]").first).to_have_text("Time (UTC)")
        page.get_by_label("How times are shown").select_option("local time")
        page.goto("/dashboard/audit")
        here = at.astimezone(ZoneInfo(ZONE))
        expect(page.locator(f"main time[data-ms='{moment.get_attribute('data-ms')}']").first).to_contain_text(
            f"{here:%H:%M:%S}"
        )
        watch.check()


def test_a_page_that_is_paused_asks_for_nothing(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("viewer")) as (page, _):
        page.clock.install()
        page.goto("/dashboard/queues")
        with page.expect_response(_is_live):
            page.clock.run_for(MINUTE_MS)
        page.keyboard.press("p")
        expect(page.get_by_role("button", name="Pause this page")).to_have_attribute("aria-pressed", "true")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(MINUTE_MS)
        assert asked == []
        with page.expect_response(_is_live):
            page.keyboard.press("p")


def test_a_page_that_nobody_sees_asks_for_nothing(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("viewer")) as (page, _):
        page.clock.install()
        page.goto("/dashboard/queues")
        with page.expect_response(_is_live):
            page.clock.run_for(MINUTE_MS)
        _hide(page, True)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(MINUTE_MS)
        assert asked == []
        with page.expect_response(_is_live):
            _hide(page, False)


def _is_live(response: Response) -> bool:
    return "x-live" in response.request.headers


def _hide(page: Page, hidden: bool) -> None:
    """As when another tab is in front: no headless browser has one."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def test_times_pass_in_the_words_in_which_the_server_writes_them(browser: Browser, sqlite_stand: Stand) -> None:
    lengths_ms = [0, 1, 999, 1000, 1999, 59_999, 60_000, 61_000, 3_599_999, 3_600_000, 3_660_000, 7_320_999]
    lengths_ms += [86_399_999, 86_400_000, 89_999_000, 200_000_000, 40 * 86_400_000]
    wanted = {
        **{f"span {ms}": span_text(ms) for ms in lengths_ms},
        **{f"ago {ms * sign}": ago_text(ms * sign) for ms in lengths_ms for sign in (1, -1)},
    }
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("viewer")) as (page, _):
        page.clock.set_fixed_time(NOW)
        page.goto("/dashboard/queues")
        page.get_by_role("button", name="Pause this page").click()
        page.evaluate(_ADD_TIMES, [page.evaluate("Times.now()"), *wanted])
        expect(page.locator("time[id]").last).not_to_be_empty()
        found = (
            "Object.fromEntries([...document.querySelectorAll('time[id]')].map(each => [each.id, each.textContent]))"
        )
        assert page.evaluate(found) == wanted
