"""The menu of clusters, and links that lead from the dashboard of one to that of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.dashboard.cluster_menu import READ_EVERY_S, ClusterItem, ClusterMenu
from tests.server.http_site import TOKEN, WatchedApi, http_site
from tests.server.test_http_browsers import begun, cookie_of, log_in

FILE = """
[clusters]
local = ["127.0.0.1:9010"]

[clusters.mail]
servers = ["mail-1:9010", "mail-2"]
dashboard = "https://mail.example:9012/queue/"

[clusters.reports]
servers = ["reports-1"]
dashboard = "https://reports.example"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clusters.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("name", "servers", "address", "here"),
    [
        pytest.param("mail", (), "127.0.0.1:9012", "mail", id="by the name that it was started with"),
        pytest.param("", ("127.0.0.1:9010",), "mail.example:9012/queue", "mail", id="by the address"),
        pytest.param("", (), "Reports.example:443", "reports", id="by an address without a port"),
        pytest.param("", ("mail-2:9010",), "127.0.0.1:9012", "mail", id="by a server"),
        pytest.param("gone", ("other:9010",), "127.0.0.1:9012", "", id="it is not there"),
    ],
)
def test_it_has_all_clusters_and_marks_the_one_that_is_shown(
    file: Path, name: str, servers: tuple[str, ...], address: str, here: str
) -> None:
    links = {
        "local": "",
        "mail": "https://mail.example:9012/queue/dashboard",
        "reports": "https://reports.example/dashboard",
    }
    items = ClusterMenu(name, servers, file).items(address)
    assert items == [ClusterItem(each, link, each == here) for each, link in links.items()]


def test_it_follows_the_file_and_is_not_there_without_another_cluster(file: Path) -> None:
    now = [0.0]
    menu = ClusterMenu("mail", (), file, lambda: now[0])
    assert len(menu.items("")) == 3
    for content in ('[clusters]\nmail = ["mail-1"]', 'clusters = "none"', '[clusters.a]\ndashboard = "javascript:1"'):
        file.write_text(content)
        now[0] += READ_EVERY_S
        assert menu.items("") == []
    file.unlink()
    now[0] += READ_EVERY_S
    assert menu.items("") == []
    file.write_text(FILE)
    assert menu.items("") == []
    now[0] += READ_EVERY_S
    assert len(menu.items("")) == 3


async def test_a_page_has_it_and_a_link_from_there_needs_no_new_login(file: Path) -> None:
    async with http_site(WatchedApi(), pages="/dashboard", clusters=ClusterMenu("mail", (), file)) as site:
        cookie = cookie_of(await log_in(site, TOKEN, *await begun(site)))
        page = (await site.ask("GET", "/dashboard/runs", Cookie=cookie)).body.decode()
        assert '<strong aria-current="true">mail</strong>' in page
        assert '<a href="https://reports.example/dashboard">reports</a>' in page
        assert "local</span>" in page
        led = await site.ask("GET", "/dashboard/runs?a=1&b=2", Sec_Fetch_Site="cross-site")
        assert (led.status, "Set-Cookie" in led.headers) == (200, False)  # which would end the browser's session
        assert b'content="0;url=/dashboard/runs?a=1&amp;b=2"' in led.body
        assert b"reports.example" not in led.body
        assert (await site.ask("POST", "/dashboard/runs", Sec_Fetch_Site="cross-site")).status == 403
    async with http_site(WatchedApi(), pages="/dashboard") as site:
        cookie = cookie_of(await log_in(site, TOKEN, *await begun(site)))
        assert b"menu clusters" not in (await site.ask("GET", "/dashboard/runs", Cookie=cookie)).body


async def test_a_page_is_there_where_the_file_does_not_have_its_cluster(file: Path) -> None:
    async with http_site(WatchedApi(), pages="/dashboard", clusters=ClusterMenu("gone", (), file)) as site:
        cookie = cookie_of(await log_in(site, TOKEN, *await begun(site)))
        page = await site.ask("GET", "/dashboard/runs", Cookie=cookie)
        assert (page.status, b">clusters</summary>" in page.body) == (200, True)
