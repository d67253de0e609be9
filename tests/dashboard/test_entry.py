"""Ways into the dashboard: one-time links, logins, and what stays shut."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

import httpx
import pytest

from pinlater.dashboard.links import MAX_LINKS, VALID_S, OneTimeLinks
from pinlater.http.sessions import Credential
from pinlater.redaction import redact
from tests.dashboard.conftest import Place
from tests.dashboard.visitor import OF_A_BROWSER, Visitor, csrf_of, text_of
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.terminal import Terminal


def test_a_link_opens_the_dashboard_once(place: Place) -> None:
    first, second = Visitor(place.address), Visitor(place.address)
    link = first.link(password=place.password)
    opened = first.get(link)
    assert opened.headers["Referrer-Policy"] == "no-referrer"
    assert opened.headers["Cache-Control"] == "no-store"
    assert 'content="0;url=/dashboard"' in opened.text
    said = opened.headers["Set-Cookie"]
    assert "HttpOnly" in said
    assert "SameSite=Strict" in said
    assert link.rpartition("/")[2] not in said
    assert "anna@laptop" in first.text("/dashboard")
    again = second.get(link, status=410)
    assert "Set-Cookie" not in again.headers
    assert "pinlater dashboard" in again.text
    second.get("/dashboard", status=303)


def test_a_browser_that_only_looks_ahead_does_not_use_a_link_up(place: Place) -> None:
    visitor = Visitor(place.address)
    link = visitor.link(password=place.password)
    visitor.get(link, status=503, Sec_Purpose="prefetch;prerender")
    assert visitor.client.head(link).status_code == 503
    visitor.get(link)
    visitor.get("/dashboard")


def test_links_end_by_age_and_by_number() -> None:
    now = [0.0]
    links = OneTimeLinks(lambda: now[0])
    mine = Credential(None, "open sesame", "admin")
    secret = links.make(mine)
    assert len(secret) >= 43
    now[0] = VALID_S - 1
    assert links.use(secret) is mine
    assert links.use(secret) is None
    secret = links.make(mine)
    now[0] += VALID_S
    assert links.use(secret) is None
    first = links.make(mine)
    others = [links.make(mine) for _ in range(MAX_LINKS)]
    assert links.use(first) is None
    assert links.use(others[0]) is mine
    assert links.use("") is None
    assert mine.password not in repr(mine)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"X-Admin-Password": "open sesame"}, 403),
        ({"X-Admin-Password": "\u00fc\u4e2d".encode()}, 403),
        ({"Authorization": "Bearer plt_" + "z" * 43}, 403),
    ],
)
def test_nobody_gets_a_link_for_nothing(place: Place, headers: dict[str, str | bytes], status: int) -> None:
    response = httpx.post(f"{place.address}/dashboard/links", headers=headers, trust_env=False, timeout=60)
    assert response.status_code == status
    assert "path" not in response.json()


def test_no_page_of_another_site_gets_a_link(place: Place) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, OF_A_BROWSER):
        shown = {"X-Admin-Password": place.password, **headers}
        response = httpx.post(f"{place.address}/dashboard/links", headers=shown, trust_env=False, timeout=60)
        assert response.status_code == 403
        assert response.json()["reason"] == "FORBIDDEN"


def test_the_dashboard_answers_under_its_own_names_alone(place: Place, visitor: Visitor) -> None:
    for path in ("/dashboard", "/dashboard/queues"):
        assert visitor.client.get(path, headers={"Host": "evil.example"}).status_code == 421


def test_without_a_session_browsers_go_to_the_login_and_come_back(place: Place) -> None:
    visitor = Visitor(place.address)
    away = visitor.get("/dashboard/queues?show=failed", status=303).headers["Location"]
    assert away == "/login?next=/dashboard/queues%3Fshow%3Dfailed"
    login = visitor.get(away)
    assert "pinlater dashboard" in login.text
    form = {"csrf": csrf_of(login.text), "token": "not it", "next": "/dashboard/queues?show=failed"}
    wrong = visitor.send("/login", form)
    assert wrong.status_code == 403
    assert "The admin password is wrong" in wrong.text
    right = visitor.send("/login", {**form, "token": place.password})
    assert (right.status_code, right.headers["Location"]) == (303, "/dashboard/queues?show=failed")
    assert "admin" in visitor.text("/dashboard")
    out = visitor.send("/logout", {"csrf": csrf_of(visitor.get("/dashboard").text)})
    assert out.status_code == 303
    visitor.get("/dashboard", status=303)


def test_a_script_of_an_open_page_is_told_that_the_session_has_ended(place: Place) -> None:
    response = Visitor(place.address).get("/dashboard", status=401, X_Live="1")
    assert response.text == ""


def test_a_token_that_is_revoked_opens_nothing_any_more(ruled: Place) -> None:
    token = f"plt_{'r' * 43}"
    hashed = hashlib.sha256(token.encode()).hexdigest()
    ruled.client.update_token("revoked", hashed, ["operator"])
    visitor = Visitor(ruled.address).open(token=token)
    assert "token:revoked" in visitor.text("/dashboard")
    ruled.client.delete_token("revoked")
    deadline = time.monotonic() + 60
    while visitor.client.get("/dashboard").status_code != 303:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_where_rules_count_the_admin_password_opens_nothing(ruled: Place) -> None:
    shown = {"X-Admin-Password": ruled.password}
    response = httpx.post(f"{ruled.address}/dashboard/links", headers=shown, trust_env=False, timeout=60)
    assert response.status_code == 401
    assert "log in with a token" in response.json()["detail"]


def test_whom_a_rule_lets_look_needs_no_login(ruled: Place) -> None:
    visitor = Visitor(ruled.address)
    page = visitor.get("/dashboard")
    assert "anonymous" in text_of(page.text)
    assert "read-only" in text_of(page.text)
    assert visitor.actions("/dashboard/queues/mail") == set()
    sent = visitor.send("/dashboard/queues/mail/pause", {"csrf": csrf_of(page.text)})
    assert sent.status_code == 403


def test_browsers_find_the_dashboard_at_the_start_and_programs_what_was_there(place: Place, visitor: Visitor) -> None:
    assert visitor.get("/", status=303).headers["Location"] == "/dashboard"
    start = httpx.get(f"{place.address}/", trust_env=False, timeout=60)
    assert start.status_code == 200
    assert 'href="/dashboard"' in start.text
    assert 'href="/docs/api"' in start.text
    assert visitor.get("/docs", status=302).headers["Location"] == "/docs/api"  # where it was before


def test_the_command_prints_a_link_that_opens_the_dashboard(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0") as server:
        server.wait_for("ready")
        address = str(server.wait_for("api_ready")["address"])
        said = server.wait_for("api_ready")
        assert said["dashboard"] == f"{address}dashboard"
        shell = Shell(tmp_path, f"127.0.0.1:{server.port}")
        link = shell("dashboard", "--print").out.strip()
        assert link.startswith(f"{address}dashboard/open/")
        visitor = Visitor(address)
        visitor.get(link)
        assert "admin" in visitor.text("/dashboard") or "@" in visitor.text("/dashboard")
        assert shell("dashboard").out.startswith(f"{address}dashboard/open/")
        wrong = shell("dashboard", "--print", code=1, PINLATER_ADMIN_PASSWORD="wrong")
        assert "the admin password is wrong" in wrong.err
        assert server.stop() == 0
        log = "\n".join(str(event) for event in server.events)
        assert link.rpartition("/")[2] not in log
        nobody = shell("dashboard", "--print", code=3)
        assert "no HTTP interface answers" in nobody.err
        assert "--url" in shell("dashboard", "--url", "queues.example", code=2).err


def test_a_server_on_a_terminal_prints_a_link(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "", "serve", "--port", "0", "--http", "none", "--api", "127.0.0.1:0")
    terminal.until("supervisor")
    terminal.until("dashboard/open/")
    terminal.until("\n")
    terminal.type("\x03")
    assert terminal.ended() == 0
    (link,) = re.findall(r"http://127\.0\.0\.1:\d+/dashboard/open/[A-Za-z0-9_-]{43}", terminal.shown)
    written = (tmp_path / "pinlater-data" / "server-api-address").read_text().strip()
    assert link.startswith(f"{written}/dashboard/open/")


@pytest.mark.slow
def test_a_browser_gets_the_link_from_a_file_that_its_user_alone_can_read(tmp_path: Path, place: Place) -> None:
    told, browser = tmp_path / "told", tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\necho "$1" > {told}\nstat -c %a "${{1#file://}}" >> {told}\ncat "${{1#file://}}" >> {told}\n'
    )
    browser.chmod(0o700)
    shell = Shell(tmp_path, "")
    variables = {"PINLATER_ADMIN_PASSWORD": place.password, "DISPLAY": ":99", "BROWSER": f"{browser} %s"}
    shown = shell("dashboard", "--url", place.address, XDG_RUNTIME_DIR=str(tmp_path), **variables)
    assert "open in a browser" in shown.err
    assert "dashboard/open" not in shown.out + shown.err
    address, mode, *page = told.read_text().splitlines()
    assert "dashboard/open" not in address
    assert mode == "600"
    (link,) = re.findall(r"url=http://[^/]+(/dashboard/open/[A-Za-z0-9_-]{43})", "\n".join(page))
    assert not Path(address.removeprefix("file://")).exists()
    visitor = Visitor(place.address)
    visitor.get(link)
    assert "@" in visitor.text("/dashboard")


def test_a_link_in_a_text_is_masked() -> None:
    assert (
        redact("GET http://q1:9012/dashboard/open/aB-_9 HTTP/1.1") == "GET http://q1:9012/dashboard/open/*** HTTP/1.1"
    )
