"""Sessions of browsers that outlive the HTTP process, in the data folder."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pinlater.errors import ServerUnreachable
from pinlater.http.session_folder import FOLDER, KEY_FILE
from pinlater.http.sessions import IDLE_S, MAX_AGE_S, MAX_SESSIONS, Credential, Sessions
from pinlater.model import AccessView, RequestContext
from tests.dashboard.visitor import Visitor, csrf_of
from tests.server.http_site import TOKEN, WatchedApi, http_site
from tests.server.running import running
from tests.server.test_http_browsers import begun, cookie_of, log_in

MINE = Credential(TOKEN, identity="token:web", source="anna@laptop")


class Machine:
    """A data folder, the clocks of its machine, and processes that begin there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ticks_s, self.now_s = 1_000.0, 1_700_000_000.0

    def process(self) -> Sessions:
        """Its ticks begin anew, as those of a machine that was started again."""
        begun_s = self.ticks_s
        return Sessions(lambda: self.ticks_s - begun_s, self.folder, lambda: self.now_s)

    def begin(self, sessions: Sessions, credential: Credential = MINE) -> str:
        """By the machine's clock: the file system has another."""
        cookie, session = sessions.begin(credential)
        os.utime(self.file_of(session.key), (self.now_s, self.now_s))
        return cookie

    def file_of(self, key: bytes) -> Path:
        return self.folder / FOLDER / key.hex()

    def files(self) -> list[Path]:
        return sorted((self.folder / FOLDER).iterdir())

    def wait(self, seconds: float) -> None:
        self.ticks_s += seconds
        self.now_s += seconds


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_next_process_knows_a_session_and_has_it_checked(machine: Machine) -> None:
    sessions = machine.process()
    cookie = machine.begin(sessions)
    before = sessions.find(cookie)
    assert before is not None
    assert before.is_checked
    found = machine.process().find(cookie)
    assert found is not None
    assert (found.credential, found.csrf, found.is_checked) == (MINE, before.csrf, False)


def test_it_ends_by_age_and_by_rest_over_any_number_of_processes(machine: Machine) -> None:
    cookie = machine.begin(machine.process())
    for _ in range(int(MAX_AGE_S / IDLE_S * 2) - 1):
        machine.wait(IDLE_S / 2)
        assert machine.process().find(cookie) is not None
    machine.wait(IDLE_S / 2)
    sessions = machine.process()
    assert sessions.find(cookie) is None
    assert (machine.files(), len(sessions.kept)) == ([], 0)
    resting = machine.begin(machine.process())
    machine.wait(IDLE_S)
    assert machine.process().find(resting) is None
    assert machine.files() == []


def test_a_clock_that_was_set_back_makes_none_last_longer(machine: Machine) -> None:
    cookie = machine.begin(machine.process())
    machine.now_s -= IDLE_S
    assert machine.process().find(cookie) is None


def test_a_logout_counts_in_each_process_of_the_folder(machine: Machine) -> None:
    leaving, coming = machine.process(), machine.process()
    cookie = machine.begin(leaving)
    assert coming.find(cookie) is not None
    leaving.end(cookie)
    assert coming.find(cookie) is None
    assert machine.process().find(cookie) is None
    assert machine.files() == []


def test_what_is_on_disk_says_nothing_without_key_and_cookie(machine: Machine) -> None:
    sessions = machine.process()
    cookie = machine.begin(sessions, Credential(None, "open sesame", "admin", "anna@laptop"))
    (path,) = machine.files()
    key = machine.folder / KEY_FILE
    assert [each.stat().st_mode & 0o777 for each in (path, key, path.parent)] == [0o600, 0o600, 0o700]
    content = path.read_bytes()
    for secret in ("open sesame", "admin", "anna", cookie, str(sessions.find(cookie).csrf)):  # type: ignore[union-attr]
        assert secret.encode() not in content + path.name.encode() + key.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        os.utime(path, (machine.now_s, machine.now_s))
        assert machine.process().find(cookie) is None, at
        path.write_bytes(content)
        os.utime(path, (machine.now_s, machine.now_s))
    other = machine.begin(machine.process())
    stolen = next(each for each in machine.files() if each != path)
    os.replace(path, stolen)  # another's session under a cookie of one's own
    assert machine.process().find(other) is None


