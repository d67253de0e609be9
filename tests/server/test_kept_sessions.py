"""Sessions of browsers that outlive the HTTP process, in the data folder."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

import msgspec
import pytest

from pinlater.dashboard.page import LIVE_HEADER
from pinlater.data_folder.private_files import SESSION_KEY, SESSIONS_FOLDER
from pinlater.errors import PasswordInvalid, ServerUnreachable
from pinlater.http import credential_checks
from pinlater.http.sessions import (
    CLOCK_SLACK_S,
    IDLE_S,
    MAX_AGE_S,
    MAX_SESSIONS,
    MAX_STORED_CHARS,
    Credential,
    Sessions,
)
from pinlater.model import AccessView, RequestContext
from tests.dashboard.visitor import Visitor, csrf_of
from tests.server.commands import Shell
from tests.server.http_site import TOKEN, HttpAnswer, RunningSite, WatchedApi, http_site
from tests.server.running import RunningServer, running
from tests.server.test_http_browsers import FORM, begun, cookie_of, log_in

MINE = Credential(TOKEN, identity="token:web", source="anna@laptop")


class Machine:
    """A data folder, the clock of its machine, and processes that begin there."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.now_s = 1_700_000_000.0

    def process(self) -> Sessions:
        return Sessions(lambda: self.now_s, self.data)

    def files(self) -> list[Path]:
        return sorted((self.data / SESSIONS_FOLDER).iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_next_process_knows_a_session_and_has_it_checked(machine: Machine) -> None:
    cookie, before = machine.process().begin(MINE)
    assert before.is_checked
    found = machine.process().find(cookie)
    assert found is not None
    assert (found.credential, found.csrf, found.is_checked) == (MINE, before.csrf, False)


def test_it_ends_by_age_and_by_rest_over_any_number_of_processes(machine: Machine) -> None:
    cookie, _ = machine.process().begin(MINE)
    for _ in range(int(MAX_AGE_S / IDLE_S * 2) - 1):
        machine.now_s += IDLE_S / 2
        assert machine.process().find(cookie) is not None
    machine.now_s += IDLE_S / 2
    sessions = machine.process()
    assert (machine.files(), len(sessions.kept)) == ([], 0)
    assert sessions.find(cookie) is None
    resting, _ = sessions.begin(MINE)
    machine.now_s += IDLE_S
    assert sessions.find(resting) is None
    assert machine.files() == []


def test_what_has_ended_is_gone_from_the_disk_with_the_next_login(machine: Machine) -> None:
    sessions = machine.process()
    sessions.begin(MINE)
    machine.now_s += IDLE_S
    sessions.begin(MINE)
    assert len(machine.files()) == 1


def test_a_clock_that_was_set_back_makes_none_last_longer(machine: Machine) -> None:
    sessions = machine.process()
    cookie, _ = sessions.begin(MINE)
    machine.now_s -= CLOCK_SLACK_S
    assert sessions.find(cookie) is not None
    machine.now_s -= CLOCK_SLACK_S + 1
    assert machine.process().find(cookie) is None


def test_two_processes_of_a_roll_know_what_the_other_began_and_ended(machine: Machine) -> None:
    going, coming = machine.process(), machine.process()
    cookie, _ = going.begin(MINE)
    assert coming.find(cookie) is not None
    going.end(cookie)
    assert coming.find(cookie) is None
    unseen, _ = going.begin(MINE)
    coming.end(unseen)
    assert going.find(unseen) is None
    assert machine.files() == []


def test_the_folder_with_its_key_opens_no_session(machine: Machine) -> None:
    """Nor does another's cookie."""
    mine, _ = machine.process().begin(Credential(None, "open sesame", "admin", "anna@laptop"))
    (path,) = machine.files()
    key = machine.data / SESSION_KEY
    assert [each.stat().st_mode & 0o777 for each in (path, key, path.parent)] == [0o600, 0o600, 0o700]
    on_disk = path.read_bytes() + path.name.encode() + key.read_bytes()
    for secret in ("open sesame", "password", "anna", mine, mine[:16], mine[-16:]):
        assert secret.encode() not in on_disk
    identity, _, half = msgspec.msgpack.decode(path.read_bytes())
    assert identity == "admin"
    tries = [path.name, half.hex(), base64.urlsafe_b64encode(bytes(32) + half).decode()]
    assert all(machine.process().find(each) is None for each in tries)
    for at in range(len(mine) - 1):
        assert machine.process().find(mine[:at] + ("A" if mine[at] != "A" else "B") + mine[at + 1 :]) is None
    other, _ = machine.process().begin(MINE)
    (of_other,) = set(machine.files()) - {path}
    os.replace(path, of_other)
    assert machine.process().find(other) is None


def test_equal_credentials_look_unlike_and_of_one_length(machine: Machine) -> None:
    for password in ("open sesame", "open sesame", "xyzzy"):
        machine.process().begin(Credential(None, password, "admin"))
    halves = [msgspec.msgpack.decode(path.read_bytes())[2] for path in machine.files()]
    assert (len(set(halves)), len({len(half) for half in halves})) == (3, 1)


@pytest.mark.parametrize("harm", ["gone", "torn", "empty"])
def test_with_another_key_all_have_ended(machine: Machine, harm: str) -> None:
    cookie, _ = machine.process().begin(MINE)
    key = machine.data / SESSION_KEY
    before = key.read_bytes()
    if harm == "gone":
        key.unlink()
    else:
        key.write_bytes(before[:-1] if harm == "torn" else b"")
    sessions = machine.process()
    assert sessions.find(cookie) is None
    assert machine.files() == []
    assert len(key.read_bytes()) == len(before)
    assert key.read_bytes() != before
    again, _ = sessions.begin(MINE)
    assert machine.process().find(again) is not None


def test_a_file_that_is_torn_is_no_session_and_goes(machine: Machine) -> None:
    cookie, _ = machine.process().begin(MINE)
    (path,) = machine.files()
    whole = path.read_bytes()
    for torn in (b"", whole[:-9], whole[:-1] + bytes([whole[-1] ^ 0xFF])):
        path.write_bytes(torn)
        os.utime(path, (machine.now_s, machine.now_s))
        assert machine.process().find(cookie) is None
    unfinished = path.with_name(f".{path.name}.0123abcd")
    foreign = path.with_name("notes.txt")
    for each in (path, unfinished, foreign):
        each.write_bytes(whole if each == unfinished else b"")
        os.utime(each, (machine.now_s - CLOCK_SLACK_S, machine.now_s - CLOCK_SLACK_S))
    machine.process()
    assert machine.files() == [foreign]


def test_who_has_most_gives_way_over_processes_too(machine: Machine) -> None:
    cookie, _ = machine.process().begin(MINE)
    for _ in range(2):
        sessions = machine.process()
        for _ in range(MAX_SESSIONS // 2 + 1):
            sessions.begin(Credential("plt_other", identity="token:other"))
    assert len(machine.files()) == MAX_SESSIONS
    assert machine.process().find(cookie) is not None


@pytest.mark.parametrize("harm", ["no folder", "too long"])
def test_one_that_cannot_be_kept_ends_with_its_process(tmp_path: Path, harm: str) -> None:
    if harm == "no folder":
        (tmp_path / SESSIONS_FOLDER).write_text("")
    sessions = Sessions(data=tmp_path)
    cookie, session = sessions.begin(Credential(None, "x" * MAX_STORED_CHARS) if harm == "too long" else MINE)
    assert sessions.find(cookie) is session
    assert Sessions(data=tmp_path).find(cookie) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can stop being it, and may remove all")
def test_a_logout_counts_also_where_its_file_cannot_be_removed() -> None:
    with TemporaryDirectory() as made:
        machine = Machine(Path(made))
        sessions = machine.process()
        cookie, _ = sessions.begin(MINE)
        folder = machine.data / SESSIONS_FOLDER
        for each in (machine.data, folder, *folder.iterdir()):
            os.chown(each, 12_345, -1)
        folder.chmod(0o500)
        os.seteuid(12_345)
        try:
            sessions.end(cookie)
            assert len(machine.files()) == 1
            assert sessions.find(cookie) is None
        finally:
            os.seteuid(0)


# -- what they stand for is checked ------------------------------------------------------------------------------------


class LateApi(WatchedApi):
    """No server answers until it is there; `hangs`: nor does any say so."""

    def __init__(self, *, password: str = "open sesame", is_there: bool = True, hangs: bool = False) -> None:
        super().__init__()
        self.password, self.is_there, self.hangs = password, is_there, hangs

    async def get_access(self, *, context: RequestContext | None = None) -> AccessView:
        if self.hangs:
            await asyncio.Event().wait()
        if not self.is_there:
            raise ServerUnreachable("no server answers")
        return await super().get_access(context=context)

    async def delete_queue(self, name: str, password: str = "", **_: object) -> None:
        if password != self.password:
            raise PasswordInvalid("the password is wrong")


async def logged_in(site: RunningSite, shown: str) -> str:
    """The cookie."""
    return cookie_of(await log_in(site, shown, *await begun(site)))


async def page_of(site: RunningSite, cookie: str, path: str = "/dashboard/runs", **headers: str) -> HttpAnswer:
    return await site.ask("GET", path, Cookie=cookie, Accept="text/html", **headers)


async def test_what_a_session_stands_for_is_checked_at_its_first_request(tmp_path: Path) -> None:
    async with http_site(WatchedApi(), data=tmp_path) as site:
        cookies = [await logged_in(site, TOKEN) for _ in range(3)]
    async with http_site(WatchedApi(), data=tmp_path) as site:
        session = (await site.ask("GET", "/session", Cookie=cookies[0])).json
        assert session["identity"] == "token:web"
        changed = {"Cookie": cookies[0], "Sec_Fetch_Site": "same-origin", "X_CSRF_Token": session["csrf_token"]}
        assert (await site.ask("POST", "/echo", b"x", **changed)).status == 200
        assert site.contexts[-1].token == TOKEN
    revoked = WatchedApi()
    revoked.tokens = {}
    async with http_site(revoked, data=tmp_path, pages="/dashboard") as site:
        assert (await site.ask("GET", "/session", Cookie=cookies[0])).json["identity"] == "anonymous"
        assert (await page_of(site, cookies[1])).status == 303
    async with http_site(WatchedApi(), data=tmp_path) as site:
        for cookie, identity in zip(cookies, ("anonymous", "anonymous", "token:web"), strict=True):
            assert (await site.ask("GET", "/session", Cookie=cookie)).json["identity"] == identity


async def test_a_password_that_was_changed_meanwhile_ends_its_sessions(tmp_path: Path) -> None:
    async with http_site(LateApi(), data=tmp_path, pages="/dashboard") as site:
        cookie = await logged_in(site, "open sesame")
        assert (await page_of(site, cookie)).status == 200
    async with http_site(LateApi(), data=tmp_path, pages="/dashboard") as site:
        assert (await page_of(site, cookie)).status == 200
    async with http_site(LateApi(password="another"), data=tmp_path, pages="/dashboard") as site:
        assert (await page_of(site, cookie)).headers["Location"].startswith("/login")
    assert list((tmp_path / SESSIONS_FOLDER).iterdir()) == []


@pytest.mark.parametrize("shown", [TOKEN, "open sesame"])
async def test_a_page_that_is_opened_before_a_server_answers_says_so_and_nothing_else(
    tmp_path: Path, shown: str
) -> None:
    """Nobody has said by then that its browser may see anything."""
    async with http_site(LateApi(), data=tmp_path, pages="/dashboard") as site:
        cookie = await logged_in(site, shown)
        csrf = (await site.ask("GET", "/session", Cookie=cookie)).json["csrf_token"]
    api = LateApi(is_there=False)
    async with http_site(api, data=tmp_path, pages="/dashboard") as site:
        for path in ("/dashboard", "/dashboard/runs", "/dashboard/queues/mail"):
            page = await page_of(site, cookie, path)
            assert (page.status, page.headers["Content-Type"]) == (503, "text/html; charset=utf-8")
            assert b"No server answers" in page.body
            assert b'<a href="/dashboard/queues"' in page.body
            assert b"<form class" not in page.body
        live = await page_of(site, cookie, **{LIVE_HEADER.replace("-", "_"): "1"})
        assert (live.status, live.body) == (503, b"No server answers")
        body = urlencode({"csrf": csrf, "for": "1h"}).encode()
        sent = {"Content_Type": FORM, "Cookie": cookie, "Sec_Fetch_Site": "same-origin"}
        assert (await site.ask("POST", "/dashboard/queues/mail/pause", body, **sent)).status == 303
        for path in ("/login", "/docs/api", "/v1/openapi.json"):
            assert (await page_of(site, cookie, path)).status == 200
        assert (await site.ask("GET", "/session", Cookie=cookie)).json["reason"] == "SERVER_UNREACHABLE"
        api.is_there = True
        page = await page_of(site, cookie)
        assert (page.status, b"no server answers" in page.body) == (200, True), "what the form led to is told"
        assert b"no server answers" not in (await page_of(site, cookie)).body


async def test_a_page_does_not_wait_for_a_server_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_site(LateApi(), data=tmp_path, pages="/dashboard") as site:
        cookie = await logged_in(site, TOKEN)
    monkeypatch.setattr(credential_checks, "AGAIN_WITHIN_S", 0.01)
    async with http_site(LateApi(hangs=True), data=tmp_path, pages="/dashboard") as site:
        page = await page_of(site, cookie)
        assert (page.status, b"No server answers" in page.body) == (503, True)


async def test_without_a_data_folder_it_ends_with_its_process(tmp_path: Path) -> None:
    async with http_site(WatchedApi()) as site:
        cookie = await logged_in(site, TOKEN)
    async with http_site(WatchedApi()) as site:
        assert (await site.ask("GET", "/session", Cookie=cookie)).json["identity"] == "anonymous"


# -- the program -------------------------------------------------------------------------------------------------------


def replaced(server: RunningServer, number: signal.Signals) -> None:
    """Have another HTTP process in the place of this one."""
    begun_at = len(server.events)
    if number == signal.SIGHUP:
        os.kill(server.process.pid, number)
        server.wait_for("api_ready", after=begun_at)
    else:
        os.kill([event["api"] for event in server.events if event["event"] == "api_ready"][-1], number)
        server.wait_for("api_replaced", after=begun_at)


def test_a_browser_stays_logged_in_when_the_process_is_killed_or_replaced(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0") as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        password = (tmp_path / "pinlater-data" / "admin-password").read_text().strip()
        shell = Shell(tmp_path, f"127.0.0.1:{server.port}")
        tokens = [shell("token", "create", name, "--role", "operator").out.split()[-1] for name in ("web", "old")]
        leaving, staying = (Visitor(address).open(password=password) for _ in range(2))
        by_token, revoked = (Visitor(address).open(token=token) for token in tokens)
        csrf = csrf_of(leaving.get("/dashboard").text)
        shell("token", "revoke", "old")
        replaced(server, signal.SIGKILL)
        assert csrf_of(leaving.get("/dashboard").text) == csrf
        assert leaving.send("/logout", {"csrf": csrf}).status_code == 303
        revoked.get("/dashboard", status=303)
        replaced(server, signal.SIGHUP)
        leaving.get("/dashboard", status=303)
        assert "anna@laptop" in staying.text("/dashboard")
        by_token.get("/dashboard")
        assert len(list((tmp_path / "pinlater-data" / SESSIONS_FOLDER).iterdir())) == 2
