"""Servers that go and come back under open pages: a banner says so, what was typed stays, and all goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from pinlater import Client
from pinlater.data_folder.password import hash_password
from tests.browser.chromium import visit
from tests.browser.stand import PASSWORD, log_in
from tests.server.running import PROGRAM, RunningServer, running
from tests.stores.process import dies_with_us, free_port, until_it_listens

AWAY = ("ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "401", "502", "503", "504")


@contextmanager
def started(folder: Path, port: int, api: str, password: str = PASSWORD) -> Iterator[RunningServer]:
    """A server whose ports and data stay the same from start to start."""
    options = ["--api", api, "--processes", "1", "--admin-password-hash", hash_password(password)]
    with running(folder, *options, port=port) as server:
        server.wait_for("ready")
        yield server


@contextmanager
def gateway(server: int) -> Iterator[str]:
    """`pinlater api` alone; where it listens."""
    address = f"127.0.0.1:{free_port()}"
    command = [*dies_with_us(), PROGRAM, "api", "--server", f"127.0.0.1:{server}", "--listen", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until_it_listens(int(address.rpartition(":")[2]), process)
            yield f"http://{address}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def type_a_reason(page: Page) -> None:
    page.locator("main details.action", has_text="Pause").first.locator("summary").click()
    page.locator("main details[open]").get_by_role("textbox").first.fill("while the disk is full")


def has_kept_it(page: Page) -> None:
    expect(page.locator("main details[open]").get_by_role("textbox").first).to_have_value("while the disk is full")


def test_the_whole_server_is_away_and_back(browser: Browser, tmp_path: Path) -> None:
    """Its HTTP process too. The session stays as long as its password is right."""
    port, api = free_port(), f"127.0.0.1:{free_port()}"
    site = f"http://{api}"
    with started(tmp_path, port, api) as server:
        with Client(f"127.0.0.1:{port}") as client:
            client.create_queue("mail")
        state = log_in(site, PASSWORD)
        with visit(browser, site, state) as (page, watch):
            watch.allowed += AWAY
            page.goto("/dashboard/queues/mail")
            type_a_reason(page)
            server.stop()
            banner = page.get_by_role("alert")
            expect(banner).to_contain_text("No answer from the server since")
            expect(banner).to_contain_text("tries again")
            has_kept_it(page)
            with started(tmp_path, port, api) as server:
                expect(banner).to_be_hidden()
                has_kept_it(page)
                server.stop()
                expect(banner).to_contain_text("No answer from the server since")
            with started(tmp_path, port, api, "another password"):
                expect(banner).to_contain_text("Your session has ended")
                has_kept_it(page)
                with page.context.expect_page() as opened:
                    banner.get_by_role("link", name="Log in").click(modifiers=["Control"])
                other = opened.value
                other.get_by_label("Token, or admin password").fill("another password")
                other.keyboard.press("Enter")
                expect(other).to_have_url(f"{site}/dashboard/queues/mail")
                watch.check()


def test_a_page_that_is_opened_when_another_http_process_finds_no_server_says_so(
    browser: Browser, tmp_path: Path
) -> None:
    """And is shown as soon as one has said that its session is right."""
    api = f"127.0.0.1:{free_port()}"
    with started(tmp_path, free_port(), api) as server:
        site = f"http://{api}"
        with visit(browser, site, log_in(site, PASSWORD)) as (page, watch):
            watch.allowed += AWAY
            (worker,) = server.wait_for("ready")["workers"]
            os.kill(worker, signal.SIGSTOP)
            try:
                os.kill(server.wait_for("api_ready")["api"], signal.SIGKILL)
                server.wait_for("api_replaced")
                page.goto("/dashboard/queues")
                expect(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Queues")).to_be_visible()
                expect(page.locator("main")).to_contain_text("No server answers")
            finally:
                os.kill(worker, signal.SIGCONT)
            expect(page.get_by_role("heading", name="Queues", exact=True)).to_be_visible()
            watch.check()


def test_the_servers_are_away_and_back_behind_a_gateway(browser: Browser, tmp_path: Path) -> None:
    """The session stays, and so does what was typed and what was shown."""
    port = free_port()
    with started(tmp_path, port, "none") as server:
        with Client(f"127.0.0.1:{port}") as client:
            client.create_queue("mail")
        with gateway(port) as site, visit(browser, site, log_in(site, PASSWORD)) as (page, watch):
            watch.allowed += AWAY
            page.goto("/dashboard/queues/mail")
            type_a_reason(page)
            server.stop()
            expect(page.get_by_role("alert")).to_contain_text("No server answers since")
            expect(page.locator("#settings")).to_be_visible()
            expect(page.locator("main .failed")).to_have_count(0)
            has_kept_it(page)
            with started(tmp_path, port, "none"):
                expect(page.get_by_role("alert")).to_be_hidden()
                has_kept_it(page)
                page.locator("main details[open]").get_by_role("button", name="Pause").click()
                expect(page.locator("#notices")).to_contain_text("mail")
                expect(page.locator("main")).to_contain_text("while the disk is full")
                watch.check()


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/queues", "/dashboard/cluster"])
def test_a_page_that_is_opened_while_no_server_answers_says_so(browser: Browser, tmp_path: Path, path: str) -> None:
    port = free_port()
    with started(tmp_path, port, "none") as server, gateway(port) as site:
        state = log_in(site, PASSWORD)
        with visit(browser, site, state) as (page, watch):
            watch.allowed += AWAY
            page.goto("/dashboard")
            server.stop()
            page.goto(path)
            expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
            expect(page.locator("body")).to_contain_text("No server answers")
            watch.check()