@pytest.mark.parametrize("harm", ["gone", "open to others", "torn"])
def test_with_another_key_all_have_ended(machine: Machine, harm: str) -> None:
    cookie = machine.begin(machine.process())
    key = machine.folder / KEY_FILE
    before = key.read_bytes()
    if harm == "gone":
        key.unlink()
    elif harm == "torn":
        key.write_bytes(before[:-1])
    else:
        key.chmod(0o640)
    sessions = machine.process()
    assert sessions.find(cookie) is None
    assert key.read_bytes() != before
    assert machine.process().find(machine.begin(sessions)) is not None


def test_who_has_most_gives_way_over_processes_too(machine: Machine) -> None:
    cookie = machine.begin(machine.process())
    other = Credential("plt_other", identity="token:other")
    sessions = machine.process()
    for _ in range(MAX_SESSIONS // 2):
        machine.begin(sessions, other)
    sessions = machine.process()
    for _ in range(MAX_SESSIONS // 2 + 1):
        machine.begin(sessions, other)
    assert len(machine.files()) == MAX_SESSIONS
    assert machine.process().find(cookie) is not None


def test_without_a_folder_that_can_be_used_they_end_with_the_process(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("")
    sessions = Sessions(data=tmp_path)
    cookie, session = sessions.begin(MINE)
    assert sessions.find(cookie) is session
    assert Sessions(data=tmp_path).find(cookie) is None


class LateApi(WatchedApi):
    """No server answers until it is there."""

    is_there = False

    async def get_access(self, *, context: RequestContext | None = None) -> AccessView:
        if not self.is_there:
            raise ServerUnreachable("no server answers")
        return await super().get_access(context=context)

    async def delete_queue(self, *_: object, **__: object) -> None:
        return None


async def test_what_a_session_stands_for_is_checked_at_its_first_request(tmp_path: Path) -> None:
    async with http_site(WatchedApi(), data=tmp_path) as site:
        cookies = [cookie_of(await log_in(site, TOKEN, *await begun(site))) for _ in range(2)]
    async with http_site(WatchedApi(), data=tmp_path) as site:
        session = (await site.ask("GET", "/session", Cookie=cookies[0])).json
        assert session["identity"] == "token:web"
        changed = {"Cookie": cookies[0], "Sec_Fetch_Site": "same-origin", "X_CSRF_Token": session["csrf_token"]}
        assert (await site.ask("POST", "/echo", b"x", **changed)).status == 200
        assert site.contexts[-1].token == TOKEN
    revoked = WatchedApi()
    revoked.tokens = {}
    async with http_site(revoked, data=tmp_path) as site:
        assert (await site.ask("GET", "/session", Cookie=cookies[0])).json["identity"] == "anonymous"
    async with http_site(WatchedApi(), data=tmp_path) as site:
        assert (await site.ask("GET", "/session", Cookie=cookies[0])).json["identity"] == "anonymous"
        assert (await site.ask("GET", "/session", Cookie=cookies[1])).json["identity"] == "token:web"


async def test_an_unproved_password_opens_nothing_while_no_server_answers(tmp_path: Path) -> None:
    api = LateApi()
    api.is_there = True
    async with http_site(api, data=tmp_path) as site:
        cookies = [cookie_of(await log_in(site, shown, *await begun(site))) for shown in (TOKEN, "open sesame")]
    api = LateApi()
    async with http_site(api, data=tmp_path) as site:
        by_token, by_password = [await site.ask("GET", "/session", Cookie=each) for each in cookies]
        assert (by_token.status, by_password.status) == (200, 503)
        api.is_there = True
        assert (await site.ask("GET", "/session", Cookie=cookies[1])).json["identity"] == "admin"


def test_a_browser_stays_logged_in_when_the_process_is_killed_or_replaced(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0") as server:
        ready = server.wait_for("api_ready")
        address = str(ready["address"]).rstrip("/")
        password = (tmp_path / "pinlater-data" / "admin-password").read_text().strip()
        visitor, other = (Visitor(address).open(password=password) for _ in range(2))
        csrf = csrf_of(visitor.get("/dashboard").text)
        begun_at = len(server.events)
        os.kill(ready["api"], signal.SIGKILL)
        server.wait_for("api_replaced", after=begun_at)
        page = visitor.get("/dashboard").text
        assert "anna@laptop" in page
        assert csrf_of(page) == csrf
        assert visitor.send("/logout", {"csrf": csrf}).status_code == 303
        begun_at = len(server.events)
        os.kill(server.process.pid, signal.SIGHUP)
        server.wait_for("api_ready", after=begun_at)
        visitor.get("/dashboard", status=303)
        other.get("/dashboard")
