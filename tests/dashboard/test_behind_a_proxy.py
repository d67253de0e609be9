"""The site below a path of a reverse proxy: whatever it links to, sends to or is sent to is below that path too."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from pinlater import Client
from pinlater.cli.dashboard_link import Shown, make_link, read_address
from pinlater.config.values import UrlPrefix
from pinlater.dashboard.site import DashboardSettings, add_dashboard
from pinlater.http.path_prefix import LINK_ATTRIBUTES, PathPrefix
from pinlater.http.site import HttpSettings, make_app
from tests.browser.pages import PAGES
from tests.browser.seed import Seeded, seed, workers_alive
from tests.dashboard.reverse_proxy import ReverseProxy, proxying
from tests.dashboard.visitor import OF_A_BROWSER, csrf_of
from tests.server.commands import Shell
from tests.server.http_site import WatchedApi
from tests.server.running import running

PREFIX = "/ops/queue"
ATTRIBUTE = re.compile(r'\s([a-z-]+)="(/[^"]*)"')
GOES_ON = re.compile(r'content="0;url=([^"]*)"')
POSTED = re.compile(r'<form[^>]*\smethod="post"[^>]*\saction="([^"]*)"')
MOST_OF_A_KIND = 2


class Site(NamedTuple):
    """One that has been told where it is. `address`: without a proxy, as its log says it."""

    address: str
    folder: Path
    client: Client
    port: int
    password: str
    seeded: Seeded


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("prefixed")
    with running(folder, "--api", "127.0.0.1:0", "--api-prefix", f"{PREFIX}/") as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        password = (folder / "pinlater-data" / "admin-password").read_text().strip()
        with Client(f"127.0.0.1:{server.port}") as client:
            seeded = seed(client, password)
            with workers_alive(client, seeded):
                yield Site(address, folder, client, server.port, password, seeded)


@pytest.fixture(params=[False, True], ids=["passes it on", "strips"])
def proxy(request: pytest.FixtureRequest, site: Site) -> Iterator[ReverseProxy]:
    with proxying(site.address.removesuffix(PREFIX), PREFIX, strips=request.param) as proxy:
        yield proxy
        assert proxy.outside == []


@pytest.fixture
def browser(proxy: ReverseProxy, site: Site) -> Iterator[httpx.Client]:
    """With the admin password, by a link that came through the proxy."""
    link = make_link(proxy.address, Shown("", site.password, "anna@laptop"))
    assert link.startswith(f"{proxy.address}/dashboard/open/")
    with httpx.Client(base_url=proxy.origin, timeout=60.0, trust_env=False, headers={"Accept": "text/html"}) as client:
        opened = client.get(link)
        assert opened.status_code == 200, opened.text
        assert f"Path={PREFIX};" in opened.headers["Set-Cookie"]
        assert GOES_ON.findall(opened.text) == [f"{PREFIX}/dashboard"]
        yield client


def is_inside(address: str) -> bool:
    return address == PREFIX or address.startswith(f"{PREFIX}/")


def kind(address: str) -> str:
    """The same for addresses that one route answers in the same way."""
    parts = urlsplit(address)
    path = re.sub(r"/(flows|jobs|queues|runs|schedules)/[^/]+", r"/\1/*", parts.path)
    return f"{path}?{sorted(dict(parse_qsl(parts.query)))}"


def test_everything_that_pages_lead_to_is_there(browser: httpx.Client, site: Site) -> None:
    begin = [f"{PREFIX}/", f"{PREFIX}/login", f"{PREFIX}/docs"]
    begin += [PREFIX + each.address(site.seeded) for each in PAGES]
    waiting, known, kinds, forms = list(begin), set(begin), Counter[str](), set[str]()
    while waiting:
        address = waiting.pop()
        answer = browser.get(address)
        assert answer.status_code < 400, (address, answer.status_code, answer.text[:300])
        found = [each] if (each := answer.headers.get("Location")) else []
        if answer.headers["Content-Type"].startswith("text/html"):
            page = answer.text
            links = ((name, html.unescape(value)) for name, value in ATTRIBUTE.findall(page))
            posted = {html.unescape(each) for each in POSTED.findall(page)}
            found += [value for name, value in links if name != "value" and value not in posted]
            forms |= posted
        for each in found:
            assert is_inside(each), (address, each)
            each = each.partition("#")[0]
            if each not in known and kinds[kind(each)] < MOST_OF_A_KIND:
                kinds[kind(each)] += 1
                known.add(each)
                waiting.append(each)
    assert any("/static/" in each for each in known)
    assert any(each.endswith("/docs.js") for each in known)
    assert any("/completions" in each for each in known)
    assert len({kind(each) for each in forms}) > 15
    for form in sorted(forms):
        assert is_inside(form), form
        answer = browser.post(form, data={"csrf": "of another site"}, headers=OF_A_BROWSER)
        assert (answer.status_code, answer.json()["reason"]) == (403, "FORBIDDEN"), (form, answer.text[:300])


def test_the_parts_of_an_open_page_lead_where_the_page_does(browser: httpx.Client, site: Site) -> None:
    for path in (each.address(site.seeded) for each in PAGES):
        answer = browser.get(PREFIX + path, headers={"X-Live": "1", "X-Parts": "none"})
        if answer.headers["Content-Type"].startswith("application/json"):
            text = "".join(part[1] for part in answer.json())
            links = [html.unescape(value) for name, value in ATTRIBUTE.findall(text) if name in ("href", "action")]
            assert [each for each in links if each.startswith("/") and not is_inside(each)] == [], path


def test_changes_and_the_login_lead_back_below_the_path(browser: httpx.Client, site: Site) -> None:
    def send(path: str, **form: str) -> httpx.Response:
        return browser.post(path, data=form, headers=OF_A_BROWSER)

    page = f"{PREFIX}/dashboard/queues/empty"
    done = send(f"{page}/pause", csrf=csrf_of(browser.get(page).text), why="behind a proxy")
    assert (done.status_code, done.headers["Location"]) == (303, page)
    assert "behind a proxy" in browser.get(page).text

    left = send(f"{PREFIX}/logout", csrf=csrf_of(browser.get(page).text))
    assert (left.status_code, left.headers["Location"]) == (303, f"{PREFIX}/login")
    assert f"Path={PREFIX};" in left.headers["Set-Cookie"]
    assert "Clear-Site-Data" not in left.headers, "others are at home under this name too"
    assert not browser.cookies

    to_login = browser.get(page)
    assert (to_login.status_code, to_login.headers["Location"]) == (303, f"{PREFIX}/login?next=/dashboard/queues/empty")
    for after in ("/dashboard/jobs?filter=a", f"{PREFIX}/dashboard/jobs?filter=a"):  # as the site, and as its scripts
        form = csrf_of(browser.get(to_login.headers["Location"]).text)
        entered = send(f"{PREFIX}/login", csrf=form, token=site.password, next=after)
        assert (entered.status_code, entered.headers["Location"]) == (303, f"{PREFIX}/dashboard/jobs?filter=a")
        assert browser.get(entered.headers["Location"]).status_code == 200


def test_programs_are_below_the_path_too(proxy: ReverseProxy, site: Site) -> None:
    with httpx.Client(base_url=proxy.address, timeout=60.0, trust_env=False) as program:
        assert program.get("/v1/openapi.json").json()["servers"] == [{"url": PREFIX}]
        assert program.get("/v1/nothing").status_code == 404
        assert program.post("/v1/queues/empty/jobs", json={"body": "x"}).status_code == 201
        with program.stream("GET", "/v1/events", params={"queue": "empty"}) as events:
            assert events.headers["Content-Type"].startswith("text/event-stream")
            begin = next(line for line in events.iter_lines() if line.startswith("event:"))
            assert begin in ("event: change", "event: counts")


def test_without_the_proxy_it_answers_under_both_addresses(site: Site) -> None:
    bare = site.address.removesuffix(PREFIX)
    assert site.address == f"{bare}{PREFIX}"
    assert read_address(site.folder / "pinlater-data") == site.address
    for path in ("/v1/status", f"{PREFIX}/v1/status", PREFIX, f"{PREFIX}?a=1"):
        assert httpx.get(bare + path, trust_env=False, timeout=60.0).status_code == 200, path
    for path in (f"{PREFIX}x/v1/status", f"{PREFIX}{PREFIX}/v1/status", f"{PREFIX}//v1/status"):
        assert httpx.get(bare + path, trust_env=False, timeout=60.0).status_code == 404, path
    shell = Shell(site.folder, f"127.0.0.1:{site.port}")
    assert shell("dashboard", "--print").out.startswith(f"{site.address}/dashboard/open/")
    variables = {"PINLATER_ADMIN_PASSWORD": site.password}
    for url in (bare, site.address, f"{site.address}/"):
        link = shell("dashboard", "--print", "--url", url, **variables).out.strip()
        assert link.startswith(f"{site.address}/dashboard/open/")
        assert httpx.get(link, trust_env=False, timeout=60.0).status_code == 200
    assert "--api-prefix" in shell("dashboard", "--url", f"{bare}/dashboard", code=2, **variables).err


def test_no_template_and_no_script_writes_an_address_past_the_prefix() -> None:
    dashboard, pages = resources.files("pinlater.dashboard"), resources.files("pinlater.http") / "pages"
    files = [*(dashboard / "templates").iterdir(), *(dashboard / "static").iterdir(), *pages.iterdir()]
    texts = {each.name: each.read_text() for each in files if each.name.endswith((".html", ".js", ".css"))}
    assert len(texts) > 40
    for name, text in texts.items():
        if name.endswith(".html"):
            attributes = {attribute for attribute, _ in ATTRIBUTE.findall(text)}
            assert attributes <= set(LINK_ATTRIBUTES), f"{name}: add the attribute to LINK_ATTRIBUTES"
        elif name.endswith(".js"):
            assert re.findall(r"""["'`]/[a-z][^"'`]*["'`]""", text) == [], f"{name}: take the address from the page"
        else:
            assert "url(/" not in text, name


@pytest.mark.parametrize("path", ["/", "/v1/status", "/dashboard?a=/x", "/opsx", "/ops", "/ops/queues", "//x"])
def test_the_prefix_is_put_before_and_taken_off_once(path: str) -> None:
    prefix = PathPrefix(PREFIX)
    assert prefix.inner(path) == path
    if path == "//x":
        assert prefix.outer(path) == path
    else:
        assert prefix.outer(path) == PREFIX + path
        assert prefix.outer(PREFIX + path) == PREFIX + path
        assert prefix.inner(PREFIX + path) == path
    page = '<a href="{}" title="{path}">href="{path}" &#34;</a><a href="https://other.example{path}">'
    shown = page.format(prefix.outer(path), path=path).encode()
    assert prefix.in_page(page.format(path, path=path).encode()) == shown
    assert prefix.in_page(shown) == shown


async def test_no_prefix_can_be_taken_for_a_path_of_the_interface() -> None:
    app = make_app(WatchedApi(), HttpSettings(pages="/dashboard"))
    add_dashboard(app, DashboardSettings())
    begins = {each.canonical.split("/")[1] for each in app.router.resources()}
    assert begins - {""} == set(UrlPrefix.OWN)
