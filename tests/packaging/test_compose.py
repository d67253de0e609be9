"""Compose's files: their services run as they stand, and a worker does the jobs that their pages begin with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.packaging.compose_services import OURS, RunningServices, services_of
from tests.packaging.conftest import ROOT
from tests.packaging.image_steps import image_of_checkout
from tests.packaging.scratch_root import eventually

COMPOSE = ROOT / "conf" / "compose"
FILES = sorted(COMPOSE.glob("*.yaml"))
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a root folder of its own")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_service_names_is_there(path: Path) -> None:
    text = yaml.safe_load(path.read_text())
    for service in services_of(path, {}):
        assert set(service.needs.values()) <= {"service_healthy", "service_completed_successfully", "service_started"}
        for source in service.mounts.values():
            assert (path.parent / source).exists() if source.startswith(".") else source in text["volumes"]
        published = service.settings.get("ports", [])
        assert all(port.startswith("127.0.0.1:") for port in published), "other machines reach it"
        built = service.settings.get("build")
        if built is not None:
            assert (path.parent / built["context"] / built["dockerfile"]).resolve().is_file()
        assert (service.settings["image"] == OURS) == service.settings["image"].startswith("pinlater")


def test_both_files_have_the_same_worker_and_the_same_password() -> None:
    one, other = (yaml.safe_load(path.read_text())["services"] for path in FILES)
    assert all(one[name] == other[name] for name in ("worker", "password"))
    assert {"redis", "prometheus", "grafana"} <= one.keys()
    assert "postgres" in other


def test_grafana_finds_its_dashboards_and_its_data_source() -> None:
    (grafana,) = [each for each in services_of(COMPOSE / "compose.yaml", {}) if each.name == "grafana"]
    (provider,) = yaml.safe_load((COMPOSE / "grafana" / "dashboards" / "pinlater.yaml").read_text())["providers"]
    shown = grafana.mounts[provider["options"]["path"]]
    assert {path.name for path in (COMPOSE / shown).glob("*.json")} == {"pinlater.json", "workers.json"}
    (source,) = yaml.safe_load((COMPOSE / "grafana" / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert (source["url"], source["isDefault"]) == ("http://prometheus:9090", True)


@pytest.mark.store("prometheus")
def test_prometheus_would_take_its_file(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.fail("promtool is not installed: apt-get install prometheus (or leave it out: --without prometheus)")
    (prometheus,) = [each for each in services_of(COMPOSE / "compose.yaml", {}) if each.name == "prometheus"]
    for target, source in prometheus.mounts.items():
        if source.startswith("."):
            shutil.copy(COMPOSE / source, tmp_path / Path(target).name)
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout


ASK = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


def does_the_jobs_of_its_page(up: RunningServices) -> None:
    """What the head of compose.yaml says, command by command."""
    up.run("worker", "python", "jobs.py")

    def all_done() -> None:
        levels = json.loads(up.run("server", "pinlater", "queue", "stats", "greetings", "-o", "json"))
        assert sum(level["succeeded"] for level in levels) == 3, levels

    eventually(all_done)
    link = up.run("server", "pinlater", "dashboard", "--print", "--url", "http://127.0.0.1:9012")
    assert re.search(r"http://127\.0\.0\.1:9012/\S+", link)
    up.run("server", "pinlater", "queue", "pause", "greetings", "--why", "trying it out")
    assert "greetings" in up.run("server", "python", "-c", ASK, "http://127.0.0.1:9011/metrics")


@only_root
@pytest.mark.slow
@pytest.mark.store("redis", "prometheus")
def test_the_services_with_redis_do_jobs_and_prometheus_sees_them() -> None:
    with image_of_checkout() as (image, root, start):
        up = RunningServices(COMPOSE / "compose.yaml", image, root, start)
        up.up()
        does_the_jobs_of_its_page(up)

        def all_seen() -> None:
            answer = json.loads(up.run("server", "python", "-c", ASK, "http://prometheus:9090/api/v1/query?query=up"))
            seen = {each["metric"]["job"]: each["value"][1] for each in answer["data"]["result"]}
            assert seen == {"pinlater": "1", "pinlater-worker": "1"}

        eventually(all_seen)
        rules = json.loads(up.run("server", "python", "-c", ASK, "http://prometheus:9090/api/v1/rules"))
        assert len(rules["data"]["groups"][0]["rules"]) > 10


@only_root
@pytest.mark.slow
@pytest.mark.store("postgres")
def test_the_services_with_postgresql_do_jobs() -> None:
    with image_of_checkout() as (image, root, start):
        up = RunningServices(COMPOSE / "postgresql.yaml", image, root, start)
        up.up()
        does_the_jobs_of_its_page(up)
        assert up.run("server", "pinlater", "flow", "list") == ""
