"""The form of a schedule: what it would do is shown before it is saved, and what others change meanwhile is told."""

from __future__ import annotations

from itertools import count

from playwright.sync_api import Browser, Page, expect

from pinlater.model import ScheduleChange
from tests.browser.chromium import visit
from tests.browser.hostile import planted
from tests.browser.stand import Stand

_numbers = count()


def check_and_save(page: Page, button: str) -> None:
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#checked li").first).to_be_visible()
    page.get_by_role("button", name=button).click()


def test_a_schedule_is_made_and_edited(browser: Browser, stand: Stand) -> None:
    name = f"made.{next(_numbers)}"
    with stand.client() as client, visit(browser, stand.address, stand.cookies("operator")) as (page, watch):
        page.goto("/dashboard/schedules/@new")
        page.get_by_label("Name").fill(name)
        page.get_by_role("textbox", name="Cron expression").fill("30 3 * * 1-5")
        page.get_by_label("Time zone").fill("Europe/Zurich")
        page.get_by_label("Queue", exact=True).fill("reports")
        page.get_by_label("Body").fill(planted("form"))
        check_and_save(page, "Make the schedule")
        expect(page.locator("#notices")).to_contain_text(f"Schedule {name} is saved")
        (view,) = client.get_schedules([name], include_body=True).schedules
        assert (view.schedule.cron, view.schedule.timezone) == ("30 3 * * 1-5", "Europe/Zurich")
        assert view.schedule.body == planted("form").encode()
        page.get_by_role("link", name="Edit").click()
        page.get_by_label("every so often").check()
        page.get_by_role("textbox", name="Every").fill("10m")
        check_and_save(page, "Save the change")
        expect(page.locator("#notices")).to_contain_text(f"Schedule {name} is saved")
        (view,) = client.get_schedules([name]).schedules
        assert (view.schedule.cron, view.schedule.every_ms) == ("", 600_000)
        client.delete_schedule(name, "")
        watch.check()


def test_a_change_of_somebody_else_is_told_before_anything_is_saved(browser: Browser, sqlite_stand: Stand) -> None:
    name = f"both.{next(_numbers)}"
    with (
        sqlite_stand.client() as client,
        visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, watch),
    ):
        client.update_schedule(ScheduleChange(name=name, queue="reports", cron="0 3 * * *", body=b"x"), "")
        page.goto(f"/dashboard/schedules/{name}/edit")
        page.get_by_role("textbox", name="Cron expression").fill("0 4 * * *")
        page.get_by_role("button", name="Check").click()
        expect(page.get_by_role("button", name="Save the change")).to_be_visible()
        client.update_schedule(ScheduleChange(name=name, cron="0 5 * * *"), "")
        page.get_by_role("button", name="Save the change").click()
        expect(page.get_by_role("alert").filter(has_text="has changed")).to_contain_text("Nothing was saved")
        (view,) = client.get_schedules([name]).schedules
        assert view.schedule.cron == "0 5 * * *"
        client.delete_schedule(name, "")
        watch.check()


def test_what_cannot_be_is_told(browser: Browser, sqlite_stand: Stand) -> None:
    with visit(browser, sqlite_stand.address, sqlite_stand.cookies("operator")) as (page, watch):
        page.goto("/dashboard/schedules/@new")
        page.get_by_label("Name").fill("wrong")
        page.get_by_role("textbox", name="Cron expression").fill("every night")
        page.get_by_label("Queue", exact=True).fill("reports")
        page.get_by_role("button", name="Check").click()
        expect(page.locator("#checked [role=alert]")).to_contain_text("cannot be saved")
        expect(page.get_by_role("textbox", name="Cron expression")).to_have_value("every night")
        watch.check()
