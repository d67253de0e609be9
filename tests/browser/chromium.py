"""Debian's chromium, headless, driven by Playwright, and a watch over what its pages do.

Playwright brings no browser here: its driver speaks to the one that is installed. What a page loads comes from the
server under test alone, so the browser runs without its sandbox, which root and many containers cannot have.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    StorageState,
    expect,
    sync_playwright,
)

INSTALL = "chromium is not installed: apt-get install chromium (or leave it out: --without browser)"
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WITHIN_MS = 60_000
"""How long anything may take before a test fails; servers count what changed for a hundredth of the time at most."""

DESK, PHONE = (1280, 900), (360, 740)
ZONE = "Asia/Kolkata"
"""Where the operator sits: half an hour beside everybody else."""

_ON_VIOLATION = "addEventListener('securitypolicyviolation', e => planted(`${e.violatedDirective}: ${e.blockedURI}`))"


class BrowserMissing(Exception):
    """It is not installed; the message says what to install."""


@contextmanager
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        raise BrowserMissing(INSTALL)
    expect.set_options(timeout=WITHIN_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watch:
    """What the pages of one context did that no page may do. `site`: where alone they may load from."""

    site: str
    ran: list[str] = field(default_factory=list)
    """Planted scripts, dialogs, errors of scripts, and what the content security policy held back."""

    elsewhere: list[str] = field(default_factory=list)
    """Requests to other sites."""

    allowed: list[str] = field(default_factory=list)
    """Texts of console errors that the test provokes, as those of a server that is away."""

    def follow(self, context: BrowserContext) -> None:
        context.expose_function("planted", self._planted)
        context.add_init_script(_ON_VIOLATION)
        context.on("console", self._said)
        context.on("dialog", self._asked)
        context.on("weberror", lambda error: self.ran.append(f"error: {error.error}"))
        context.on("request", self._requested)

    def check(self) -> None:
        assert self.ran == [], f"pages did what they must not: {self.ran}"
        assert self.elsewhere == [], f"pages asked other sites: {self.elsewhere}"

    def _planted(self, text: str) -> None:
        self.ran.append(text)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(text in message.text for text in self.allowed):
            self.ran.append(f"console: {message.text}")

    def _asked(self, dialog: Dialog) -> None:
        self.ran.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((f"{self.site}/", "data:", "blob:")):
            self.elsewhere.append(request.url)


@contextmanager
def visit(
    browser: Browser,
    site: str,
    state: StorageState | None = None,
    *,
    size: tuple[int, int] = DESK,
    dark: bool = False,
    script: bool = True,
) -> Iterator[tuple[Page, Watch]]:
    """A page of a context of its own, as a new browser would show it; `state`: cookies, as of a session that stands."""
    width, height = size
    context = browser.new_context(
        base_url=site,
        storage_state=state,
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id=ZONE,
        java_script_enabled=script,
    )
    context.set_default_timeout(WITHIN_MS)
    watch = Watch(site)
    watch.follow(context)
    try:
        yield context.new_page(), watch
    finally:
        context.close()
