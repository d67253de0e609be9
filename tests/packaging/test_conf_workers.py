"""The files of conf/ for workers: a manifest that fits the schema, a unit and arguments that the command takes, a
dashboard that names what there is."""

from __future__ import annotations

import json
import re
import shlex
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pinlater_workers.app.settings import WorkerSettings, read_file
from pinlater_workers.cli import main
from pinlater_workers.cli.run import over
from pinlater_workers.observability.metrics import FAMILIES
from tests.packaging.test_conf import CONF, SUFFIXES

MANIFESTS = list(yaml.safe_load_all((CONF / "kubernetes" / "worker.yaml").read_text()))


def parsed(arguments: list[str]) -> tuple[dict[str, Any], WorkerSettings]:
    """What the command makes of its arguments, without running anything."""
    given = main.make_context("pinlater-worker", arguments).params
    beside = ("app", "config", "servers", "cluster", "log_level", "log_format", "reload", "check", "until_empty")
    return given, over(WorkerSettings(), {name: value for name, value in given.items() if name not in beside})


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: str(manifest["kind"]))
def test_kubernetes_would_take_the_manifest(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_command_takes_the_arguments_of_the_manifest() -> None:
    pod = MANIFESTS[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given, settings = parsed(container["args"])
    assert given["app"] == "shop.jobs:app"
    assert dict(settings.queues) == {"mail": 3, "reports": 1}
    assert pod["terminationGracePeriodSeconds"] > settings.grace_s
    (port,) = container["ports"]
    assert settings.http == f"0.0.0.0:{port['containerPort']}"
    servers = {each["metadata"]["name"] for each in yaml.safe_load_all((CONF / "kubernetes/pinlater.yaml").read_text())}
    (server,) = given["servers"]
    assert server.split(":")[1] in servers


def test_the_command_takes_the_arguments_of_the_unit() -> None:
    unit = RawConfigParser(strict=False, comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(CONF / "systemd" / "pinlater-worker@.service")
    given, settings = parsed(shlex.split(unit["Service"]["ExecStart"])[1:])
    assert given["config"] == "/etc/pinlater/%i.toml"
    assert float(unit["Service"]["TimeoutStopSec"]) > settings.grace_s


def test_the_file_that_shows_all_keys_is_one() -> None:
    settings = read_file(CONF / "jobs.toml").worker_settings()
    assert dict(settings.queues) == {"thumbnails": 3, "thumbnails_later": 1}


def test_the_dashboard_names_metrics_and_labels_that_there_are() -> None:
    dashboard = json.loads((CONF / "grafana" / "workers.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    known = {
        f"pinlater_worker_{name}{suffix}": name for name, family in FAMILIES.items() for suffix in SUFFIXES[family.kind]
    }
    shown = set()
    for expression in expressions:
        (name,) = {known[each] for each in re.findall(r"pinlater_worker_[a-z_]+", expression)}
        shown.add(name)
        labels = {*FAMILIES[name].labels, "le", "instance"}
        for listed in re.findall(r"by \(([a-z_, ]+)\)", expression):
            assert set(listed.split(", ")) <= labels, expression
        for label in re.findall(r"([a-z_]+)=~?\"", expression):
            assert label in labels, expression
    assert shown == FAMILIES.keys()


def test_the_page_of_metrics_has_every_metric_as_it_is() -> None:
    page = (Path(CONF).parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    for name, family in FAMILIES.items():
        row = f"| `{name}` | {family.kind} | {', '.join(family.labels) or '-'} | {family.help} |"
        assert row in page, row
