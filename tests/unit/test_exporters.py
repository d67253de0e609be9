"""The exporters of a server: what is imported for a configuration, and what is missing for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pinlater.web.exporters import missing_package

HEAVY = {"aiohttp", "prometheus_client", "statsd"}


def test_a_supervisor_imports_no_http_server_no_driver_and_nothing_of_its_children() -> None:
    code = "import sys; import pinlater.cli.serve; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    children = {
        f"pinlater.{part}" for part in ("app", "service", "maintenance", "overflow", "cluster", "web.status_site")
    }
    clients = {"pinlater.client.client", "pinlater.client.async_client", "thriftpy2"}
    assert not (HEAVY | children | clients | {"apscheduler", "redis", "sqlalchemy", "sqlite3"}) & set(
        done.stdout.split()
    )


@pytest.mark.parametrize(("http", "statsd"), [("127.0.0.1:9011", ""), ("none", "127.0.0.1:8125")])
def test_a_package_that_is_missing_is_named(http: str, statsd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_package(http, "auto", statsd) is None
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert missing_package(http, "auto", statsd) == "prometheus_client"
    assert missing_package("none", "127.0.0.1:9012", "") is None
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert missing_package("none", "127.0.0.1:9012", "") == "aiohttp"
    assert missing_package("none", "auto", "") is None
