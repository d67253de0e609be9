"""Two operators at once: each sees what the other does, and where both change one thing, the second is told."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.actions import ACTIONS
from tests.browser.chromium import visit
from tests.browser.stand import Stand
from tests.browser.test_actions import begin, send

_BY_NAME = {action.name: action for action in ACTIONS}


def test_one_pauses_and_the_other_sees_it(browser: Browser, stand: Stand) -> None:
    pause = _BY_NAME["pause"]
    with (
        stand.client() as client,
        visit(browser, stand.address, stand.cookies("admin")) as (one, watch),
        visit(browser, stand.address, stand.cookies("operator")) as (other, other_watch),
    ):
        made = pause.prepare(client)
        other.goto(pause.path.format(**made))
        expect(other.locator("#pause")).to_be_visible()
        begin(one, pause, made)
        send(one, pause, made)
        expect(other.locator("main")).to_contain_text("paused")
        expect(other.locator("main")).to_contain_text("token:admin")
        expect(other.locator("#resume")).to_be_visible()
        expect(other.locator("#pause")).to_have_count(0)
        watch.check()
        other_watch.check()


def test_what_both_do_is_told_to_the_second(browser: Browser, sqlite_stand: Stand) -> None:
    """Both have the question open; the first deletes the queue, and the second would pause it. Its page stands still:
    one that looks again says by itself that the queue is gone, and asks no more.
    """
    stand = sqlite_stand
    pause, delete = _BY_NAME["pause"], _BY_NAME["delete a queue"]
    with (
        stand.client() as client,
        visit(browser, stand.address, stand.cookies("admin")) as (one, _),
        visit(browser, stand.address, stand.cookies("operator")) as (other, watch),
    ):
        watch.allowed.append("404")
        made = pause.prepare(client)
        begin(other, pause, made)
        other.locator("[data-pause]").click()
        expect(other.locator("[data-pause]")).to_have_attribute("aria-pressed", "true")
        begin(one, delete, made)
        send(one, delete, made)
        expect(one.locator("#notices")).to_contain_text(f"Queue {made['queue']} was deleted")
        send(other, pause, made)
        expect(other.locator("body")).to_contain_text(f"queue '{made['queue']}' does not exist")
        watch.check()


def test_a_question_that_is_open_stays_as_it_was_asked(browser: Browser, sqlite_stand: Stand) -> None:
    """The page below it goes on; sending it does what it said."""
    stand = sqlite_stand
    pause, rate = _BY_NAME["pause"], _BY_NAME["rate"]
    with (
        stand.client() as client,
        visit(browser, stand.address, stand.cookies("operator")) as (page, watch),
    ):
        made = pause.prepare(client)
        begin(page, rate, made)
        client.update_queue(made["queue"], "", set={"paused": "true", "max_jobs_per_second": "5/s"})
        expect(page.locator("main .head")).to_contain_text("paused")
        expect(page.locator("#setting-max_jobs_per_second .value")).to_contain_text("5/s")
        send(page, rate, made)
        expect(page.locator("#notices")).to_contain_text(rate.tells.format(**made))
        expect(page.locator("#setting-max_jobs_per_second .value")).to_contain_text("30/m")
        watch.check()
