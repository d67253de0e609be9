"""Changes to many jobs at once: the question with its number, the progress, the stop, and what the audit says."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from pinlater import JobFilter, JobState
from pinlater.model import JobAction
from pinlater.model.job_selection import FoundJobsChange, JobPhase, JobSelection
from tests.access.cluster import until
from tests.browser.chromium import visit
from tests.browser.hostile import planted, shown
from tests.browser.seed import failed_jobs
from tests.browser.stand import Stand


def ask(page: Page, filter_text: str, button: str) -> None:
    """For all that the filter finds, up to the question."""
    page.goto("/dashboard/jobs")
    page.locator("[data-filter]").fill(filter_text)
    page.locator("[data-filter]").press("Enter")
    page.get_by_label("With").select_option("all")
    page.get_by_role("button", name=button, exact=True).click()


def test_all_that_a_filter_finds_is_retried(browser: Browser, stand: Stand) -> None:
    with stand.client() as client, visit(browser, stand.address, stand.cookies("operator")) as (page, watch):
        queue = failed_jobs(client, 40)
        ask(page, f"queue:{queue} state:failed status:~timeout", "Retry")
        expect(page.locator("main")).to_contain_text("20 jobs")
        page.get_by_label("Why").fill(planted("note"))
        page.get_by_role("button", name="Retry all of them").click()
        expect(page.locator("main .head")).to_contain_text("done")
        expect(page.locator("main .figure", has_text="Retried")).to_contain_text("20")
        assert client.count(JobFilter(queue, JobState.PENDING)) == 20
        assert client.count(JobFilter(queue, JobState.FAILED)) == 20
        until(lambda: any(queue in entry.target and "timeout" in entry.detail for entry in client.audit(limit=20)))
        page.goto("/dashboard/audit")
        expect(page.locator("main")).to_contain_text(shown("note"))
        page.goto("/dashboard/runs")
        expect(page.locator("main")).to_contain_text(queue)
        watch.check()


def test_jobs_that_are_ticked_are_deleted_and_no_others(browser: Browser, sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    with stand.client() as client, visit(browser, stand.address, stand.cookies("operator")) as (page, watch):
        queue = failed_jobs(client, 5)
        page.goto(f"/dashboard/jobs?filter=queue:{queue}")
        boxes = page.locator("input[name=job]")
        boxes.nth(0).check()
        boxes.nth(3).check()
        chosen = {boxes.nth(at).get_attribute("value") or "" for at in (0, 3)}
        page.get_by_label("With").select_option("selected")
        page.get_by_role("button", name="Delete", exact=True).click()
        expect(page.locator("h1")).to_contain_text("Delete 2 selected jobs")
        page.get_by_role("button", name="Delete them").click()
        expect(page.locator("main .head")).to_contain_text("done")
        assert client.lookup(list(chosen)) == {}
        assert client.count(JobFilter(queue, JobState.FAILED)) == 3
        watch.check()


def test_a_run_that_is_stopped_leaves_the_rest(browser: Browser, sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    number = 20_000
    with stand.client() as client, visit(browser, stand.address, stand.cookies("operator")) as (page, watch):
        queue = failed_jobs(client, number)
        ask(page, f"queue:{queue} state:failed", "Delete")
        page.get_by_role("button", name="Delete all of them").click()
        page.locator("#stop summary").click()
        page.locator("#stop").get_by_role("button", name="Stop", exact=True).click()
        expect(page.locator("main .head")).to_contain_text("stopped")
        left = client.count(JobFilter(queue, JobState.FAILED))
        assert 0 < left < number
        expect(page.locator("main .figures")).to_contain_text(f"{number - left:,}")
        watch.check()


def test_a_run_of_somebody_else_is_not_shown(browser: Browser, sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    with stand.client() as client, visit(browser, stand.address, stand.cookies("operator")) as (page, _):
        queue = failed_jobs(client, 2)
        ask(page, f"queue:{queue}", "Retry")
        page.get_by_role("button", name="Retry all of them").click()
        expect(page.locator("main .head")).to_contain_text("done")
        address = page.url
    with visit(browser, stand.address, stand.cookies("viewer")) as (page, _):
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 404


def test_the_choice_of_all_jobs_stays_while_the_list_goes_on(browser: Browser, sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    with stand.client() as client, visit(browser, stand.address, stand.cookies("operator")) as (page, watch):
        queue = failed_jobs(client, 60)
        page.goto(f"/dashboard/jobs?filter=queue:{queue}")
        bar = page.locator(".doing")
        expect(bar.get_by_role("button")).to_have_text(["Retry", "Delete"])
        bar.get_by_label("With").select_option("all")
        expect(bar.get_by_role("button")).to_have_text(["Retry"])  # a deletion of all has to be told of which state
        while client.count(JobFilter(queue, JobState.FAILED)):  # a call on a busy machine may leave some
            client.change_found_jobs(FoundJobsChange(JobSelection(queue, [JobPhase.FAILED]), JobAction.RETRY))
        expect(page.locator("main tbody .state").first).to_have_text("ready")
        expect(bar.get_by_label("With")).to_have_value("all")
        expect(bar.get_by_role("button")).to_have_text(["Cancel"])
        page.mouse.wheel(0, 1_500)
        expect(bar).to_be_in_viewport()
        watch.check()


def test_a_browser_goes_back_from_a_run_to_its_question_and_the_list(browser: Browser, sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    with stand.client() as client, visit(browser, stand.address, stand.cookies("operator")) as (page, watch):
        queue = failed_jobs(client, 3)
        page.goto(f"/dashboard/jobs?filter=queue:{queue}")
        page.locator("input[name=job]").first.check()
        page.get_by_role("button", name="Retry", exact=True).click()
        page.get_by_role("button", name="Retry them").click()
        expect(page.locator("main .head")).to_contain_text("done")
        page.go_back()
        expect(page.locator("h1")).to_contain_text("Retry 1 selected job")
        page.go_back()
        expect(page.locator("h1")).to_have_text("Jobs")
        watch.check()
